"""Programs with other task graphs than the compiler's: what the workloads of the scheduler compare.

`with_barriers` gives a compiled program as fork and join: all tiles of a kernel, then a barrier,
then the next kernel, as OpenMP runs a list of parallel loops. `empty_tasks` is a program that only
the scheduler works in.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Any

import numpy as np

from nova import _native
from nova.artifact.tables import (
    KernelSpec,
    LaunchSpec,
    Tables,
    TaskSpec,
    kernel_addresses,
    pack_tables,
)
from nova.core.dtypes import dtype
from nova.runtime.arrays import make_converter

_RETURN = {"x86_64": b"\xc3", "aarch64": b"\xc0\x03\x5f\xd6"}
_READ_EXECUTE = 5
_LONG = 10**9


def with_barriers(compiled: Any) -> Any:
    """A native program of the same kernels, launch by launch with a barrier in between."""
    executable = compiled._executable
    artifact, variant, manifest = executable.artifact, executable.variant, executable.manifest
    tables = replace(executable.tables, tasks=tuple(barrier_tasks(executable.tables)))
    block = pack_tables(tables, kernel_addresses(artifact.file.tables(variant)))
    return _native.Program(
        artifact.file.load(variant),
        block,
        artifact.file.constants_vaddr(variant),
        [(a.shape, dtype(a.dtype).numpy, a.donated) for a in manifest.args],
        [(o.shape, dtype(o.dtype).numpy, o.alias) for o in manifest.outputs],
        make_converter(manifest.args, manifest.outputs),
        True,
    )


def barrier_tasks(tables: Tables) -> list[TaskSpec]:
    """The same ranges of tiles; those of a launch wait for all of the launch before."""
    ranges = [
        [(t.begin, t.end) for t in tables.tasks if t.launch == number and t.begin < t.end]
        or [(0, tables.kernels[launch.kernel].grid)]
        for number, launch in enumerate(tables.launches)
    ]
    tasks: list[TaskSpec] = []
    for number, tile_ranges in enumerate(ranges):
        first = len(tasks) + (number > 0)
        successors = (first + len(tile_ranges),) if number + 1 < len(ranges) else ()
        if number > 0:
            joined = tuple(range(first, first + len(tile_ranges)))
            tasks.append(TaskSpec(number, len(ranges[number - 1]), 0, 0, joined))
        tasks += [
            TaskSpec(number, int(number > 0), begin, end, successors) for begin, end in tile_ranges
        ]
    return tasks


def empty_tasks(layers: int, width: int) -> Any:
    """A program of layers x width tasks that do nothing; each waits for two of the layer before."""
    kernels = [KernelSpec(f"k{i}", f"k{i}", width, "vector", _LONG, 0, "") for i in range(layers)]
    tasks = []
    for layer in range(layers):
        for tile in range(width):
            at = (layer + 1) * width
            successors = sorted({at + tile, at + (tile + 1) % width}) if layer + 1 < layers else []
            tasks.append(TaskSpec(layer, 2 * (layer > 0), tile, tile + 1, tuple(successors)))
    tables = Tables(
        buffers=(),
        kernels=tuple(kernels),
        launches=tuple(LaunchSpec(i, ()) for i in range(layers)),
        workspace_size=0,
        work=0,
        tasks=tuple(tasks),
    )
    code = _RETURN[platform.machine()]
    image = _native.Image(code, [(0, len(code), 0, len(code), _READ_EXECUTE)])
    block = pack_tables(tables, {kernel.symbol: 0 for kernel in kernels})
    return _native.Program(image, block, 0, [], [], _no_arrays, True)


def _no_arrays(index: int, value: Any, is_output: bool) -> np.ndarray:
    raise TypeError(f"the program has no arrays, and was given {value!r}")
