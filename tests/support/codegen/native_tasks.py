"""Running the tile ranges of a lowered program one by one, through its machine code.

Used by tests of the task graph: the kernels are loaded as a library, and memory is plain
arrays that a test can look at and damage between two calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from native_code import address_of, load_objects

from nova.artifact.tables import Tables
from nova.artifact.task_plan import plan_tasks
from nova.codegen.common.footprint import Footprint, load_footprint
from nova.compiler.cpu.lower_units import translate_module
from nova.compiler.llvm.machine_code import Unit, compile_objects
from nova.compiler.recorder import Recorder
from nova.compiler.stages import run_stages
from nova.compiler.tables import read_tables
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.ir.bindings import ir
from nova.ir.context import make_context
from nova.ir.emit import emit_module
from nova.ir.walk import kernels
from nova.plan import Plan

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
Spans = list[tuple[tuple[str, int], int, int]]
"""Bytes [low, high) of spaces."""
Memory = dict[tuple[str, int], np.ndarray]
"""All bytes of a program by space: ("arg", i), ("output", i), ("workspace", 0), ("constant", 0)."""


@dataclass(frozen=True)
class Loaded:
    """A program whose kernels can be called; `code` keeps it in memory."""

    tables: Tables
    constants: bytes
    footprints: tuple[Footprint, ...]
    entries: tuple[Any, ...]
    code: Any

    def touched(self, launch: int, begin: int, end: int) -> tuple[Spans, Spans]:
        """What the compiler says that tiles [begin, end) of a launch read and write."""
        record = self.tables.launches[launch]
        footprint = self.footprints[record.kernel]
        result: tuple[Spans, Spans] = ([], [])
        for spans, arguments in zip(result, (footprint.reads, footprint.writes), strict=True):
            for byte_ranges, number in zip(arguments, record.buffers, strict=False):
                bounds = footprint.touched(byte_ranges, (begin, end)) if begin < end else None
                if bounds is None:
                    continue
                space, offset = space_of(self.tables.buffers[number])
                spans.append((space, offset + int(bounds[0][0]), offset + int(bounds[1][0])))
        return result

    def run(self, launch: int, begin: int, end: int, memory: Memory) -> None:
        """Tiles [begin, end) of a launch."""
        record = self.tables.launches[launch]
        addresses = [self._address(number, memory) for number in record.buffers]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        # A kernel that takes no scratch memory does not look at the last argument.
        scratch = aligned_bytes(max(1, self.tables.scratch_size), 0xA5)
        self.entries[record.kernel](pointers, begin, end, scratch.ctypes.data)

    def _address(self, number: int, memory: Memory) -> int:
        space, offset = space_of(self.tables.buffers[number])
        return int(memory[space].ctypes.data) + offset

    def copy(self, data: np.ndarray) -> np.ndarray:
        """The same bytes, aligned as a kernel needs them."""
        fresh = aligned_bytes(data.size, 0)
        fresh[:] = data
        return fresh

    def memory(self, arrays: Sequence[np.ndarray], fill: int = 0xA5) -> Memory:
        """Fresh memory with the arguments in it; what the program has to write holds `fill`."""
        sizes: dict[tuple[str, int], int] = {("workspace", 0): self.tables.workspace_size}
        for buffer in self.tables.buffers:
            space, offset = space_of(buffer)
            sizes[space] = max(sizes.get(space, 0), offset + buffer.nbytes)
        memory = {space: aligned_bytes(size, fill) for space, size in sizes.items()}
        for i, array in enumerate(arrays):
            if ("arg", i) in memory:
                memory["arg", i][: array.nbytes] = (
                    np.ascontiguousarray(array).view(np.uint8).ravel()
                )
        if ("constant", 0) in memory:
            constants = np.frombuffer(self.constants, np.uint8)
            memory["constant", 0][: constants.size] = constants
        return memory

    def run_in_order(self, memory: Memory) -> None:
        """The whole program, launch by launch."""
        for number, launch in enumerate(self.tables.launches):
            self.run(number, 0, self.tables.kernels[launch.kernel].grid, memory)


def space_of(buffer: Any) -> tuple[tuple[str, int], int]:
    """Where a buffer is: its space, and the byte in it."""
    if buffer.kind in ("workspace", "constant"):
        return (buffer.kind, 0), buffer.value
    if buffer.kind == "output_part":
        return ("output", buffer.output), buffer.value
    return (buffer.kind, buffer.value), 0


def aligned_bytes(size: int, fill: int) -> np.ndarray:
    """Bytes at a multiple of 64, with some more behind them that must not change."""
    complete = np.full(size + 128, fill, np.uint8)
    start = -complete.ctypes.data % 64
    return complete[start : start + size]


def load_plan(plan: Plan, settings: Settings, workers: int = 4) -> Loaded:
    """Compile a plan and load its kernels; its tables have the tasks for `workers` threads."""
    return load_module(emit_module(plan, make_context()), settings, workers=workers)


def load_module(
    module: ir.Module, settings: Settings, after: str = "nova", workers: int = 4
) -> Loaded:
    """The same from a module at the stage `after`, which is used up."""
    recorder = Recorder()
    if after != "loops":
        run_stages(module, settings, recorder, after=after, until="loops")
    program = read_tables(module)
    tables, constants = program.tables, program.constants
    tables = replace(tables, tasks=plan_tasks(tables, workers, worth_ns=0))
    footprints = tuple(load_footprint(kernel) for kernel in kernels(module))
    run_stages(module, settings, recorder, after="loops")
    target = parse_target(settings.target)
    code = load_objects(compile_objects([Unit(translate_module(module), unroll=False)], target))
    entries = tuple(_KERNEL(address_of(code, k.symbol)) for k in tables.kernels)
    return Loaded(tables, constants, footprints, entries, code)
