"""Two independent chains of matmuls: as tasks, on one thread, and with barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness.case import Case
from harness.peers import torch_case
from harness.rates import Work, matmul_work

TITLE = "Two independent chains of matmuls"
MODE = "loop"
UNIT = "ms"
SIZES = {"4 x 512": {"n": 512}, "4 x 160": {"n": 160}}
THREADS = (2,)
TOLERANCE = 1e-4

Arrays = list[np.ndarray]


def arrays(n: int) -> Arrays:
    generator = np.random.default_rng(0)
    return [(generator.standard_normal((n, n)) / n**0.5).astype(np.float32) for _ in range(2)]


def work(n: int) -> Work:
    return matmul_work((n, n, n), times=8)


def _chains(x: Any, y: Any) -> Any:
    for _ in range(4):
        x, y = x @ x, y @ y
    return x, y


def oracle(data: Arrays) -> Arrays:
    return list(_chains(*(array.astype(np.float64) for array in data)))


def _program(data: Arrays, max_workspace: int | None = None) -> Any:
    import nova

    x, y = (nova.tensor(array) for array in data)
    return nova.compile(list(_chains(x, y)), inputs=[x, y], max_workspace=max_workspace)


def nova_tasks(data: Arrays) -> Case:
    return Case(_program(data), data)


def nova_apart(data: Arrays) -> Case:
    """With memory for both chains at once: in less, the second waits for buffers of the first."""
    return Case(_program(data, 64 << 20), data)


def nova_one(data: Arrays) -> Case:
    import nova

    program = _program(data)

    def alone(*args: Any) -> Any:
        with nova.knobs.override(threads=1):
            return program(*args)

    return Case(alone, data)


def nova_barriers(data: Arrays) -> Case:
    from harness.tasks import with_barriers

    return Case(with_barriers(_program(data)), data)


def torch_eager(data: Arrays) -> Case:
    return torch_case(_chains, data)


CONTENDERS = {
    "Nova": ("nova", nova_tasks),
    "Nova, max_workspace of 64M": ("nova", nova_apart),
    "Nova, one thread": ("nova", nova_one),
    "Nova, a barrier after each kernel": ("nova", nova_barriers),
    "torch": ("torch", torch_eager),
}
