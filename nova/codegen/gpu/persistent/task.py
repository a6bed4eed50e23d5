"""Tasks of a persistent kernel: their parameters, threads and names.

`kernel.py` writes the kernel that calls them, `flow.py` has the built-in ones.
"""

from __future__ import annotations

from nova.core.records import record

TASK_THREADS = 256
"""Threads of the blocks of the kernel: the most that a task can have."""


@record
class Task:
    """A kernel as a task: the types of its parameters, and its threads."""

    types: tuple[str, ...]
    threads: int


def task_name(number: int) -> str:
    return f"nova_task_{number}"
