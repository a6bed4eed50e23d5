"""The number of tasks that a run of a program has."""

from __future__ import annotations

from typing import Any

from nova import knobs
from nova.artifact.task_plan import plan_tasks


def count_tasks(program: Any, threads: int | None = None) -> int:
    """The tasks of a compiled program for `threads` threads, or for those of this process."""
    return len(plan_tasks(program._executable.tables, threads or knobs.process_value("threads")))
