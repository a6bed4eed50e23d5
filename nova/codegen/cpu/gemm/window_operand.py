"""The right operand of a convolution's matmul, packed from an image (implicit GEMM).

Input: the loop nest of `y[o, i] += a[o, c, k] * x[c, s*i + k]`, for s of 1 or 2. Output: the same
nest as a matmul of `a` with the matrix of all windows, which is not in memory
(`with_window_matrix`), and the place of its elements in x (`WindowOperand`). `schedule.py` calls it
for each contraction. `pack_windows` emits a call that fills a packed panel of that matrix: a row of
it is one tap of a range of positions, and lies in a few rows of the image. Vectors of positions are
loaded with a mask for each of those; targets without masks copy the elements one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from nova.codegen.common.builder import BITS, loop, splat, vector_type
from nova.codegen.common.loop_nest import Loop, LoopNest
from nova.codegen.common.match_contraction import WINDOW_STEPS, WindowOperand
from nova.codegen.cpu.shared_functions import call_shared, entry_alloca
from nova.codegen.cpu.vectorize import has_masks
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, scf, vector
from nova.ir.index import Index, add, compare, index, minimum, mul, sub

_MOST_ELEMENTS = (1 << 31) - 1
"""Of an image: places in it are 32-bit numbers where they are stored."""

_B = 1
"""The operand of a contraction that is an image."""


@record
class WindowBlock:
    """A part of a window matrix: `lanes` columns from `first` on, `depth` rows from `k` on."""

    windows: WindowOperand
    source: ir.Value
    type: str
    offset: Index
    first: Index
    k: Index
    lanes: Index
    depth: Index


def with_window_matrix(nest: LoopNest) -> tuple[LoopNest, WindowOperand] | None:
    """The nest with the strides of the window matrix in place of those of the image.

    None for nests that do not read an image at sums of positions and taps.
    """
    generic = nest.generic
    if generic.num_inputs != 2 or generic.num_outputs != 1 or nest.indexed:
        return None
    if not all(isinstance(n, int) for lp in nest.loops for n in (lp.size, *lp.strides)):
        return None
    coefficients = generic.accesses[_B].coefficients
    if not any(sum(1 for c in row if c) == 2 for row in coefficients):
        return None
    rows = [i for i, lp in enumerate(nest.loops) if lp.parallel and lp.strides[0]]
    positions, taps = _window_loops(nest, rows)
    if not rows or not 1 <= len(positions) <= 2 or not 1 <= len(taps) <= 3:
        return None
    a_stride, step, c_stride = nest.loops[positions[-1]].strides
    if (a_stride, c_stride) != (0, 1) or step not in WINDOW_STEPS:
        return None
    sizes = [nest.loops[i].size for i in (*taps, *positions)]
    virtual = {i: prod(sizes[n + 1 :]) for n, i in enumerate((*taps, *positions))}
    loops = tuple(
        replace(lp, strides=(lp.strides[0], virtual.get(i, lp.strides[_B]), lp.strides[2]))
        for i, lp in enumerate(nest.loops)
    )
    windows = _window_operand(nest, positions, taps)
    return (replace(nest, loops=loops), windows) if windows.extent <= _MOST_ELEMENTS else None


def _window_loops(nest: LoopNest, rows: Sequence[int]) -> tuple[list[int], list[int]]:
    """The loops over positions, and those over channels and taps."""
    positions = [
        i
        for i, lp in enumerate(nest.loops)
        if lp.parallel and lp.strides[_B] and not lp.strides[0] and i > max(rows, default=0)
    ]
    return positions, [i for i, lp in enumerate(nest.loops) if not lp.parallel]


def _window_operand(nest: LoopNest, positions: Sequence[int], taps: Sequence[int]) -> WindowOperand:
    sizes = [1, 1, 1, *(nest.loops[i].size for i in taps)][-3:]
    steps = [0, 0, 0, *(nest.loops[i].strides[_B] for i in taps)][-3:]
    # A loop that is absent has one iteration, after which the next outer loop would advance.
    columns = [nest.loops[i] for i in positions]
    step = columns[-1].strides[_B]
    row_stride = columns[0].strides[_B] if len(columns) == 2 else columns[-1].size * step
    inner = [nest.loops[i] for i in (*positions, *taps)]
    extent = 1 + sum((lp.size - 1) * lp.strides[_B] for lp in inner)
    strides, row = (steps[0], steps[1], steps[2]), columns[-1].size
    return WindowOperand((sizes[1], sizes[2]), strides, row, row_stride, step, extent)


def reads_window_matrix(nest: LoopNest, windows: WindowOperand, n: int, k: int) -> bool:
    """Whether loops n and k of a merged nest are all columns and all rows of the matrix."""
    columns, rows = nest.loops[n], nest.loops[k]
    others = [lp for i, lp in enumerate(nest.loops) if i not in (n, k) and not lp.parallel]
    whole = columns.size % windows.row == 0 and rows.size % prod(windows.taps) == 0
    return whole and not others and (columns.strides[_B], rows.strides[_B]) == (1, columns.size)


def image_footprint(nest: LoopNest, windows: WindowOperand, n: int, k: int) -> LoopNest:
    """The nest for access footprints: every column of the matrix reads all of an image."""

    def of_image(lp: Loop, stride: Any) -> Loop:
        return replace(lp, strides=(lp.strides[0], stride, lp.strides[2]))

    loops = [of_image(lp, 0) if i in (n, k) else lp for i, lp in enumerate(nest.loops)]
    image = Loop(windows.extent, False, (0, 1, 0), ())
    return replace(nest, loops=(*loops, image))


def pack_windows(
    target: Target, acc_type: str, block: WindowBlock, width: int, buffer: ir.Value
) -> None:
    """Fill `buffer` with all panels of a block, as `pack` of packing.py does for a matrix."""
    windows, vl = block.windows, target.lanes(BITS[acc_type])
    masked = has_masks(target, BITS[acc_type])
    segments = (windows.row + vl - 2) // windows.row + 1
    numbers = (
        *(block.offset, block.first, block.k, block.lanes, block.depth),
        *(windows.row, windows.row_stride, *windows.taps, *windows.strides),
    )

    def body(source: ir.Value, into: ir.Value, *values: ir.Value) -> None:
        sizes = width, segments, windows.step
        packer = _WindowPacker(target, acc_type, *sizes, source, into, *values)
        packer.emit(packer.emit_vectors if masked else packer.emit_scalars)

    method = f"windows{segments}" if masked else "windows"
    method += f"_step{windows.step}" if windows.step > 1 else ""
    name = f"nova_pack_{method}_{acc_type}_{width}"
    call_shared(name, (block.source, buffer), [index(n) for n in numbers], 2, body)


@record
class _WindowPacker:
    """The body of one packing function; the fields from `offset` on are its arguments."""

    target: Target
    acc_type: str
    width: int
    segments: int
    step: int
    source: ir.Value
    into: ir.Value
    offset: Index
    first: Index
    k: Index
    lanes: Index
    depth: Index
    row: Index
    row_stride: Index
    taps_y: Index
    taps_x: Index
    channel_stride: Index
    y_stride: Index
    x_stride: Index

    @property
    def vl(self) -> int:
        return self.target.lanes(BITS[self.acc_type])

    def emit(self, emit_panel: Callable[[Index, Index, Index, Index, Index], None]) -> None:
        kx = arith.remui(index(self.k), index(self.taps_x))
        rest = arith.divui(index(self.k), index(self.taps_x))
        ky = arith.remui(rest, index(self.taps_y))
        c = arith.divui(rest, index(self.taps_y))
        steps = mul(c, self.channel_stride), mul(ky, self.y_stride), mul(kx, self.x_stride)
        start = add(self.offset, add(steps[0], add(steps[1], steps[2])))
        with loop(0, self.lanes, self.width) as lane:
            emit_panel(lane, mul(lane, self.depth), start, ky, kx)

    def _place(self, lane: Index) -> tuple[Index, Index]:
        """The offset of the first tap of a position, and its number in its row."""
        position = index(add(self.first, lane))
        x = arith.remui(position, index(self.row))
        row = arith.divui(position, index(self.row))
        return add(mul(row, self.row_stride), mul(x, self.step)), x

    def emit_vectors(self, lane: Index, base: Index, start: Index, ky: Index, kx: Index) -> None:
        type_ = vector_type(self.acc_type, self.vl)
        vectors = [self._masked_parts(add(lane, n)) for n in range(0, self.width, self.vl)]

        def load(tap: Index, parts: list[tuple[Index, ir.Value]]) -> ir.Value:
            value = splat(type_, 0.0)
            for at, mask in parts:
                value = vector.maskedload(type_, self.source, [index(add(tap, at))], mask, value)
            return value

        def emit_step(k: Index, tap: Index) -> None:
            into = add(base, mul(k, self.width))
            for number, halves in enumerate(vectors):
                value, *rest = [load(tap, parts) for parts in halves]
                if rest:
                    value = vector.shuffle(value, *rest, mask=range(0, 2 * self.vl, 2))
                vector.store(value, self.into, [index(add(into, number * self.vl))])

        self._emit_steps(start, ky, kx, emit_step)

    def _masked_parts(self, lane: Index) -> list[list[tuple[Index, ir.Value]]]:
        """The vectors with the positions from `lane` on: `step` of them.

        Each has parts from several rows of the image: the place of its first lane, and a mask. With
        step 2 the even elements of both vectors are the positions, and no vector reads past the
        last one.
        """
        flags = ir.VectorType.get([self.vl], ir.IntegerType.get_signless(1))
        at, x = self._place(lane)
        left, next_row = sub(self.lanes, lane), sub(self.row_stride, mul(self.row, self.step))
        vectors = []
        for first in range(0, self.step * self.vl, self.vl):
            ends = [minimum(sub(mul(s, self.row), x), left) for s in range(1, self.segments + 1)]
            elements = [sub(mul(end, self.step), self.step - 1 + first) for end in ends]
            cuts = [vector.create_mask(flags, [index(n)]) for n in elements]
            masks = [cuts[0], *(arith.xori(a, b) for a, b in pairwise(cuts))]
            starts = [add(add(at, first), mul(next_row, s)) for s in range(self.segments)]
            vectors.append(list(zip(starts, masks, strict=True)))
        return vectors

    def emit_scalars(self, lane: Index, base: Index, start: Index, ky: Index, kx: Index) -> None:
        places = entry_alloca(self.width, "i32")
        last = sub(self.lanes, 1)
        word = ir.IntegerType.get_signless(32)
        with loop(0, self.width, 1) as number:
            at, _ = self._place(minimum(add(lane, number), last))
            memref.store(arith.index_cast(word, index(at)), places, [number])

        def emit_step(k: Index, tap: Index) -> None:
            into = add(base, mul(k, self.width))
            with loop(0, self.width, 1) as number:
                at = arith.index_cast(ir.IndexType.get(), memref.load(places, [number]))
                value = memref.load(self.source, [index(add(tap, at))])
                memref.store(value, self.into, [index(add(into, number))])

        self._emit_steps(start, ky, kx, emit_step)

    def _emit_steps(
        self, start: Index, ky: Index, kx: Index, emit_step: Callable[[Index, Index], None]
    ) -> None:
        """Loop over k with the offset of its tap, which carries from kx to ky to the channel."""
        next_row = sub(self.y_stride, mul(self.taps_x, self.x_stride))
        next_channel = sub(self.channel_stride, mul(self.taps_y, self.y_stride))
        carried = [index(start), index(ky), index(kx)]
        op = scf.ForOp(index(0), index(self.depth), index(1), carried)
        with ir.InsertionPoint(op.body):
            tap, y, x = op.inner_iter_args
            emit_step(op.induction_variable, tap)
            zero, equal = index(0), arith.CmpIPredicate.eq
            x = index(add(x, 1))
            tap = index(add(tap, self.x_stride))
            row_ends = compare(equal, x, self.taps_x)
            tap = index(add(tap, arith.select(row_ends, index(next_row), zero)))
            y = index(add(y, arith.select(row_ends, index(1), zero)))
            x = arith.select(row_ends, zero, x)
            image_ends = compare(equal, y, self.taps_y)
            tap = index(add(tap, arith.select(image_ends, index(next_channel), zero)))
            y = arith.select(image_ends, zero, y)
            scf.YieldOp([tap, y, x])
