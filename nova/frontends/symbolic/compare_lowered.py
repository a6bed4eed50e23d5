"""Compares two lowerings of one symbolic program, which differ in their representatives.

A lowering that folds a size into other numbers bakes it into the code. The number then depends on
the representative, and stands for no expression, or for another one in the second lowering. In: two
modules at the stage `linalg`. Out: nothing, or a SymbolicImportError at the first such op.
"""

from __future__ import annotations

from typing import Any

from nova.core.sizes import known_equal
from nova.errors import LoweringError, SymbolicImportError
from nova.frontends.checks import place
from nova.frontends.symbolic.importer import HINT, table_of
from nova.ir.attributes import DIMS, SIGNATURE
from nova.ir.bindings import ir
from nova.ir.linalg.generic import read_access
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import every_op

_MOST_FOLDED = 4096
_TABLE = (DIMS.name, SIGNATURE.name)
"""Attributes that have the representatives themselves."""


def compare_lowered(first: ir.Module, second: ir.Module, filename: str) -> None:
    """Refuse a program whose lowering depends on the numbers that stand for its sizes."""
    comparison = _Comparison(table_of(first), table_of(second))
    operations = (every_op(module, outer_first=True) for module in (first, second))
    for one, other in zip(*operations, strict=False):
        reason = comparison.differs(one, other)
        if reason:
            raise SymbolicImportError(
                f"the code of {one.name} would be right for one size only: {reason}",
                where=place(one, filename),
                hint=HINT,
            )


class _Comparison:
    def __init__(self, first: SizeTable, second: SizeTable):
        self.first, self.second = first, second

    def differs(self, one: Any, other: Any) -> str:
        """What is different in two ops; empty if nothing is."""
        if one.name != other.name or len(one.operands) != len(other.operands):
            return f"it is {other.name} for other sizes"
        for a, b in zip(
            (*one.results, *one.operands), (*other.results, *other.operands), strict=False
        ):
            if reason := self._types(a.type, b.type):
                return reason
        if list(one.attributes) != list(other.attributes):
            return "other attributes"
        for name in (name for name in one.attributes if name not in _TABLE):
            if reason := self._attributes(one.attributes[name], other.attributes[name]):
                return f"{name}: {reason}"
        return ""

    def _types(self, one: Any, other: Any) -> str:
        if str(one) == str(other):
            return ""
        if isinstance(one, ir.FunctionType) and isinstance(other, ir.FunctionType):
            pairs = zip((*one.inputs, *one.results), (*other.inputs, *other.results), strict=True)
            return next(filter(None, (self._types(a, b) for a, b in pairs)), "")
        tensors = all(isinstance(t, ir.RankedTensorType) for t in (one, other))
        if (
            not tensors
            or str(one.element_type) != str(other.element_type)
            or one.rank != other.rank
        ):
            return f"{one} and {other}"
        return next(
            filter(None, (self._sizes(a, b) for a, b in zip(one.shape, other.shape, strict=True))),
            "",
        )

    def _sizes(self, one: int, other: int) -> str:
        """Compares two numbers that codegen reads as sizes."""
        try:
            sizes = self.first.size(one), self.second.size(other)
        except LoweringError as error:
            return error.what
        return "" if known_equal(*sizes) else f"{one} is {sizes[0]}, and {other} is {sizes[1]}"

    def _positions(self, one: int, other: int) -> str:
        """Compares two integer constants."""
        try:
            sizes = self.first.position(one), self.second.position(other)
        except LoweringError as error:
            return error.what
        return "" if known_equal(*sizes) else f"{one} is {sizes[0]}, and {other} is {sizes[1]}"

    def _attributes(self, one: Any, other: Any) -> str:
        if isinstance(one, ir.IntegerAttr) and isinstance(other, ir.IntegerAttr):
            # The same number in both is static, unless it is read as a size.
            return self._positions(int(one.value), int(other.value))
        if _is_data(one) or str(one) == str(other):
            return ""
        if isinstance(one, ir.TypeAttr) and isinstance(other, ir.TypeAttr):
            return self._types(one.value, other.value)
        if isinstance(one, ir.AffineMapAttr) and isinstance(other, ir.AffineMapAttr):
            return self._maps(one, other)
        for kind in (ir.DenseI64ArrayAttr, ir.ArrayAttr):
            if isinstance(one, kind) and isinstance(other, kind) and len(one) == len(other):
                compare = self._sizes if kind is ir.DenseI64ArrayAttr else self._attributes
                pairs = zip(list(one), list(other), strict=True)
                return next(filter(None, (compare(a, b) for a, b in pairs)), "")
        if isinstance(one, ir.DictAttr) and isinstance(other, ir.DictAttr):
            entries = [(one[i].attr, other[i].attr) for i in range(min(len(one), len(other)))]
            return next(filter(None, (self._attributes(*pair) for pair in entries)), "")
        return f"{one} and {other}"

    def _maps(self, one: Any, other: Any) -> str:
        try:
            accesses = read_access(one.value), read_access(other.value)
        except LoweringError as error:
            return error.what
        if accesses[0].coefficients != accesses[1].coefficients:
            return "a stride is a size"
        pairs = zip(accesses[0].constants, accesses[1].constants, strict=True)
        return next(filter(None, (self._sizes(a, b) for a, b in pairs)), "")


def _is_data(attribute: Any) -> bool:
    """Whether an attribute is a constant of the program: folding makes small ones only."""
    return isinstance(attribute, ir.DenseElementsAttr) and len(attribute) > _MOST_FOLDED
