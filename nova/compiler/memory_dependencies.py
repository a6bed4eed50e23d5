"""Who touched which bytes last: the orders that tasks must keep in shared memory.

`task_graph.py` walks the launches of a program in order and asks, for the bytes that each task
touches,
which tasks have to be finished before. Sets of tasks are ints with a bit for each task: a union is
one operation, however many there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import pairwise

Spans = Mapping[tuple[int, int], int]
"""Bytes [low, high) and the tasks that touch them, through one argument: a task is in one span."""


class MemoryDependencies:
    """One space of memory, cut where the answer changes: who wrote there last, who read since."""

    def __init__(self) -> None:
        self._starts = [0]
        self._writers = [0]
        self._readers = [0]
        self._crowded = 64

    def before(self, low: int, high: int, *, writing: bool) -> int:
        """The tasks that must be finished before bytes [low, high) may be read or written.

        A reader waits for the last writers. A writer waits for them and for everybody who has read
        what they wrote; then all who touched the bytes earlier are finished as well, because those
        waited for them.
        """
        tasks = 0
        for i in range(self._cut(low), self._cut(high)):
            tasks |= self._writers[i]
            if writing:
                tasks |= self._readers[i]
        return tasks

    def record(self, reads: Iterable[Spans], writes: Iterable[Spans]) -> None:
        """Note what the tasks of one launch touch; they need no order among themselves.

        Spans are hulls: two tasks may share bytes that only one of them really touches. So all
        that claim to write a byte are its last writers.
        """
        reads, writes = list(reads), list(writes)
        for spans in (*reads, *writes):
            for low, high in spans:
                self._cut(low)
                self._cut(high)
        new_readers, new_writers = self._overlay(reads), self._overlay(writes)
        for i, tasks in new_readers.items():
            self._readers[i] |= tasks
        for i, tasks in new_writers.items():
            self._writers[i] = tasks
            self._readers[i] = new_readers.get(i, 0) & ~tasks
        if len(self._starts) > self._crowded:
            self._merge()
            self._crowded = 2 * len(self._starts) + 64

    def _overlay(self, arguments: Iterable[Spans]) -> dict[int, int]:
        """The tasks in each piece of memory, by the number of the piece; all cuts are made."""
        pieces: dict[int, int] = {}
        for spans in arguments:
            changes: dict[int, int] = {}
            for (low, high), tasks in spans.items():
                changes[low] = changes.get(low, 0) ^ tasks
                changes[high] = changes.get(high, 0) ^ tasks
            inside = 0  # a task enters and leaves once: it is in one span
            for start, end in pairwise(sorted(changes)):
                inside ^= changes[start]
                if inside:
                    for i in range(self._cut(start), self._cut(end)):
                        pieces[i] = pieces.get(i, 0) | inside
        return pieces

    def _cut(self, at: int) -> int:
        """The number of the piece that begins at byte `at`, which is made if need be."""
        i = bisect_left(self._starts, at)
        if i == len(self._starts) or self._starts[i] != at:
            self._starts.insert(i, at)
            self._writers.insert(i, self._writers[i - 1])
            self._readers.insert(i, self._readers[i - 1])
        return i

    def _merge(self) -> None:
        """Neighbours with the same answer become one piece."""
        kept = [
            i
            for i in range(len(self._starts))
            if i == 0
            or self._writers[i] != self._writers[i - 1]
            or self._readers[i] != self._readers[i - 1]
        ]
        self._starts = [self._starts[i] for i in kept]
        self._writers = [self._writers[i] for i in kept]
        self._readers = [self._readers[i] for i in kept]
