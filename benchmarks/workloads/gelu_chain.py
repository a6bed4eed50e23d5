"""Elementwise work that fuses: gelu(a * b + c), the tanh form, of a million floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from harness.case import Case
from harness.peers import iree_case, jax_case, torch_case

TITLE = "gelu(a * b + c), 1M floats"
KIND = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1,)
TOLERANCE = 1e-5

Arrays = list[np.ndarray]


def arrays() -> Arrays:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(1 << 20).astype(np.float32) for _ in range(3)]


def _by_hand(a: Any, b: Any, c: Any) -> Any:
    x = a * b + c
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def oracle(given: Arrays) -> Arrays:
    return [_by_hand(*(a.astype(np.float64) for a in given))]


def _nova_program(given: Arrays) -> Any:
    import nova

    a, b, c = (nova.tensor(array) for array in given)
    return nova.compile(nova.gelu(a * b + c, approximate="tanh"), inputs=[a, b, c])


def nova_call(given: Arrays) -> Case:
    return Case(_nova_program(given), given)


def nova_out(given: Arrays) -> Case:
    return Case(_nova_program(given), given, {"out": np.empty(1 << 20, np.float32)})


def numpy_call(given: Arrays) -> Case:
    return Case(_by_hand, given)


def numba_call(given: Arrays) -> Case:
    import numba

    @numba.njit(fastmath=False)
    def chain(a: Any, b: Any, c: Any) -> Any:
        out = np.empty_like(a)
        scale, cubic = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)
        for i in range(a.size):
            x = a[i] * b[i] + c[i]
            out[i] = np.float32(0.5) * x * (1 + math.tanh(scale * (x + cubic * x * x * x)))
        return out

    return Case(chain, given)


def _torch(a: Any, b: Any, c: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(a * b + c, approximate="tanh")


def torch_eager(given: Arrays) -> Case:
    return torch_case(_torch, given)


def torch_compiled(given: Arrays) -> Case:
    return torch_case(_torch, given, compiled=True)


def _jax(a: Any, b: Any, c: Any) -> Any:
    import jax

    return jax.nn.gelu(a * b + c, approximate=True)


def jax_jit(given: Arrays) -> Case:
    return jax_case(_jax, given)


def iree(given: Arrays) -> Case:
    return iree_case(_jax, given)


CONTENDERS = {
    "Nova": ("nova", nova_call),
    "Nova, out=": ("nova", nova_out),
    "numpy": ("numpy", numpy_call),
    "numba": ("numba", numba_call),
    "torch": ("torch", torch_eager),
    "torch.compile": ("torch", torch_compiled),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
}
