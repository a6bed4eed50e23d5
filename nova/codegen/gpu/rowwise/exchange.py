"""Reductions over a cluster of blocks without a cluster barrier, for persistent clusters.

Input: the partial result of each block. Output: the combined result in all threads. A cluster
barrier waits until all memory accesses of all threads are visible to the device, among them the
stores of the previous row. Here each block sends its value to the others by a bulk copy, and waits
at an mbarrier in its own shared memory for the bytes of all: nothing else is ordered.

Memory and barriers alternate from row to row. A block sends its value of row i + 2 after it has
those of row i + 1, which the others send after all of their threads have read those of row i: they
arrive at its barrier to say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.combine import Combine
from nova.codegen.gpu.block_ops import SharedMemory, element_bytes, is_equal, when
from nova.codegen.gpu.cluster_ops import map_shared
from nova.codegen.gpu.ptx_ops import global_base, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.ir.bindings import arith, ir, memref
from nova.ir.index import index

_MESSAGE = 16
"""Bytes of the smallest bulk copy."""
_BUFFERS = 2


@dataclass(frozen=True)
class RowNumber:
    """The number of a row of this cluster (i32): which of two buffers it has, and their phase."""

    number: ir.Value

    @property
    def buffer(self) -> ir.Value:
        return arith.andi(self.number, word(1))

    @property
    def phase(self) -> ir.Value:
        return arith.andi(arith.shrui(self.number, word(1)), word(1))


class ClusterExchange:
    """The exchange of one reduction; made at the top of the launch, before a cluster barrier."""

    def __init__(self, shared: SharedMemory, type_: Any, thread: Any, rank: Any, blocks: int):
        self.rank, self.blocks = word(rank), blocks
        self.is_first = is_equal(thread, index(0))
        self.per_message = _MESSAGE // element_bytes(type_)
        self.sent = shared.allocate(_BUFFERS * self.per_message, type_)
        self.received = shared.allocate(_BUFFERS * blocks * self.per_message, type_)
        arrived = shared.allocate(_BUFFERS, ir.IntegerType.get_signless(64))
        self.arrived = word(global_base(arrived))
        with when(self.is_first):
            for number in range(_BUFFERS):
                # This block expects bytes, and all blocks say that they have read the row before.
                ptx.init_barrier(arith.addi(self.arrived, word(8 * number)), 1 + blocks)
            for number in range(_BUFFERS * self.per_message):
                memref.store(splat(type_, 0), self.sent, [index(number)])

    def reduce(self, value: Any, combine: Combine, row: RowNumber) -> Any:
        """Combine the values of all blocks, in their order; all threads of a block have its own."""
        buffer = row.buffer
        arrived = arith.addi(self.arrived, arith.shli(buffer, word(3)))
        first = arith.muli(buffer, word(self.blocks))
        with when(self.is_first):
            at = arith.index_castui(ir.IndexType.get(), buffer)
            memref.store(value, self.sent, [arith.muli(at, index(self.per_message))])
            ptx.fence_shared_writes()
            ptx.expect_bytes(arrived, self.blocks * _MESSAGE)
            source = arith.addi(word(global_base(self.sent)), arith.shli(buffer, word(4)))
            message = arith.shli(arith.addi(first, self.rank), word(4))
            to = arith.addi(word(global_base(self.received)), message)
            for block in range(self.blocks):
                remote = map_shared(to, word(block)), map_shared(arrived, word(block))
                ptx.arrive(arrived, word(block))
                ptx.send_bytes(remote[0], source, _MESSAGE, remote[1])
        ptx.await_phase(arrived, row.phase)
        total = None
        start = arith.muli(arith.index_castui(ir.IndexType.get(), first), index(self.per_message))
        for block in range(self.blocks):
            at = arith.addi(start, index(block * self.per_message))
            other = memref.load(self.received, [at])
            total = other if total is None else combine(total, other)
        return total
