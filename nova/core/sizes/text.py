"""Reads the text form of sizes, as `str` writes it: `B*64 + 1`, `(S + 31) // 32`, `min(B, 128)`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nova.core.sizes.algebra import Dim, Size, size_max, size_min, size_of, symbols_of
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


def parse_shape(text: str, dims: Mapping[str, Dim] | None = None) -> tuple[Size, ...]:
    """The sizes of a text like `B*2,min(S, 128),64`."""
    try:
        tree = ast.parse(f"({text.strip()},)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _no_size(text) from None
    if not isinstance(tree, ast.Tuple):
        raise _no_size(text)
    return tuple(_parsed(item, text, dims) for item in tree.elts)


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


def print_dim(dim: Dim) -> str:
    """A symbol with its bounds: `B=1..4096`."""
    return f"{dim.name}={dim.min}..{dim.max}"


def parse_dim(text: str) -> Dim:
    """The symbol with this text; AttributeValueError if it does not parse."""
    match = _DIM.fullmatch(text.strip())
    if match is None or len(max(match[2], match[3], key=len)) > _MOST_DIGITS:
        raise AttributeValueError(f"{text!r} is not a dim", hint='as in "B=1..4096"')
    dim = Dim(match[1], int(match[2]), int(match[3]))
    if dim.min > dim.max or dim.name in _CHOICES:
        raise AttributeValueError(f"{text!r} is not a dim", hint='as in "B=1..4096"')
    return dim


def print_sizes(sizes: Iterable[Size]) -> str:
    """Sizes with the bounds of their symbols: `B*2 x 64 | B=1..4096`."""
    sizes = tuple(sizes)
    dims = ", ".join(map(print_dim, symbols_of(sizes)))
    return " x ".join(map(str, sizes)) + (f" | {dims}" if dims else "")


def parse_sizes(text: str) -> tuple[Size, ...]:
    """The sizes with this text."""
    body, _, declared = text.partition("|")
    dims = {dim.name: dim for dim in map(parse_dim, declared.split(",") if declared else ())}
    return tuple(parse_size(part, dims) for part in body.split(" x ")) if body.strip() else ()


_DIM = re.compile(r"([A-Za-z_]\w*)=(\d+)\.\.(\d+)", re.ASCII)
_MOST_DIGITS = 20
