"""Boxes of several loops, for contractions that read windows: convolutions (implicit GEMM).

Input: a `GpuGemm` whose rows, or whose steps of k, are several loops: the positions of images. The
distances between such rows are no multiples of one stride, but a box of the copy engine has a
dimension for each loop. Output: a `BoxedGemm`, in which a tile of rows (or a stage of k) is one box
of positions, and the loops over boxes enclose the GEMM. `plan.py` plans it like any other GEMM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from nova.codegen.gpu.gemm.plan import EnclosingLoop, GpuGemm
from nova.ir.index import Index, add, divide, minimum, modulo, mul


@dataclass(frozen=True)
class Term:
    """How an enclosing loop moves a coordinate: by `factor` every `divisor` iterations.

    With a `modulus`, after so many of these moves it begins again.
    """

    loop: int
    factor: int = 1
    divisor: int = 1
    modulus: int = 0

    def at(self, enclosing: Sequence[Index]) -> Index:
        position = divide(enclosing[self.loop], self.divisor)
        if self.modulus:
            position = modulo(position, self.modulus)
        return mul(position, self.factor)


@dataclass(frozen=True)
class Axis:
    """A dimension of a box: the loop that it divides, by its number among the enclosing loops."""

    loop: int
    size: int
    """Iterations of the whole loop."""
    box: int

    @property
    def boxes(self) -> int:
        return -(-self.size // self.box)


@dataclass(frozen=True)
class BoxedGemm:
    """A GEMM of boxes: the axes of its rows or of its steps, from the innermost in memory.

    The loop of the rows (or steps) of the GEMM without boxes is the last enclosing loop.
    """

    gemm: GpuGemm
    whole: GpuGemm
    """Without boxes: its enclosing loops have their whole sizes, the last one is of rows or k."""
    rows: tuple[Axis, ...] = ()
    steps: tuple[Axis, ...] = ()


def box_rows(gemm: GpuGemm, rows: int) -> BoxedGemm | None:
    """A tile of `rows` rows as a box; None if one loop has all rows."""
    spec = gemm.contraction
    (a, _), (c, _) = spec.a_strides, spec.c_strides
    whole = _with_loop(gemm, EnclosingLoop(spec.m, (a, 0, c)))
    axes = _axes(whole, [i for i, loop in enumerate(whole.enclosing) if _is_row(loop)], 0, rows)
    if axes is None:
        return None
    return BoxedGemm(
        replace(_divided(whole, axes), contraction=replace(spec, m=rows)), whole, rows=axes
    )


def box_steps(gemm: GpuGemm, depth: int) -> BoxedGemm | None:
    """A stage of `depth` steps of k as a box; None if one loop has all steps."""
    spec = gemm.contraction
    whole = _with_loop(
        gemm, EnclosingLoop(spec.k, (spec.a_strides[1], spec.b_strides[0], 0), False)
    )
    loops = [i for i, loop in enumerate(whole.enclosing) if not loop.parallel]
    axes = _axes(whole, loops, 1, depth, full=True)
    if axes is None:
        return None
    return BoxedGemm(
        replace(_divided(whole, axes), contraction=replace(spec, k=depth)), whole, steps=axes
    )


@dataclass(frozen=True)
class Dimension:
    """A dimension of an operand's map after the first, and the loops that move it."""

    size: int
    stride: int
    box: int
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class BoxDimensions:
    """The dimensions of a map in boxes: `inner` elements of the first, and all others.

    With a `period`, elements of the contiguous loop from there on are those of the next positions
    of the second dimension: the windows of adjacent positions overlap, dimensions must not.
    """

    inner: int
    period: int
    others: tuple[Dimension, ...]

    @property
    def extent(self) -> int:
        """Elements from the first to the last."""
        return self.inner + sum(dim.stride * (dim.size - 1) for dim in self.others)


def find_dimensions(
    boxed: BoxedGemm, number: int, inner: int, most: int, unit: int
) -> BoxDimensions | None:
    """The dimensions of an operand whose contiguous loop has `inner` elements, read `unit` at once.

    The axes of the box come first. A loop over taps moves the positions of an axis; with a stride,
    windows begin every few positions, and the positions between them are another dimension. None if
    there are more dimensions than `most`, or dimensions overlap.
    """
    axes, loops = boxed.rows or boxed.steps, boxed.whole.enclosing
    dims = [
        Dimension(
            axis.size,
            _number(loops[axis.loop].strides[number]),
            axis.box,
            (Term(axis.loop, axis.box),),
        )
        for axis in axes
    ]
    in_box = {axis.loop for axis in axes}
    for i, loop in enumerate(loops):
        stride, size = _number(loop.strides[number]), _number(loop.size)
        if i not in in_box and stride != 0 and size != 1:
            dims = _with_loop_of(dims, len(axes), inner, i, size, stride)
    period = 0
    if dims[0].stride < inner:
        period = dims[0].stride
        dims[0] = replace(dims[0], size=dims[0].size + (inner - 1) // period)
        if period % unit or inner % unit:
            return None
        inner = period
    if boxed.steps and any(
        a.size % a.box and d.size != a.size for a, d in zip(axes, dims, strict=False)
    ):
        return None
    fits = len(dims) <= most and are_disjoint(inner, [(d.size, d.stride) for d in dims])
    return BoxDimensions(inner, period, tuple(dims)) if fits else None


def _with_loop_of(
    dims: list[Dimension], axes: int, inner: int, loop: int, size: int, stride: int
) -> list[Dimension]:
    """The dimensions with a loop that moves one of the first `axes`, or has one of its own.

    The first way in which dimensions do not overlap.
    """
    for at, dim in reversed(list(enumerate(dims[:axes]))):
        if stride % dim.stride == 0:
            factor = stride // dim.stride
            moved = _moved(dims, at, Term(loop, factor), (size - 1) * factor)
            if _overlap_nowhere(inner, moved):
                return moved
        elif dim.stride % stride == 0:
            steps = dim.stride // stride
            moved = _moved(dims, at, Term(loop, 1, steps), (size - 1) // steps)
            moved.append(Dimension(min(steps, size), stride, 1, (Term(loop, 1, 1, steps),)))
            if _overlap_nowhere(inner, moved):
                return moved
    return [*dims, Dimension(size, stride, 1, (Term(loop),))]


def _moved(dims: list[Dimension], at: int, term: Term, extent: int) -> list[Dimension]:
    dim = dims[at]
    moved = replace(dim, size=dim.size + extent, terms=(*dim.terms, term))
    return [*dims[:at], moved, *dims[at + 1 :]]


def _overlap_nowhere(inner: int, dims: list[Dimension]) -> bool:
    return are_disjoint(min(inner, dims[0].stride), [(dim.size, dim.stride) for dim in dims])


def are_disjoint(inner: int, dims: Sequence[tuple[int, int]]) -> bool:
    """Whether elements of a tensor of these sizes and strides are all different ones."""
    extent = inner
    for size, stride in sorted(dims, key=lambda dim: dim[1]):
        if stride < extent:
            return False
        extent += stride * (size - 1)
    return True


def box_positions(axes: Sequence[Axis], enclosing: Sequence[Index], row: Index) -> list[Index]:
    """The enclosing loops at a row of a box: positions in whole loops, perhaps beyond the last."""
    positions = list(enclosing)
    for axis in axes:
        within, row = modulo(row, axis.box), divide(row, axis.box)
        positions[axis.loop] = add(mul(enclosing[axis.loop], axis.box), within)
    return positions


def clamped_positions(axes: Sequence[Axis], enclosing: Sequence[Index], row: Index) -> list[Index]:
    """Like `box_positions`, with the last position in place of those beyond it."""
    positions = box_positions(axes, enclosing, row)
    for axis in axes:
        if axis.size % axis.box:
            positions[axis.loop] = minimum(positions[axis.loop], axis.size - 1)
    return positions


def inner_box(axes: Sequence[Axis], rows: int) -> tuple[int, ...]:
    """The box of the first `rows` rows of a box."""
    sizes = []
    for axis in axes:
        sizes.append(min(axis.box, rows))
        rows //= sizes[-1]
    return tuple(sizes)


def _axes(
    whole: GpuGemm, loops: Sequence[int], number: int, count: int, *, full: bool = False
) -> tuple[Axis, ...] | None:
    """The box of `count` positions of these loops that needs the fewest boxes.

    With `full`, boxes end before all axes but the last do. Steps beyond the end of an axis would
    multiply zeros of A by other elements of B: beyond the last one, B is zero as well.
    """
    sizes = {i: whole.enclosing[i].size for i in loops}
    several = [i for i in loops if sizes[i] != 1]
    if len(several) < 2 or not all(isinstance(loop.size, int) for loop in whole.enclosing):
        return None
    strides = [loop.strides[:2] for loop in whole.enclosing]
    if not all(isinstance(n, int) for pair in strides for n in pair):
        return None
    several.sort(key=lambda i: _number(strides[i][number]))
    if _number(strides[several[0]][number]) <= 0:
        return None
    powers = [1 << n for n in range(count.bit_length())]
    boxes = [box for box in product(powers, repeat=len(several)) if prod(box) == count]
    if full:
        inner = several[:-1]
        boxes = [
            box
            for box in boxes
            if not any(_number(sizes[i]) % b for i, b in zip(inner, box, strict=False))
        ]

    def cost(box: tuple[int, ...]) -> tuple[int, ...]:
        """Boxes, whether some are not full, and a preference for long rows."""
        pairs = [(_number(sizes[i]), b) for i, b in zip(several, box, strict=True)]
        ragged = sum(1 for size, b in pairs if size % b)
        return prod(-(-size // b) for size, b in pairs), ragged, *(-b for b in box)

    best = min(boxes, key=cost)
    return tuple(Axis(i, _number(sizes[i]), b) for i, b in zip(several, best, strict=True))


def _divided(whole: GpuGemm, axes: Sequence[Axis]) -> GpuGemm:
    loops = list(whole.enclosing)
    for axis in axes:
        a, b, c = loops[axis.loop].strides
        strides = a * axis.box, b * axis.box, c * axis.box
        loops[axis.loop] = replace(loops[axis.loop], size=axis.boxes, strides=strides)
    return replace(whole, enclosing=tuple(loops))


def _with_loop(gemm: GpuGemm, loop: EnclosingLoop) -> GpuGemm:
    return replace(gemm, enclosing=(*gemm.enclosing, loop))


def _is_row(loop: EnclosingLoop) -> bool:
    a, b, c = loop.strides
    return loop.parallel and a != 0 and b == 0 and c != 0


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
