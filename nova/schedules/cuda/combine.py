"""How partial results of a reduction are put together: by the op that the body combines with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.mlir.bindings import arith, ir
from nova.schedules.lanes import COMBINERS
from nova.schedules.vector_body import is_relaxed, relaxed_flags


def combiner(name: str) -> Callable[[Any, Any], Any]:
    """The op called `name` on two values."""

    def combine(left: Any, right: Any) -> Any:
        attributes = {"fastmath": relaxed_flags(name)} if is_relaxed(name) else {}
        return ir.Operation.create(name, [left.type], [left, right], attributes).results[0]

    return combine


def identity(name: str, kind: Any) -> Any:
    """The value that changes nothing when it is combined by the op called `name`."""
    value = COMBINERS[name]
    if isinstance(kind, ir.IntegerType):
        attr: Any = ir.IntegerAttr.get(kind, int(value))
    else:
        attr = ir.FloatAttr.get(kind, float(value))
    return arith.ConstantOp(kind, attr).result
