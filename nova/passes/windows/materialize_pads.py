"""`materialize-pads`: paddings that windows read become a fill and a copy."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.buffers import TENSOR_VIEWS
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import fill, generic_op, yield_op
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass
from nova.passes.windows.match_pad import Pad, match_pad


@record
class MaterializePads(Pass):
    """Write a padded tensor to memory where a convolution or a pooling reads its windows.

    Fused into the reader, a padding would be computed for every tap of every window, element by
    element, at clamped positions. As a fill and a copy to the middle of it, all accesses are
    affine, so that loops over windows load whole vectors. Kernel formation leaves the padded tensor
    in a tile-local buffer where the kernel is over its leading dimensions. Other paddings stay as
    they are. `fuse-elementwise` runs before with `keep-pads`, and fuses those into their readers.
    """

    name: ClassVar[str] = "materialize-pads"

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            pad = match_pad(op) if read_by_windows(op) else None
            if pad is not None and _has_copy(op, pad):
                _materialize(op, pad)

    def concerns(self, text: str) -> bool:
        return "tensor.extract" in text


def read_by_windows(op: Any) -> bool:
    """Whether a reader of an op's only result, perhaps after reshapes, slides over it."""
    return len(op.results) == 1 and _has_window_reader(op.results[0])


def _has_window_reader(value: Any) -> bool:
    """Whether an op reads `value` at sums or multiples of its loops."""
    for use in value.uses:
        reader = use.owner.operation
        if reader.name in TENSOR_VIEWS and _has_window_reader(reader.results[0]):
            return True
        if not is_generic_op(reader) or use.operand_number >= GenericOp(reader).num_inputs:
            continue
        rows = GenericOp(reader).accesses[use.operand_number].coefficients
        if any(sum(map(abs, row)) > 1 for row in rows):
            return True
    return False


def _has_copy(op: Any, pad: Pad) -> bool:
    """Whether a `linalg.generic` can copy the source into the padded tensor.

    An axis that is padded at its end only would be indexed by a loop that is shorter than the axis,
    which its verifier refuses. Such a pad stays as it is: one kernel that computes each element.
    """
    sizes = zip(pad.low, pad.source.type.shape, op.results[0].type.shape, strict=True)
    return all(low > 0 or source == padded for low, source, padded in sizes)


def _materialize(op: Any, pad: Pad) -> None:
    result = op.results[0]
    rank = len(pad.low)
    shifted = [ir.AffineDimExpr.get(axis) + start for axis, start in enumerate(pad.low)]
    with ir.InsertionPoint(op), op.location:
        empty = tensor.empty(list(result.type.shape), result.type.element_type)
        maps = [ir.AffineMap.get_identity(rank), ir.AffineMap.get(rank, 0, shifted)]
        copy = generic_op(
            [result.type], [pad.source], [fill(pad.value, empty)], maps, ["parallel"] * rank
        )
        element = result.type.element_type
        block = copy.regions[0].blocks.append(element, element)
        with ir.InsertionPoint(block):
            yield_op([block.arguments[0]])
    result.replace_all_uses_with(copy.results[0])
    op.erase()
