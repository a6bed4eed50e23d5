"""Reshapes of slices with symbolic sizes, which other ops read at computed positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova

RNG = np.random.default_rng(5)


def table_rows(w: Any, x: Any, y: Any) -> Any:
    """The first n * m elements as a matrix, in the middle of other ops."""
    n, m = x.shape[0], y.shape[0]
    return (w[: n * m].reshape(n, m) * y).sum(1) + x


def shifted(w: Any, x: Any, y: Any) -> Any:
    n, m = x.shape[0], y.shape[0]
    return w[5:].reshape(n, m).T.reshape(n, m)[1:] * y + 1


def columns(w: Any, x: Any, y: Any) -> Any:
    n, m = x.shape[0], y.shape[0]
    return (w[2:-3].reshape(m, n)[::-1].reshape(n * m) * 2).reshape(n, m) + y


@pytest.mark.parametrize("run", [table_rows, shifted, columns])
@pytest.mark.parametrize("target", [None, "cuda:sm_90a"])
def test_reshapes_of_slices_read_by_sizes(run: Callable[..., Any], target: str | None) -> None:
    """Fusion composes index maps `i * m + j`: m was the number that stands for it in the IR."""
    n, m = nova.dim("n", min=1), nova.dim("m", min=1)
    w, x, y = (nova.input(s, name=k) for k, s in (("w", (n * m + 5,)), ("x", (n,)), ("y", (m,))))
    options = {"target": target, "run_mode": "sim"} if target else {}
    program = nova.compile(run(w, x, y) + 0 * x.sum(), inputs=[w, x, y], **options)
    for n, m in ((1, 1), (2, 2), (3, 7), (17, 4)) + (() if target else ((64, 65), (1, 129))):
        values = [RNG.standard_normal(k).astype("f4") for k in (n * m + 5, n, m)]
        np.testing.assert_allclose(program(*values), run(*values), rtol=1e-4, atol=1e-4)
