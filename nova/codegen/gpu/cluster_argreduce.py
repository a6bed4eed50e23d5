"""Arg-reductions of a long row by the blocks of a cluster: the token of the largest logit.

Input: a kernel that is one arg-reduction without other loops, such as the argmax of the logits of a
decoder. Output: the strategy `CLUSTER_ARGREDUCE`. One block would wait for its loads many times;
the threads of a cluster have all elements in flight at once. Each block finds its best element, and
the first one compares them, through their shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova.codegen.common.elements import Elements
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.argreduce import ArgReduce, best_share, find_extreme
from nova.codegen.gpu.block_ops import ThreadPosition, is_equal, when
from nova.codegen.gpu.cluster_ops import can_exchange, cluster_barrier, load_remote, map_shared
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.nest_point import NestPoint
from nova.codegen.gpu.ptx_ops import word
from nova.codegen.gpu.strategy import Strategy
from nova.ir.bindings import arith, memref
from nova.ir.index import index

_BLOCKS = 8
"""Blocks of a cluster: the most that every device has."""
_LEAST_TERMS = 8192
"""Elements of a row; one block compares fewer as fast."""


@dataclass(frozen=True)
class ClusterArgReducePlan:
    """One cluster for the single row."""

    nest: LoopNest
    extreme: ArgReduce
    threads: int
    cluster: int = _BLOCKS
    min_blocks_per_sm: int = 1

    @property
    def blocks(self) -> int:
        return self.cluster


def match_argreduce(kernel: DeviceKernel) -> tuple[LoopNest, ArgReduce] | None:
    """Match a kernel that is one arg-reduction, and the initialization of its results."""
    if not kernel.is_structured or kernel.prologue or kernel.grid:
        return None
    *fills, op = kernel.ops
    nest = kernel.nests[op]
    results = set(nest.generic.outputs)
    for fill in fills:
        if kernel.nests[fill].loops or not set(kernel.nests[fill].generic.outputs) <= results:
            return None
    sizes = [loop.size for loop in nest.loops]
    if len(sizes) != 1 or not isinstance(sizes[0], int) or sizes[0] < _LEAST_TERMS:
        return None
    extreme = find_extreme(nest)
    if extreme is None or not can_exchange([extreme.best.type, extreme.position.type]):
        return None
    return nest, extreme


def plan_argreduce(
    kernel: DeviceKernel, match: tuple[LoopNest, ArgReduce]
) -> ClusterArgReducePlan | None:
    """A cluster, where the device has them."""
    return ClusterArgReducePlan(*match, kernel.max_threads) if kernel.has_clusters else None


def emit_argreduce(
    kernel: DeviceKernel, plan: ClusterArgReducePlan, position: ThreadPosition
) -> None:
    """Emit the search of a block; then the first one compares the results of all."""
    nest, extreme = plan.nest, plan.extreme
    flat = kernel.flat_buffers()
    types = extreme.best.type, extreme.position.type
    rooms = [kernel.shared.allocate(position.warps, type_) for type_ in types]
    slots = [kernel.shared.allocate(1, type_) for type_ in types]
    with nest.generic.op.location:
        elements = Elements(nest, [flat(value) for value in nest.generic.op.operands], {})
        point = NestPoint(elements, [index(offset) for offset in nest.offsets], {})
        first = arith.addi(arith.muli(position.block, index(plan.threads)), position.thread)
        best = best_share(point, [0], extreme, first, plan.threads * plan.cluster)
        best = extreme.merge_block(best, {}, position, rooms)
        with when(is_equal(position.thread, index(0))):
            for value, slot in zip(best, slots, strict=True):
                memref.store(value, slot, [index(0)])
        cluster_barrier()
        with when(is_equal(first, index(0))):
            for rank in range(1, plan.cluster):
                value, where = (_load_slot(slot, rank) for slot in slots)
                best = extreme.merge(best, (value, where), {})
            elements.store(list(best), point.bases)
        cluster_barrier()  # the first block has read the slots of the others


def _load_slot(slot: Any, rank: int) -> Any:
    """The element of a buffer in the shared memory of another block of the cluster."""
    address = word(memref.extract_aligned_pointer_as_index(slot))
    return load_remote(slot.type.element_type, map_shared(address, word(rank)))


CLUSTER_ARGREDUCE = Strategy("cluster_argreduce", match_argreduce, plan_argreduce, emit_argreduce)
