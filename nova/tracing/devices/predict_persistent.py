"""Predicts the execution of a program by a persistent kernel, from its task table.

In: the `Tables` of a program for a device and a `DeviceModel`. Out: a `DevicePrediction` in which a
launch lasts from its first task to its last. `predict.py` calls `predict_persistent`, and so does
the choice of `launch="auto"`.

Resident blocks visit the launches in order, and share their tasks round-robin, as
native/src/gpu/persistent/persistent_plan.c has it: the schedule is known, and it is played. A task
waits for the last task of the bands that its own band depends on, a hop, and for the block that
runs it. So launches overlap where their tiles line up. Chains of single tasks stay on one block,
and have no hops.
"""

from __future__ import annotations

from math import sqrt

from nova.artifact.tables import KernelSpec, LaunchSpec, Tables
from nova.artifact.tile_waits import awaited_bands, has_flow, plan_bands
from nova.tracing.devices.models import DeviceModel
from nova.tracing.devices.predict import (
    SMALL_FLOPS,
    DevicePrediction,
    LaunchTime,
    block_count,
)


def _matrix_flops(tasks: int, result_bytes: int, model: DeviceModel) -> float:
    """The rate of matrix tasks with these results, for the whole device.

    A task computes a tile of the results, about as many rows as columns, of 16-bit floats. A step
    of k loads a row and a column, and has two operations an element of the tile: a tile of n
    elements has sqrt(n) / 2 operations a byte.
    """
    tile = result_bytes / 2 / tasks
    return min(model.task_matrix_flops, model.operand_bytes * sqrt(tile) / 2)


def task_ns(kernel: KernelSpec, result_bytes: int, model: DeviceModel) -> tuple[float, str]:
    """The predicted time of a task of a launch, and what it depends on."""
    tasks = block_count(kernel)
    is_matrix = kernel.device is not None and kernel.device.core == "matrix"
    per_task = kernel.flops / tasks
    is_small = not is_matrix and per_task < SMALL_FLOPS
    rate = _matrix_flops(tasks, result_bytes, model) if is_matrix else model.task_vector_flops
    rate /= model.processors
    # Tasks on one multiprocessor share its rates.
    sharing = min(model.resident, -(-tasks // model.processors))
    compute = per_task / (min(rate / sharing, model.block_flops) if is_small else rate / sharing)
    total = model.cache_bytes if kernel.bytes <= model.cache_size else model.memory_bytes
    each = min(total / min(tasks, model.processors), model.processor_bytes) / sharing
    moving = kernel.bytes / tasks / each
    latency = model.task_latency * (2 if tasks == 1 else 1)
    bound = "compute" if compute > moving else "memory"
    if max(compute, moving) < latency / 4:
        bound = "latency"
    if tasks > model.resident * model.processors:  # one block of two waits while the other works
        return max(compute, moving, latency), bound
    crowding = model.crowding if tasks > model.processors // 2 else 1.0
    return crowding * (latency + max(compute, moving)), bound


def _result_bytes(launch: LaunchSpec, tables: Tables) -> int:
    """The size of the largest result of a launch."""
    results = launch.buffers[launch.reads :]
    return max((tables.buffers[i].nbytes for i in results), default=0)


def predict_persistent(
    tables: Tables, model: DeviceModel, program: str = "program"
) -> DevicePrediction:
    """The execution of a program as tasks of one resident kernel."""
    bands = plan_bands(tables)
    awaited = awaited_bands(bands)
    of_launch: list[list[int]] = [[] for _ in tables.launches]
    for index, task in enumerate(bands):
        if task.begin < task.end:
            of_launch[task.launch].append(index)
    free = [0.0] * (model.processors * model.resident)
    ends = [0.0] * len(bands)
    last_end = 0.0
    items: list[LaunchTime] = []
    assumed: list[str] = []
    first_block = 0
    chains: dict[int, int] = {}
    for number, launch in enumerate(tables.launches):
        kernel = tables.kernels[launch.kernel]
        own = of_launch[number]
        is_single = len(own) == 1 and bands[own[0]].end - bands[own[0]].begin == 1
        before = max(awaited[own[0]] & chains.keys(), default=None) if is_single else None
        ready = [
            max((ends[i] + model.hop * (i != before) for i in awaited[band]), default=0.0)
            for band in own
        ] or [last_end + model.hop if items and not bands else 0.0]
        if has_flow(kernel):
            duration, bound = _flow_ns(kernel, tables, model, assumed)
            start = max([*ready, *free])  # all blocks take part in a decision
            last_end = start + duration
            free = [last_end] * len(free)
            for band in of_launch[number]:
                ends[band] = last_end
            items.append(LaunchTime(number, kernel, start, last_end, bound, False))
            continue
        tasks = block_count(kernel)
        if tasks == 0:
            continue
        duration, bound = task_ns(kernel, _result_bytes(launch, tables), model)
        start, last_end = float("inf"), 0.0
        parts = [bands[i].end - bands[i].begin for i in of_launch[number]]
        for i, part in enumerate(parts if len(parts) > 1 else [tasks]):
            end = 0.0
            begin = first_block if before is None else chains.pop(before)
            for block in range(begin, begin + part):
                began = max(ready[i], free[block % len(free)])
                free[block % len(free)] = began + duration
                start, end = min(start, began), max(end, began + duration)
            if before is None:
                first_block = (first_block + part) % len(free)
            if is_single:
                chains[own[0]] = begin
            last_end = max(last_end, end)
            if parts:
                ends[of_launch[number][i]] = end
        items.append(LaunchTime(number, kernel, start, last_end, bound, False))
    return DevicePrediction(
        model, tuple(items), program, launch="persistent", assumed=tuple(dict.fromkeys(assumed))
    )


def _flow_ns(
    kernel: KernelSpec, tables: Tables, model: DeviceModel, assumed: list[str]
) -> tuple[float, str]:
    """The time of a loop or branch: a decision is a hop from the last task to all blocks."""
    control = kernel.control
    if control is None:  # its body follows it: the launches after it
        assumed.append(kernel.name)
        return model.hop, "its condition"
    bodies = [predict_persistent(tables.region(n), model, kernel.name) for n in control.regions]
    assumed += [name for body in bodies for name in body.assumed]
    longest = max((body.device_ns for body in bodies), default=0.0)
    if control.construct not in ("for", "while"):
        return 2 * model.hop + longest, "its longest branch"
    if control.construct == "while":
        assumed.append(kernel.name)
    iterations = control.length if control.construct == "for" else 1
    return model.hop + iterations * (model.hop + longest), f"{iterations} iterations"
