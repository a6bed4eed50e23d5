"""Device runs as events of a timeline file: one process per device, with lanes by activity.

In: `DeviceRun`s, by their start. Out: events of the Trace Event Format. Runs may overlap, on
different streams or in different threads: a lane then gets a second one next to it, because slices
of one lane must not overlap. Called by `perfetto.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.tracing.device_run import LANES, DeviceRun, Span
from nova.tracing.devices.tasks import task_lanes

_COLORS = {
    "kernel": "thread_state_running",
    "task": "thread_state_running",
    "host kernel": "generic_work",
    "wait": "thread_state_sleeping",
}
_USUAL_COLOR = "thread_state_runnable"
_LANE_SPACING = 1000  # spacing of lane numbers by kind


class DeviceLanes:
    """Assigns the spans of runs to lanes; `process` gives the process number of a device."""

    def __init__(self, process: Callable[[str], int], name: Callable[[int, int, str], None]):
        self._process = process
        self._name = name
        self._free: dict[tuple[int, str], list[int]] = {}  # when each lane of a kind becomes free

    def events(self, run: DeviceRun) -> list[dict[str, Any]]:
        """The slices of a run; lanes are named on first use."""
        pid = self._process(run.device)
        events = []
        for number, lane in enumerate(LANES):
            spans = run.lanes[lane]
            slot = self._take(pid, lane, spans)
            title = run.lane_title(lane)
            tid = number * _LANE_SPACING + slot
            self._name(pid, tid, title if slot == 0 else f"{title} ({slot + 1})")
            events += [_slice(pid, tid, run.program, span) for span in spans]
        for number, (lane, spans) in enumerate(task_lanes(run.tasks).items()):
            tid = (len(LANES) + 1) * _LANE_SPACING + number
            self._name(pid, tid, lane)
            events += [_slice(pid, tid, run.program, span) for span in spans]
        return events

    def _take(self, pid: int, lane: str, spans: tuple[Span, ...]) -> int:
        """The first lane of its kind that is free at that time."""
        free = self._free.setdefault((pid, lane), [])
        if not spans:
            return 0
        slot = next((i for i, end in enumerate(free) if end <= spans[0].start), len(free))
        free[slot : slot + 1] = [max(span.end for span in spans)]
        return slot


def _slice(pid: int, tid: int, program: str, span: Span) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": span.name,
        "cat": "device" if span.lane != "host" else "host",
        "ts": span.start / 1000,
        "dur": span.duration / 1000,
        "cname": _COLORS.get(span.activity, _USUAL_COLOR),
        "args": {"program": program, **span.details},
    }
