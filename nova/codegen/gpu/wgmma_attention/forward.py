"""The forward pass of warpgroup attention: the code of one block.

Input: a `ForwardPlan`, its tensor maps and buffers. Output: code at the insertion point, inside a
`gpu.launch` of the plan's blocks. `kernel.py` calls it.

    producer      copy q | keys 0 | values 0 | keys 1 | values 1 | ...
    consumer 0    scores 0 | softmax 0 | scores 1, out += weights 0 values 0 | softmax 1 | ...
    consumer 1                | scores 0 | softmax 0 | scores 1, out += ...  | softmax 1

The scores of a block of keys and the matmul of the weights of the block before it run on the tensor
cores while this warpgroup, or the other one, computes a softmax. Consumers take turns to issue
matmuls (named barriers). Blocks of keys are visited from the last to the first: those with hidden
scores come first, so that the loop over the others has no tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova.codegen.gpu.block_ops import barrier, warp_uniform, when
from nova.codegen.gpu.ptx_ops import wait_for_launches, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma_attention.consumer import Consumer
from nova.codegen.gpu.wgmma_attention.forward_context import ForwardContext
from nova.codegen.gpu.wgmma_attention.nonfinite_values import SCANNERS, clean_tile
from nova.codegen.gpu.wgmma_attention.plan import REGISTERS
from nova.codegen.gpu.wgmma_attention.ring import (
    RingPosition,
    TileCopy,
)
from nova.codegen.gpu.wgmma_attention.split_keys import SplitConsumer
from nova.codegen.gpu.wgmma_attention.work import WorkItem
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import compare, index, mul, sub

_EQUAL = arith.CmpIPredicate.eq
_LESS = arith.CmpIPredicate.slt


@dataclass(frozen=True)
class ForwardBlock(ForwardContext):
    """The code of all roles of a block."""

    def emit(self) -> None:
        plan = self.plan
        # Addresses that all roles use are computed before they branch.
        rings, flag = (self.queries, self.keys, self.values), self.flag
        group = warp_uniform(arith.shrui(self.thread, word(7)))
        number = arith.andi(self.thread, word(127))
        with when(arith.cmpi(_EQUAL, self.thread, word(0))):
            consumers = plan.tile.consumers
            readers = 1 if plan.tile.split else consumers
            for ring, count in zip(rings, (consumers, readers, readers), strict=True):
                ring.init(1, count, SCANNERS)
            if plan.cleans_values:
                flag.set(word(0))
            ptx.publish_barriers()
        barrier()
        few, many = REGISTERS[plan.tile.consumers]
        roles = scf.IfOp(arith.cmpi(_EQUAL, group, word(0)), has_else=True)
        with ir.InsertionPoint(roles.then_block):
            ptx.set_registers(few, more=False)
            wait_for_launches()
            with when(arith.cmpi(_EQUAL, number, word(0))):
                self._produce()
            if plan.cleans_values:
                with when(arith.cmpi(arith.CmpIPredicate.uge, number, word(32))):
                    self._scan(arith.subi(number, word(32)))
            scf.YieldOp([])
        with ir.InsertionPoint(roles.else_block):
            ptx.set_registers(many, more=True)
            wait_for_launches()
            consumer = SplitConsumer if plan.tile.split else Consumer
            consumer(self, arith.subi(group, word(1)), number).emit()
            scf.YieldOp([])

    # --- producer -------------------------------------------------------------------------------

    def _produce(self) -> None:
        plan = self.plan

        def tile_copies(item: WorkItem, *state: Any) -> list[Any]:
            queries, stage = RingPosition(*state[:2]), RingPosition(*state[2:])
            first = mul(item.tile, plan.rows)
            tiles = {n: [TileCopy(plan.operands[n], self.maps[n])] for n in "qkv"}
            self.queries.copy(tiles["q"], queries, first, item.counters)
            low, count = self.key_range(first, self.segments(first, item.counters))
            op = scf.ForOp(index(0), index(sub(count, low)), index(1), stage.values)
            with ir.InsertionPoint(op.body):
                inner = RingPosition(*op.inner_iter_args)
                number = sub(sub(count, 1), op.induction_variable)
                key = mul(number, plan.keys)
                self.keys.copy(tiles["k"], inner, key, item.counters)
                self.values.copy(tiles["v"], inner, key, item.counters)
                scf.YieldOp(self.keys.next(inner).values)
            return [*self.queries.next(queries).values, *op.results]

        self.order.each(self.block, [word(0), word(1), word(0), word(1)], tile_copies)

    def _scan(self, thread: ir.Value) -> None:
        """Look at the values of blocks with hidden scores, before consumers multiply them."""
        plan = self.plan

        def tile_scans(item: WorkItem, *state: Any) -> list[Any]:
            first = mul(item.tile, plan.rows)
            count, plain = self.key_blocks(first), self.plain_blocks(first)
            hiding = sub(count, plain)
            op = scf.ForOp(index(0), index(count), index(1), list(state))
            with ir.InsertionPoint(op.body):
                stage = RingPosition(*op.inner_iter_args)
                self.values.await_full(stage)
                with when(compare(_LESS, op.induction_variable, hiding)):
                    clean_tile(
                        self.values.address(stage.slot),
                        plan.operands["v"].nbytes,
                        plan.element,
                        thread,
                        lambda: self.flag.set(item.round),
                    )
                ptx.arrive(self.values.third(stage.slot))
                scf.YieldOp(self.values.next(stage).values)
            return list(op.results)

        self.order.each(self.block, [word(0), word(0)], tile_scans)
