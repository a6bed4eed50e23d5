"""Reads the text form of sizes, as `str` writes it: `B*64 + 1`, `(S + 31) // 32`, `min(B, 128)`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from nova.core.sizes.algebra import Dim, Size, size_max, size_min, size_of
from nova.errors import AttributeValueError


def parse_size(text: str, dims: Mapping[str, Dim] | None = None) -> Size:
    """The size with this text. `dims` has the bounds of symbols; without it they are unbounded."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _no_size(text) from None
    return _parsed(tree, text, dims)


def _parsed(node: ast.expr, text: str, dims: Mapping[str, Dim] | None) -> Size:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            if dims is not None and name not in dims:
                raise AttributeValueError(
                    f"the size {text!r} names {name!r}, which is not a dim of the program"
                )
            return size_of(Dim(name) if dims is None else dims[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parsed(operand, text, dims)
        case ast.BinOp(left=first, op=sign, right=second) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_parsed(first, text, dims), _parsed(second, text, dims))
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=[first, second], keywords=[]):
            return _CHOICES[name](_parsed(first, text, dims), _parsed(second, text, dims))
        case _:
            raise _no_size(text)


def _no_size(text: str) -> AttributeValueError:
    return AttributeValueError(
        f"{text!r} is not a size", hint='a number or an expression like "B*64 + 1"'
    )


_SIGNS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_CHOICES: dict[str, Callable[[Any, Any], Size]] = {"max": size_max, "min": size_min}
