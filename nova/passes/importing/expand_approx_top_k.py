"""`expand-approx-top-k`: jax's approximate top-k becomes an exact one."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.clone import clone_into
from nova.ir.walk import find_function, find_ops
from nova.passes.base import Pass

TARGET = "ApproxTopK"
_CONFIG = "mhlo.backend_config"


@record
class ExpandApproxTopK(Pass):
    """Rewrite `custom_call @ApproxTopK` (`lax.approx_max_k`) as a sort and slices of its results.

    A recall of 1 satisfies every `recall_target`. The comparator is a function of the program.
    """

    name: ClassVar[str] = "expand-approx-top-k"
    only_with: ClassVar[tuple[str, ...]] = (TARGET,)

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "stablehlo.custom_call"):
            if is_approx_top_k(op):
                name = op.attributes["called_computations"][0].value
                with ir.InsertionPoint(op), op.location:
                    values = _expand(op, find_function(module, name))
                for old, value in zip(op.results, values, strict=True):
                    old.replace_all_uses_with(value)
                op.erase()


def is_approx_top_k(op: Any) -> bool:
    """Whether a custom call is jax's approximate top-k, with a comparator."""
    return (
        op.attributes["call_target_name"].value == TARGET
        and _CONFIG in op.attributes
        and "called_computations" in op.attributes
        and len(op.attributes["called_computations"]) == 1
        and len(op.operands) == 2 * len(op.results)
    )


def _expand(op: Any, comparator: Any) -> list[Any]:
    axis = int(op.attributes[_CONFIG]["reduction_dim"].value)
    operands = list(op.operands)[: len(op.results)]
    attributes = {
        "dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis),
        "is_stable": ir.BoolAttr.get(True),
    }
    types = [value.type for value in operands]
    ordered = ir.Operation.create("stablehlo.sort", types, operands, attributes, regions=1)
    arguments = list(comparator.entry_block.arguments)
    locations = [op.location] * len(arguments)
    block = ordered.regions[0].blocks.append(*[a.type for a in arguments], arg_locs=locations)
    mapping = dict(zip(arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for inner in comparator.entry_block.operations:
            inner = inner.operation
            if inner.name == "func.return":
                values = [mapping[value] for value in inner.operands]
                ir.Operation.create("stablehlo.return", [], values)
            else:
                clone_into(inner, mapping)
    return [
        _front(value, list(result.type.shape))
        for value, result in zip(ordered.results, op.results, strict=True)
    ]


def _front(value: Any, shape: list[int]) -> Any:
    rank = len(shape)
    type_ = ir.RankedTensorType.get(shape, value.type.element_type)
    attributes = {
        "start_indices": ir.DenseI64ArrayAttr.get([0] * rank),
        "limit_indices": ir.DenseI64ArrayAttr.get(shape),
        "strides": ir.DenseI64ArrayAttr.get([1] * rank),
    }
    return ir.Operation.create("stablehlo.slice", [type_], [value], attributes).results[0]
