"""The launch of a kernel, once its strategy is chosen: one method per strategy.

Input: the ops of a kernel with their loop nests, its grid, and a plan. Output: the code inside of
the launch; `schedule.py` calls this. Values kept between ops are private to a thread, or in the
shared memory of the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from nova.codegen.common.flat_buffers import flatten, flatten_root
from nova.codegen.common.index_math import index
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.tile_local import is_scratch
from nova.codegen.gpu.block_ops import Place, SharedMemory, barrier, is_less, split, when
from nova.codegen.gpu.column_reduce import ColumnReduceCode, ColumnReducePlan
from nova.codegen.gpu.elementwise import ElementwiseCode, Lane
from nova.codegen.gpu.generic import GenericCode
from nova.codegen.gpu.hazards import Hazards
from nova.codegen.gpu.rowwise import RowwiseCode
from nova.codegen.gpu.rowwise_plan import RowwisePlan
from nova.codegen.gpu.scatter import ScatterCode
from nova.codegen.gpu.scatter_plan import ScatterPlan
from nova.codegen.gpu.transpose_tile import TransposeTileCode, TransposeTilePlan
from nova.ir.bindings import arith, ir, memref
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.clone import clone_into
from nova.ir.kernel import Kernel
from nova.ir.walk import every_op

SHARED_LIMIT = 48 << 10
_PARTIALS = 1 << 10
"""Bytes of shared memory that the block reductions need."""
_BY_INDEX = ("memref.load", "memref.store")


@dataclass(frozen=True)
class LaunchCode:
    """Emits the ops of a kernel by one strategy; `scratch` are the buffers that it allocates."""

    kernel: Any
    ops: Sequence[Any]
    nests: Mapping[Any, LoopNest]
    grid: tuple[int, ...]
    scratch: Sequence[Any]
    shared: SharedMemory

    @cached_property
    def scratch_bytes(self) -> int:
        """Bytes of scratch per point of the grid."""
        return sum(
            self._room(v) * nbytes(v.type) // max(1, prod(v.type.shape)) for v in self.scratch
        )

    def _room(self, value: Any) -> int:
        """Elements of a scratch buffer per point of the grid."""
        count = prod(value.type.shape)
        return count // max(1, prod(self.grid)) if self._is_own(value) else count

    def _is_own(self, value: Any) -> bool:
        """Whether a buffer is scratch, of which each point of the grid has a part."""
        return isinstance(value, ir.OpResult) and is_scratch(value.owner.operation)

    def points(self, place: Place, lane: Lane | None, workers: int) -> None:
        """One thread for each group of `workers` adjacent points along `lane`, or for a point."""
        count = lane.count if lane else 1
        flat = self.flat_buffers(lambda value: self._private(value, count))
        apart = {flat(value): self._room(value) for value in self.scratch if self._is_own(value)}
        number = arith.addi(arith.muli(place.block, index(place.threads)), place.thread)

        def at_points() -> None:
            sizes = list(self.grid)
            if lane:
                sizes[-1] //= lane.count
            counters = split(number, sizes)
            if lane:
                counters[-1] = arith.muli(counters[-1], index(lane.count))
            code = ElementwiseCode(len(self.grid), lane, apart)
            mapping: dict[Any, Any] = {}
            for op in self.ops:
                with op.location:
                    if op in self.nests:
                        buffers = [flat(mapping.get(v, v)) for v in op.operands]
                        code.emit(self.nests[op], buffers, counters, mapping)
                    else:
                        clone_into(op, mapping)

        if workers % place.threads:
            with when(is_less(number, index(workers))):
                at_points()
        else:
            at_points()

    def tiles(self, place: Place, plan: TransposeTilePlan) -> None:
        """One block per square tile of points."""
        flat = self.flat_buffers()
        code = TransposeTileCode(plan, place, self.shared)
        ops = [(self.nests[op], [flat(value) for value in op.operands]) for op in self.ops]
        for nest, buffers in ops:
            with nest.generic.op.location:
                code.load(nest, buffers)
        code.emit(ops, {})

    def scatter(self, place: Place, plan: ScatterPlan) -> None:
        """One warp for some positions."""
        flat = self.flat_buffers()
        code = ScatterCode(plan, place)
        for op in self.ops:
            with op.location:
                if op == plan.loop:
                    code.add({})
                else:
                    code.elementwise(op, flat, {})

    def rows(self, place: Place, plan: RowwisePlan) -> None:
        """A few threads or a block per row."""
        flat = self.flat_buffers(lambda value: value)
        code = RowwiseCode(plan, place, self.grid, self.shared)
        code.reserve(list(self.nests.values()))
        mapping: dict[Any, Any] = {}
        for op in self.ops:
            with op.location:
                if op in self.nests:
                    buffers = [flat(mapping.get(v, v)) for v in op.operands]
                    code.emit(self.nests[op], buffers, mapping)
                else:
                    clone_into(op, mapping)

    def columns(self, place: Place, plan: ColumnReducePlan) -> None:
        """One block for adjacent columns."""
        flat = self.flat_buffers(lambda value: value)
        code = ColumnReduceCode(plan, place, len(self.grid), self.shared)
        code.reserve(list(self.nests.values()))
        counters = split(code.column, self.grid)
        mapping: dict[Any, Any] = {}

        def emit(op: Any) -> None:
            with op.location:
                if op in self.nests:
                    buffers = [flat(mapping.get(v, v)) for v in op.operands]
                    code.emit(self.nests[op], buffers, counters, mapping)
                else:
                    clone_into(op, mapping)

        last = self.ops.index(list(self.nests)[plan.shared_ops - 1])
        for op in self.ops[: last + 1]:
            emit(op)
        with code.finish():
            for op in self.ops[last + 1 :]:
                emit(op)

    def block(self, place: Place) -> None:
        """One block per point of the grid."""
        code = GenericCode(place, len(self.grid), self.shared)
        flat = self.flat_buffers(
            lambda value: self.shared.allocate(self._room(value), value.type.element_type),
            self._private_arguments(),
        )
        code.reserve(list(self.nests.values()))
        counters = split(place.block, self.grid)
        mapping: dict[Any, Any] = {}
        hazards = Hazards()
        for op in self.ops:
            if hazards.conflicts(op):
                barrier()
                hazards.clear()
            hazards.add(op)
            with op.location:
                if op in self.nests:
                    buffers = [flat(mapping.get(v, v)) for v in op.operands]
                    code.emit(self.nests[op], buffers, counters, mapping)
                elif is_number(op):
                    clone_into(op, mapping)
                else:
                    with code.alone():
                        clone_into(op, mapping)

    def _private(self, value: Any, points: int = 1) -> Any:
        """The scratch of a thread with this many points.

        Values that stay in registers are never stored there.
        """
        room = self._room(value) * (points if self._is_own(value) else 1)
        kind = ir.MemRefType.get([room], value.type.element_type)
        return memref.AllocaOp(kind, [], []).result

    def _private_arguments(self) -> list[Any]:
        """Arguments that nobody reads after the kernel and that a single block uses.

        Those that fit stay in its shared memory, the small ones first.
        """
        if prod(self.grid) > 1:
            return []
        private = Kernel(self.kernel).intermediate_arguments
        loads = [inner for op in self.ops for inner in every_op(op) if inner.name in _BY_INDEX]
        touched = {buffer_root(value) for op in loads for value in op.operands}
        left = SHARED_LIMIT - self.scratch_bytes - _PARTIALS
        found = []
        for value in sorted(private, key=lambda value: nbytes(value.type)):
            left -= nbytes(value.type) + 16
            if value not in touched and left >= 0:
                found.append(value)
        return found

    def flat_buffers(self, make: Any = None, more: Sequence[Any] = ()) -> Any:
        """A function that flattens operands; `make` replaces scratch, at the top of the launch.

        It also replaces the buffers in `more`. By default each thread has a private part of
        scratch.
        """
        make = make or self._private
        made = {value: make(value) for value in (*self.scratch, *more)}
        for op in self.ops:
            for value in op.operands:
                if isinstance(value.type, ir.MemRefType) and buffer_root(value) not in made:
                    root = buffer_root(value)
                    made[root] = flatten(root)
        return lambda value: flatten_root(value, made)


def is_number(op: Any) -> bool:
    """Whether an op only computes scalars, from other scalars or from memory."""
    return bool(len(op.results)) and not any(
        inner.name in ("memref.store", "linalg.generic") for inner in every_op(op)
    )
