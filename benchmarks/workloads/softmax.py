"""A reduction with elementwise work around it: softmax over the rows of 1024x1024."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness.case import Case
from harness.peers import iree_case, jax_case, torch_case
from harness.rates import Work

TITLE = "softmax, 1024x1024"
MODE = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1,)
TOLERANCE = 1e-5

Arrays = list[np.ndarray]


def arrays() -> Arrays:
    return [np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)]


def work() -> Work:
    return Work(byte=2 * 4 * 1024 * 1024)


def _by_hand(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def oracle(data: Arrays) -> Arrays:
    return [_by_hand(data[0].astype(np.float64))]


def nova_call(data: Arrays) -> Case:
    import nova

    x = nova.tensor(data[0])
    return Case(nova.compile(nova.softmax(x), inputs=[x]), data)


def numpy_call(data: Arrays) -> Case:
    return Case(_by_hand, data)


def torch_eager(data: Arrays) -> Case:
    return torch_case(lambda x: x.softmax(-1), data)


def torch_compiled(data: Arrays) -> Case:
    return torch_case(lambda x: x.softmax(-1), data, compiled=True)


def _jax(x: Any) -> Any:
    import jax

    return jax.nn.softmax(x)


def jax_jit(data: Arrays) -> Case:
    return jax_case(_jax, data)


def iree(data: Arrays) -> Case:
    return iree_case(_jax, data)


CONTENDERS = {
    "Nova": ("nova", nova_call),
    "numpy": ("numpy", numpy_call),
    "torch": ("torch", torch_eager),
    "torch.compile": ("torch", torch_compiled),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
}
