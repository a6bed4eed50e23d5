"""The choice of `launch="auto"`: the execution of a device program with the lower predicted time.

In: the tables of a program that was compiled with launch="graph", and its target. Out: a
`LaunchChoice`. `nova.compile` and `nova.translate` compile the program again where a persistent
kernel is predicted to be faster; `Model.launch_choice` says why.
"""

from __future__ import annotations

from nova.artifact.tables import Tables
from nova.core.records import record
from nova.tracing.devices.models import DEVICE_MODELS, DeviceModel
from nova.tracing.devices.predict import PERSISTENT_KERNELS, predict_graph
from nova.tracing.devices.predict_persistent import predict_persistent
from nova.tracing.text import format_ns

_MARGIN = 0.95
"""A persistent kernel is chosen where it takes at most this part of the time of the graph."""
_MODELS = {"8": "a100", "9": "h200"}
"""By the first digit of the compute capability."""


@record
class LaunchChoice:
    """How a program should be launched, and why."""

    launch: str
    reason: str

    def __str__(self) -> str:
        return f"launch={self.launch!r}: {self.reason}"


def choose_launch(tables: Tables, target: str) -> LaunchChoice:
    """The launch of a program for a device, whose tables are given."""
    if refusal := _refusal(tables):
        return LaunchChoice("graph", refusal)
    model = _model_of(target)
    graph = predict_graph(tables, model).makespan
    persistent = predict_persistent(tables, model).makespan
    times = (
        f"a graph is predicted to take {format_ns(round(graph))} a call on {model.name}, "
        f"a persistent kernel {format_ns(round(persistent))}"
    )
    return LaunchChoice("persistent" if persistent < _MARGIN * graph else "graph", times)


def _model_of(target: str) -> DeviceModel:
    digits = target.partition("sm_")[2]
    return DEVICE_MODELS[_MODELS.get(digits[:1], "h200")]


def _refusal(tables: Tables) -> str:
    """Why a program is not compiled as tasks of a persistent kernel; empty if it may be."""
    for kernel in tables.kernels:
        if kernel.name in PERSISTENT_KERNELS:
            continue
        if kernel.control is not None or kernel.core == "while":
            return f"{kernel.name} is a loop or branch, which is measured in graphs only"
        if kernel.device is None:
            return f"{kernel.name} runs on the host"
        if kernel.device.tensor_maps:
            return f"{kernel.name} uses wgmma, which needs a launch of its own"
    return "" if tables.launches else "it has no launch"
