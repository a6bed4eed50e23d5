"""A device run in the form of the page: its spans take the role of tasks.

In: `DeviceRun`s and their summaries. Out: the data that `page.html` draws, in the form of runs on
cores: lanes instead of workers, spans instead of tasks, without a plan and without edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nova.tracing.device_run import DeviceRun, Span
from nova.tracing.device_summary import DeviceSummary, summarize_devices


def describe_graph(
    run: DeviceRun, first_kernel: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The spans as tasks, and their kernels, numbered from `first_kernel`.

    A copy, or a host activity, counts as a separate kernel.
    """
    kernels: dict[tuple[str, str], int] = {}
    described: list[dict[str, Any]] = []
    numbers = []
    for span in _spans(run):
        key = (span.name, span.activity)
        if key not in kernels:
            kernels[key] = first_kernel + len(described)
            entry = {"name": span.name, "core": _core(span), "grid": 1, "location": span.location}
            described.append(entry)
        numbers.append(kernels[key])
    spans = _spans(run)
    count = len(spans)
    return {
        "kernel": numbers,
        "begin": [0] * count,
        "end": [1] * count,
        "flops": [span.flops for span in spans],
        "bytes": [span.moved for span in spans],
        "successors": [[] for _ in spans],
        "details": [list(span.details.items()) for span in spans],
    }, described


def _spans(run: DeviceRun) -> tuple[Span, ...]:
    return run.spans + run.tasks


def _title(run: DeviceRun, span: Span) -> str:
    return span.lane if span.activity == "task" else run.lane_title(span.lane)


def _core(span: Span) -> str:
    if span.activity == "task":
        return "kernels"
    return "copy" if span.lane == "copies" else span.lane if span.kernels else span.activity


def describe_device_run(run: DeviceRun, graph: int) -> dict[str, Any]:
    """The run; `graph` is the index of its result of `describe_graph`."""
    (summary,) = summarize_devices([run])
    device = {
        "kernels": summary.kernel_time - summary.overlap,
        "copies": summary.copy_time - summary.overlap,
        "kernels and copies at once": summary.overlap,
        "neither": summary.idle,
    }
    spans = _spans(run)
    lanes = list(run.all_lanes)
    return {
        "program": run.program,
        "device": run.device,
        "kind": run.kind,
        "graph": graph,
        "workers": len(lanes),
        "lanes": lanes,
        "makespan": run.makespan,
        "planned_makespan": 0,
        "kernel_time": summary.kernel_time,
        "copy_time": summary.copy_time,
        "copied": sum(copy.bytes for copy in summary.copies),
        "launches": len(run.lanes["kernels"]),
        "flops": sum(kernel.flops for kernel in summary.kernels),
        "bytes": sum(kernel.bytes for kernel in summary.kernels),
        "lost": run.lost,
        "parts": {"Time of the device": device, "Time of the host": summary.host},
        "measured": {
            "task": list(range(len(spans))),
            "worker": [lanes.index(_title(run, span)) for span in spans],
            "stolen": [-1] * len(spans),
            "ready": [span.start - run.start for span in spans],
            "start": [span.start - run.start for span in spans],
            "end": [span.end - run.start for span in spans],
            "critical": [],
            "causes": [],
        },
    }


def table_rows(devices: tuple[DeviceSummary, ...]) -> Iterator[dict[str, Any]]:
    """The device kernels as rows of the page's table."""
    for device in devices:
        total = sum(kernel.time for kernel in device.kernels)
        for kernel in device.kernels:
            seconds = kernel.time / 1e9
            yield {
                "program": kernel.program,
                "name": kernel.name,
                "core": kernel.core if kernel.core != "device" else device.device,
                "location": kernel.location,
                "tasks": kernel.launches,
                "time": kernel.time,
                "share": kernel.time / total if total else 0.0,
                "flop_rate": kernel.flops / seconds if seconds else 0.0,
                "byte_rate": kernel.bytes / seconds if seconds else 0.0,
            }
