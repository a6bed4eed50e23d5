"""Products of one row with a matrix: their results against numpy, and the kernels they form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

SIM: dict[str, Any] = {"target": "cuda:sm_90a", "run_mode": "sim"}
RNG = np.random.default_rng(0)
TOLERANCE = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


def arrays_of(rows: int, length: int, dtype: Any) -> list[np.ndarray]:
    shapes = (1, length), (rows, length), (rows, length), (rows,)
    return [RNG.standard_normal(shape).astype(dtype) for shape in shapes]


def compiled(function: Callable[..., Any], arrays: list[np.ndarray]) -> Any:
    inputs = [nova.tensor(array) for array in arrays]
    return nova.compile(function(*inputs), inputs=inputs, **SIM)


def check(program: Any, arrays: list[np.ndarray], expected: np.ndarray) -> None:
    result = np.asarray(program(*arrays)).astype("f8")
    bound = TOLERANCE[str(arrays[0].dtype)] * np.abs(expected).max()
    np.testing.assert_allclose(result, expected, atol=bound)


@pytest.mark.parametrize("dtype", ["f4", "f2", ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "rows,length",
    [(128, 128), (768, 2048), (300, 264), (4229, 136), (132, 4104), (8500, 256)],
    ids=str,
)
def test_rows_and_lengths(rows: int, length: int, dtype: Any) -> None:
    arrays = arrays_of(rows, length, dtype)
    x, w, _, b = (array.astype("f8") for array in arrays)
    program = compiled(lambda x, w, v, b: x @ w.T + b, arrays)
    assert len(program.kernels) == 1
    check(program, arrays, x @ w.T + b)


def test_two_matrices_and_their_epilogue_are_one_kernel() -> None:
    arrays = arrays_of(512, 256, ml_dtypes.bfloat16)
    program = compiled(lambda x, w, v, b: nova.silu(x @ w.T) * (x @ v.T) + b, arrays)
    assert len(program.kernels) == 1
    x, w, v, b = (array.astype("f8") for array in arrays)
    gate = x @ w.T
    check(program, arrays, gate / (1 + np.exp(-gate)) * (x @ v.T) + b)


def test_a_matrix_of_another_vector_is_another_kernel() -> None:
    arrays = arrays_of(256, 256, "f4")
    program = compiled(lambda x, w, v, b: nova.tanh(x @ w.T) @ v.T, arrays)
    assert len(program.kernels) == 2
    x, w, v, _ = (array.astype("f8") for array in arrays)
    check(program, arrays, np.tanh(x @ w.T) @ v.T)


def test_a_shape_of_heads_is_written_directly() -> None:
    arrays = arrays_of(512, 256, "f4")
    program = compiled(lambda x, w, v, b: (x @ w.T).reshape(8, 64), arrays)
    assert len(program.kernels) == 1
    x, w, *_ = (array.astype("f8") for array in arrays)
    check(program, arrays, (x @ w.T).reshape(8, 64))
