"""Workspace layout: greedy packing of buffers by lifetime, trading size for concurrency.

Buffers are placed by size, the largest first, at the lowest offset that is free during their
lifetime (greedy by size; Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020).

Buffers whose lifetimes are disjoint may share bytes. Sharing also orders the kernels that use them:
the writer of the second buffer waits for the readers of the first one. Where data dependences give
that order anyway it costs nothing; elsewhere it keeps independent kernels from running
concurrently. `plan-workspace` calls `lay_out`, which trades one for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from nova.core.records import record
from nova.core.rounding import round_up

ALIGN = 64
_WINDOWS = (64, 16, 4)

_GENEROUS = 2.0
"""Without a limit, the workspace may take this many times the minimum, so that independent kernels
need not wait for memory: two concurrent chains need twice as much as two sequential ones."""


@record
class Lifetime:
    """A buffer: its size and the calls that use it, in order; the first one writes it."""

    nbytes: int
    calls: tuple[int, ...]

    @property
    def first(self) -> int:
        return self.calls[0]

    @property
    def last(self) -> int:
        return self.calls[-1]

    @property
    def space(self) -> int:
        return round_up(self.nbytes, ALIGN)


@record
class Layout:
    """The offset of every buffer, and the total size."""

    offsets: tuple[int, ...]
    size: int


def lay_out(
    buffers: Sequence[Lifetime],
    before: Sequence[int],
    limit: int | None,
    spare: int | None = None,
) -> Layout:
    """Pack buffers into at most `limit` bytes if possible, and else into as few as it finds.

    Without a limit, at most `spare` bytes more than that are used for concurrency.

    `before[c]` is the set of calls, as bits, on which call c depends, directly or not. The first
    layout that fits is used: buffers share only bytes that cost no concurrency; then those last
    used many calls before, then few; then any free bytes.
    """
    if not buffers:
        return Layout((), 0)
    pairs = _Pairs(buffers, before)
    least = _smallest(buffers, pairs, tries=1 if limit is None else 3)
    if limit is not None and least.size > limit:
        return least
    allowed = int(least.size * _GENEROUS) if limit is None else limit
    if limit is None and spare is not None:
        allowed = least.size + spare
    for window in (None, *_WINDOWS):
        layout = _assign_offsets(
            buffers, _by_size(buffers), partial(pairs.keep_independent, window=window)
        )
        if layout.size <= allowed:
            return layout
    return least


class _Pairs:
    """The conflicts of a buffer: those that may not share bytes with it, as a mask over all."""

    def __init__(self, buffers: Sequence[Lifetime], before: Sequence[int]):
        self.calls = [b.calls for b in buffers]
        self.first = np.array([b.first for b in buffers])
        self.last = np.array([b.last for b in buffers])
        self._used = np.concatenate([np.array(calls) for calls in self.calls])
        self._begins = np.cumsum([0, *map(len, self.calls)])[:-1]
        width = (len(before) + 7) // 8
        rows = b"".join(bits.to_bytes(width, "little") for bits in before)
        self._before = np.frombuffer(rows, np.uint8).reshape(len(before), width)

    def overlap(self, i: int) -> np.ndarray:
        """The buffers whose lifetimes overlap."""
        return (self.last >= self.first[i]) & (self.first <= self.last[i])

    def keep_independent(self, i: int, window: int | None) -> np.ndarray:
        """Those, and the buffers whose sharing would order otherwise independent kernels.

        Buffers at a distance of more than `window` calls may order kernels.
        """
        blocked = self.overlap(i) | ~self._ordered(i)
        if window is not None:
            gap = np.maximum(self.first[i] - self.last, self.first - self.last[i])
            blocked &= gap <= window
        return blocked

    def _ordered(self, i: int) -> np.ndarray:
        """Whether the first call of the later buffer depends on all calls of the earlier one."""
        needed = np.unpackbits(self._before[self.first[i]], bitorder="little")
        others = np.logical_and.reduceat(needed[self._used] != 0, self._begins)
        itself = np.ones(len(self.first), bool)
        for call in self.calls[i]:
            itself &= (self._before[self.first, call >> 3] >> (call & 7) & 1) != 0
        return np.where(self.first[i] < self.first, itself, others)


def order_calls(touched: Iterable[tuple[Iterable[int], Iterable[int]]]) -> list[int]:
    """For each call, its transitive predecessors, as bits, when no two buffers share memory.

    `touched` lists for each call, in order, the buffers that it reads and those that it writes.
    """
    before: list[int] = []
    writer: dict[int, int] = {}
    readers: dict[int, int] = {}
    for call, (reads, writes) in enumerate(touched):
        direct = 0
        for buffer in reads:
            direct |= writer.get(buffer, 0)
            readers[buffer] = readers.get(buffer, 0) | 1 << call
        for buffer in writes:
            direct |= writer.get(buffer, 0) | readers.pop(buffer, 0)
            writer[buffer] = 1 << call
        direct &= ~(1 << call)
        above, path = direct, direct
        while path:
            last = path.bit_length() - 1
            above |= before[last]
            path &= ~(before[last] | 1 << last)
        before.append(above)
    return before


def _smallest(buffers: Sequence[Lifetime], pairs: _Pairs, tries: int) -> Layout:
    """The smallest of `tries` greedy layouts in which buffers use any free bytes."""
    numbers = range(len(buffers))
    orders = (
        _by_size(buffers),
        sorted(numbers, key=lambda i: (buffers[i].first, -buffers[i].nbytes)),
        sorted(
            numbers,
            key=lambda i: (
                -buffers[i].nbytes * (1 + buffers[i].last - buffers[i].first),
                buffers[i].first,
            ),
        ),
    )
    layouts = [_assign_offsets(buffers, order, pairs.overlap) for order in orders[:tries]]
    return min(layouts, key=lambda layout: layout.size)


def _by_size(buffers: Sequence[Lifetime]) -> list[int]:
    return sorted(range(len(buffers)), key=lambda i: (-buffers[i].nbytes, buffers[i].first))


def _assign_offsets(
    buffers: Sequence[Lifetime], order: Iterable[int], blocked: Callable[[int], np.ndarray]
) -> Layout:
    """Each buffer at the lowest offset that is free of its conflicts (greedy first fit)."""
    spaces = np.array([b.space for b in buffers])
    offsets = np.zeros(len(buffers), np.int64)
    placed = np.zeros(len(buffers), bool)
    size = 0
    for i in order:
        others = np.flatnonzero(blocked(i) & placed)
        offsets[i] = lowest_offset(offsets[others], spaces[others], int(spaces[i]))
        size = max(size, int(offsets[i] + spaces[i]))
        placed[i] = True
    return Layout(tuple(offsets.tolist()), size)


def lowest_offset(begins: np.ndarray, spaces: np.ndarray, space: int) -> int:
    """The lowest offset at which `space` bytes are free."""
    by_begin = np.argsort(begins, kind="stable")
    begins = begins[by_begin]
    ends = np.maximum.accumulate(begins + spaces[by_begin])
    free = np.concatenate([[0], ends])  # free from here on, unless another buffer begins
    fits = np.flatnonzero((begins - free[:-1] >= space) & (ends > free[:-1]))
    return int(free[fits[0]] if len(fits) else free[-1])
