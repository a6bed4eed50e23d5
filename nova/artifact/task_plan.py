"""The tasks of a program for a number of threads, as the runtime derives them.

In: `Tables` with the tilings of kernels. Out: the task records that a run on so many threads has
(native/include/nova/task_plan.h). Traces, simulations and tools read tasks here, and nowhere else.
"""

from __future__ import annotations

from nova import _native
from nova.artifact.tables import SUCCESSOR, TASK, Tables, TaskSpec, pack_tables

WORTH_SHARING_NS = 40_000
"""NOVA_WORTH_SHARING: a program with a shorter estimate has no tasks."""

MOST_LAUNCH_TASKS = 512
"""Most tasks of a launch on a device, as of a kernel on a CPU."""

_MOST_WORKERS = 1 << 16


def plan_tasks(
    tables: Tables, workers: int, worth_ns: int = WORTH_SHARING_NS
) -> tuple[TaskSpec, ...]:
    """The tasks for `workers` threads; none if the launches run in order.

    Tables of an older Nova have fixed tasks, for any number of threads.
    """
    if tables.tasks or not tables.has_tilings:
        return tables.tasks
    return _plan(tables, min(workers, _MOST_WORKERS), worth_ns, False)


def plan_device_tasks(tables: Tables, most: int = MOST_LAUNCH_TASKS) -> tuple[TaskSpec, ...]:
    """The tasks of a program for a device: at most so many of a launch, of adjacent blocks.

    With `most` 1, tasks are launches, and their successors the launches that depend on them. None
    for a program with loops that are written by hand, whose launches run in order.
    """
    return _plan(tables, most, 0, True) if tables.has_device else ()


def _plan(tables: Tables, width: int, worth_ns: int, on_device: bool) -> tuple[TaskSpec, ...]:
    outputs = 1 + max((b.value for b in tables.buffers if b.kind == "output"), default=-1)
    code = dict.fromkeys(tables.linked_symbols, 0)
    records, successors = _native.plan_tasks(
        pack_tables(tables, code), width, worth_ns, outputs, on_device
    )
    following = [number for (number,) in SUCCESSOR.iter_unpack(successors)]
    return tuple(
        TaskSpec(launch, waits, begin, end, tuple(following[first : first + count]))
        for launch, waits, begin, end, first, count in TASK.iter_unpack(records)
    )
