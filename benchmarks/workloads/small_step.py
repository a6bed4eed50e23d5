"""Forward and backward of one small layer: mse(gelu(x @ w + b), y), 8x16 to 10.

The loss and the gradients of w and b are wanted. `compile_cold` and `compile_disk` compile it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from harness.case import Case
from harness.peers import iree_case, jax_case, torch_step_case

TITLE = "A small step: forward and backward of 8x16 to 10"
MODE = "loop"
UNIT = "us"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1,)
TOLERANCE = 1e-5

Arrays = list[np.ndarray]


def arrays() -> Arrays:
    """x, w, b, y."""
    generator = np.random.default_rng(0)
    shapes = [(8, 16), (16, 10), (1, 10), (8, 10)]
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


def oracle(data: Arrays) -> Arrays:
    x, w, b, y = (a.astype(np.float64) for a in data)
    return _by_hand(np.vectorize(math.erf), x, w, b, y)


def _by_hand(erf: Any, x: Any, w: Any, b: Any, y: Any) -> list[Any]:
    z = x @ w + b
    normal = 0.5 * (1 + erf(z * np.sqrt(0.5, dtype=z.dtype)))
    difference = z * normal - y
    density = np.exp(-0.5 * z * z) * z.dtype.type(1 / math.sqrt(2 * math.pi))
    dz = difference * (normal + z * density) * z.dtype.type(2 / y.size)
    return [np.mean(difference * difference), x.T @ dz, dz.sum(0, keepdims=True)]


def nova_program(data: Arrays) -> Any:
    import nova

    x, w, b, y = data
    X, Y = nova.tensor(x, name="X"), nova.tensor(y, name="Y")
    W = nova.tensor(w, requires_grad=True, name="W")
    B = nova.tensor(b, requires_grad=True, name="b")
    loss = nova.mse_loss(nova.gelu(X @ W + B), Y)
    return nova.compile(loss, inputs=[X, Y], params=[W, B], include_backward=True)


def nova_run(data: Arrays) -> Case:
    x, w, b, y = data
    return Case(nova_program(data).run, [[x, y], [w, b]])


def nova_call(data: Arrays) -> Case:
    x, w, b, y = data
    return Case(nova_program(data), [x, y, w, b])


def numpy_by_hand(data: Arrays) -> Case:
    from scipy.special import erf

    return Case(lambda *args: _by_hand(erf, *args), data)


def numba_by_hand(data: Arrays) -> Case:
    return Case(numba_step(), data)


def numba_step(**options: Any) -> Any:
    """The step in loops: what somebody writes who wants it fast in numba."""
    import numba

    @numba.njit(**options)
    def step(x: Any, w: Any, b: Any, y: Any) -> Any:
        rows, inner = x.shape
        columns = w.shape[1]
        dw, db, loss = np.zeros_like(w), np.zeros_like(b), np.float32(0)
        z = np.empty(columns, np.float32)
        for i in range(rows):
            z[:] = b[0]
            for k in range(inner):
                for j in range(columns):
                    z[j] += x[i, k] * w[k, j]
            for j in range(columns):
                normal = np.float32(0.5) * (1 + math.erf(z[j] * np.float32(0.70710678)))
                difference = z[j] * normal - y[i, j]
                density = math.exp(np.float32(-0.5) * z[j] * z[j]) * np.float32(0.39894228)
                loss += difference * difference
                z[j] = difference * (normal + z[j] * density) * np.float32(2 / (rows * columns))
                db[0, j] += z[j]
            for k in range(inner):
                for j in range(columns):
                    dw[k, j] += x[i, k] * z[j]
        return loss / (rows * columns), dw, db

    return step


def jax_loss(x: Any, w: Any, b: Any, y: Any) -> Any:
    import jax

    return ((jax.nn.gelu(x @ w + b, approximate=False) - y) ** 2).mean()


def jax_step(x: Any, w: Any, b: Any, y: Any) -> Any:
    import jax

    return jax.value_and_grad(jax_loss, (1, 2))(x, w, b, y)


def jax_jit(data: Arrays) -> Case:
    return jax_case(jax_step, data)


def jax_numpy(data: Arrays) -> Case:
    import jax

    step = jax.jit(jax_step)
    return Case(lambda *args: jax.tree.map(np.asarray, step(*args)), data)


def torch_loss(x: Any, w: Any, b: Any, y: Any) -> Any:
    from torch.nn import functional

    return functional.mse_loss(functional.gelu(x @ w + b), y)


def torch_eager(data: Arrays) -> Case:
    return torch_step_case(torch_loss, data, (1, 2))


def torch_compiled(data: Arrays) -> Case:
    return torch_step_case(torch_loss, data, (1, 2), compiled=True)


def iree(data: Arrays) -> Case:
    return iree_case(jax_step, data)


CONTENDERS = {
    "Nova, Compiled.run": ("nova", nova_run),
    "Nova, Compiled()": ("nova", nova_call),
    "numpy by hand": ("numpy", numpy_by_hand),
    "numba by hand": ("numba", numba_by_hand),
    "torch": ("torch", torch_eager),
    "torch.compile": ("torch", torch_compiled),
    "jax.jit": ("jax", jax_jit),
    "jax.jit, numpy in and out": ("jax", jax_numpy),
    "IREE": ("iree", iree),
}
