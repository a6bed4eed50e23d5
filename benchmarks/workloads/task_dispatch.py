"""The overhead of the scheduler: 10,000 empty tasks, each with two predecessors."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness.case import Case

TITLE = "10,000 empty tasks"
MODE = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (2,)
TOLERANCE = 0.0

Arrays = list[np.ndarray]


def arrays() -> Arrays:
    return []


def oracle(data: Arrays) -> Arrays:
    return []


def nova_tasks(data: Arrays) -> Case:
    from harness.tasks import empty_tasks

    import nova

    nova.compile(nova.tensor(np.zeros(1, "f4")) + 1)  # brings the pool to its number of threads
    return Case(empty_tasks(100, 100))


CONTENDERS = {"Nova": ("nova", nova_tasks)}
