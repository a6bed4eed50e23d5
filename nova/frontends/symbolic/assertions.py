"""Assertions of jax about the sizes of a program: each bounds a dim, or equates two sizes.

A program for sizes `2*a + 1` asserts that `(n - 1) % 2` is 0. The remainder of a number that may be
negative is not a size, so sizes that contradict an assertion of the program are excluded first, by
computing the assertions for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.sizes import Dim, Size, SizeExpr, substitute, symbols_of
from nova.errors import SymbolicImportError
from nova.frontends.symbolic.infer import Inference
from nova.frontends.symbolic.predicates import decide
from nova.frontends.symbolic.stablehlo_elements import ELEMENTS, objects
from nova.ir.bindings import ir

ASSERTION = "shape_assertion"
_MOST_LEAST = 64
"""Lower bounds that assertions may give a dim in this way."""


def infer_assertion(i: Inference, op: Any) -> None:
    """Record what an assertion says about the dims."""
    message = op.attributes["error_message"].value if "error_message" in op.attributes else ""
    subject = f"an assertion of the program about its sizes: {message}".rstrip()
    elements = i.find(op.operands[0])
    claim: Any = None if elements is None else elements.item()
    if claim is True:
        return
    function = getattr(claim, "function", None)
    if function == "EQ":
        i.equations.equate(claim.first, claim.second, subject)
    elif function in ("GE", "GT", "LE", "LT"):
        large, small = claim.first, claim.second
        if function in ("LE", "LT"):
            large, small = small, large
        i.equations.at_least(large - small, int(function in ("GT", "LT")), subject)
    else:
        _exclude_least(i, op)
        raise SymbolicImportError(subject)


def _exclude_least(i: Inference, op: Any) -> None:
    """Raise the lower bound of a dim of an assertion, if an assertion of the block is false."""
    sizes = _Values(i, None, 0).read_sizes(op.operands[0])
    claims = [other.operation.operands[0] for other in op.block.operations if _asserts(other)]
    for dim in symbols_of(sizes):
        values = _Values(i, dim, dim.min)
        if dim.min < _MOST_LEAST and any(values.find(claim) is False for claim in claims):
            i.equations.exclude_least(dim)


def _asserts(op: Any) -> bool:
    op = op.operation
    is_call = op.name == "stablehlo.custom_call"
    return is_call and op.attributes["call_target_name"].value == ASSERTION


class _Values:
    """The elements of integers of a program where one of its dims is a number."""

    def __init__(self, inference: Inference, dim: Dim | None, number: int):
        self._inference, self._dim, self._number = inference, dim, number
        self._elements: dict[Any, np.ndarray | None] = {}
        self._sizes: list[SizeExpr] = []

    def find(self, value: Any) -> bool | None:
        """The truth of a value; None if it depends on other dims."""
        elements = self._compute(value)
        return None if elements is None else decide(elements.item())

    def read_sizes(self, value: Any) -> list[SizeExpr]:
        """The sizes that a value is computed from."""
        self._compute(value)
        return self._sizes

    def _compute(self, value: Any) -> np.ndarray | None:
        if value not in self._elements:
            self._elements[value] = self._compute_op(value)
        return self._elements[value]

    def _compute_op(self, value: Any) -> np.ndarray | None:
        op = value.owner
        if isinstance(op, ir.Block):
            return None
        op = op.operation
        if op.name == "stablehlo.get_dimension_size":
            axis = op.attributes["dimension"].value
            return objects([self._fixed(self._inference.shape(op.operands[0])[axis])], ())
        row = ELEMENTS.get(op.name)
        arrays = [self._compute(operand) for operand in op.operands]
        known = [array for array in arrays if array is not None]
        return row(op, *known) if row is not None and len(known) == len(arrays) else None

    def _fixed(self, size: Size) -> Size:
        if isinstance(size, SizeExpr):
            self._sizes.append(size)
            if self._dim is not None:
                return substitute(size, {self._dim.name: self._number})
        return size
