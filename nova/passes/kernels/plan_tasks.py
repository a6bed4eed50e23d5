"""`plan-tasks`: cuts every kernel into ranges of tiles that are worth a task each."""

from __future__ import annotations

from collections import Counter
from math import ceil, prod
from typing import Any, ClassVar

from nova.codegen.common.cost_model import estimate_ns
from nova.codegen.common.footprint import load_footprint
from nova.codegen.common.overrides import read_overrides
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.buffers import nbytes
from nova.ir.control_flow.functions import host_functions
from nova.ir.kernel import Kernel
from nova.ir.walk import kernels
from nova.passes.base import Pass

_MOST_TASKS = 16_384
"""Maximum tasks of a program: a longer one gets longer tasks."""

_MOST_OF_A_KERNEL = 256
"""Maximum tasks of a kernel: they balance the cores of a large machine; more only cost time."""


@record
class PlanTasks(Pass):
    """Give every kernel the attribute `nova.tasks`: the tiles at which its tasks begin and end.

    A task has at most about `task_ns` nanoseconds of estimated work, never less than a tile, and
    whole rows of tiles where it has more than one row: its footprint is then one contiguous range.
    A kernel's own `nova.schedule` may have another `task_ns`. The task graph derives the order
    between tasks from the footprints of tiles when the tables are written.
    """

    name: ClassVar[str] = "plan-tasks"
    task_ns: int = 50_000

    def run(self, module: ir.Module) -> None:
        cost = {k.name.value: kernel_ns(k) for k in kernels(module)}
        calls = Counter(
            op.callee.value
            for function in host_functions(module)
            for op in function.entry_block.operations
            if op.operation.name == "func.call" and op.callee.value in cost
        )
        total = sum(cost[name] * count for name, count in calls.items())
        task_ns = max(float(self.task_ns), total / _MOST_TASKS)
        for kernel in kernels(module):
            counts = load_footprint(kernel).counts
            kernel_task_ns = read_overrides(kernel).task_ns or task_ns
            cuts = cut_tiles(counts, cost[kernel.name.value], kernel_task_ns)
            Kernel(kernel).tasks = tuple(cuts)


def kernel_ns(kernel: Any) -> float:
    """The estimated time of a lowered kernel."""
    view = Kernel(kernel)
    return estimate_ns(view.core, view.work, moved_bytes(kernel))


def moved_bytes(kernel: Any) -> int:
    """Bytes of all arguments of a kernel."""
    arguments = kernel.entry_block.arguments
    return sum(nbytes(a.type) for a in arguments if isinstance(a.type, ir.MemRefType))


def cut_tiles(counts: tuple[int, ...], cost: float, task_ns: float) -> list[int]:
    """The first tile of each task of a kernel, and the end of the last; costs are about equal."""
    tiles = prod(counts)
    if not tiles:
        return [0]
    tasks = min(max(1, ceil(cost / task_ns)), tiles, _MOST_OF_A_KERNEL)
    # The longest run of tiles, the last dimensions whole, that is not longer than a task.
    row = next(r for i in range(len(counts) + 1) if (r := prod(counts[i:])) * tasks <= tiles)
    rows = tiles // row
    return [row * (rows * i // tasks) for i in range(tasks + 1)]
