"""Kernels that are an attention, or its gradients.

Input: the ops of a kernel with their loop nests. Output: whether the kernel matches, and the code
of its launch. `schedule.py` tries this before any other strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.builder import Index, add, compare, mul, sub
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.attention.tiles import Attention, Matrix, find_attention
from nova.codegen.gpu.attention.block import AttentionBlock
from nova.codegen.gpu.attention.flash_backward import emit_gradient
from nova.codegen.gpu.attention.flash_forward import emit_forward
from nova.codegen.gpu.attention.plan import AttentionPlan, AttentionSizes, plan_attention
from nova.codegen.gpu.block_ops import Place
from nova.codegen.gpu.ptx_ops import divide, modulo, shared_base
from nova.errors import LoweringError
from nova.ir.attention_ops import AXES
from nova.ir.bindings import arith, ir, scf
from nova.ir.diagnostics import place_of


@dataclass(frozen=True)
class AttentionKernel:
    """The attention of a kernel, and its plan."""

    op: Any
    attention: Attention
    plan: AttentionPlan

    def emit(self, flat: Callable[[Any], Any], place: Place) -> None:
        """Emit the code of a block; `flat` maps operands to flat buffers."""
        buffers = [flat(value) for value in self.op.operands]
        shared = shared_base()

        def emit_role(role: str, number: Index) -> None:
            point, own = self._order(role, number)
            matrices = self._matrices(buffers, point)
            block = AttentionBlock(self.plan, self.attention, matrices, place.thread, shared)
            if self.attention.kind.op == "attend":
                emit_forward(block, own)
            else:
                emit_gradient(block, role, own)

        if len(self.plan.roles) == 1:
            emit_role(self.plan.roles[0], place.block)
            return
        first, second = self.plan.roles
        count = self.plan.blocks_of(first)
        rest = sub(place.block, count)
        either = scf.IfOp(compare(arith.CmpIPredicate.slt, place.block, count), has_else=True)
        for region, role, number in (
            (either.then_block, first, place.block),
            (either.else_block, second, rest),
        ):
            with ir.InsertionPoint(region):
                emit_role(role, number)
                scf.YieldOp([])

    def _order(self, role: str, number: Index) -> tuple[Index, Index]:
        """The point of the batch of a block, and its number among the blocks of the point.

        Blocks of a causal attention have different amounts of work. The largest begin first, at all
        points whose keys and values fit into the cache together, so that no large block runs last.
        """
        plan = self.plan
        count = plan.blocks_of(role) // plan.sizes.batch
        if not self.attention.kind.causal:
            return divide(number, count), modulo(number, count)
        together = plan.points_together
        group, rest = divide(number, together * count), modulo(number, together * count)
        point, own = modulo(rest, together), divide(rest, together)
        if role == "i":
            own = sub(count - 1, own)
        return add(mul(group, together), point), own

    def _matrices(self, buffers: Sequence[Any], point: Index) -> dict[str, Matrix]:
        """The operands and results at a point of the batch."""
        attention, nest = self.attention, self.attention.nest
        starts: list[Index] = list(nest.offsets)
        for number in reversed(attention.batch):
            loop = nest.loops[number]
            position, point = modulo(point, loop.size), divide(point, loop.size)
            starts = [
                add(start, mul(position, stride))
                for start, stride in zip(starts, loop.strides, strict=True)
            ]
        found = {}
        for number, (name, buffer) in enumerate(zip(attention.names, buffers, strict=True)):
            axes = AXES[name.removeprefix("to_")]
            strides = [nest.loops[attention.roles[a]].strides[number] for a in axes]
            kind = str(buffer.type.element_type)
            found[name] = Matrix(buffer, kind, starts[number], strides[0], [*strides, 0][1])
        return found


def find_attention_kernel(
    kernel: Any, ops: Sequence[Any], nests: Mapping[Any, LoopNest], arch: str
) -> AttentionKernel | None:
    """Match the kernel as an attention; None if it is not one."""
    found = {op: a for op in nests if (a := find_attention(nests[op])) is not None}
    if not found:
        return None
    if len(ops) > 1:
        raise LoweringError(
            f"@{kernel.name.value} has an attention and other ops", where=place_of(kernel.location)
        )
    attention = found[ops[0]]
    nest = attention.nest
    batch = prod(nest.loops[i].size for i in attention.batch)
    sizes = AttentionSizes(batch, *(attention.size(role) for role in "ijef"))
    names = attention.kind.operands
    types = tuple(
        str(value.type.element_type)
        for name, value in zip(names, ops[0].operands, strict=False)
        if name in "gqkv"
    )
    plan = plan_attention(sizes, types, attention.type, attention.kind.results, arch)
    if plan is None:
        raise LoweringError(
            f"@{kernel.name.value}: no tiles of this attention fit into a block of {arch}",
            where=place_of(kernel.location),
            hint="use fewer features, or a narrower type",
        )
    return AttentionKernel(ops[0], attention, plan)
