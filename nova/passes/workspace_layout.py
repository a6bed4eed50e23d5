"""Where buffers lie in the workspace: how small it can be, and how much of it to give for speed.

Buffers that never hold a value at the same time may share bytes. Sharing also orders the kernels
that use them: who writes the second buffer waits for who reads the first one. Where the values give
that order anyway it costs nothing; elsewhere it keeps independent kernels from running at the same
time. `plan-workspace` calls `lay_out`, which trades the one for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nova.records import record

ALIGN = 64
_WINDOWS = (64, 16, 4)

_GENEROUS = 2.0
"""Without a limit, the workspace may take this many times the least, so that what is independent
need not wait for memory: two chains side by side need twice as much as one after the other."""


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
        return (self.nbytes + ALIGN - 1) // ALIGN * ALIGN


@record
class Layout:
    """The offset of every buffer, and the bytes that all of them take."""

    offsets: tuple[int, ...]
    size: int


def lay_out(buffers: Sequence[Lifetime], before: Sequence[int], limit: int | None) -> Layout:
    """Place buffers in at most `limit` bytes if that is possible, and else in as few as are found.

    `before[c]` is the set of calls, as bits, whose values call c needs, directly or not. The first
    layout that fits is taken: buffers share only what costs no independence; then what was last
    used many calls before, then few; then whatever is free.
    """
    least = _smallest(buffers, tries=1 if limit is None else 3)
    if limit is not None and least.size > limit:
        return least
    allowed = int(least.size * _GENEROUS) if limit is None else limit
    used = [sum(1 << c for c in b.calls) for b in buffers]

    def ordered(i: int, j: int) -> bool:
        a, b = (i, j) if buffers[i].first < buffers[j].first else (j, i)
        return not used[a] & ~before[buffers[b].first]

    for window in (None, *_WINDOWS):

        def may_share(i: int, j: int, window: int | None = window) -> bool:
            a, b = buffers[i], buffers[j]
            if window is not None and max(a.first - b.last, b.first - a.last) > window:
                return True
            return _apart(a, b) and ordered(i, j)

        layout = _place(buffers, _by_size(buffers), may_share)
        if layout.size <= allowed:
            return layout
    return least


def order_calls(touched: Iterable[tuple[Iterable[int], Iterable[int]]]) -> list[int]:
    """For each call, all that must come before it, as bits, when no two buffers share memory.

    `touched` gives for each call, in order, the buffers that it reads and those that it writes.
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
        above, rest = direct, direct
        while rest:
            last = rest.bit_length() - 1
            above |= before[last]
            rest &= ~(before[last] | 1 << last)
        before.append(above)
    return before


def _smallest(buffers: Sequence[Lifetime], tries: int) -> Layout:
    """The best of `tries` ways to place buffers wherever it is free."""

    def may_share(i: int, j: int) -> bool:
        return _apart(buffers[i], buffers[j])

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
    layouts = [_place(buffers, order, may_share) for order in orders[:tries]]
    return min(layouts, key=lambda layout: layout.size)


def _by_size(buffers: Sequence[Lifetime]) -> list[int]:
    return sorted(range(len(buffers)), key=lambda i: (-buffers[i].nbytes, buffers[i].first))


def _apart(a: Lifetime, b: Lifetime) -> bool:
    return a.last < b.first or b.last < a.first


def _place(
    buffers: Sequence[Lifetime], order: Iterable[int], may_share: Callable[[int, int], bool]
) -> Layout:
    """Each buffer at the lowest offset that none of those it may not share with has."""
    offsets = [0] * len(buffers)
    placed: list[int] = []  # by offset
    size = 0
    for i in order:
        offset, space = 0, buffers[i].space
        for j in placed:
            if offsets[j] + buffers[j].space <= offset or may_share(i, j):
                continue
            if offsets[j] - offset >= space:
                break
            offset = offsets[j] + buffers[j].space
        offsets[i] = offset
        size = max(size, offset + space)
        placed.append(i)
        placed.sort(key=offsets.__getitem__)
    return Layout(tuple(offsets), size)
