"""Reductions of long rows, and of columns by clusters, on the simulated device, against numpy."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

_RANDOM = np.random.default_rng(5)
_SIM: dict[str, Any] = {"target": "cuda:sm_90a", "run_mode": "sim"}


def _draw(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (3 * _RANDOM.standard_normal(shape)).astype(dtype)


def _run(outputs: list[nova.Tensor], inputs: list[nova.Tensor], *arrays: np.ndarray) -> Any:
    program = nova.compile([nova.cast(out, "f32") for out in outputs], inputs=inputs, **_SIM)
    results = program(*arrays)
    results = results if len(outputs) > 1 else [results]
    return program, [np.asarray(result, np.float64) for result in results]


@pytest.mark.parametrize(
    ("length", "dtype"),
    [(33_792, ml_dtypes.bfloat16), (32_775, np.float32)],
    ids=["vectors", "odd"],
)
def test_logsumexp_of_rows_longer_than_registers(length: int, dtype: Any) -> None:
    x = _draw(264, length, dtype=dtype)
    x[1], x[2, 7], x[3, length - 1], x[4, 5] = -np.inf, -np.inf, np.inf, np.nan
    X = nova.tensor(x)
    program, (actual,) = _run([nova.logsumexp(nova.cast(X, "f32"), axis=1)], [X], x)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        largest = wide.max(1)
        shift = np.where(np.isfinite(largest), largest, 0)
        expected = np.log(np.exp(wide - shift[:, None]).sum(1)) + shift
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert "cluster" not in program.stages["ptx"]  # a block per row


def test_a_scalar_of_the_row_in_a_long_reduction() -> None:
    x, chosen = _draw(264, 32_775), _RANDOM.integers(0, 32_775, (264, 1)).astype(np.int32)
    X, C = nova.tensor(x), nova.tensor(chosen)
    is_chosen = nova.eq(C, nova.arange(32_775, dtype="i32"))
    total = nova.sum(nova.where(is_chosen, X, 0.0), axis=1, keepdims=True) + C
    _, (actual,) = _run([total], [X, C], x, chosen)
    np.testing.assert_allclose(actual, np.take_along_axis(x, chosen, 1) + chosen, rtol=1e-6)


@pytest.mark.parametrize(("rows", "threads"), [(8192, 1024), (300, 512)])
def test_rows_that_are_read_twice_stay_in_the_cache(rows: int, threads: int) -> None:
    x = np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), (rows, 50_304))
    X = nova.tensor(x)
    program = nova.compile(nova.logsumexp(X, axis=1), inputs=[X], **_SIM)
    (kernel,) = program.kernels
    assert kernel.device is not None
    assert kernel.device.block == (threads, 1, 1)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32], ids=["bf16", "f32"])
@pytest.mark.parametrize("rows", [1024, 1031], ids=["even", "odd"])
def test_column_sums_of_a_cluster(rows: int, dtype: Any) -> None:
    x, y = _draw(rows, 768, dtype=dtype), _draw(rows, 768, dtype=dtype)
    X, Y = nova.tensor(x), nova.tensor(y)
    a, b = nova.cast(X, "f32"), nova.cast(Y, "f32")
    outputs = [nova.sum(a, axis=0) * 2.0, nova.sum(a * b, axis=0), nova.max(a, axis=0)]
    _, actual = _run(outputs, [X, Y], x, y)
    wide, other = x.astype(np.float64), y.astype(np.float64)
    for got, expected in zip(
        actual, (2 * wide.sum(0), (wide * other).sum(0), wide.max(0)), strict=True
    ):
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max() * 8


def test_column_sums_that_a_later_sum_reads() -> None:
    x = _draw(2048, 768)
    X = nova.tensor(x)
    _, (actual,) = _run([nova.var(X, axis=0)], [X], x)
    np.testing.assert_allclose(actual, x.astype(np.float64).var(0, ddof=1), rtol=2e-5)


@pytest.mark.parametrize(("rows", "columns"), [(512, 256), (2048, 96), (130, 33)])
def test_gradients_of_a_norm_are_reduced_by_one_kernel(rows: int, columns: int) -> None:
    x, gradient = _draw(rows, columns), _draw(rows, columns)
    X, G = nova.tensor(x), nova.tensor(gradient)
    normal = nova.layer_norm(
        X, nova.tensor(np.ones(columns, "f4")), nova.tensor(np.zeros(columns, "f4"))
    )
    outputs = [nova.sum(G, axis=0), nova.sum(G * normal, axis=0) * 2.0]
    program, (bias, weight) = _run(outputs, [X, G], x, gradient)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(bias, gradient.sum(0, dtype=np.float64), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weight, 2 * (gradient * normal).sum(0), rtol=1e-4, atol=1e-4)
    assert re.search(r"return %(\d+)#0, %\1#1 :", program.stages["kernels"])  # of one kernel


@pytest.mark.parametrize("columns", [256, 768])
def test_rows_of_a_warp(columns: int) -> None:
    torch = pytest.importorskip("torch")
    x, g = (_draw(4224, columns, dtype=ml_dtypes.bfloat16) for _ in range(2))
    w, b = _draw(columns), _draw(columns)
    X, G, W, B = map(nova.tensor, (x, g, w, b))
    out = nova.layer_norm(nova.cast(X, "f32"), W, B)
    (gradient,) = nova.graph.gradients(nova.sum(out * nova.cast(G, "f32")), [X])
    program, actual = _run([nova.cast(out, "bf16"), gradient], [X, G, W, B], x, g, w, b)
    leaf, g64, w64, b64 = (torch.from_numpy(a.astype(np.float64)) for a in (x, g, w, b))
    leaf.requires_grad_()
    expected = torch.nn.functional.layer_norm(leaf, (columns,), w64, b64)
    (expected * g64).sum().backward()
    for got, value in zip(actual, (expected.detach(), leaf.grad), strict=True):
        assert np.abs(got - value.numpy()).max() <= 6e-3 * float(value.abs().max())
    assert "barrier" not in program.stages["ptx"] and "bar.sync" not in program.stages["ptx"]


@pytest.mark.parametrize(
    ("rows", "columns", "width", "blocks"),
    [(4096, 2048, 8, 128), (8192, 768, 8, 96), (4130, 256, 2, 128), (8260, 64, 2, 32)],
)
def test_column_sums_are_one_wave(rows: int, columns: int, width: int, blocks: int) -> None:
    """Few columns have several rows in a warp; more blocks than multiprocessors would wait."""
    is_run = columns != 768  # it takes as long as the first one, for the same code
    zero = np.zeros((), ml_dtypes.bfloat16)
    x = _draw(rows, columns, dtype=ml_dtypes.bfloat16) if is_run else zero
    X = nova.tensor(np.broadcast_to(x, (rows, columns)))
    total = nova.sum(nova.cast(X, "f32"), axis=0)
    program = nova.compile(total, inputs=[X], **_SIM)
    (launch,) = re.findall(r"vector +(\d+) ", str(program.simulate(device="h200")))
    assert int(launch) == blocks
    loads = {2: r"ld\.global[.\w]*\.v2\.b16", 8: r"ld\.global[.\w]*\.v4\.b32"}
    assert len(re.findall(loads[width], program.stages["ptx"])) >= 8
    if is_run:
        actual = np.asarray(program(x), np.float64)
        np.testing.assert_allclose(actual, x.astype(np.float64).sum(0), rtol=1e-5, atol=1e-3)
