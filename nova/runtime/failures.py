"""Errors of runs: creates the exception and describes the tasks in the user's terms.

In: task indices from the native runtime. Out: an exception to raise. A program is created with one
of these functions and calls it if a run fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from nova import _native
from nova.artifact.format import Artifact
from nova.artifact.tables import Tables
from nova.artifact.task_plan import plan_tasks
from nova.core.location import find_user_location
from nova.errors import (
    NovaError,
    RunCancelled,
    RunError,
    RunInterrupted,
    RunTimeoutError,
    StalledError,
    TaskError,
)

_MOST_NAMED = 8
_DROPPED = -2
_STATES = ("waiting", "ready", "done", "failed")
_PARTIAL = "arrays that the run writes are part old, part new"

Report = Callable[
    [int, int, tuple[int, ...], bytes | None, int, BaseException | None, int], BaseException
]


def make_reporter(artifact: Artifact, variant: int) -> Report:
    """The function that a program calls if a run fails."""

    def report(
        status: int,
        task: int,
        running: tuple[int, ...],
        states: bytes | None,
        number: int,
        cause: BaseException | None,
        tasks_for: int = 0,
    ) -> BaseException:
        tables = artifact.tables(variant)
        tables = replace(tables, tasks=plan_tasks(tables, max(1, tasks_for)))
        if task == _DROPPED:
            error: NovaError = RunCancelled("a run before it in its stream did not succeed")
        elif status == _native.TASK_REPORTED:
            error = TaskError(
                f"{describe_task(tables, task)} reported error {number}", hint=_PARTIAL
            )
        elif status == _native.STALLED:
            error = StalledError(describe_stall(tables, states or b""))
        elif status == _native.TIMEOUT:
            error = RunTimeoutError(
                f"the run took longer than its timeout{_at(tables, running)}", hint=_PARTIAL
            )
        elif status == _native.CANCELLED:
            if cause is not None and not isinstance(cause, KeyboardInterrupt):
                cause.add_note(f"the run was stopped{_at(tables, running)}; {_PARTIAL}")
                return cause
            error_class = RunCancelled if cause is None else RunInterrupted
            error = error_class(f"the run was stopped{_at(tables, running)}", hint=_PARTIAL)
        else:
            error = RunError(f"the run could not start (status {status})")
        error = _located(error)
        if task == _DROPPED:
            error.__cause__ = cause
        return error

    return report


def _located(error: NovaError) -> NovaError:
    """`error` with the user's line, if the user's thread reports it; else the waiter adds it."""
    location = find_user_location()
    return error if location is None else error.located(str(location))


def report_on_device(
    status: int,
    task: int,
    running: None,
    states: None,
    number: int,
    cause: BaseException | None,
    tasks_for: int = 0,
) -> BaseException:
    """The same for a run on a device, if the failure is not that of the device.

    `number` is 1 if the run had started: then kernels of the host region have been stopped.
    """
    if task == _DROPPED:
        error: NovaError = RunCancelled("a run before it in its stream did not succeed")
    elif status == _native.TIMEOUT:
        error = RunTimeoutError(
            "the run took longer than its timeout",
            hint="a timeout stops only loops of persistent kernels: other device code goes on, "
            "and its arrays are in use until it has ended",
        )
    elif status == _native.CANCELLED and not number:
        error = RunCancelled("the run was cancelled before the device was given it")
    elif status == _native.CANCELLED:
        if cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause.add_note(f"the run was stopped; {_PARTIAL}")
            return cause
        error_class = RunCancelled if cause is None else RunInterrupted
        error = error_class("the run was stopped between kernels of the host", hint=_PARTIAL)
    else:
        error = RunError(f"the run could not start (status {status})")
    error = _located(error)
    if task == _DROPPED:
        error.__cause__ = cause
    return error


def describe_task(tables: Tables, number: int) -> str:
    """Kernel, tiles and the user's line of a task."""
    if tables.tasks and number < len(tables.tasks):
        task = tables.tasks[number]
        launch, begin, end = task.launch, task.begin, task.end
    else:
        launch, begin, end = number, 0, -1
    if launch >= len(tables.launches):
        return f"task {number}"
    kernel = tables.kernels[tables.launches[launch].kernel]
    end = kernel.grid if end < 0 else end
    where = f" ({kernel.location})" if kernel.location else ""
    return f"kernel {kernel.name}, tiles {begin} to {end} of {kernel.grid}{where}"


def describe_stall(tables: Tables, states: bytes) -> str:
    """The number of tasks in each state, and the first that wait."""
    counts = Counter(_STATES[state] for state in states)
    waiting = [i for i, state in enumerate(states) if _STATES[state] in ("waiting", "ready")]
    lines = [f"task {i}: {_STATES[states[i]]}, {describe_task(tables, i)}" for i in waiting]
    summary = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    return "\n    ".join([f"no task can run any more: {summary}", *_shortened(lines)])


def _at(tables: Tables, running: Sequence[int]) -> str:
    """The tasks that were running when the run was stopped."""
    if not running:
        return " between two tasks"
    return " at " + "; ".join(_shortened([describe_task(tables, task) for task in running]))


def _shortened(lines: list[str]) -> list[str]:
    unlisted = len(lines) - _MOST_NAMED
    return lines if unlisted <= 0 else [*lines[:_MOST_NAMED], f"and {unlisted} more"]
