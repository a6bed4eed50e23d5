"""Kernels that are an attention, or its gradients.

Input: the ops of a kernel with their loop nests. Output: the strategy `ATTENTION`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.match_attention import Attention, find_attention
from nova.codegen.gpu.attention.block import AttentionBlock
from nova.codegen.gpu.attention.flash_backward import emit_gradient
from nova.codegen.gpu.attention.flash_forward import emit_forward
from nova.codegen.gpu.attention.operands import batch_counters, matrices_at
from nova.codegen.gpu.attention.plan import AttentionPlan, AttentionSizes, plan_attention
from nova.codegen.gpu.block_ops import ThreadPosition
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.ptx_ops import shared_base
from nova.codegen.gpu.strategy import Strategy
from nova.errors import LoweringError
from nova.ir.bindings import arith, ir, scf
from nova.ir.diagnostics import place_of
from nova.ir.index import Index, add, compare, divide, modulo, mul, sub
from nova.ir.symbolic.size_table import Extent


@dataclass(frozen=True)
class AttentionKernel:
    """The attention of a kernel, and its plan."""

    attention: Attention
    plan: AttentionPlan

    @property
    def op(self) -> Any:
        return self.attention.nest.generic.op

    @property
    def blocks(self) -> Extent:
        return self.plan.blocks

    @property
    def threads(self) -> int:
        return self.plan.threads

    @property
    def min_blocks_per_sm(self) -> int:
        """One: blocks get all the registers there are; shared memory limits their occupancy."""
        return 1

    def emit(self, flat: Callable[[Any], Any], position: ThreadPosition) -> None:
        """Emit the code of a block; `flat` maps operands to flat buffers."""
        buffers = [flat(value) for value in self.op.operands]
        shared = shared_base()

        def emit_role(role: str, number: Index) -> None:
            point, block_number = self._order(role, number)
            counters = batch_counters(self.attention, point)
            matrices = matrices_at(self.attention, buffers, counters)
            block = AttentionBlock(self.plan, self.attention, matrices, position.thread, shared)
            if self.attention.spec.op == "attend":
                emit_forward(block, block_number)
            else:
                emit_gradient(block, role, block_number)

        if len(self.plan.roles) == 1:
            emit_role(self.plan.roles[0], position.block)
            return
        first, second = self.plan.roles
        count = self.plan.blocks_of(first)
        second_number = sub(position.block, count)
        either = scf.IfOp(compare(arith.CmpIPredicate.slt, position.block, count), has_else=True)
        for region, role, number in (
            (either.then_block, first, position.block),
            (either.else_block, second, second_number),
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
        count = plan.row_blocks(role)
        if not self.attention.spec.causal:
            return divide(number, count), modulo(number, count)
        together = plan.points_together
        group, in_group = divide(number, together * count), modulo(number, together * count)
        point, block_number = modulo(in_group, together), divide(in_group, together)
        if role == "i":
            block_number = sub(count - 1, block_number)
        return add(mul(group, together), point), block_number


def match_attention(kernel: DeviceKernel) -> Attention | None:
    """Match the kernel as an attention; None if it is not one."""
    nests = kernel.global_nests
    matches = {op: a for op in nests if (a := find_attention(nests[op])) is not None}
    if not matches:
        return None
    if len(kernel.ops) > 1:
        function = kernel.function
        raise LoweringError(
            f"@{function.name.value} has an attention and other ops",
            where=place_of(function.location),
        )
    return matches[kernel.ops[0]]


def plan_attention_kernel(kernel: DeviceKernel, attention: Attention) -> AttentionKernel:
    """Tiles that fit into a block; no other strategy can run an attention."""
    (op,) = kernel.ops
    batch = prod(attention.nest.loops[i].size for i in attention.batch)
    sizes = AttentionSizes(batch, *(attention.size(role) for role in "ijef"))
    types = tuple(
        str(value.type.element_type)
        for name, value in zip(attention.spec.operands, op.operands, strict=False)
        if name in "gqkv"
    )
    arch = kernel.target.cpu
    plan = plan_attention(sizes, types, attention.type, attention.spec.results, arch)
    if plan is None:
        function = kernel.function
        raise LoweringError(
            f"@{function.name.value}: no tiles of this attention fit into a block of {arch}",
            where=place_of(function.location),
            hint="use fewer features, or a narrower type",
        )
    return AttentionKernel(attention, plan)


def emit_attention_kernel(
    kernel: DeviceKernel, attention: AttentionKernel, position: ThreadPosition
) -> None:
    """Emit the attention of a block."""
    attention.emit(kernel.flat_buffers(), position)
    kernel.shared.size = attention.plan.shared_bytes


ATTENTION = Strategy("attention", match_attention, plan_attention_kernel, emit_attention_kernel)
