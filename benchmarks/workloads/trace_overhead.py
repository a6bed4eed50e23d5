"""What tracing costs: two chains of products with and without a trace around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness.case import Case

TITLE = "Two chains of three 512x512 products, traced and not"
KIND = "loop"
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


def oracle(given: Arrays) -> Arrays:
    return [_chains(*(array.astype(np.float64) for array in given))]


def _program(given: Arrays) -> Any:
    import nova

    tensors = [nova.tensor(array) for array in given]
    return nova.compile(_chains(*tensors), inputs=tensors)


def plain(given: Arrays) -> Case:
    return Case(_program(given), given)


def traced(given: Arrays) -> Case:
    """Each call has a trace of its own: a long one would only add memory."""
    import nova

    program = _program(given)

    def call(*inputs: np.ndarray) -> np.ndarray:
        with nova.trace() as trace:
            result = program(*inputs)
        assert len(trace._items) == 1
        return result

    return Case(call, given)


CONTENDERS = {
    "Nova": ("nova", plain),
    "Nova, traced": ("nova", traced),
}
