"""Boxes of several loops, for contractions that read windows: convolutions (implicit GEMM).

Input: a `GpuGemm` whose rows, or whose steps of k, are several loops: the positions of images. The
elements of such a row are no multiple of one stride apart, but a box of the copy engine has a
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

Term = tuple[int, int]
"""An enclosing loop, and by how much one iteration moves a coordinate."""


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
    axes = _axes(whole, loops, 1, depth)
    if axes is None:
        return None
    return BoxedGemm(
        replace(_divided(whole, axes), contraction=replace(spec, k=depth)), whole, steps=axes
    )


@dataclass
class Dimension:
    """A dimension of an operand's map after the first, and the loops that move it."""

    size: int
    stride: int
    box: int
    terms: tuple[Term, ...]


def dimensions_of(
    boxed: BoxedGemm, number: int, axes: tuple[Axis, ...], most: int
) -> list[Dimension] | None:
    """The dimensions of an operand's map after the first; None if there are more than `most`.

    The axes of the box come first. A loop that continues an axis, such as the parts of divided
    images, is a part of its dimension.
    """
    in_box = {axis.loop for axis in axes}
    dims = []
    for axis in axes:
        stride = _number(boxed.whole.enclosing[axis.loop].strides[number])
        dims.append(Dimension(axis.size, stride, axis.box, ((axis.loop, axis.box),)))
    for i, loop in enumerate(boxed.whole.enclosing):
        stride, size = _number(loop.strides[number]), _number(loop.size)
        if i in in_box or stride == 0 or size == 1:
            continue
        for dim in dims:
            if dim.size * dim.stride == stride and dim.size % dim.box == 0:
                dim.terms = (*dim.terms, (i, dim.size))
                dim.size *= size
                break
        else:
            dims.append(Dimension(size, stride, 1, ((i, 1),)))
    return dims if len(dims) <= most else None


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


def _axes(whole: GpuGemm, loops: Sequence[int], number: int, count: int) -> tuple[Axis, ...] | None:
    """The box of `count` positions of these loops that needs the fewest boxes."""
    sizes = {i: whole.enclosing[i].size for i in loops}
    several = [i for i in loops if sizes[i] != 1]
    if len(several) < 2 or not all(isinstance(loop.size, int) for loop in whole.enclosing):
        return None
    strides = [loop.strides[:2] for loop in whole.enclosing]
    if not all(isinstance(n, int) for pair in strides for n in pair):
        return None
    several.sort(key=lambda i: _number(strides[i][number]))
    powers = [1 << n for n in range(count.bit_length())]
    boxes = [box for box in product(powers, repeat=len(several)) if prod(box) == count]

    def cost(box: tuple[int, ...]) -> tuple[int, ...]:
        number_of = prod(-(-_number(sizes[i]) // b) for i, b in zip(several, box, strict=True))
        return number_of, *(-b for b in box)

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
