"""How a kernel runs on a device: which threads do what, and the code of its launch.

In: a kernel over buffers (stage `buffers`) and a device target. Out: one `gpu.launch` in place of
the kernel's ops. `lower-device-kernels` calls this. A kernel's grid is the leading dimensions that
its ops share; a point of it is one thread's (points.py) where there is little to do, a few threads'
or a block's with the whole row in registers (rows.py), and else a block's (block.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil, prod
from typing import Any, TypeVar

from nova.mlir.bindings import arith, ir, memref
from nova.mlir.buffers import VIEWS, buffer_root, nbytes
from nova.mlir.clone import clone_into
from nova.mlir.gpu_bindings import gpu
from nova.mlir.structured import is_structured
from nova.mlir.walk import every_op, find_ops
from nova.schedules.cuda.attention_kernel import find_attention_kernel
from nova.schedules.cuda.block import BlockCode
from nova.schedules.cuda.columns import ColumnCode, ColumnPlan, plan_columns
from nova.schedules.cuda.hazards import Hazards
from nova.schedules.cuda.points import PointCode, widest_lane
from nova.schedules.cuda.product_kernel import find_product_kernel
from nova.schedules.cuda.row_plan import RowPlan, plan_rows
from nova.schedules.cuda.rows import RowCode
from nova.schedules.cuda.scatter import ScatterCode, ScatterPlan, plan_scatter
from nova.schedules.cuda.threads import (
    WARP,
    LaunchShape,
    Place,
    SharedMemory,
    barrier,
    is_less,
    split,
    when,
)
from nova.schedules.cuda.tiles import TileCode, TilePlan, plan_tiles
from nova.schedules.flat import flatten, flatten_root
from nova.schedules.nest import Nest, make_nest, merge_grid, merge_inner
from nova.schedules.positions import index
from nova.schedules.scalar_loops import ScalarLoops
from nova.schedules.scratch import is_scratch
from nova.targets import Target

_Plan = TypeVar("_Plan", ColumnPlan, RowPlan)
_POINT_THREADS = 256
_MOST_THREADS = 1024
_WORTH_TILES = 4096
"""Points of a kernel that may have tiles: fewer are read out of the cache."""
_SHORT = 8
"""Turns behind the grid that one thread may take by itself."""
_SHARED_LIMIT = 48 << 10
_FEW_BLOCKS = 64
_PARTIALS = 1 << 10
"""Bytes of shared memory that the reductions of a block need."""
_BY_INDEX = ("memref.load", "memref.store")


class DeviceSchedule:
    """The schedule of one kernel: analysed once, emitted once."""

    def __init__(self, kernel: Any, ops: list[Any], target: Target, *, tf32: bool = False):
        self.kernel = kernel
        self.target = target
        self.ops = [op for op in ops if op.name not in VIEWS and not _is_free(op)]
        grid = tuple(kernel.attributes["nova.grid"])
        structured = [op for op in self.ops if is_structured(op)]
        if any(not is_structured(op) and not _is_number(op) for op in self.ops):
            grid = ()  # what has no structure is one thread's
        nests, self.grid = merge_grid([make_nest(op) for op in structured], grid)
        nests = [merge_inner(nest, len(self.grid)) for nest in nests]
        self.scratch = [op.results[0] for op in ops if op.name == "memref.alloca"]
        whole = dict(zip(structured, nests, strict=True))
        self.nests = {op: self._at_own_point(nest) for op, nest in whole.items()}
        self.points = prod(self.grid)
        self.product = find_product_kernel(self.ops, whole, self.grid, target.cpu, tf32)
        self.attention = find_attention_kernel(kernel, self.ops, whole, target.cpu)
        self.shared = SharedMemory()

    # --- analysis ---------------------------------------------------------------------------------

    def _at_own_point(self, nest: Nest) -> Nest:
        """Scratch of a point begins at its own start: the grid's loops do not move in it."""
        local = [
            i
            for i, value in enumerate(nest.generic.op.operands)
            if isinstance(value.type, ir.MemRefType) and buffer_root(value) in self._tile_local
        ]
        loops = list(nest.loops)
        for i in range(len(self.grid)):
            strides = tuple(0 if k in local else s for k, s in enumerate(loops[i].strides))
            loops[i] = replace(loops[i], strides=strides)
        return replace(nest, loops=tuple(loops))

    @cached_property
    def _tile_local(self) -> set[Any]:
        return {value for value in self.scratch if is_scratch(value.owner.operation)}

    def _room(self, value: Any) -> int:
        """Elements of a scratch buffer that one point of the grid has."""
        count = prod(value.type.shape)
        return count // max(1, self.points) if value in self._tile_local else count

    @cached_property
    def inner(self) -> int:
        """The most turns that an op takes at one point of the grid."""
        rank = len(self.grid)
        return max(
            (prod(loop.size for loop in nest.loops[rank:]) for nest in self.nests.values()),
            default=1,
        )

    @cached_property
    def by_points(self) -> bool:
        """Whether a thread takes a point of the grid by itself, rather than a block."""
        if not self.grid:
            return False
        if self.inner <= _SHORT:
            return True
        if self.columns or self.rows:
            return False
        if self.points >= 4096 and all(map(self._is_columnwise, self.nests.values())):
            return True
        return self._scratch_bytes > _SHARED_LIMIT

    @cached_property
    def tiles(self) -> TilePlan | None:
        """How the kernel reads inputs that lie in another order, if it does."""
        if self.points < _WORTH_TILES or any(op not in self.nests for op in self.ops):
            return None
        return plan_tiles(list(self.nests.values()), self.grid)

    @cached_property
    def _is_empty(self) -> bool:
        """Whether no op of the kernel has anything to do."""
        return all(op in self.nests for op in self.ops) and not any(
            prod(loop.size for loop in nest.loops) for nest in self.nests.values()
        )

    @cached_property
    def scatter(self) -> ScatterPlan | None:
        """How the kernel adds at computed positions, if it does."""
        return None if self.scratch else plan_scatter(self.ops)

    @cached_property
    def columns(self) -> ColumnPlan | None:
        """How the kernel reduces columns, if it does."""
        return None if self.inner <= _SHORT else self._plan(plan_columns)

    @cached_property
    def rows(self) -> RowPlan | None:
        """How the kernel is a row program, if it is one."""
        return self._plan(plan_rows)

    def _plan(self, plan: Callable[..., _Plan | None]) -> _Plan | None:
        others = [op for op in self.ops if op not in self.nests]
        if not all(map(_is_number, others)):
            return None
        first, count = (int(self.kernel.attributes[f"nova.{n}"].value) for n in ("inputs", "outs"))
        results = set(list(self.kernel.entry_block.arguments)[first : first + count])
        return plan(list(self.nests.values()), others, self.grid, results)

    @cached_property
    def _scratch_bytes(self) -> int:
        return sum(
            self._room(v) * nbytes(v.type) // max(1, prod(v.type.shape)) for v in self.scratch
        )

    def _is_columnwise(self, nest: Nest) -> bool:
        """Whether neighbouring points read neighbouring elements, turn by turn."""
        last = nest.loops[len(self.grid) - 1]
        inner = nest.loops[len(self.grid) :]
        return not inner or (
            1 in last.strides and all(1 not in loop.strides for loop in inner if loop.size > 1)
        )

    # --- emission ---------------------------------------------------------------------------------

    def emit(self) -> LaunchShape:
        """The launch, at the insertion point; an empty grid is not launched at all."""
        if not self.points or self._is_empty:
            return LaunchShape(0, WARP)
        self.lane = widest_lane(list(self.nests.values()), self.grid) if self.by_points else None
        per_thread = self.lane.count if self.lane else 1
        workers = self.points // per_thread
        if self.product:
            blocks, threads = self.product.plan.blocks, self.product.plan.shape.threads
        elif self.attention:
            blocks, threads = self.attention.plan.blocks, self.attention.plan.threads
        elif self.tiles:
            blocks, threads = self.tiles.blocks, self.tiles.threads
        elif self.by_points:
            threads = _POINT_THREADS if workers >= _POINT_THREADS else _up(workers, WARP)
            blocks = ceil(workers / threads)
        elif plan := self.scatter or self.columns or self.rows:
            blocks, threads = plan.blocks, plan.threads
        else:
            threads = min(_MOST_THREADS, _up(ceil(self.inner / 4), WARP))
            blocks = self.points
        i32 = ir.IntegerType.get_signless(32)
        size = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, 0))
        launch = gpu.LaunchOp(
            (index(blocks), index(1), index(1)),
            (index(threads), index(1), index(1)),
            dynamic_shared_memory_size=size.result,
        )
        body = launch.regions[0].blocks[0]
        with ir.InsertionPoint(body):
            place = Place(body.arguments[0], body.arguments[3], threads)
            if self.product:
                flat = self._flat_buffers(self._private)
                rank = len(self.grid)
                self.product.emit(self.ops, self.nests, rank, flat, place)
                self.shared.size = self.product.plan.shared_bytes
            elif self.attention:
                self.attention.emit(self._flat_buffers(self._private), place)
                self.shared.size = self.attention.plan.shared_bytes
            elif self.tiles:
                self._emit_tiles(place, self.tiles)
            elif self.by_points:
                self._emit_points(place, workers)
            elif self.scatter:
                self._emit_scatter(place, self.scatter)
            elif self.columns:
                self._emit_columns(place, self.columns)
            elif self.rows:
                self._emit_rows(place, self.rows)
            else:
                self._emit_block(place)
            gpu.TerminatorOp()
        size.operation.attributes["value"] = ir.IntegerAttr.get(i32, self.shared.size)
        return LaunchShape(blocks, threads, self.shared.size, self._resident(blocks))

    def _resident(self, blocks: int) -> int:
        """Blocks that a multiprocessor shall hold, which decides how many registers they get.

        Of few blocks each has one to itself: the assembler need not spill to make room for two.
        Those of attention have as many registers as there are: shared memory is what limits them.
        """
        if self.product:
            return self.product.plan.resident
        return 1 if self.attention or blocks <= _FEW_BLOCKS else 0

    def _emit_points(self, place: Place, workers: int) -> None:
        flat = self._flat_buffers(
            lambda value: (
                memref.AllocaOp(
                    ir.MemRefType.get([self._room(value)], value.type.element_type), [], []
                ).result
            )
        )
        number = arith.addi(arith.muli(place.block, index(place.threads)), place.thread)

        def at_points() -> None:
            sizes = list(self.grid)
            if self.lane:
                sizes[-1] //= self.lane.count
            counters = split(number, sizes)
            if self.lane:
                counters[-1] = arith.muli(counters[-1], index(self.lane.count))
            code = PointCode(len(self.grid), self.lane)
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

    def _emit_tiles(self, place: Place, plan: TilePlan) -> None:
        flat = self._flat_buffers(self._private)
        code = TileCode(plan, place, self.shared)
        ops = [(self.nests[op], [flat(value) for value in op.operands]) for op in self.ops]
        for nest, buffers in ops:
            with nest.generic.op.location:
                code.load(nest, buffers)
        code.emit(ops, {})

    def _emit_scatter(self, place: Place, plan: ScatterPlan) -> None:
        flat = self._flat_buffers(self._private)
        code = ScatterCode(plan, place)
        for op in self.ops:
            with op.location:
                if op == plan.loop:
                    code.add({})
                else:
                    code.elementwise(op, flat, {})

    def _emit_rows(self, place: Place, plan: RowPlan) -> None:
        flat = self._flat_buffers(lambda value: value)
        code = RowCode(plan, place, self.grid, self.shared)
        code.reserve(list(self.nests.values()))
        mapping: dict[Any, Any] = {}
        for op in self.ops:
            with op.location:
                if op in self.nests:
                    buffers = [flat(mapping.get(v, v)) for v in op.operands]
                    code.emit(self.nests[op], buffers, mapping)
                else:
                    clone_into(op, mapping)

    def _emit_columns(self, place: Place, plan: ColumnPlan) -> None:
        flat = self._flat_buffers(lambda value: value)
        code = ColumnCode(plan, place, len(self.grid), self.shared)
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

    def _emit_block(self, place: Place) -> None:
        code = BlockCode(place, len(self.grid), self.shared)
        flat = self._flat_buffers(
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
                elif _is_number(op):
                    clone_into(op, mapping)
                else:
                    with code.alone():
                        _emit_nested(clone_into(op, mapping))

    def _private(self, value: Any) -> Any:
        """A thread's own part of scratch; what is kept in registers never gets there."""
        kind = ir.MemRefType.get([self._room(value)], value.type.element_type)
        return memref.AllocaOp(kind, [], []).result

    def _private_arguments(self) -> list[Any]:
        """Arguments that nobody reads behind the kernel, and one block has for itself.

        Those that fit stay in its shared memory, the small ones first.
        """
        if self.points > 1:
            return []
        first, count = (int(self.kernel.attributes[f"nova.{n}"].value) for n in ("inputs", "outs"))
        private = list(self.kernel.entry_block.arguments)[first + count :]
        loads = [inner for op in self.ops for inner in every_op(op) if inner.name in _BY_INDEX]
        touched = {buffer_root(value) for op in loads for value in op.operands}
        left = _SHARED_LIMIT - self._scratch_bytes - _PARTIALS
        found = []
        for value in sorted(private, key=lambda value: nbytes(value.type)):
            left -= nbytes(value.type) + 16
            if value not in touched and left >= 0:
                found.append(value)
        return found

    def _flat_buffers(self, make: Any, more: Sequence[Any] = ()) -> Any:
        """What flattens operands: scratch becomes what `make` gives, at the top of the launch.

        So does what is in `more`.
        """
        made = {value: make(value) for value in (*self.scratch, *more)}
        for op in self.ops:
            for value in op.operands:
                if isinstance(value.type, ir.MemRefType) and buffer_root(value) not in made:
                    root = buffer_root(value)
                    made[root] = flatten(root)
        return lambda value: flatten_root(value, made)


def _emit_nested(op: Any) -> None:
    """Write out the structured ops inside of a loop or branch, where they stand."""
    for inner in find_ops(op, "linalg.generic"):
        nest = merge_inner(make_nest(inner), 0)
        with ir.InsertionPoint(inner), inner.location:
            buffers = [flatten(buffer_root(v)) for v in inner.operands]
            ScalarLoops(nest, buffers, [None] * len(nest.loops), {}).emit()
        inner.erase()


def _is_free(op: Any) -> bool:
    return op.name in ("arith.constant", "memref.alloca")


def _is_number(op: Any) -> bool:
    """Whether an op only makes numbers, of others or of what is in memory."""
    return bool(len(op.results)) and not any(
        inner.name in ("memref.store", "linalg.generic") for inner in every_op(op)
    )


def _up(value: int, step: int) -> int:
    return max(step, -(-value // step) * step)
