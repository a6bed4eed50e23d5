"""Where values change sides in a program of which a part is pinned to the host.

In: its calls in order, each on one side. Out: copies, and the calls behind which they stand.
`split.py` calls `place_copies`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nova.artifact.tables import BufferSpec, LaunchSpec
from nova.core.records import record


@record
class Step:
    """A call of `main`: `launch` is None for one of the host, or for one that does nothing.

    `reads` are the buffers whose values it needs, `writes` those that it makes.
    """

    on_host: bool
    launch: LaunchSpec | None
    reads: tuple[BufferSpec, ...]
    writes: tuple[BufferSpec, ...]


@record
class Copy:
    """A buffer that is copied to the other side."""

    buffer: BufferSpec
    to_host: bool


def place_copies(steps: Sequence[Step]) -> dict[int, list[Copy]]:
    """The copies behind each step, by its number; -1 stands for the beginning.

    What an island needs is copied at once, behind the last step of the device that makes any of it;
    arguments are at the beginning. What islands make is copied when they end.
    """
    sides = _Sides()
    placed: dict[int, list[Copy]] = {}
    needed: dict[int, list[tuple[int, BufferSpec]]] = {}  # by island: made where, and what
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
    """Of each step: the last one of its island."""
    ends = list(range(len(steps)))
    for place in reversed(range(len(steps) - 1)):
        if steps[place].on_host and steps[place + 1].on_host:
            ends[place] = ends[place + 1]
    return ends


_SIDES = {False: "device", True: "host"}


@dataclass
class _Sides:
    """Follows a program and knows which sides have the value of each buffer, and who made it.

    Arguments begin on the device, and constants are on both sides. A buffer that is not known has
    no value that anybody needs.
    """

    sides: dict[BufferSpec, set[str]] = field(default_factory=dict)
    made: dict[BufferSpec, int] = field(default_factory=dict)

    def before(self, step: Step, place: int) -> list[tuple[int, BufferSpec]]:
        """What has to be copied to the side of `step`, which is taken to have run then."""
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
        """What has to be copied to the device: results, and arguments that were updated."""
        return [
            (self.made[buffer], buffer)
            for buffer, sides in self.sides.items()
            if buffer.kind in ("arg", "output") and buffer.nbytes and "device" not in sides
        ]


def _overlapping(buffer: BufferSpec, known: Iterable[BufferSpec]) -> Iterator[BufferSpec]:
    """Those that are gone when `buffer` is written: in the workspace, values share memory."""
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
