"""Split-K over a cluster: adds the sums of blocks that computed parts of k of the same tile.

Input: the accumulators of a thread in each block of a cluster. Output: those of a part of the
columns, added over all blocks in their order, so that results do not depend on timing. Partial sums
are exchanged through distributed shared memory, where the stages of the operands were: neither
device memory nor atomics are needed. `mainloop.py` calls it.
"""

from __future__ import annotations

from dataclasses import dataclass

from nova.codegen.gpu.cluster_ops import cluster_barrier, load_remote_floats, map_shared
from nova.codegen.gpu.ptx_ops import SHARED, store, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma.plan import MOST_CONSUMERS, WgmmaPlan
from nova.ir.bindings import arith, ir, vector

_CONSUMER_BARRIER = MOST_CONSUMERS + 1
"""The named barrier of all consumers; each warpgroup has one of its own before it."""


_WIDTH = 4
"""Sums that one access moves."""


@dataclass(frozen=True)
class ConsumerThread:
    """A thread of a consumer: the number of its warpgroup, and its number in it (both i32)."""

    group: ir.Value
    thread: ir.Value


def reduce_split_sums(
    plan: WgmmaPlan,
    base: ir.Value,
    rank: ir.Value,
    consumer: ConsumerThread,
    sums: list[ir.Value],
) -> list[ir.Value]:
    """The sums of this block's part of the columns: `rank` has the `rank`-th part.

    `base` is the address of the stages in shared memory. Four sums at a time are stored by their
    number, then by thread, so that the threads of a warp access adjacent vectors. All blocks of the
    cluster call this, and all their threads, those of the producer too, arrive at the cluster
    barrier.
    """
    threads = plan.tile.consumers * 128
    vector_bytes = 4 * _WIDTH
    first = arith.addi(arith.muli(consumer.group, word(128)), consumer.thread)
    thread_base = arith.addi(base, arith.muli(first, word(vector_bytes)))
    # Tensor cores may still read a stage for the other consumer.
    ptx.named_barrier(word(_CONSUMER_BARRIER), threads)
    packed = ir.VectorType.get([_WIDTH], ir.F32Type.get())
    for number in range(0, len(sums), _WIDTH):
        address = arith.addi(thread_base, word(4 * threads * number))
        value = vector.from_elements(packed, sums[number : number + _WIDTH])
        store(value, arith.index_castui(ir.IndexType.get(), address), SHARED, vector_bytes)
    cluster_barrier()
    count = plan.part_columns // 2
    part = arith.addi(thread_base, arith.muli(rank, word(4 * threads * count)))
    totals: list[ir.Value] = []
    for block in range(plan.tile.split):
        remote = map_shared(part, word(block))
        values = [
            value
            for number in range(0, count, _WIDTH)
            for value in load_remote_floats(remote, 4 * threads * number)
        ]
        if block:
            values = [arith.addf(a, b) for a, b in zip(totals, values, strict=True)]
        totals = values
    return totals
