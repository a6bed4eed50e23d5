"""Products of one row with a matrix: their results against numpy, and the kernels they form."""

from __future__ import annotations

import re
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
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


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
    [
        *((128, 128), (768, 2048), (300, 264), (4229, 136), (132, 4104), (8500, 256)),
        *((4300, 776), (4300, 1024)),  # several groups of rows for each warp
    ],
    ids=str,
)
def test_rows_and_lengths(rows: int, length: int, dtype: Any) -> None:
    arrays = arrays_of(rows, length, dtype)
    x, w, _, b = (array.astype("f8") for array in arrays)
    program = compiled(lambda x, w, v, b: x @ w.T + b, arrays)
    assert len(program.kernels) == 1
    check(program, arrays, x @ w.T + b)


@pytest.mark.parametrize("length", [512, 768, 1280])
def test_all_rows_of_a_warp_are_loaded_before_the_wait(length: int) -> None:
    """Also those of an odd number of vectors, which are not two batches of one size."""
    arrays = [np.zeros((rows, length), ml_dtypes.bfloat16) for rows in (1, 768)]
    program = compiled(lambda x, w: x @ w.T, arrays)
    early, late = program.stages["ptx"].split("griddepcontrol.wait")
    assert early.count(".v4.b32") == length // 256, "the row"
    assert late.count(".v4.b32") == length // 256, "the vector"


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


def layer_norm(x: np.ndarray) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("dtype", ["f4", ml_dtypes.bfloat16])
@pytest.mark.parametrize("length", [128, 264, 2048])
def test_a_norm_of_the_vector_is_a_prologue(length: int, dtype: Any) -> None:
    arrays = arrays_of(300, length, dtype)

    def function(x: Any, w: Any, v: Any, b: Any) -> Any:
        rows = nova.rms_norm(x, nova.ones(length, dtype=x.dtype), eps=1e-5)
        return nova.tanh(rows @ w.T) * (rows @ v.T) + b

    program = compiled(function, arrays)
    assert len(program.kernels) == 1
    x, w, v, b = (array.astype("f8") for array in arrays)
    rows = (x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)).astype(dtype).astype("f8")
    check(program, arrays, np.tanh(rows @ w.T) * (rows @ v.T) + b)


def test_a_prologue_of_the_shape_of_the_result_has_its_own_memory() -> None:
    x, w, v = (
        RNG.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((1, 128), *[(128,) * 2] * 2)
    )

    def function(x: Any, w: Any, v: Any) -> Any:
        for matrix in (w, v):
            rows = nova.rms_norm(x, nova.ones(128, dtype=x.dtype), eps=1e-5)
            x = nova.tanh(rows @ matrix.T)
        return x

    program = compiled(function, [x, w, v])
    assert len(program.kernels) == 2
    inputs = [nova.tensor(a) for a in (x, w, v)]
    expected = nova.compile(function(*inputs), inputs=inputs)(x, w, v)
    check(program, [x, w, v], np.asarray(expected).astype("f8"))


def test_a_layer_norm_is_a_prologue_of_matrices_of_other_shapes() -> None:
    arrays = [RNG.standard_normal(shape).astype("f4") for shape in ((1, 256), (512, 256))]

    def function(x: Any, w: Any) -> Any:
        rows = nova.layer_norm(x)
        return nova.concatenate([rows @ w.T, rows @ w[:200].T], axis=1)

    program = compiled(function, arrays)
    x, w = (array.astype("f8") for array in arrays)
    rows = layer_norm(x)
    check(program, arrays, np.concatenate([rows @ w.T, rows @ w[:200].T], axis=1))


def test_a_norm_that_others_read_is_a_kernel() -> None:
    arrays = arrays_of(256, 256, "f4")
    program = compiled(lambda x, w, v, b: nova.layer_norm(x) @ w.T + nova.layer_norm(x) * b, arrays)
    assert len(program.kernels) == 2
    x, w, _, b = (array.astype("f8") for array in arrays)
    check(program, arrays, layer_norm(x) @ w.T + layer_norm(x) * b)


def test_operands_of_the_epilogue_are_loaded_before_the_sums() -> None:
    arrays = arrays_of(512, 256, ml_dtypes.bfloat16)
    program = compiled(lambda x, w, v, b: x @ w.T + b, arrays)
    _, after = program.stages["ptx"].split("griddepcontrol.wait")
    assert re.search(r"ld\.global\S*b16", after.split("shfl.sync")[0])
