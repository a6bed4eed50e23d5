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
    """A buffer that is copied to the other side (host or device)."""

    buffer: BufferSpec
    to_host: bool


def place_copies(steps: Sequence[Step]) -> dict[int, list[Copy]]:
    """The copies after each step, by its number; -1 stands for the beginning.

    All inputs of a host region are copied at once, after the last device step that produces one of
    them; arguments are available at the beginning. Outputs of a host region are copied at its end.
    """
    sides = _Sides()
    placed: dict[int, list[Copy]] = {}
    needed: dict[int, list[tuple[int, BufferSpec]]] = {}  # region: producer, buffer
    ends = _host_region_ends(steps)

    def to_device(made: int, buffer: BufferSpec) -> None:
        placed.setdefault(ends[made], []).append(Copy(buffer, to_host=False))

    for place, step in enumerate(steps):
        for made, buffer in sides.before(step, place):
            if step.on_host:
                needed.setdefault(ends[place], []).append((made, buffer))
            else:
                to_device(made, buffer)
    for made, buffer in sides.at_end():
        to_device(made, buffer)
    for rows in needed.values():
        last = max(made for made, _ in rows)
        for made, buffer in rows:
            behind = last if made >= 0 else made
            placed.setdefault(behind, []).append(Copy(buffer, to_host=True))
    return placed


def _host_region_ends(steps: Sequence[Step]) -> list[int]:
    """For each step: the last step of its host region."""
    ends = list(range(len(steps)))
    for place in reversed(range(len(steps) - 1)):
        if steps[place].on_host and steps[place + 1].on_host:
            ends[place] = ends[place + 1]
    return ends


_SIDES = {False: "device", True: "host"}


@dataclass
class _Sides:
    """Tracks which sides (host, device) have the value of each buffer, and its producer.

    Arguments start on the device, and constants are on both sides. The value of an unknown buffer
    is not needed.
    """

    sides: dict[BufferSpec, set[str]] = field(default_factory=dict)
    made: dict[BufferSpec, int] = field(default_factory=dict)

    def before(self, step: Step, place: int) -> list[tuple[int, BufferSpec]]:
        """The copies to the side of `step` that it needs; `step` then counts as executed."""
        side = _SIDES[step.on_host]
        moved = []
        for buffer in dict.fromkeys(step.reads):
            if buffer.kind == "arg":
                self.sides.setdefault(buffer, {"device"})
            if buffer.nbytes and side not in self.sides.get(buffer, {side}):
                moved.append((self.made.get(buffer, -1), buffer))
                self.sides[buffer].add(side)
        for buffer in step.writes:
            for old in list(_overlapping(buffer, self.sides)):
                del self.sides[old]
        for buffer in step.writes:
            self.sides[buffer] = {side}
            self.made[buffer] = place
        return moved

    def at_end(self) -> list[tuple[int, BufferSpec]]:
        """The final copies to the device: results, and arguments that were updated."""
        return [
            (self.made[buffer], buffer)
            for buffer, sides in self.sides.items()
            if buffer.kind in ("arg", "output") and buffer.nbytes and "device" not in sides
        ]


def _overlapping(buffer: BufferSpec, known: Iterable[BufferSpec]) -> Iterator[BufferSpec]:
    """The buffers that a write to `buffer` clobbers: values in the workspace share memory."""
    for other in known:
        if other.kind != buffer.kind:
            continue
        if buffer.kind != "workspace":
            if other.value == buffer.value:
                yield other
        elif other.value < buffer.value + buffer.nbytes and buffer.value < (
            other.value + other.nbytes
        ):
            yield other
