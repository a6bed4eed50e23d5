"""What the events of a timeline file have to be like."""

from __future__ import annotations

from typing import Any


def check_events(events: list[dict[str, Any]]) -> list[str]:
    """What is wrong with a list of events: slices of a lane that overlap, flows without an end."""
    wrong = []
    open_flows: dict[int, float] = {}
    ends: dict[tuple[int, int], float] = {}
    slices = [e for e in events if e["ph"] == "X"]
    for event in sorted(slices, key=lambda e: (e["ts"], e["ts"] + e["dur"])):
        lane = (event["pid"], event["tid"])
        if event["ts"] + 1e-6 < ends.get(lane, 0.0):
            wrong.append(f"{event['name']} overlaps the slice before it in lane {lane}")
        ends[lane] = event["ts"] + event["dur"]
    for event in events:
        if event["ph"] == "s":
            open_flows[event["id"]] = event["ts"]
        elif event["ph"] == "f" and open_flows.pop(event["id"], float("inf")) > event["ts"]:
            wrong.append(f"flow {event['id']} ends before it begins")
    return wrong + [f"flow {number} has no end" for number in open_flows]
