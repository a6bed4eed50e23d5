"""The overhead of tracing: two chains of matmuls with and without a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness.case import Case

TITLE = "Two chains of three 512x512 matmuls, traced and not"
MODE = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1, 2)
TOLERANCE = 1e-4

Arrays = list[np.ndarray]


def arrays() -> Arrays:
    random = np.random.default_rng(0)
    return [random.standard_normal((512, 512)).astype(np.float32) / 23 for _ in range(4)]


def _chains(x: Any, a: Any, b: Any, c: Any) -> Any:
    return x @ a @ b @ c + x @ c @ b @ a


def oracle(data: Arrays) -> Arrays:
    return [_chains(*(array.astype(np.float64) for array in data))]


def _program(data: Arrays) -> Any:
    import nova

    tensors = [nova.tensor(array) for array in data]
    return nova.compile(_chains(*tensors), inputs=tensors)


def plain(data: Arrays) -> Case:
    return Case(_program(data), data)


def traced(data: Arrays) -> Case:
    """Each call has its own trace: a long trace would only add memory."""
    import nova

    program = _program(data)

    def call(*inputs: np.ndarray) -> np.ndarray:
        with nova.trace() as trace:
            result = program(*inputs)
        assert len(trace._items) == 1
        return result

    return Case(call, data)


CONTENDERS = {
    "Nova": ("nova", plain),
    "Nova, traced": ("nova", traced),
}
