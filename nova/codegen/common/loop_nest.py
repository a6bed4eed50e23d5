"""A structured op of a kernel as a loop nest over flat buffers.

Every buffer of a kernel is contiguous, so each access is one linear function of the loops: an
element stride per loop and an offset. This form makes it easy to merge loops that are contiguous in
memory, to choose the innermost loop, and to match contractions. Sizes, strides and offsets are
expressions (`SizeExpr`) where the program has symbolic sizes.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from nova.core.records import record
from nova.core.sizes import known_equal
from nova.ir.buffers import view_offset
from nova.ir.linalg.generic import GenericOp, shape_of
from nova.ir.symbolic.size_table import Extent, is_number, typical


@record
class Loop:
    """One loop: its extent, kind, stride in every operand, and the linalg loops it represents."""

    size: Extent
    parallel: bool
    strides: tuple[Extent, ...]
    dims: tuple[int, ...]


@record
class LoopNest:
    """The loops of one op, parallel ones first and in the order of the output's dimensions."""

    generic: GenericOp
    loops: tuple[Loop, ...]
    offsets: tuple[Extent, ...]
    indexed: frozenset[int]

    @property
    def iteration_count(self) -> Extent:
        """The size of the iteration space: how often the body runs."""
        return prod(loop.size for loop in self.loops)

    def mergeable(self, i: int) -> bool:
        """Whether loops i and i+1 access every operand as a single loop would."""
        a, b = self.loops[i], self.loops[i + 1]
        if a.parallel != b.parallel or self.indexed & {*a.dims, *b.dims}:
            return False
        pairs = zip(a.strides, b.strides, strict=True)
        return all(known_equal(s, t * b.size) for s, t in pairs)

    def merged(self, i: int) -> LoopNest:
        a, b = self.loops[i], self.loops[i + 1]
        loop = Loop(a.size * b.size, a.parallel, b.strides, a.dims + b.dims)
        return replace(self, loops=(*self.loops[:i], loop, *self.loops[i + 2 :]))


def make_loop_nest(op: Any) -> LoopNest:
    """The loop nest of a linalg.generic on buffers."""
    generic = GenericOp(op)
    linear = [
        access.linear(shape_of(value))
        for value, access in zip(op.operands, generic.accesses, strict=True)
    ]
    count = len(generic.iterators)
    order = [d for d in generic.out_dims if generic.iterators[d] == "parallel"]
    order += [d for d in range(count) if d not in order and generic.iterators[d] == "parallel"]
    order += [d for d in range(count) if generic.iterators[d] == "reduction"]
    loops = tuple(
        Loop(
            generic.sizes[d],
            generic.iterators[d] == "parallel",
            tuple(strides[d] if strides else 0 for strides, _ in linear),
            (d,),
        )
        for d in order
    )
    firsts = (
        offset + view_offset(value) for value, (_, offset) in zip(op.operands, linear, strict=True)
    )
    return LoopNest(generic, loops, tuple(firsts), _indexed(generic))


def read_whole(nest: LoopNest, operand: int, elements: Extent | None = None) -> LoopNest:
    """The nest for access footprints of an operand in another layout: each point reads all of it.

    It has the elements of the nest's operand, or as many as given.
    """
    if elements is None:
        elements = prod(shape_of(nest.generic.op.operands[operand]))

    def replaced(strides: tuple[Extent, ...], stride: int) -> tuple[Extent, ...]:
        return (*strides[:operand], stride, *strides[operand + 1 :])

    loops = [replace(loop, strides=replaced(loop.strides, 0)) for loop in nest.loops]
    none = (0,) * len(nest.offsets)
    return replace(nest, loops=(*loops, Loop(elements, False, replaced(none, 1), ())))


def _indexed(generic: GenericOp) -> frozenset[int]:
    """The linalg loops whose index the body uses; all of them for a whole op, such as attention."""
    if generic.is_whole:
        return frozenset(range(len(generic.iterators)))
    return frozenset(
        int(op.operation.attributes["dim"].value)
        for op in generic.block.operations
        if op.operation.name == "linalg.index"
    )


def merge_grid(
    nests: list[LoopNest], grid: tuple[Extent, ...]
) -> tuple[list[LoopNest], tuple[Extent, ...]]:
    """Merge adjacent grid dimensions where every op of the kernel allows it."""
    i = 0
    while i + 1 < len(grid):
        if all(nest.mergeable(i) for nest in nests):
            nests = [nest.merged(i) for nest in nests]
            grid = (*grid[:i], grid[i] * grid[i + 1], *grid[i + 2 :])
        else:
            i += 1
    return nests, grid


def merge_inner(nest: LoopNest, grid_rank: int) -> LoopNest:
    """Merge adjacent loops after the grid dimensions."""
    i = grid_rank
    while i + 1 < len(nest.loops):
        if nest.mergeable(i):
            nest = nest.merged(i)
        else:
            i += 1
    return nest


def score(nest: LoopNest, i: int) -> tuple[int, int]:
    """The score of loop `i` as the innermost: prefer unit stride in most operands.

    A loop with large strides costs more than one with stride 0; among equals the later one (the
    output's fastest dimension) wins.
    """
    loop = nest.loops[i]
    size = typical(loop.size)
    if size == 1:
        return (-100, i)
    unit = sum(is_number(s, 1) for s in loop.strides)
    jumps = sum(not is_number(s, 0, 1) for s in loop.strides)
    short = 2 if size < 4 else 0
    return (2 * unit - 3 * jumps - short, i)


def innermost(nest: LoopNest) -> int:
    """The loop to make innermost."""
    return max(range(len(nest.loops)), key=lambda i: score(nest, i))
