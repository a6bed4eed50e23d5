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
    for lhs, rhs in zip(*operations, strict=False):
        reason = comparison.differs(lhs, rhs)
        if reason:
            raise SymbolicImportError(
                f"the code of {lhs.name} would be right for one size only: {reason}",
                where=place(lhs, filename),
                hint=HINT,
            )


class _Comparison:
    def __init__(self, first: SizeTable, second: SizeTable):
        self.first, self.second = first, second

    def differs(self, lhs: Any, rhs: Any) -> str:
        """What is different in two ops; empty if nothing is."""
        if lhs.name != rhs.name or len(lhs.operands) != len(rhs.operands):
            return f"it is {rhs.name} for other sizes"
        for a, b in zip((*lhs.results, *lhs.operands), (*rhs.results, *rhs.operands), strict=False):
            if reason := self._types(a.type, b.type):
                return reason
        if list(lhs.attributes) != list(rhs.attributes):
            return "other attributes"
        for name in (name for name in lhs.attributes if name not in _TABLE):
            if reason := self._attributes(lhs.attributes[name], rhs.attributes[name]):
                return f"{name}: {reason}"
        return ""

    def _types(self, lhs: Any, rhs: Any) -> str:
        if str(lhs) == str(rhs):
            return ""
        if isinstance(lhs, ir.FunctionType) and isinstance(rhs, ir.FunctionType):
            pairs = zip((*lhs.inputs, *lhs.results), (*rhs.inputs, *rhs.results), strict=True)
            return next(filter(None, (self._types(a, b) for a, b in pairs)), "")
        tensors = all(isinstance(t, ir.RankedTensorType) for t in (lhs, rhs))
        if not tensors or str(lhs.element_type) != str(rhs.element_type) or lhs.rank != rhs.rank:
            return f"{lhs} and {rhs}"
        return next(
            filter(None, (self._sizes(a, b) for a, b in zip(lhs.shape, rhs.shape, strict=True))),
            "",
        )

    def _sizes(self, lhs: int, rhs: int) -> str:
        """Compares two numbers that codegen reads as sizes."""
        try:
            sizes = self.first.size(lhs), self.second.size(rhs)
        except LoweringError as error:
            return error.what
        return "" if known_equal(*sizes) else f"{lhs} is {sizes[0]}, and {rhs} is {sizes[1]}"

    def _positions(self, lhs: int, rhs: int) -> str:
        """Compares two integer constants."""
        try:
            sizes = self.first.position(lhs), self.second.position(rhs)
        except LoweringError as error:
            return error.what
        return "" if known_equal(*sizes) else f"{lhs} is {sizes[0]}, and {rhs} is {sizes[1]}"

    def _attributes(self, lhs: Any, rhs: Any) -> str:
        if isinstance(lhs, ir.IntegerAttr) and isinstance(rhs, ir.IntegerAttr):
            # The same number in both is static, unless it is read as a size.
            return self._positions(int(lhs.value), int(rhs.value))
        if _is_data(lhs) or str(lhs) == str(rhs):
            return ""
        if isinstance(lhs, ir.TypeAttr) and isinstance(rhs, ir.TypeAttr):
            return self._types(lhs.value, rhs.value)
        if isinstance(lhs, ir.AffineMapAttr) and isinstance(rhs, ir.AffineMapAttr):
            return self._maps(lhs, rhs)
        for kind in (ir.DenseI64ArrayAttr, ir.ArrayAttr):
            if isinstance(lhs, kind) and isinstance(rhs, kind) and len(lhs) == len(rhs):
                compare = self._sizes if kind is ir.DenseI64ArrayAttr else self._attributes
                pairs = zip(list(lhs), list(rhs), strict=True)
                return next(filter(None, (compare(a, b) for a, b in pairs)), "")
        if isinstance(lhs, ir.DictAttr) and isinstance(rhs, ir.DictAttr):
            entries = [(lhs[i].attr, rhs[i].attr) for i in range(min(len(lhs), len(rhs)))]
            return next(filter(None, (self._attributes(*pair) for pair in entries)), "")
        return f"{lhs} and {rhs}"

    def _maps(self, lhs: Any, rhs: Any) -> str:
        try:
            accesses = read_access(lhs.value), read_access(rhs.value)
        except LoweringError as error:
            return error.what
        if accesses[0].coefficients != accesses[1].coefficients:
            return "a stride is a size"
        pairs = zip(accesses[0].constants, accesses[1].constants, strict=True)
        return next(filter(None, (self._sizes(a, b) for a, b in pairs)), "")


def _is_data(attribute: Any) -> bool:
    """Whether an attribute is a constant of the program: folding makes small ones only."""
    return isinstance(attribute, ir.DenseElementsAttr) and len(attribute) > _MOST_FOLDED
