"""One kernel as a separate program, compiled with given schedule overrides and timed.

In: a kernel of a module at the stage `buffers`, and `ScheduleOverrides`. Out: seconds of a run,
interleaved with runs of another variant: on a machine with other load, only times taken
at the same time compare. Called by `search.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nova import knobs
from nova.artifact.format import read_artifact
from nova.artifact.write import FileSpec, write_artifact
from nova.codegen.common.overrides import NO_OVERRIDES, ScheduleOverrides, write_overrides
from nova.compiler.driver import build_module
from nova.compiler.recorder import Recorder
from nova.compiler.signature import read_signature
from nova.core.settings import Settings
from nova.ir.bindings import func, ir, memref
from nova.ir.kernel import Main
from nova.runtime.executor import Executable
from nova.tuning.arguments import make_arguments, why_not_run

_BATCH_NS = 1_000_000
"""Minimum length of a measurement: the clock and a call from Python cost a thousandth of it."""

_ROUNDS = 7


class Trial:
    """A kernel under test: its arguments, and its programs with other overrides.

    `constants` are the numbers of arguments that are constants of the program, which may be packed
    before a run; those that are not floats are generated like other arguments: they may be indices.
    """

    def __init__(self, kernel: Any, settings: Settings, constants: frozenset[int] = frozenset()):
        self.kernel = kernel
        self.settings = settings
        self.constants = frozenset(i for i in constants if _is_float(kernel.type.inputs[i]))
        with kernel.operation.context, ir.Location.unknown():
            signature = read_signature(_one_kernel(kernel, NO_OVERRIDES, self.constants))
        self.specs = [replace(spec, donated=True) for spec in signature.args]
        self.refused = why_not_run(kernel, self.specs)
        self._fresh: list[np.ndarray] = []

    def compile(self, overrides: ScheduleOverrides) -> Any:
        """The kernel with these overrides, ready to be called; ScheduleError for illegal ones."""
        with self.kernel.operation.context, ir.Location.unknown():
            module = _one_kernel(self.kernel, overrides, self.constants)
        # Users see only the compile of the program that they requested.
        with knobs.override(dump=None, log=knobs.get("log") - {"compile", "load"}):
            [code] = build_module(module, [self.settings], Recorder(), after="buffers")
            data = write_artifact(FileSpec((code.variant,), tuple(self.specs), ()))
            return Executable(read_artifact(data)).program

    def compare(self, first: Any, second: Any) -> tuple[float, float]:
        """Nanoseconds of a run of each, the best of several interleaved runs."""
        if not self._fresh:
            self._fresh = make_arguments(self.kernel, self.specs)
        # Each on separate arguments with equal initial values: a kernel may change its arguments.
        pairs = [(program, [a.copy() for a in self._fresh]) for program in (first, second)]
        counts = [_calibrate(*pair) for pair in pairs]
        best = [float("inf"), float("inf")]
        for _ in range(_ROUNDS):
            for i, (pair, count) in enumerate(zip(pairs, counts, strict=True)):
                best[i] = min(best[i], _time(*pair, count))
        return best[0], best[1]


def _time(program: Any, arrays: Sequence[np.ndarray], count: int) -> float:
    started = time.perf_counter_ns()
    for _ in range(count):
        program(*arrays)
    return (time.perf_counter_ns() - started) / count


def _calibrate(program: Any, arrays: Sequence[np.ndarray]) -> int:
    """The number of runs per measurement; the first run touches memory and is not counted."""
    program(*arrays)
    return max(1, int(_BATCH_NS / max(1.0, _time(program, arrays, 1))))


def _is_float(type_: Any) -> bool:
    return isinstance(type_.element_type, ir.F32Type | ir.F64Type)


def _one_kernel(kernel: Any, overrides: ScheduleOverrides, constants: frozenset[int]) -> ir.Module:
    """A module at the stage `buffers` whose program is one call of the kernel."""
    module = ir.Module.create()
    types = list(kernel.type.inputs)
    input_types = [type_ for i, type_ in enumerate(types) if i not in constants]
    with ir.InsertionPoint(module.body):
        for i in sorted(constants):
            element = types[i].element_type
            half = ir.FloatAttr.get(element, 0.5)
            values = ir.RankedTensorType.get(types[i].shape, element)
            memref.global_(
                f"constant_{i}",
                types[i],
                sym_visibility="private",
                initial_value=ir.DenseElementsAttr.get_splat(values, half),
                constant=True,
            )
        copy = kernel.operation.clone()
        if overrides.explicit:
            write_overrides(copy, overrides)
        workspace = ir.MemRefType.get([0], ir.IntegerType.get_signless(8))
        main = func.FuncOp("main", ([*input_types, workspace], []))
        view = Main(main)
        view.inputs, view.outputs, view.workspace = len(input_types), 0, 0
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            callee = ir.FlatSymbolRefAttr.get(kernel.name.value)
            remaining = iter(block.arguments)
            operands = [
                memref.get_global(type_, f"constant_{i}") if i in constants else next(remaining)
                for i, type_ in enumerate(types)
            ]
            func.CallOp([], callee, operands)
            func.ReturnOp([])
    return module
