"""`nova.debug.minimize`: reduces a failing program to the few ops that still fail.

In: a compiled program, plan or error. Out: a `Reduction` with the small plan, its arguments and
the error, and a script that reproduces it. A candidate is kept only if it fails in the same way.
Intermediate values of the program become inputs with the oracle's values.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nova.api.compiled import Compiled
from nova.core.dtypes import TensorType
from nova.core.location import user_location
from nova.core.settings import Settings, current_settings
from nova.core.user_facing import user_facing
from nova.debug.checked import Checker
from nova.debug.derivatives import all_derivations
from nova.debug.finding import Finding, error_of
from nova.debug.oracle import Oracle
from nova.debug.plan_transforms import Program, cut
from nova.debug.script import write_script
from nova.errors import AttributeValueError, MinimizeError
from nova.plan import Arg, Plan, Slot, print_plan

_MOST_TESTS = 300
_MOST_DEPTH = 4


@dataclass(frozen=True)
class Reduction:
    """A small program that fails, and the script that reproduces it."""

    plan: Plan
    arrays: tuple[np.ndarray, ...]
    error: BaseException
    script: Path
    tests: int


@user_facing
def minimize(
    program: Compiled | Plan | BaseException,
    inputs: Sequence[Any] | None = None,
    check: Callable[[Plan, Sequence[np.ndarray]], Any] | None = None,
    path: str | Path = "repro.py",
    *,
    isolate: bool = False,
) -> Reduction:
    """Reduce a failing program and write a script to `path` that reproduces the failure.

    `program` is a compiled program, a plan, or the CheckError or NonFiniteError of a checked run.
    `inputs` are the arrays of the failing run, params after inputs; the default is the latest
    failing checked run of the program, or random arrays. A program fails if a checked run of
    it raises, or `check(plan, arrays)` raises or returns True. With `isolate` every candidate
    runs in a separate process: for failures that end the process.
    """
    if check is not None and isolate:
        raise AttributeValueError("isolate runs the default check: give either it or check")
    start, settings, finding = _start(program, inputs)
    device = program._executable.device_name if isinstance(program, Compiled) else None
    test = _Test(settings, device, check, isolate, _mode(finding))
    error = test.run(start)
    if error is None:
        raise MinimizeError(
            "this program does not fail: its results agree with the oracle",
            where=str(user_location()),
            hint="give the arrays it fails with: minimize(program, inputs=[...])",
        )
    test.failure = _failure_class(error)
    reducer = _Reducer(start, error, test)
    reducer.reduce()
    script = Path(path)
    title = str(reducer.error).splitlines()[0]
    write_script(script, reducer.best, settings, title, test.mode, device)
    return Reduction(reducer.best.plan, reducer.best.arrays, reducer.error, script, test.count)


def _start(program: Any, inputs: Sequence[Any] | None) -> tuple[Program, Settings, Finding | None]:
    settings = current_settings()
    finding: Finding | None = getattr(program, "finding", None)
    if isinstance(program, Compiled):
        settings = Settings.of(program._executable.spec.options)
        finding = getattr(program._program, "last_failure", None)
        plan = program.plan
    elif isinstance(program, Plan):
        plan = program
    elif finding is not None and finding.program is not None:
        plan = finding.program.plan
    else:
        raise MinimizeError(
            f"a {type(program).__name__} is not a program",
            where=str(user_location()),
            hint="give a compiled program, a plan, or the CheckError of a checked run",
        )
    if inputs is not None:
        arrays = tuple(np.asarray(a) for a in inputs)
    elif finding is not None and finding.program is not None:
        arrays = finding.program.arrays
    else:
        rng = np.random.default_rng(0)
        arrays = tuple(_random(rng, a.type) for a in plan.signature.arguments)
    return Program(plan, arrays), settings, finding


def _mode(finding: Finding | None) -> str:
    return "nan" if finding is not None and finding.kind == "nonfinite" else "1"


def _random(rng: np.random.Generator, type_: TensorType) -> np.ndarray:
    if type_.dtype.is_float:
        return np.asarray(rng.standard_normal(type_.shape)).astype(type_.dtype.numpy)
    return np.asarray(rng.integers(0, 2, type_.shape)).astype(type_.dtype.numpy)


class _Test:
    """Whether a program fails; counts the calls."""

    def __init__(
        self, settings: Settings, device: str | None, check: Any, isolate: bool, mode: str
    ):
        self.settings = settings
        self.device = device
        self.check = check
        self.isolate = isolate
        self.mode = mode
        self.failure: str | None = None
        self.count = 0

    def run(self, program: Program) -> BaseException | None:
        """The error of a program, or None; only the error class that is reduced."""
        self.count += 1
        error = self._run(program)
        if error is None or (self.failure is not None and _failure_class(error) != self.failure):
            return None
        return error

    def _run(self, program: Program) -> BaseException | None:
        if self.isolate:
            return self._run_alone(program)
        try:
            if self.check is not None:
                failed = self.check(program.plan, program.arrays)
                return MinimizeError("check(plan, arrays) is true") if failed else None
            finding = self._find(program)
        except Exception as error:
            return error
        return None if finding is None else error_of(finding)

    def _find(self, program: Program) -> Finding | None:
        checker = Checker(program.plan, self.settings, device=self.device)
        if self.mode == "nan":
            finding = checker.find_nonfinite(program.arrays)
            return finding if finding is not None and finding.step is not None else None
        if self.mode == "gradient":
            checker._derivations = all_derivations(program.plan)
        return checker.find_wrong(program.arrays, locate=self.failure is None)

    def _run_alone(self, program: Program) -> BaseException | None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "candidate.py")
            write_script(script, program, self.settings, "A candidate.", self.mode, self.device)
            process = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        if process.returncode == 0:
            return None
        if process.returncode < 0:
            return ChildProcessError(f"the process ended by signal {-process.returncode}")
        lines = [line for line in process.stderr.splitlines() if line and not line[0].isspace()]
        return ChildProcessError(lines[-1] if lines else f"status {process.returncode}")


def _failure_class(error: BaseException) -> str:
    text = str(error).split(":")[0] if isinstance(error, ChildProcessError) else ""
    return f"{type(error).__name__}{text}"


class _Reducer:
    """The smallest failing program so far, and the transformations that reduce it."""

    def __init__(self, start: Program, error: BaseException, test: _Test):
        self.best = start
        self.error = error
        self.test = test
        self.tried: set[str] = set()

    def reduce(self) -> None:
        finding = getattr(self.error, "finding", None)
        if finding is not None and finding.kind == "gradient":
            self._single_out(finding)
            return
        if finding is not None and finding.step is not None:
            self._grow_around(finding.step)
        size = None
        while size != _size(self.best) and self.test.count < _MOST_TESTS:
            size = _size(self.best)
            self._drop_results()
            self._drop_steps()

    def _try(self, candidate: Program) -> bool:
        if _size(candidate) >= _size(self.best) or self.test.count >= _MOST_TESTS:
            return False
        text = print_plan(candidate.plan, locations=False)
        if text in self.tried:
            return False
        self.tried.add(text)
        error = self.test.run(candidate)
        if error is None:
            return False
        self.best, self.error = candidate, error
        return True

    def _values(self) -> dict[int, np.ndarray]:
        """The oracle's value of every slot."""
        return dict(enumerate(Oracle(self.best.plan, self.best.arrays).run()))

    def _single_out(self, finding: Finding) -> None:
        """A vjp is wrong: the op alone reproduces it."""
        assert finding.alone is not None
        self.test.mode = "gradient"
        self._try(finding.alone)

    def _grow_around(self, step: int) -> None:
        """The step alone, then with its producers, then with their producers."""
        values = self._values()
        plan = self.best.plan
        window = {step}
        for _ in range(_MOST_DEPTH):
            constants = {k: v for k, v in values.items() if k not in window}
            if self._try(cut(self.best, constants, [Slot(step)])):
                return
            window |= {a.index for s in window for a in plan.steps[s].args if isinstance(a, Slot)}

    def _drop_results(self) -> None:
        for results, updates in _fewer_results(self.best.plan):
            if self._try(cut(self.best, {}, results, updates)):
                return

    def _drop_steps(self) -> None:
        chunk = max(1, len(self.best.plan.steps) // 2)
        while chunk:
            start = 0
            while start < len(self.best.plan.steps):
                values = self._values()
                constants = {k: values[k] for k in range(start, min(start + chunk, len(values)))}
                returned = _with_sources(self.best.plan, constants)
                updates = [u for u in self.best.plan.updates if not _is_constant(u[1], constants)]
                if not (returned or updates) or not self._try(
                    cut(self.best, constants, returned, updates)
                ):
                    start += chunk
            chunk //= 2


def _with_sources(plan: Plan, constants: dict[int, np.ndarray]) -> list[Arg]:
    """The results; a result that is left out is replaced by its operands."""
    sources: dict[Arg, None] = {}
    stack = list(reversed(plan.results))
    while stack:
        arg = stack.pop()
        if not _is_constant(arg, constants):
            sources[arg] = None
        elif isinstance(arg, Slot):
            stack += [a for a in plan.steps[arg.index].args if isinstance(a, Slot)]
    return list(sources)


def _is_constant(arg: Arg, constants: dict[int, np.ndarray]) -> bool:
    return isinstance(arg, Slot) and arg.index in constants


def _fewer_results(
    plan: Plan,
) -> Iterator[tuple[Sequence[Arg], Sequence[tuple[int, Arg]]]]:
    """Each result alone, each update alone, then all but one."""
    results, updates = plan.results, plan.updates
    if len(results) + len(updates) > 1:
        yield from (([r], ()) for r in results)
        yield from (((), [u]) for u in updates)
        for i in range(len(results)):
            yield [*results[:i], *results[i + 1 :]], updates
        for i in range(len(updates)):
            yield results, [*updates[:i], *updates[i + 1 :]]


def _size(program: Program) -> tuple[int, int, int]:
    plan = program.plan
    return len(plan.steps), len(plan.results) + len(plan.updates), len(program.arrays)
