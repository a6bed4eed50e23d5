"""Inserts host/device copies into a hybrid program.

In: its calls in order, each on the host or the device. Out: copies, and the calls that they follow.
`split.py` calls `place_copies`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nova.artifact.tables import BufferSpec, LaunchSpec
from nova.core.records import record


@record
class Step:
    """A call of `main`: `launch` is None for a host call, or for a call that does nothing.

    `reads` are the buffers whose values it needs, `writes` those that it produces.
    """

    on_host: bool
    launch: LaunchSpec | None
    reads: tuple[BufferSpec, ...]
    writes: tuple[BufferSpec, ...]


@record
class Copy:
    """A copy of a buffer between host and device."""

    buffer: BufferSpec
    to_host: bool


def place_copies(steps: Sequence[Step]) -> dict[int, list[Copy]]:
    """The copies after each step, by its number; -1 stands for the beginning.

    All inputs of a host region are copied at once, after the last device step that produces one of
    them; arguments are available at the beginning. Outputs of a host region are copied at its end.
    """
    locations = _Locations()
    placed: dict[int, list[Copy]] = {}
    needed: dict[int, list[tuple[int, BufferSpec]]] = {}  # region: producer, buffer
    ends = _host_region_ends(steps)

    def to_device(producer: int, buffer: BufferSpec) -> None:
        placed.setdefault(ends[producer], []).append(Copy(buffer, to_host=False))

    for position, step in enumerate(steps):
        for producer, buffer in locations.before(step, position):
            if step.on_host:
                needed.setdefault(ends[position], []).append((producer, buffer))
            else:
                to_device(producer, buffer)
    for producer, buffer in locations.at_end():
        to_device(producer, buffer)
    for rows in needed.values():
        last = max(producer for producer, _ in rows)
        for producer, buffer in rows:
            position = last if producer >= 0 else producer
            placed.setdefault(position, []).append(Copy(buffer, to_host=True))
    return placed


def _host_region_ends(steps: Sequence[Step]) -> list[int]:
    """For each step: the last step of its host region."""
    ends = list(range(len(steps)))
    for position in reversed(range(len(steps) - 1)):
        if steps[position].on_host and steps[position + 1].on_host:
            ends[position] = ends[position + 1]
    return ends


_MEMORIES = {False: "device", True: "host"}


@dataclass
class _Locations:
    """Tracks which memories (host, device) have the value of each buffer, and its producer.

    Arguments start on the device, and constants are in both memories. The value of an unknown
    buffer is not needed.
    """

    locations: dict[BufferSpec, set[str]] = field(default_factory=dict)
    producers: dict[BufferSpec, int] = field(default_factory=dict)

    def before(self, step: Step, position: int) -> list[tuple[int, BufferSpec]]:
        """The copies that `step` needs first; `step` then counts as executed."""
        memory = _MEMORIES[step.on_host]
        moved = []
        for buffer in dict.fromkeys(step.reads):
            if buffer.kind == "arg":
                self.locations.setdefault(buffer, {"device"})
            if buffer.nbytes and memory not in self.locations.get(buffer, {memory}):
                moved.append((self.producers.get(buffer, -1), buffer))
                self.locations[buffer].add(memory)
        for buffer in step.writes:
            for old in list(_overlapping(buffer, self.locations)):
                del self.locations[old]
        for buffer in step.writes:
            self.locations[buffer] = {memory}
            self.producers[buffer] = position
        return moved

    def at_end(self) -> list[tuple[int, BufferSpec]]:
        """The final copies to the device: results, and arguments that were updated."""
        return [
            (self.producers[buffer], buffer)
            for buffer, locations in self.locations.items()
            if buffer.kind in ("arg", "output") and buffer.nbytes and "device" not in locations
        ]


def _overlapping(buffer: BufferSpec, candidates: Iterable[BufferSpec]) -> Iterator[BufferSpec]:
    """The buffers that a write to `buffer` clobbers: values in the workspace share memory."""
    return (candidate for candidate in candidates if candidate.overlaps(buffer))
