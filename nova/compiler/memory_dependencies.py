"""Last readers and writers of each byte: the dependences between tasks through shared memory.

`task_graph.py` walks the launches of a program in order and asks, for the bytes that each task
touches, which tasks must finish before. Sets of tasks are bit masks in an int, so a union is one
operation for any number of tasks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import pairwise

Spans = Mapping[tuple[int, int], int]
"""Bytes [low, high) and the tasks that touch them through one argument; a task is in one span."""


class MemoryDependencies:
    """One address space, divided into intervals by last writers and the readers since then."""

    def __init__(self) -> None:
        self._starts = [0]
        self._writers = [0]
        self._readers = [0]
        self._crowded = 64

    def before(self, low: int, high: int, *, writing: bool) -> int:
        """The tasks that must finish before bytes [low, high) may be read or written.

        A reader waits for the last writers. A writer waits for them and for all readers of what
        they wrote. Then all earlier accesses have finished as well, because those tasks waited for
        them.
        """
        tasks = 0
        for i in range(self._cut(low), self._cut(high)):
            tasks |= self._writers[i]
            if writing:
                tasks |= self._readers[i]
        return tasks

    def record(self, reads: Iterable[Spans], writes: Iterable[Spans]) -> None:
        """Record the accesses of the tasks of one launch, which are unordered among themselves.

        Spans are byte ranges that may be larger than the access: two tasks may share bytes that
        only one of them touches. So all tasks that may write a byte are its last writers.
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
        """The tasks in each interval, by its index; all cuts exist."""
        pieces: dict[int, int] = {}
        for spans in arguments:
            changes: dict[int, int] = {}
            for (low, high), tasks in spans.items():
                changes[low] = changes.get(low, 0) ^ tasks
                changes[high] = changes.get(high, 0) ^ tasks
            inside = 0  # a task starts and ends once: it is in one span
            for start, end in pairwise(sorted(changes)):
                inside ^= changes[start]
                if inside:
                    for i in range(self._cut(start), self._cut(end)):
                        pieces[i] = pieces.get(i, 0) | inside
        return pieces

    def _cut(self, at: int) -> int:
        """The index of the interval that begins at byte `at`; splits an interval if necessary."""
        i = bisect_left(self._starts, at)
        if i == len(self._starts) or self._starts[i] != at:
            self._starts.insert(i, at)
            self._writers.insert(i, self._writers[i - 1])
            self._readers.insert(i, self._readers[i - 1])
        return i

    def _merge(self) -> None:
        """Merge neighbouring intervals with the same readers and writers."""
        first_of_run = [
            i
            for i in range(len(self._starts))
            if i == 0
            or self._writers[i] != self._writers[i - 1]
            or self._readers[i] != self._readers[i - 1]
        ]
        self._starts = [self._starts[i] for i in first_of_run]
        self._writers = [self._writers[i] for i in first_of_run]
        self._readers = [self._readers[i] for i in first_of_run]
