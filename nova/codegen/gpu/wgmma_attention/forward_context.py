"""What all roles of a block of warpgroup attention share: its rings, and the keys of a tile.

Input: a `ForwardPlan`, its tensor maps and buffers. Output: a `ForwardContext`, which `forward.py`
(the producer), `consumer.py` and `split_keys.py` use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nova.codegen.common.match_attention import Attention
from nova.codegen.gpu.attention.operands import matrices_at
from nova.codegen.gpu.attention.segments import SegmentRange
from nova.codegen.gpu.ptx_ops import word
from nova.codegen.gpu.wgmma_attention.nonfinite_values import (
    TileFlag,
)
from nova.codegen.gpu.wgmma_attention.plan import ForwardPlan
from nova.codegen.gpu.wgmma_attention.ring import (
    Ring,
)
from nova.codegen.gpu.wgmma_attention.work import WorkOrder
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, add, divide, divide_up, minimum, mul


@dataclass(frozen=True)
class ForwardContext:
    """A block of threads; addresses of shared memory and thread numbers are i32.

    Its rings of tiles, and the blocks of keys that a tile of rows visits.
    """

    plan: ForwardPlan
    attention: Attention
    buffers: list[Any]
    maps: dict[str, ir.Value]
    block: ir.Value
    thread: ir.Value
    base: ir.Value

    # --- shared memory --------------------------------------------------------------------------

    @cached_property
    def queries(self) -> Ring:
        return self._ring(0, 0, self.plan.q_slots, "q")

    @cached_property
    def keys(self) -> Ring:
        plan = self.plan
        return self._ring(plan.keys_offset, Ring.barrier_bytes(plan.q_slots), plan.stages, "k")

    @cached_property
    def values(self) -> Ring:
        plan = self.plan
        barriers = Ring.barrier_bytes(plan.q_slots + plan.stages)
        return self._ring(plan.values_offset, barriers, plan.stages, "v", plan.cleans_values)

    def _ring(
        self, offset: int, barriers: int, slots: int, name: str, has_third: bool = False
    ) -> Ring:
        start = arith.addi(self.base, word(offset))
        at = arith.addi(self.base, word(self.plan.barriers_offset + barriers))
        return Ring(start, slots, self.plan.operands[name].nbytes, at, has_third)

    @cached_property
    def flag(self) -> TileFlag:
        plan = self.plan
        offset = plan.barriers_offset + Ring.barrier_bytes(plan.q_slots + 2 * plan.stages)
        return TileFlag(arith.addi(self.base, word(offset)))

    # --- tiles ----------------------------------------------------------------------------------

    @cached_property
    def order(self) -> WorkOrder:
        return WorkOrder(self.attention, self.plan.work)

    def key_blocks(self, first: Index) -> Index:
        """The end of the blocks of keys that a tile with this first row visits."""
        plan = self.plan
        count: Index = -(-plan.sizes.j // plan.keys)
        if plan.causal:
            count = minimum(count, divide_up(add(first, plan.rows), plan.keys))
        return count

    def segments(self, first: Index, counters: Sequence[Index]) -> SegmentRange | None:
        """The keys that a tile may see, of packed sequences."""
        matrices = matrices_at(self.attention, self.buffers, counters)
        return SegmentRange.of_tile(self.attention, matrices, "i", first, self.plan.rows)

    def key_range(self, first: Index, segments: SegmentRange | None) -> tuple[Index, Index]:
        """The blocks of keys that a tile visits; at least one."""
        count = self.key_blocks(first)
        return (0, count) if segments is None else segments.some_blocks(self.plan.keys, 0, count)

    def plain_blocks(self, first: Index) -> Index:
        """Blocks of keys without hidden scores: the first ones."""
        plan = self.plan
        if plan.masked:
            return 0
        count: Index = plan.sizes.j // plan.keys
        if plan.causal:
            count = minimum(count, divide(add(first, 1), plan.keys))
        return count

    def hiding_keys(self, first: Index) -> tuple[Index, Index]:
        """The range of keys of a tile's blocks with hidden scores."""
        blocks = self.plain_blocks(first), self.key_blocks(first)
        return mul(blocks[0], self.plan.keys), mul(blocks[1], self.plan.keys)
