"""Access footprints: the bytes of its arguments that the tiles of a kernel touch.

The schedule of a kernel calls `find_footprint`, and `lower-kernels` stores the result as
attributes; the task graph reads them and asks which bytes a range of tiles reads and writes. An
access is stored as its byte range: at the grid point p an op touches bytes within [low,
high) + strides . p. That is exact for rows and conservative for columns, which only orders more
tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from nova.codegen.common.loop_nest import LoopNest
from nova.core.records import record
from nova.core.sizes import ceildiv, known_equal, size_max, size_min
from nova.errors import LoweringError
from nova.ir.attributes import INS, WRITES
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_root, nbytes
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel
from nova.ir.linalg.generic import is_generic_op, shape_of
from nova.ir.symbolic.size_table import Extent, is_number, typical

Bounds = tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]
_HARMLESS = VIEWS | {"memref.dim", "memref.prefetch", "func.return"}


@record
class ByteRange:
    """Bytes [low, high), shifted by `strides` with the grid point."""

    low: Extent
    high: Extent
    strides: tuple[Extent, ...]

    def __mul__(self, factor: int) -> ByteRange:
        strides = tuple(s * factor for s in self.strides)
        return ByteRange(self.low * factor, self.high * factor, strides)


@record
class Footprint:
    """A kernel's grid and tile, and the byte ranges of each argument that it reads and writes."""

    grid: tuple[Extent, ...]
    tile: tuple[int, ...]
    reads: tuple[tuple[ByteRange, ...], ...]
    writes: tuple[tuple[ByteRange, ...], ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Tiles along each dimension of the grid; the last one is the fastest."""
        sizes = zip(self.grid, self.tile, strict=True)
        return tuple(-(-typical(g) // t) for g, t in sizes)

    @property
    def tiles(self) -> int:
        """The number of tiles."""
        return prod(self.counts)

    def touched(self, byte_ranges: Sequence[ByteRange], cuts: Sequence[int]) -> Bounds | None:
        """The bytes [low, high) that tiles [cuts[i], cuts[i+1]) touch; None for no bytes."""
        if not byte_ranges or len(cuts) < 2:
            return None
        lows, highs = zip(
            *(self._bounds_of_tiles(byte_range) for byte_range in byte_ranges), strict=True
        )
        low = np.minimum.reduce(lows)[: cuts[-1]]
        high = np.maximum.reduce(highs)[: cuts[-1]]
        starts = np.asarray(cuts[:-1])
        return np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)

    def _bounds_of_tiles(self, byte_range: ByteRange) -> Bounds:
        counts = self.counts
        tiles = np.arange(prod(counts))
        low = np.full(tiles.shape, byte_range.low)
        high = np.full(tiles.shape, byte_range.high)
        for i, stride in enumerate(byte_range.strides):
            first = tiles // prod(counts[i + 1 :]) % counts[i] * self.tile[i]
            last = np.minimum(first + self.tile[i], self.grid[i]) - 1
            low += stride * (first if stride >= 0 else last)
            high += stride * (last if stride >= 0 else first)
        return low, high


def find_footprint(
    kernel: Any,
    ops: Sequence[Any],
    nests: Mapping[Any, LoopNest],
    grid: tuple[Extent, ...],
    tile: tuple[int, ...],
) -> Footprint:
    """The footprint of a kernel whose `ops` run as `nests` where they have one."""
    arguments = list(kernel.entry_block.arguments)
    position = {a: i for i, a in enumerate(arguments) if isinstance(a.type, ir.MemRefType)}
    finder = _Finder(position, grid, tile, INS.find(kernel) or 0)
    for op in ops:
        if op in nests:
            finder.add_loop_nest(nests[op])
        finder.add_unstructured([op] if op not in nests else _inner(op))
    return Footprint(
        grid,
        tile,
        tuple(_merged(finder.reads.get(i, ())) for i in range(len(arguments))),
        tuple(_merged(finder.writes.get(i, ())) for i in range(len(arguments))),
    )


class _Finder:
    def __init__(
        self,
        position: dict[Any, int],
        grid: tuple[Extent, ...],
        tile: tuple[int, ...],
        inputs: int,
    ):
        self.position = position
        self.inputs = inputs
        self.grid, self.tile = grid, tile
        self.reads: dict[int, list[ByteRange]] = {}
        self.writes: dict[int, list[ByteRange]] = {}

    def add_loop_nest(self, nest: LoopNest) -> None:
        generic = nest.generic
        for number, value in enumerate(generic.op.operands):
            argument = self._argument(value)
            if argument is None:
                continue
            written = number >= generic.num_inputs
            if written:
                self._check_disjoint(nest, number)
            elif not any(True for _ in generic.block.arguments[number].uses):
                continue  # only its shape is used
            byte_range = _byte_range(nest, number, len(self.grid))
            if byte_range is not None:
                self._add(argument, byte_range, value, written)

    def _check_disjoint(self, nest: LoopNest, operand: int) -> None:
        """Check that tiles, which run concurrently, write disjoint elements."""
        for i, loop in enumerate(nest.loops[: len(self.grid)]):
            several = not isinstance(loop.size, int) or self.tile[i] < loop.size
            if not known_equal(loop.size, self.grid[i]) or (
                several and is_number(loop.strides[operand], 0)
            ):
                raise LoweringError(
                    f"tiles of a kernel over {list(self.grid)} would write the same elements",
                    where=place_of(nest.generic.op.location),
                )

    def add_unstructured(self, ops: Iterable[Any]) -> None:
        """Ops at computed positions, alone or nested in others: they touch the whole buffer."""
        for op in ops:
            name = op.name
            for number, value in enumerate(op.operands):
                argument = self._argument(value)
                if argument is None or name in _HARMLESS:
                    continue
                reads = name == "memref.load" or (
                    is_generic_op(op) and number < len(op.operands) - _outputs(op)
                )
                # A branch may return an input as it is: its readers do not write it.
                reads |= name == "scf.yield" and argument < self.inputs
                self._touch_all(argument, value, writes=not reads)
            self.add_unstructured(_inner(op))

    def _touch_all(self, argument: int, value: Any, writes: bool) -> None:
        size = prod(shape_of(buffer_root(value)))
        tiles = prod(ceildiv(g, t) for g, t in zip(self.grid, self.tile, strict=True))
        if writes and not is_number(tiles, 0, 1):
            raise LoweringError("tiles of a kernel would write at computed places")
        if not is_number(size, 0):
            self._add(argument, ByteRange(0, size, (0,) * len(self.grid)), value, writes)

    def _add(self, argument: int, elements: ByteRange, value: Any, writes: bool) -> None:
        type_ = buffer_root(value).type
        byte_range = elements * (nbytes(type_) // prod(type_.shape))
        (self.writes if writes else self.reads).setdefault(argument, []).append(byte_range)

    def _argument(self, value: Any) -> int | None:
        return self.position.get(buffer_root(value)) if _is_buffer(value) else None


def _byte_range(nest: LoopNest, operand: int, grid_rank: int) -> ByteRange | None:
    """The bytes that one grid point touches through an operand; None where a loop is empty."""
    if any(is_number(loop.size, 0) for loop in nest.loops):
        return None
    inner = [(loop.size - 1) * loop.strides[operand] for loop in nest.loops[grid_rank:]]
    return ByteRange(
        nest.offsets[operand] + sum(s for s in inner if typical(s) < 0),
        nest.offsets[operand] + sum(s for s in inner if typical(s) > 0) + 1,
        tuple(loop.strides[operand] for loop in nest.loops[:grid_rank]),
    )


def _merged(byte_ranges: Iterable[ByteRange]) -> tuple[ByteRange, ...]:
    """One byte range per set of strides."""
    joined: dict[tuple[Extent, ...], ByteRange] = {}
    for byte_range in byte_ranges:
        following = joined.get(byte_range.strides, byte_range)
        joined[byte_range.strides] = ByteRange(
            size_min(byte_range.low, following.low),
            size_max(byte_range.high, following.high),
            byte_range.strides,
        )
    return tuple(joined.values())


def _inner(op: Any) -> list[Any]:
    return [
        inner.operation
        for region in op.regions
        for block in region.blocks
        for inner in block.operations
    ]


def _outputs(op: Any) -> int:
    return int(list(op.attributes["operandSegmentSizes"])[1])


def _is_buffer(value: Any) -> bool:
    return isinstance(value.type, ir.MemRefType)


# --- attributes of a kernel -----------------------------------------------------------------------


def store_footprint(kernel: Any, footprint: Footprint) -> None:
    """Store a footprint as attributes; a byte range is an array of low, high and the strides."""
    view = Kernel(kernel)
    view.loops, view.tile = tuple(map(typical, footprint.grid)), footprint.tile
    view.reads, view.writes = map(_numbers, (footprint.reads, footprint.writes))


_Ranges = tuple[tuple["ByteRange", ...], ...]
_Numbers = tuple[tuple[tuple[int, ...], ...], ...]


def _numbers(ranges: _Ranges) -> _Numbers:
    return tuple(
        tuple(tuple(map(typical, (r.low, r.high, *r.strides))) for r in argument)
        for argument in ranges
    )


def _byte_ranges(numbers: _Numbers) -> _Ranges:
    return tuple(
        tuple(ByteRange(low, high, tuple(strides)) for low, high, *strides in argument)
        for argument in numbers
    )


def load_footprint(kernel: Any) -> Footprint:
    """Load the footprint that `store_footprint` stored."""
    if not WRITES.has(kernel):
        raise LoweringError(
            f"@{kernel.name.value} does not say what its tiles touch",
            where=place_of(kernel.location),
            hint="run lower-kernels first",
        )
    view = Kernel(kernel)
    return Footprint(view.loops, view.tile, _byte_ranges(view.reads), _byte_ranges(view.writes))
