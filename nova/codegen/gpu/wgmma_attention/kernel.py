"""Kernels that are an attention, by warpgroup matmuls (Hopper, sm_90a).

Input: the match of `nova/codegen/gpu/attention/kernel.py`. Output: the strategy `WGMMA_ATTENTION`,
which `schedule.py` tries before `ATTENTION`. It has a plan for operands of 16 bits that the copy
engine can read, where there are enough rows. The knob `gpu_attention` overrides the choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from nova.codegen.common.match_attention import Attention
from nova.codegen.gpu.attention.kernel import match_attention
from nova.codegen.gpu.attention.plan import AttentionSizes
from nova.codegen.gpu.block_ops import ThreadPosition
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.gemm.select_plan import limits
from nova.codegen.gpu.ptx_ops import global_base, word
from nova.codegen.gpu.strategy import Strategy
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma.kernel import ARCH
from nova.codegen.gpu.wgmma.mainloop import aligned_base
from nova.codegen.gpu.wgmma_attention.backward import GradientBlock
from nova.codegen.gpu.wgmma_attention.forward import ForwardBlock
from nova.codegen.gpu.wgmma_attention.gradient_plan import (
    GradientPlan,
    gradient_parts,
    plan_gradient,
)
from nova.codegen.gpu.wgmma_attention.plan import (
    ELEMENTS,
    ForwardPlan,
    Tile,
    forward_tiles,
    plan_forward,
    why_not,
)
from nova.errors import LoweringError
from nova.ir.bindings import arith, ir
from nova.ir.buffers import buffer_root
from nova.ir.diagnostics import place_of
from nova.ir.tensor_maps import TensorMap

_LEAST_ROWS = {"attend": 128, "attend_gradient": 256}
"""With fewer rows or keys most of a tile would be empty."""
_LONG = 2048


@dataclass(frozen=True)
class WgmmaAttentionKernel:
    """The attention of a kernel, and its plan."""

    attention: Attention
    plan: ForwardPlan | GradientPlan

    @property
    def is_early(self) -> bool:
        """Whether the code waits by itself for the launches before it."""
        return isinstance(self.plan, ForwardPlan)

    @property
    def blocks(self) -> int:
        return self.plan.blocks

    @property
    def threads(self) -> int:
        return self.plan.threads

    @property
    def min_blocks_per_sm(self) -> int:
        """Launch bounds: `setmaxnreg` needs to know the registers at entry."""
        return 1

    @property
    def tensor_maps(self) -> tuple[TensorMap, ...]:
        """The maps of the operands, in the order of the parameters."""
        if isinstance(self.plan, GradientPlan):
            parts = self.plan.parts
            return tuple(parts[number].operands[name].map for number, name in self.plan.maps)
        return tuple(operand.map for operand in self.plan.operands.values())


def plan_wgmma_attention(kernel: DeviceKernel, attention: Attention) -> WgmmaAttentionKernel | None:
    """The plan, if the target has wgmma and it is the faster choice, or the knob says so."""
    choice = kernel.gpu_attention
    if kernel.target.cpu != ARCH or choice == "mma":
        return None
    plan = _plan(kernel, attention, choice)
    if isinstance(plan, str):
        # The override is for 16-bit floats.
        if choice == "auto" or not _element_types(kernel, attention) <= set(ELEMENTS):
            return None
        function = kernel.function
        raise LoweringError(
            f"@{function.name.value}: no warpgroup attention ({choice}): {plan}",
            where=place_of(function.location),
            hint="set the knob gpu_attention to auto or mma",
        )
    return WgmmaAttentionKernel(attention, plan)


def _element_types(kernel: DeviceKernel, attention: Attention) -> set[str]:
    """The element types of q, k, v and g."""
    operands = zip(attention.spec.operands, kernel.ops[0].operands, strict=False)
    return {str(value.type.element_type) for name, value in operands if name in "gqkv"}


def _plan(
    kernel: DeviceKernel, attention: Attention, choice: str
) -> ForwardPlan | GradientPlan | str:
    """The plan, or the reason why there is none."""
    (op,) = kernel.ops
    numbers = {value: i for i, value in enumerate(kernel.function.entry_block.arguments)}
    operands = dict(zip(attention.spec.operands, op.operands, strict=False))
    tensors = {name: value for name, value in operands.items() if name in "gqkv"}
    types = _element_types(kernel, attention)
    if reason := why_not(attention, types):
        return reason
    (element,) = types
    roots = {name: buffer_root(value) for name, value in tensors.items()}
    if any(root not in numbers for root in roots.values()):
        return "an operand is not an argument of the kernel"
    arguments = {name: numbers[root] for name, root in roots.items()}
    batch = prod(attention.nest.loops[i].size for i in attention.batch)
    sizes = AttentionSizes(batch, *(attention.size(role) for role in "ijef"))
    least = _LEAST_ROWS[attention.spec.op]
    if choice == "auto" and min(sizes.i, sizes.j) < least:
        return f"it has fewer than {least} rows or keys"
    processors, _ = limits(kernel.target.cpu)
    if attention.spec.op == "attend_gradient":
        parts = gradient_parts(max(sizes.e, sizes.f), masked=attention.spec.masked)
        return plan_gradient(attention, sizes, element, arguments, processors, parts)
    spec = attention.spec
    hides = spec.causal or spec.masked or spec.has_segments
    # The draws of dropout take registers, too.
    long = not hides and not spec.has_dropout and sizes.j >= _LONG
    tiles = forward_tiles(
        max(sizes.e, sizes.f),
        keys=sizes.j,
        long=long,
        has_segments=spec.has_segments,
        has_mask=spec.masked,
    )
    tiles = _parse_tiles(choice, tiles)
    return plan_forward(attention, sizes, element, arguments, processors, tiles)


def _parse_tiles(choice: str, tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """The tiles that the knob `gpu_attention` allows; any keys with the rows of a tile."""
    _, _, size = choice.partition("-")
    if not size:
        return tiles
    rows, keys, *consumers = (int(number) for number in size.split("x"))
    return tuple(
        replace(tile, keys=keys)
        for tile in tiles
        if tile.rows == rows and tile.consumers in (consumers or (tile.consumers,))
    )


def emit_wgmma_attention(
    kernel: DeviceKernel, plan: WgmmaAttentionKernel, position: ThreadPosition
) -> None:
    """Emit the attention of a block."""
    flat = kernel.flat_buffers()
    (op,) = kernel.ops
    buffers = [flat(value) for value in op.operands]
    names = plan.attention.names
    position_values = position.block, word(position.thread), aligned_base()
    if isinstance(plan.plan, GradientPlan):
        part_maps = {
            (part, name): _map_address(number, buffers[names.index(name)])
            for number, (part, name) in enumerate(plan.plan.maps)
        }
        GradientBlock(plan.plan, plan.attention, buffers, part_maps, *position_values).emit()
    else:
        maps = {
            name: _map_address(number, buffers[names.index(name)])
            for number, name in enumerate(plan.plan.operands)
        }
        ForwardBlock(plan.plan, plan.attention, buffers, maps, *position_values).emit()
    kernel.shared.size = plan.plan.shared_bytes


def _map_address(number: int, buffer: Any) -> ir.Value:
    base = arith.index_cast(ir.IntegerType.get_signless(64), global_base(buffer))
    return ptx.tensor_map(number, base)


WGMMA_ATTENTION = Strategy(
    "wgmma_attention", match_attention, plan_wgmma_attention, emit_wgmma_attention
)
