"""The epilogue of a warpgroup GEMM: from accumulators to C, with the other ops of the kernel.

Input: the accumulators of a thread, in the layout of wgmma: rows lane / 4 and that + 8 of its
warp's 16, columns 2 (lane % 4) and that + 1 of every 8. Output: code that computes the ops of the
kernel in registers, for 64 columns at a time. Operands of those ops, such as a residual, are loaded
while columns before are computed, the first ones during the matmuls. Results go through
shared memory: those that a tensor map can describe with the copy engine, the others row by row,
with bounds checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from nova.codegen.common.builder import loop
from nova.codegen.common.elements import Elements
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import element_bytes, when
from nova.codegen.gpu.device_kernel import is_tile_local
from nova.codegen.gpu.pointwise.elementwise import ElementwiseCode, ThreadVector, first_positions
from nova.codegen.gpu.ptx_ops import (
    GLOBAL,
    SHARED,
    global_base,
    load,
    narrow_pair,
    store,
    warp_barrier,
    wide,
    word,
)
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma.boxes import box_positions
from nova.codegen.gpu.wgmma.mainloop import TilePosition
from nova.codegen.gpu.wgmma.plan import PIECE_BYTES, PIECES, ROW_BYTES, WgmmaPlan
from nova.codegen.gpu.wgmma.split_sums import ConsumerThread
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.buffers import buffer_root
from nova.ir.index import (
    Index,
    add,
    compare,
    divide,
    exclusive_or,
    index,
    minimum,
    modulo,
    mul,
    offset_by,
)
from nova.ir.symbolic.size_table import Extent, is_number
from nova.ir.tensor_maps import TensorMap
from nova.ir.walk import defining_op

_LESS = arith.CmpIPredicate.slt
_EQUAL = arith.CmpIPredicate.eq
CHUNK_COLUMNS = 64
"""Columns that a thread finishes together."""


@dataclass(frozen=True)
class Output:
    """A result of the kernel: its buffer, and its strides in elements.

    With a `map`, boxes of it go through shared memory; `loops` are the enclosing loops that are
    further dimensions of the map.
    """

    root: Any
    size: int
    offset: Extent
    row_stride: Extent
    column_stride: Extent
    enclosing_strides: tuple[Extent, ...]
    map: TensorMap | None = None
    loops: tuple[int, ...] = ()


class FragmentCode(ElementwiseCode):
    """The ops of a kernel at adjacent points of a row; results are collected, not stored."""

    def __init__(self, grid_rank: int, vector_: ThreadVector | None, results: set[Any]):
        super().__init__(grid_rank, vector_)
        self.results = results
        self.collected: dict[Any, list[Any]] = {}

    def _store_points(self, elements: Elements, operand: int, points: list[Any], base: Any) -> None:
        root = buffer_root(elements.generic.op.operands[operand])
        if root in self.results:
            self.collected[root] = [elements.packed(operand, value) for value in points]
        else:
            # Nobody reads it after the kernel, and later ops of the kernel have the registers.
            assert is_tile_local(root) or isinstance(root, ir.BlockArgument)

    def load_early(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        counters: Sequence[Any],
        operands: Sequence[int],
    ) -> None:
        """Load inputs of an op, which no op of the kernel writes: `emit` then has them."""
        elements = Elements(nest, buffers, {})
        bases = first_positions(nest, counters)
        arguments = nest.generic.block.arguments
        for operand in operands:
            key = self._key(elements, operand)
            is_used = any(True for _ in arguments[operand].uses)
            if key is not None and is_used and isinstance(buffers[operand].type, ir.MemRefType):
                self.cached.setdefault(key, self._load(elements, operand, bases[operand]))


LoadEarly = Callable[[FragmentCode, TilePosition, Index, Index], None]
"""Loads the operands of the epilogue at a row and column of C."""
EmitOps = Callable[[FragmentCode, TilePosition, Index, Index, list[Any]], None]
"""Emits the ops of the kernel at a row and column of C, with the sums of adjacent columns."""


Prefetch = Callable[[TilePosition, Index, Index], None]
"""Brings the line of an operand of the epilogue at a row and column of C to the L2 cache."""
EmitTile = Callable[[list[Any]], None]
"""Finishes a tile, given the accumulators of this thread."""


@dataclass(frozen=True)
class TileStore:
    """The epilogue of the tiles of one kernel."""

    plan: WgmmaPlan
    outputs: tuple[Output, ...]
    maps: dict[Any, ir.Value]
    """The address of the tensor map of an output, by root."""
    buffers: dict[Any, Any]
    """The flat buffer of an output, by root."""
    make_code: Callable[[int], FragmentCode]
    """New code for fragments of so many columns."""
    load_early: LoadEarly
    emit_ops: EmitOps
    base: ir.Value
    """The address of the buffers for boxes of C, in shared memory (i32)."""
    prefetches: tuple[tuple[int, Prefetch], ...] = ()
    """Operands that are loaded early, chunk by chunk: bytes of an element, and its prefetch."""
    ahead: int = 1
    """Chunks whose operands are loaded before one is computed."""

    def begin(self, tile: TilePosition, consumer: ConsumerThread, sums: int) -> EmitTile:
        """Load the first operands of the epilogue; the result finishes a tile of so many sums."""
        code = _TileCode(self, tile, consumer, sums)
        code.begin()
        return code.emit

    def finish(self, consumer: ConsumerThread) -> None:
        """Wait for the last stores: the memory must be written when the kernel ends."""
        with when(arith.cmpi(_EQUAL, consumer.thread, word(0))):
            ptx.await_stores(0, read=False)


@dataclass(frozen=True)
class _Chunk:
    """Some columns of 64 rows of a consumer: where they begin, and the first of their sums."""

    block_row: int
    first_column: int
    columns: int
    first_sum: int


@dataclass
class _TileCode:
    """The code of one thread for a tile."""

    store: TileStore
    tile: TilePosition
    consumer: ConsumerThread
    count: int
    """Accumulators of the thread."""
    pieces: list[bool] = field(default_factory=list)
    """Of each piece up to now: whether the copy engine stores it."""
    values: dict[Any, list[list[list[Any]]]] = field(default_factory=dict)
    """Of 64 columns: the elements of each output, by 8 columns and half of the rows."""

    def begin(self) -> None:
        """The positions of the thread, and the operands of its first 64 columns."""
        plan = self.store.plan
        rows = plan.tile.rows // plan.tile.consumers
        lane = arith.andi(self.consumer.thread, word(31))
        self.lane = lane
        self.warp_row = arith.shli(arith.shrui(self.consumer.thread, word(5)), word(4))
        warp_row = arith.addi(self.warp_row, arith.shrui(lane, word(2)))
        first = arith.addi(arith.muli(self.consumer.group, word(rows)), warp_row)
        own_row = add(self.tile.row, wide(first))
        pair = arith.shli(arith.andi(lane, word(3)), word(1))
        own_column = add(self.tile.column, wide(pair))
        per_block = self.count // (rows // 64)
        columns = 2 * per_block
        self.chunks = [
            _Chunk(
                block * 64,
                first_column,
                min(CHUNK_COLUMNS, columns - first_column),
                block * per_block + first_column // 2,
            )
            for block in range(rows // 64)
            for first_column in range(0, columns, CHUNK_COLUMNS)
        ]
        self.own_row, self.own_column = own_row, own_column
        self.loaded = [self._fragments(self.chunks[0])]
        for size, prefetch in self.store.prefetches:
            self._prefetch(ROW_BYTES // size, prefetch)

    def _prefetch(self, width: int, prefetch: Prefetch) -> None:
        """Bring an operand of all chunks but the first to the L2 cache, during the matmuls.

        A thread has a line of `width` columns of every second of 64 rows of a chunk.
        """
        spec, tile = self.store.plan.gemm.contraction, self.store.plan.tile
        lines = [
            (chunk.block_row, chunk.first_column + start)
            for chunk in self.chunks[1:]
            for start in range(0, chunk.columns, width)
        ]
        within = arith.andi(self.consumer.thread, word(63))
        is_second = arith.cmpi(arith.CmpIPredicate.uge, self.consumer.thread, word(64))
        first_row = arith.muli(self.consumer.group, word(tile.rows // tile.consumers))
        for number in range(0, len(lines), 2):
            pair = lines[number], lines[min(number + 1, len(lines) - 1)]
            block_row, column = (
                arith.select(is_second, word(second), word(first))
                for first, second in zip(*pair, strict=True)
            )
            own_row = arith.addi(arith.addi(first_row, block_row), within)
            row = add(self.tile.row, wide(own_row))
            if not is_multiple(spec.m, tile.rows):
                row = minimum(row, spec.m - 1)
            at_column = add(self.tile.column, wide(column))
            if not is_multiple(spec.n, tile.columns):
                at_column = minimum(at_column, spec.n - 1)
            prefetch(self.tile, row, at_column)

    def emit(self, sums: list[Any]) -> None:
        """Compute and store the tile."""
        for number, chunk in enumerate(self.chunks):
            for following in self.chunks[len(self.loaded) : number + 1 + self.store.ahead]:
                self.loaded.append(self._fragments(following))
            fragments = self.loaded[number]
            count = chunk.columns // 2
            self._compute(fragments, sums[chunk.first_sum : chunk.first_sum + count])
            row = add(self.own_row, chunk.block_row)
            column = add(self.own_column, chunk.first_column)
            for output in self.store.outputs:
                if output.size not in (2, 4) or not is_number(output.column_stride, 1):
                    self._store_direct(output, row, column)
                elif self._can_store_pairs(output, chunk.columns):
                    self._store_pairs(output, row, column)
                else:
                    self._store_pieces(output, chunk.block_row, chunk.first_column, chunk.columns)

    @property
    def _width(self) -> int:
        """Adjacent columns of a fragment."""
        return 2 if is_multiple(self.store.plan.gemm.contraction.n, 2) else 1

    def _fragments(self, chunk: _Chunk) -> list[tuple[FragmentCode, Index, Index]]:
        """Code, row and column of each fragment of a chunk, with its operands loaded."""
        store, spec, width = self.store, self.store.plan.gemm.contraction, self._width
        row = add(self.own_row, chunk.block_row)
        column = add(self.own_column, chunk.first_column)
        fragments = []
        for group in range(chunk.columns // 8):
            for half in range(2):
                at_row = add(row, 8 * half)
                if not is_multiple(spec.m, store.plan.tile.rows):
                    at_row = minimum(at_row, spec.m - 1)
                for part in range(0, 2, width):
                    at_column = add(column, group * 8 + part)
                    if not is_multiple(spec.n, store.plan.tile.columns):
                        at_column = minimum(at_column, spec.n - width)
                    code = store.make_code(width)
                    store.load_early(code, self.tile, at_row, at_column)
                    fragments.append((code, at_row, at_column))
        return fragments

    def _compute(self, fragments: list[tuple[FragmentCode, Index, Index]], sums: list[Any]) -> None:
        """The elements of all outputs in up to 64 columns."""
        store, width = self.store, self._width
        self.values = {output.root: [] for output in store.outputs}
        waiting = iter(fragments)
        for group in range(len(sums) // 4):
            halves: dict[Any, list[list[Any]]] = {output.root: [] for output in store.outputs}
            for half in range(2):
                elements: dict[Any, list[Any]] = {output.root: [] for output in store.outputs}
                for part in range(0, 2, width):
                    at = group * 4 + half * 2 + part
                    code, at_row, at_column = next(waiting)
                    values = sums[at : at + width]
                    store.emit_ops(code, self.tile, at_row, at_column, values)
                    for root, points in code.collected.items():
                        elements[root] += points
                for root, points in elements.items():
                    halves[root].append(points)
            for root, rows in halves.items():
                self.values[root].append(rows)

    # --- through shared memory ------------------------------------------------------------------

    def _store_pieces(self, output: Output, block_row: int, first_column: int, count: int) -> None:
        """Store `count` columns of this warpgroup's 64 rows, in pieces of 128 bytes a row.

        A piece is a box of the output's map. Without a map, and for a piece that is not full, warps
        store its rows.
        """
        width = ROW_BYTES // output.size
        for start in range(0, count, width):
            columns = min(width, count - start)
            groups = self.values[output.root][start // 8 : (start + columns) // 8]
            is_box = output.map is not None and columns == width
            buffer = self._begin_piece(is_box)
            if output.size == 2:
                self._write_short(buffer, groups)
            else:
                self._write_words(buffer, groups)
            if is_box:
                self._end_piece(output, buffer, block_row, first_column + start)
            else:
                self._barrier()
                self._store_rows(output, buffer, block_row, first_column + start, columns)

    def _store_rows(
        self, output: Output, buffer: ir.Value, block_row: int, first_column: int, columns: int
    ) -> None:
        """Store a piece row by row: the lanes of a warp have adjacent elements."""
        plan = self.store.plan
        target = self.store.buffers[output.root]
        start: Index = output.offset
        for counter, stride in zip(self.tile.enclosing, output.enclosing_strides, strict=True):
            start = add(start, mul(counter, stride))
        group_row = arith.muli(self.consumer.group, word(plan.tile.rows // plan.tile.consumers))
        first_row = add(self.tile.row, wide(arith.addi(group_row, word(block_row))))
        warp_row = wide(self.warp_row)
        with loop(0, 16, 1) as number:
            piece_row = add(warp_row, number)
            row = add(first_row, piece_row)
            row_start = add(start, mul(row, output.row_stride))
            shared_row = add(wide(buffer), mul(piece_row, ROW_BYTES))
            key = modulo(piece_row, 8)
            for first in range(0, columns, 32):
                within = add(wide(self.lane), first)
                column = add(self.tile.column, add(within, first_column))
                inside = self._is_inside(row, column)
                if first + 32 > columns:
                    inside = arith.andi(inside, compare(_LESS, within, columns))
                with when(inside):
                    nbytes = mul(within, output.size)
                    chunk = exclusive_or(divide(nbytes, 16), key)
                    address = offset_by(shared_row, mul(chunk, 16), modulo(nbytes, 16))
                    element = load(target.type.element_type, address, SHARED, output.size)
                    memref.store(element, target, [index(add(row_start, column))])

    @property
    def _is_first(self) -> Any:
        return arith.cmpi(_EQUAL, self.consumer.thread, word(0))

    def _barrier(self) -> None:
        """A barrier of this warpgroup; barrier 0 is that of the block."""
        ptx.named_barrier(arith.addi(self.consumer.group, word(1)), 128)

    def _begin_piece(self, is_box: bool) -> ir.Value:
        """A buffer that the copy engine, and all warps, have read."""
        with when(self._is_first):
            # Stores of the pieces since the buffer was used last may be pending, and no others. The
            # first piece of a tile waits for those of the tile before.
            ptx.await_stores(sum(self.pieces[1 - PIECES :]))
        warp_barrier()
        self._barrier()
        offset = arith.muli(self.consumer.group, word(PIECES * PIECE_BYTES))
        number = len(self.pieces) % PIECES
        self.pieces.append(is_box)
        return arith.addi(arith.addi(self.store.base, offset), word(number * PIECE_BYTES))

    def _end_piece(
        self, output: Output, buffer: ir.Value, block_row: int, first_column: int
    ) -> None:
        ptx.fence_shared_writes()
        self._barrier()
        rows = self.store.plan.tile.rows // self.store.plan.tile.consumers
        with when(self._is_first):
            group_row = wide(arith.muli(self.consumer.group, word(rows)))
            row = add(add(self.tile.row, group_row), block_row)
            enclosing: Sequence[Index] = self.tile.enclosing
            boxed = self.store.plan.boxed
            at_row = [row]
            if boxed is not None and boxed.rows:
                enclosing = box_positions(boxed.rows, enclosing, row)
                at_row = []
            others = [enclosing[i] for i in output.loops]
            position = [add(self.tile.column, first_column), *at_row, *others]
            ptx.store_box(self.store.maps[output.root], buffer, position)
        warp_barrier()  # the lanes execute the next `wgmma` together

    def _write_short(self, buffer: ir.Value, groups: list[list[list[Any]]]) -> None:
        """Elements of two bytes: four 8 x 8 matrices at a time (stmatrix)."""
        matrix = arith.shrui(self.lane, word(3))
        within = arith.andi(self.lane, word(7))
        half_row = arith.shli(arith.andi(matrix, word(1)), word(3))
        row = arith.addi(arith.addi(self.warp_row, half_row), within)
        row_start = arith.addi(buffer, arith.muli(row, word(ROW_BYTES)))
        key = arith.xori(within, arith.shrui(matrix, word(1)))
        for number in range(0, len(groups), 2):
            chunk = arith.shli(arith.xori(key, word(number)), word(4))
            words = [pack_pair(*groups[number + i][half]) for i in range(2) for half in range(2)]
            ptx.store_matrices(arith.addi(row_start, chunk), words)

    def _write_words(self, buffer: ir.Value, groups: list[list[list[Any]]]) -> None:
        """Elements of four bytes: two at a time."""
        key = arith.shrui(self.lane, word(2))  # the row modulo 8, for both halves
        row = arith.addi(self.warp_row, key)
        row_start = arith.addi(buffer, arith.muli(row, word(ROW_BYTES)))
        pair = arith.andi(self.lane, word(3))
        within = arith.shli(arith.andi(pair, word(1)), word(3))
        chunk_of_pair = arith.shrui(pair, word(1))
        for number, halves in enumerate(groups):
            chunk = arith.xori(arith.addi(chunk_of_pair, word(2 * number)), key)
            offset = arith.addi(arith.shli(chunk, word(4)), within)
            for half, elements in enumerate(halves):
                address = arith.addi(row_start, arith.addi(offset, word(8 * half * ROW_BYTES)))
                packed = ir.VectorType.get([2], elements[0].type)
                store(vector.from_elements(packed, elements), wide(address), SHARED, 8)

    def _is_inside(self, row: Index, column: Index) -> ir.Value:
        """Whether C has this element."""
        spec = self.store.plan.gemm.contraction
        return arith.andi(compare(_LESS, row, spec.m), compare(_LESS, column, spec.n))

    def _can_store_pairs(self, output: Output, columns: int) -> bool:
        """Whether threads store their pairs of elements: aligned ones, of a part of a tile."""
        plan = self.store.plan
        is_narrow = plan.tile.split > 1 and columns * output.size < ROW_BYTES
        starts = (output.offset, output.row_stride, *output.enclosing_strides)
        is_aligned = self._width == 2 and all(is_multiple(start, 2) for start in starts)
        return is_narrow and is_aligned and plan.boxed is None

    def _store_pairs(self, output: Output, row: Index, column: Index) -> None:
        """Store two adjacent elements at a time: for few columns, faster than through a piece."""
        spec, tile = self.store.plan.gemm.contraction, self.store.plan.tile
        buffer = self.store.buffers[output.root]
        start: Index = output.offset
        for counter, stride in zip(self.tile.enclosing, output.enclosing_strides, strict=True):
            start = add(start, mul(counter, stride))
        is_whole = is_multiple(spec.m, tile.rows) and is_multiple(spec.n, tile.columns)
        for number, halves in enumerate(self.values[output.root]):
            for half, elements in enumerate(halves):
                at_row, at_column = add(row, 8 * half), add(column, number * 8)
                element = add(add(start, mul(at_row, output.row_stride)), at_column)
                address = add(global_base(buffer), mul(element, output.size))
                inside = None if is_whole else self._is_inside(at_row, at_column)
                with when(inside) if inside is not None else nullcontext():
                    if output.size == 2:
                        store(pack_pair(*elements), address, GLOBAL, 4)
                    else:
                        packed = ir.VectorType.get([2], elements[0].type)
                        store(vector.from_elements(packed, elements), address, GLOBAL, 8)

    # --- directly ---------------------------------------------------------------------------------

    def _store_direct(self, output: Output, row: Index, column: Index) -> None:
        """Store elements one by one, those in bounds."""
        buffer = self.store.buffers[output.root]
        start: Index = output.offset
        for counter, stride in zip(self.tile.enclosing, output.enclosing_strides, strict=True):
            start = add(start, mul(counter, stride))
        for number, halves in enumerate(self.values[output.root]):
            for half, elements in enumerate(halves):
                at_row = add(row, 8 * half)
                row_start = add(start, mul(at_row, output.row_stride))
                for k, element in enumerate(elements):
                    at_column = add(column, number * 8 + k)
                    element_index = index(add(row_start, mul(at_column, output.column_stride)))
                    with when(self._is_inside(at_row, at_column)):
                        memref.store(element, buffer, [element_index])


def pack_pair(first: Any, second: Any) -> ir.Value:
    """Two adjacent elements of two bytes as an i32; conversions from f32 are one instruction."""
    narrowing = [defining_op(value, "arith.truncf") for value in (first, second)]
    wide = [op.operands[0] for op in narrowing if op is not None]
    if len(wide) == 2 and all(isinstance(value.type, ir.F32Type) for value in wide):
        return narrow_pair(wide[0], wide[1], str(first.type))
    halves = [arith.bitcast(ir.IntegerType.get_signless(16), value) for value in (first, second)]
    low, high = (arith.extui(ir.IntegerType.get_signless(32), half) for half in halves)
    return arith.ori(low, arith.shli(high, word(16)))


def element_size(root: Any) -> int:
    """Bytes of an element of a buffer."""
    return element_bytes(root.type.element_type)
