"""The cost model of planned schedules and simulations: approximate task durations.

In: a `TaskGraph` and `Speeds`. Out: nanoseconds per task, by a roofline model: a task takes as long
as its operations or its bytes, whichever is longer, plus a constant start time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova.artifact.tables import KernelSpec
from nova.tracing.graph import TaskGraph
from nova.tracing.peaks import Peaks

_OF_PEAK = {"matrix": 0.7, "vector": 0.05, "host": 0.02}
"""The fraction of a core's multiply-add peak that kernels reach: an `exp` counts as one operation,
but costs far more. These, the copies and the task time below are estimates, not fitted to
measurements."""

_OF_COPY = 0.8

PRODUCT_TILE_WORK = 2 * 256_000_000 / 65_536
"""Operations of a matmul that count as one of `tile_work`."""


@dataclass(frozen=True)
class Speeds:
    """Speeds of one core. The defaults are those of a common server, as in compiled files."""

    matrix: float = 64.0  # operations per nanosecond, by the core type of the kernel
    vector: float = 2.0
    host: float = 1.0
    bytes: float = 8.0  # per nanosecond
    task: float = 150.0  # nanoseconds to start and finish a task


def speeds_of(peaks: Peaks) -> Speeds:
    """The expected speeds of a core with these peaks."""
    flops = peaks.core_flops / 1e9
    return Speeds(
        **{core: part * flops for core, part in _OF_PEAK.items()},
        bytes=_OF_COPY * peaks.core_bytes / 1e9,
    )


def planned_ns(kernel: KernelSpec) -> float:
    """The compiler's estimate of a whole kernel in nanoseconds, which sizes its tasks.

    The numbers are those of nova/codegen/common/cost_model.py; host kernels have one task.
    """
    speeds = Speeds()
    rate = speeds.matrix if kernel.core == "matrix" else speeds.vector
    return max(kernel.flops / rate, kernel.bytes / speeds.bytes)


def planned_tile_work(kernel: KernelSpec, tiles: int) -> int:
    """The setting `tile_work` that divides a kernel into about `tiles` tiles.

    In a matmul, operations are cheap: a tile has more of them (nova/codegen/cpu/schedule.py).
    """
    weight = PRODUCT_TILE_WORK if kernel.core == "matrix" else 1.0
    return max(1, int(kernel.flops / weight / tiles))


def task_costs(graph: TaskGraph, speeds: Speeds) -> np.ndarray:
    """Estimated nanoseconds of each task, at least one."""
    rates = {"matrix": speeds.matrix, "vector": speeds.vector, "host": speeds.host}
    costs = [
        speeds.task + max(task.flops / rates[task.kernel.core], task.bytes / speeds.bytes)
        for task in graph.tasks
    ]
    return np.maximum(1, np.rint(costs)).astype(np.uint64)
