"""`drop-annotations`: StableHLO ops that are the identity in a program for one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of
from nova.ir.walk import every_op
from nova.passes.base import Pass

# Custom calls that tell another compiler where data should be.
ANNOTATIONS = {
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
    "xla.sdy.Sharding",
    "xla.sdy.FuncResultSharding",
}
_GROUPED = {
    "stablehlo.all_gather",
    "stablehlo.all_reduce",
    "stablehlo.all_to_all",
    "stablehlo.collective_broadcast",
    "stablehlo.reduce_scatter",
}


@record
class DropAnnotations(Pass):
    """Replace annotations and collectives of one participant by their operands.

    Annotations are shardings, optimization barriers (`jax.checkpoint`) and the `algorithm` of a
    `dot_general`: Nova never computes less precisely than the operands' dtypes. A collective whose
    groups have one participant hands its operands on; one between devices is an error.
    """

    name: ClassVar[str] = "drop-annotations"
    only_with: ClassVar[tuple[str, ...]] = (
        *("custom_call", "optimization_barrier", "algorithm", "collective_permute"),
        *("partition_id", "replica_id", *_GROUPED),
    )

    def run(self, module: ir.Module) -> None:
        for op in every_op(module):
            rewrite = _REWRITES.get(op.name)
            values = rewrite(op) if rewrite is not None else None
            if values is not None:
                for old, value in zip(op.results, values, strict=True):
                    old.replace_all_uses_with(value)
                op.erase()


def is_annotation(op: Any) -> bool:
    """Whether a custom call only says where its operand should be."""
    return (
        op.attributes["call_target_name"].value in ANNOTATIONS
        and len(op.operands) == len(op.results) == 1
        and op.operands[0].type == op.results[0].type
    )


def _operands(op: Any) -> list[Any]:
    return list(op.operands)


def _custom_call(op: Any) -> list[Any] | None:
    return list(op.operands) if is_annotation(op) else None


def _dot(op: Any) -> None:
    if "algorithm" in op.attributes:
        del op.attributes["algorithm"]


def _grouped(op: Any) -> list[Any]:
    groups = list(op.attributes["replica_groups"].type.shape)
    # Without groups, all replicas are one; a program of Nova has one replica.
    if 0 not in groups and groups[-1] != 1:
        raise _between(op)
    return list(op.operands)


def _permuted(op: Any) -> list[Any]:
    pairs = np.array(op.attributes["source_target_pairs"]).reshape(-1, 2).tolist()
    if any(source != target for source, target in pairs):
        raise _between(op)
    return list(op.operands) if pairs else [_zeros(op)]


def _zeros(op: Any) -> Any:
    """Zeros of the result's type: the number of the only device, or of a value nobody sends."""
    type_ = op.results[0].type
    element = type_.element_type
    integer = isinstance(element, ir.IntegerType)
    with ir.InsertionPoint(op), op.location:
        scalar = ir.IntegerAttr.get(element, 0) if integer else ir.FloatAttr.get(element, 0.0)
        values = {"value": ir.DenseElementsAttr.get_splat(type_, scalar)}
        return ir.Operation.create("stablehlo.constant", [type_], [], values).results[0]


def _between(op: Any) -> LoweringError:
    return LoweringError(
        f"{op.name} between devices",
        where=place_of(op.location),
        hint="Nova compiles programs for one device: export it for one",
    )


_REWRITES: dict[str, Callable[[Any], list[Any] | None]] = {
    "stablehlo.collective_permute": _permuted,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.dot_general": _dot,
    "stablehlo.optimization_barrier": _operands,
    "stablehlo.partition_id": lambda op: [_zeros(op)],
    "stablehlo.replica_id": lambda op: [_zeros(op)],
    **dict.fromkeys(_GROUPED, _grouped),
}
