"""Sums of many terms: programs, what they are in f64, and what numpy makes of them in f32.

Errors are in roundings: the distance from the exact result, divided by u = 2**-24 and by the size
of what was summed. `test_sums.py` holds them to bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log
from typing import Any

import numpy as np

import nova

U = 2.0**-24


def most_roundings(terms: int) -> int:
    """The bound of docs/math-accuracy.md: of how many roundings a sum of so many terms is made."""
    levels = max(0, ceil(log(max(terms, 1) / 256, 64)))
    return min(terms, 512 + 64 * levels)


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape, np.float32)


def constant(*shape: int) -> np.ndarray:
    return np.full(shape, 0.1, np.float32)


def far(*shape: int) -> np.ndarray:
    """Spread 1 around a million."""
    normal = np.random.default_rng(2).standard_normal(shape, np.float32)
    return normal + np.float32(1e6)


@dataclass(frozen=True)
class Case:
    """`build` of tensors, `exact` of arrays; `arrays` makes those for so many terms.

    A result may be `most` roundings off, of its own size.
    """

    build: Callable[..., Any]
    exact: Callable[..., Any]
    arrays: Callable[[int], list[np.ndarray]]
    most: float = 32.0

    def run(self, terms: int, **options: Any) -> np.ndarray:
        arrays = self.arrays(terms)
        tensors = [nova.tensor(a, name=f"x{i}") for i, a in enumerate(arrays)]
        result = self.build(*tensors)
        return np.asarray(nova.compile(result, inputs=tensors, **options).run(arrays))

    def error(self, actual: np.ndarray, terms: int) -> float:
        want = np.asarray(self.exact(*[a.astype(np.float64) for a in self.arrays(terms)]))
        assert actual.shape == want.shape
        return float(np.max(np.abs(actual - want) / np.abs(want)) / U)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def _bias_gradient(x: Any, b: Any) -> Any:
    return nova.graph.gradients(nova.square(x + b).sum(), [b])[0]


def _mean_gradient(x: Any, b: Any) -> Any:
    return nova.graph.gradients((x * b).mean(), [b])[0]


CASES: dict[str, Case] = {
    "sum": Case(lambda x: x.sum(), np.sum, lambda n: [uniform(n)]),
    "sum of equals": Case(lambda x: x.sum(), np.sum, lambda n: [constant(n)]),
    "mean of equals": Case(lambda x: x.mean(), np.mean, lambda n: [constant(n)]),
    "fused sum": Case(
        lambda x, y: (x * y + x).sum(),
        lambda x, y: np.sum(x * y + x),
        lambda n: [uniform(n), constant(n)],
    ),
    "var": Case(lambda x: x.var(), lambda x: x.var(ddof=1), lambda n: [far(n)]),
    "std": Case(lambda x: x.std(), lambda x: x.std(ddof=1), lambda n: [far(n)]),
    "norm": Case(
        lambda x: nova.optim.clip_grad_norm([x], 1.0)[1],
        lambda x: np.sqrt(np.sum(x * x)),
        lambda n: [uniform(n)],
    ),
    "rows": Case(lambda x: x.sum(axis=1), lambda x: x.sum(axis=1), lambda n: [constant(4, n // 4)]),
    "columns": Case(
        lambda x: x.sum(axis=0), lambda x: x.sum(axis=0), lambda n: [constant(n // 17, 17)]
    ),
    "few columns": Case(
        lambda x: x.sum(axis=0),
        lambda x: x.sum(axis=0),
        lambda n: [constant(n // 3, 3)],
        most=128.0,
    ),
    "inner axes": Case(
        lambda x: x.mean(axis=(0, 2)),
        lambda x: x.mean(axis=(0, 2)),
        lambda n: [constant(n // 600, 3, 200)],
    ),
    "softmax": Case(lambda x: nova.softmax(x), _softmax, lambda n: [constant(n) * 3]),
    "logsumexp": Case(
        lambda x: x.logsumexp(), lambda x: np.log(np.exp(x).sum()), lambda n: [constant(n)]
    ),
    "mse": Case(
        lambda x, y: nova.mse_loss(x, y),
        lambda x, y: np.mean((x - y) ** 2),
        lambda n: [uniform(n), constant(n) * 30],
    ),
    "layer norm": Case(
        lambda x: nova.layer_norm(x),
        lambda x: (x - x.mean()) / np.sqrt(x.var() + 1e-5),
        lambda n: [np.repeat(np.float32([-1.0, 2.0]), n // 2)],
        most=64.0,
    ),
    "rms norm": Case(
        lambda x: nova.rms_norm(x, eps=0.0),
        lambda x: x / np.sqrt(np.mean(x * x)),
        lambda n: [constant(n)],
    ),
    "gradient of a bias": Case(
        _bias_gradient,
        lambda x, b: (2 * (x + b)).sum(axis=0),
        lambda n: [constant(n // 8, 8), constant(8)],
    ),
    "gradient of a scale": Case(
        _mean_gradient, lambda x, b: x.mean(), lambda n: [uniform(n), np.float32(0.5)]
    ),
    "row times matrix": Case(
        lambda a, b: a @ b, np.matmul, lambda n: [uniform(1, n // 64), uniform(n // 64, 64)]
    ),
    "matrix times column": Case(
        lambda a, b: a @ b, np.matmul, lambda n: [uniform(8, n // 8), uniform(n // 8)]
    ),
    "few rows": Case(
        lambda a, b: a @ b, np.matmul, lambda n: [uniform(4, n // 64), uniform(n // 64, 48)]
    ),
    # A packed GEMM adds panels of k one after the other; at 10^8 OpenBLAS is 51 roundings off.
    "product": Case(
        lambda a, b: a @ b,
        np.matmul,
        lambda n: [uniform(32, n // 64), uniform(n // 64, 40)],
        most=96.0,
    ),
    "small products": Case(
        lambda a, b: a @ b,
        np.matmul,
        lambda n: [uniform(4, 8, n // 1024), uniform(4, n // 1024, 8)],
    ),
}
