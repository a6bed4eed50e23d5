"""The two named linalg ops that Nova writes; lowerings and passes call these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.mlir.bindings import fill_builtin_region, ir, linalg


def fill(value: Any, into: Any) -> Any:
    """A tensor of the type of `into` whose elements all are the scalar `value`."""
    op = linalg.FillOp([into.type], [value], [into])
    fill_builtin_region(op.operation)
    return op.results[0]


def contract(a: Any, b: Any, total: Any, maps: Sequence[ir.AffineMap]) -> Any:
    """`total` and the sums of products of `a` and `b`; `maps` are the accesses of all three."""
    attribute = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    op = linalg.ContractOp([total.type], [a, b], [total], attribute)
    fill_builtin_region(op.operation)
    return op.results[0]
