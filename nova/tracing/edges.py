"""The reason of an edge: one task waits for the result of another, or only for free memory.

In: a `TaskGraph`. Out: for an edge, `data`, `reuse`, or `join` for one into a task without tiles.
`reuse` edges are write-after-read and write-after-write: a larger workspace would remove them.
Called by `critical.py`.
"""

from __future__ import annotations

from nova.artifact.tables import BufferSpec
from nova.tracing.graph import TaskGraph


class EdgeKinds:
    """Kinds of edges, by the launches at both ends; each pair is computed once."""

    def __init__(self, graph: TaskGraph):
        self._graph = graph
        self._known: dict[tuple[int, int], str] = {}

    def kind(self, before: int, after: int) -> str:
        """`data` if task `after` reads a result of task `before`, else `reuse`."""
        tasks = self._graph.tasks
        if tasks[after].is_join:
            return "join"
        if tasks[before].is_join:
            # A join stands for all its predecessors: one that provides data is sufficient.
            kinds = {self.kind(p, after) for p in self._graph.predecessors[before]}
            return "reuse" if kinds == {"reuse"} else "data"
        pair = (tasks[before].launch, tasks[after].launch)
        if pair not in self._known:
            self._known[pair] = self._find(*pair)
        return self._known[pair]

    def _find(self, before: int, after: int) -> str:
        first, second = self._graph.tables.launches[before], self._graph.tables.launches[after]
        if self._graph.by_launch or not first.reads or not second.reads:
            return "data"  # program order; the dependence is unknown
        buffers = self._graph.tables.buffers
        written = [buffers[b] for b in first.buffers[first.reads :]]
        read = [buffers[b] for b in second.buffers[: second.reads]]
        return "data" if any(share_bytes(w, r) for w in written for r in read) else "reuse"


def share_bytes(a: BufferSpec, b: BufferSpec) -> bool:
    """Whether two buffers have bytes in common."""
    if a.kind != b.kind or a.kind == "constant":
        return False
    if a.kind != "workspace":
        return a.value == b.value
    return a.value < b.value + b.nbytes and b.value < a.value + a.nbytes
