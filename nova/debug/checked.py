"""Checked runs: the replacement of a program under `NOVA_CHECK=1` and `NOVA_CHECK=nan`.

In: arguments of a run. Out: the program's results, or an error that names the first fault,
raised before any of the caller's arrays are changed. `nova.api.compile` creates a `CheckedProgram`
if the knob enables it; `check_plan` does the same for a plan and arrays.

A check has three parts. First every step: a second program returns all slots, and each is compared
with the oracle's value *for the compiled values of its arguments*, so errors do not accumulate.
Then the whole: the program's own results and updates are compared with those slots; if only they
differ, the fault is in how steps were combined, and bisection finds the shortest prefix of the plan
that shows it. Last, in the first run, the vjp columns of the plan's gradients are compared with
finite differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nova.api.compile import check_run_mode, check_target, device_of, local_target
from nova.api.compiled import Compiled
from nova.core.dlpack import as_numpy
from nova.core.settings import Settings, current_settings
from nova.debug.compare import (
    Difference,
    Spread,
    collect_spread,
    find_difference,
    find_result_difference,
    find_step_difference,
)
from nova.debug.derivatives import all_derivations, alone, find_wrong_vjp
from nova.debug.finding import (
    Finding,
    error_of,
    gradient_finding,
    result_finding,
    step_finding,
)
from nova.debug.indices import find_index
from nova.debug.nonfinite import find_nonfinite
from nova.debug.observe import compile_unchecked, run_copy
from nova.debug.oracle import Noise, Oracle, arg_value
from nova.debug.plan_transforms import Program, all_slots, prefix, producer
from nova.errors import NovaError
from nova.plan import Arg, Derivation, Plan, Slot, parse_plan
from nova.runtime.device_arrays import copy_to_host
from nova.runtime.futures import EndedRun

_NOISY_RUNS = 4
_UNITS = 64.0
_FACTOR = 16.0


class Checker:
    """Checks runs of one program; keeps the programs it compiled for the next run."""

    def __init__(
        self, plan: Plan, settings: Settings, program: Any = None, device: str | None = None
    ):
        self.plan = plan
        self.settings = settings
        self.device = device  # where the program runs; None for the CPU
        self._compiled = program
        self._derivations: Sequence[Derivation] = plan.derivations

    @cached_property
    def program(self) -> Any:
        """The program under test."""
        return self._compile(self.plan) if self._compiled is None else self._compiled

    @cached_property
    def observed(self) -> Compiled:
        """The program that returns every slot."""
        return self._compile(all_slots(self.plan))

    def _compile(self, plan: Plan) -> Compiled:
        return compile_unchecked(plan, self.settings, self.device)

    def slots(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """The compiled value of every slot; None for a loop, branch or call."""
        if not self.plan.steps:
            return []
        outcome = run_copy(self.observed, self.observed.plan, arrays)
        values = iter([value for _, value in outcome.values])
        return [None if step.results else next(values) for step in self.plan.steps]

    # --- NOVA_CHECK=1 ---------------------------------------------------------------------------

    def find_wrong(self, arrays: Sequence[np.ndarray], *, locate: bool = True) -> Finding | None:
        """The first fault; without `locate`, a fault of the whole program names its last step."""
        program = Program(self.plan, tuple(arrays))
        rng = np.random.default_rng(0)
        outside = find_index(program)
        if outside is not None:
            return outside
        slots = self.slots(arrays)
        for step in self.plan.steps:
            if step.results:
                continue
            source, value = producer(self.plan, step), slots[step.out_slot]
            operands = [arg_value(self.plan, a, arrays, slots) for a in source.args]
            if source is step:
                difference = find_step_difference(step, operands, value, rng)
            else:
                index = step.attrs["index"]
                difference = find_result_difference(source, index, operands, value, rng)
            if difference is not None:
                kernels = self.observed.kernels
                return step_finding("step", program, step, str(difference), kernels)
        wrong = self._find_wrong_whole(program, slots, rng, locate)
        if wrong is not None:
            return wrong
        for derivation in self._derivations:
            values = [
                None if a is None else arg_value(self.plan, a, arrays, slots)
                for a in derivation.args
            ]
            detail = find_wrong_vjp(derivation, values, rng)
            if detail is not None:
                return gradient_finding(program, derivation, detail, alone(derivation, values))
        self._derivations = ()  # they do not depend on the data of a run: checked once
        return None

    def _find_wrong_whole(
        self, program: Program, slots: list[np.ndarray], rng: np.random.Generator, locate: bool
    ) -> Finding | None:
        outcome = run_copy(self.program, self.plan, program.arrays)
        judge = _Judge(program, slots, rng)
        if judge.find(outcome.values, exact=True) is None or judge.find(outcome.values) is None:
            return None
        low, high = 0, len(self.plan.steps)  # `low` steps are right, `high` steps are wrong
        latest = outcome.values
        part: Any = self.program
        while locate and high - low > 1:
            middle = (low + high) // 2
            candidate = self._compile(prefix(self.plan, middle))
            values = run_copy(candidate, candidate.plan, program.arrays).values
            if judge.find(values) is None:
                low = middle
            else:
                high, latest, part = middle, values, candidate
        wrong = judge.find(latest)
        assert wrong is not None
        arg, difference = wrong
        if not isinstance(arg, Slot):
            return result_finding(program, f"what the program makes of {arg}", str(difference))
        step = self.plan.steps[arg.index]
        return step_finding("program", program, step, str(difference), getattr(part, "kernels", ()))

    # --- NOVA_CHECK=nan -------------------------------------------------------------------------

    def find_nonfinite(self, arrays: Sequence[np.ndarray]) -> Finding | None:
        """The first NaN, or infinity computed from finite numbers."""
        program = Program(self.plan, tuple(arrays))
        slots = self.slots(arrays)
        kernels = self.observed.kernels if self.plan.steps else ()
        return find_nonfinite(program, slots, kernels)


class _Judge:
    """Compares the results of programs with the slots that passed the step-by-step check."""

    def __init__(self, program: Program, slots: list[np.ndarray], rng: np.random.Generator):
        self.program = program
        self.slots = slots
        self.rng = rng

    @cached_property
    def _spreads(self) -> list[Spread | None]:
        plan, arrays = self.program.plan, self.program.arrays
        calm = Oracle(plan, arrays).run()
        noisy = [Oracle(plan, arrays, Noise(self.rng)).run() for _ in range(_NOISY_RUNS)]
        return [
            None if isinstance(value, list) else collect_spread(value, samples)
            for value, samples in zip(calm, zip(*noisy, strict=True), strict=True)
        ]

    def find(
        self, values: Sequence[tuple[Arg, np.ndarray]], *, exact: bool = False
    ) -> tuple[Arg, Difference] | None:
        """The earliest wrong value; `exact` allows for no noise, and is cheap."""
        wrong: list[tuple[Arg, Difference]] = []
        for arg, value in values:
            want = arg_value(self.program.plan, arg, self.program.arrays, self.slots)
            spread = self._spreads[arg.index] if isinstance(arg, Slot) and not exact else None
            difference = find_difference(
                value, want, relative=_UNITS, spread=spread, factor=_FACTOR
            )
            if difference is not None:
                wrong.append((arg, difference))
        return min(wrong, key=_step_number, default=None)


def _step_number(wrong: tuple[Arg, Difference]) -> int:
    return wrong[0].index if isinstance(wrong[0], Slot) else -1


class CheckedProgram:
    """A native program whose every run is checked first, on copies of the arguments."""

    def __init__(self, executable: Any, program: Any, plan: Plan, mode: str):
        self._program = program
        self._device = getattr(executable, "device", None)
        self._mode = mode
        self._plan = plan
        settings = Settings.of(executable.spec.options)
        self._checker = Checker(plan, settings, executable.program, executable.device_name)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        self._check(arrays)
        return self._program(*arrays, out=out)

    def run(
        self,
        inputs: Sequence[Any],
        params: Sequence[Any] = (),
        out: Any = None,
        timeout: float | None = None,
    ) -> Any:
        if isinstance(inputs, list | tuple) and isinstance(params, list | tuple):
            self._check([*inputs, *params])
        return self._program.run(inputs, params, out, timeout)

    def submit(self, arrays: Sequence[Any], out: Any, stream: Any, timeout: float | None) -> Any:
        """Checks run in Python, so the run has ended when this returns: in any stream, in order."""
        try:
            return EndedRun(self.run(arrays, (), out, timeout), None)
        except Exception as error:
            return EndedRun(None, error)

    @property
    def last_failure(self) -> Finding | None:
        """The finding of the latest run, for `minimize`."""
        return getattr(self, "_found", None)

    def _check(self, args: Sequence[Any]) -> None:
        arrays = _matching_arrays(self._plan, args, self._device)
        if arrays is None:
            return  # the program itself rejects them, with its own error
        if self._mode == "nan":
            self._finding = self._checker.find_nonfinite(arrays)
        else:
            self._finding = self._checker.find_wrong(arrays)
        if self._finding is not None:
            raise error_of(self._finding)


def check_plan(
    plan: Plan | str,
    arrays: Sequence[Any],
    *,
    target: str | None = None,
    fast_math: bool | None = None,
    gradients: bool = False,
    run_mode: str = "native",
) -> None:
    """Compile a plan and check a run of it; CheckError names the first fault.

    `arrays` are inputs, then params. With `gradients`, the vjp columns of all its ops are checked
    too, whether or not the plan differentiates them. With `run_mode="sim"` a device plan
    runs on the simulator.
    """
    if isinstance(plan, str):
        plan = parse_plan(plan)
    check_run_mode(run_mode)
    settings = current_settings(local_target(target), fast_math)
    check_target(settings.target)
    checker = Checker(plan, settings, device=device_of(settings, run_mode))
    if gradients:
        checker._derivations = all_derivations(plan)
    fitting = _matching_arrays(plan, arrays)
    if fitting is None:
        checker.program.run(*_split(plan, arrays))
        return
    finding = checker.find_wrong(fitting)
    if finding is not None:
        raise error_of(finding)


def _split(plan: Plan, arrays: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    count = len(plan.signature.inputs)
    return list(arrays[:count]), list(arrays[count:])


def _matching_arrays(
    plan: Plan, args: Sequence[Any], device: Any = None
) -> list[np.ndarray] | None:
    """The arguments as arrays of the signature's types; None if the program does not accept them.

    Arrays on `device`, the device of the program, are copied to the host.
    """
    arguments = plan.signature.arguments
    if len(args) != len(arguments):
        return None
    arrays = []
    for value, argument in zip(args, arguments, strict=True):
        expected = argument.type
        try:
            if type(value) in (bool, int, float) and not expected.shape:
                array = np.asarray(value).astype(expected.dtype.numpy)
            else:
                copy = None if device is None else copy_to_host(value, device, argument.name)
                array = as_numpy(value if copy is None else copy, argument.name)
        except (NovaError, OverflowError):
            return None
        if array.dtype.newbyteorder("=") != expected.dtype.numpy or array.shape != expected.shape:
            return None
        arrays.append(np.array(array, dtype=expected.dtype.numpy, order="C"))
    return arrays
