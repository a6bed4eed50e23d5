"""`nova.linear_cross_entropy`: values, gradients and memory, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova
from nova.api.program_cache import clear_memory_cache
from nova.errors import AttributeValueError
from nova.passes.gpu import slice_views

torch = pytest.importorskip("torch")
ROWS, FEATURES, CLASSES = (6, 50), 24, 70


def _arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((*ROWS, FEATURES)).astype(np.float32)
    weight = rng.standard_normal((CLASSES, FEATURES)).astype(np.float32)
    target = rng.integers(0, CLASSES, ROWS)
    target[0, :5] = -100
    return x, weight, target


@pytest.mark.parametrize(
    ("target", "chunk_rows", "reduction", "smoothing"),
    [
        ("cpu", 1000, "mean", 0.0),
        ("cpu", 128, "sum", 0.1),
        ("cpu", 77, "mean", 0.0),
        ("cuda:sm_90a", 128, "mean", 0.0),
    ],
)
def test_value_and_gradients(
    target: str, chunk_rows: int, reduction: str, smoothing: float
) -> None:
    x, weight, index = _arrays()
    options = {"reduction": reduction, "label_smoothing": smoothing}
    X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight, requires_grad=True)
    T = nova.tensor(index)
    chunk_bytes = chunk_rows * CLASSES * 4
    loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=chunk_bytes, **options)
    nova.backward(loss)
    run_mode = "native" if target == "cpu" else "sim"
    program = nova.compile(
        [loss, X.grad, W.grad], inputs=[X, W, T], target=target, run_mode=run_mode
    )
    results = program(x, weight, index)
    tx, tw = (torch.from_numpy(a).requires_grad_() for a in (x, weight))
    scores = torch.nn.functional.linear(tx, tw).reshape(-1, CLASSES)
    expected = torch.nn.functional.cross_entropy(
        scores, torch.from_numpy(index.reshape(-1)), **options
    )
    expected.backward()
    for result, wanted in zip(results, (expected, tx.grad, tw.grad), strict=True):
        np.testing.assert_allclose(
            np.asarray(result), wanted.detach().numpy(), rtol=2e-5, atol=2e-5
        )


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_only_a_chunk_of_the_scores_is_stored(target: str) -> None:
    rows, features, classes = 16_384, 16, 8192
    X = nova.tensor(np.zeros((rows, features), np.float32), requires_grad=True)
    W = nova.tensor(np.zeros((classes, features), np.float32), requires_grad=True)
    T = nova.tensor(np.zeros(rows, np.int64))
    loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=128 << 20)
    nova.backward(loss)
    program = nova.compile(
        [loss, X.grad, W.grad],
        inputs=[X, W, T],
        target=target,
        run_mode="native" if target == "cpu" else "sim",
    )
    assert program.workspace_size < 2.2 * (128 << 20) < rows * classes * 4


def test_chunks_have_as_many_whole_tiles_as_fit() -> None:
    """A chunk is a pass over the weight, whatever part of the multiprocessors it has work for."""
    shapes = ((8192, 768), (50_304, 768))
    x, weight = (np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), shape) for shape in shapes)
    X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight, requires_grad=True)
    loss = nova.linear_cross_entropy(X, W, nova.tensor(np.zeros(8192, np.int64)))
    nova.backward(loss)
    outputs = [loss, X.grad, W.grad]
    program = nova.compile(outputs, inputs=[X, W], target="cuda:sm_90a", run_mode="sim")
    assert "2048x50304xbf16" in program.stages["kernels"]
    # The scores of 2048 rows and their statistics: neither rows nor gradients are copied.
    assert program.workspace_size <= 2048 * 50_304 * 2 + 2048 * 16


@pytest.mark.parametrize("rows", [1024, 1280])
def test_matmuls_read_and_write_slices(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Rows of a chunk are not copied, nor are their gradients; the results have the same bits."""
    features, classes = 64, 256
    rng = np.random.default_rng(1)
    x, weight = (
        rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)
        for shape in ((rows, features), (classes, features))
    )
    target = rng.integers(0, classes, rows)
    results = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(slice_views, "_LEAST_BYTES", least)
        X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight, requires_grad=True)
        T = nova.tensor(target)
        loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=512 * classes * 2)
        nova.backward(loss)
        outputs = [loss, X.grad, W.grad]
        clear_memory_cache()
        with nova.knobs.override(cache=False):
            program = nova.compile(outputs, inputs=[X, W, T], target="cuda:sm_90a", run_mode="sim")
        # A view in the matmuls of each chunk: of the scores, and of both gradients.
        views = program.stages["buffers"].count(" to memref<512x64xbf16, strided")
        assert views == (0 if least else 3 * (rows // 512))
        results.append([np.asarray(array) for array in program(x, weight, target)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_large_gradients_are_accumulated_in_the_output() -> None:
    rows, features, classes = 1024, 512, 65_536
    x, weight = (
        np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), s)
        for s in ((rows, features), (classes, features))
    )
    X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight, requires_grad=True)
    T = nova.tensor(np.zeros(rows, np.int64))
    score_bytes = rows * classes * 2
    loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=score_bytes // 2)
    nova.backward(loss)
    program = nova.compile(
        [loss, X.grad, W.grad], inputs=[X, W, T], target="cuda:sm_90a", run_mode="sim"
    )
    assert program.workspace_size < 0.55 * score_bytes


@pytest.mark.parametrize(
    ("dtype", "factor", "tolerance"),
    [("f32", 3.0, 2e-5), ("bf16", 3.0, 0.03), ("f16", 256.0, 0.01)],
)
def test_gradients_of_a_function_of_the_loss(dtype: str, factor: float, tolerance: float) -> None:
    x, weight, index = _arrays()
    x, weight = (np.asarray(nova.cast(nova.tensor(a), dtype).numpy()) for a in (x, weight))
    X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight, requires_grad=True)
    loss = nova.linear_cross_entropy(X, W, nova.tensor(index), chunk_bytes=64 * CLASSES * 4)
    nova.backward(nova.cast(loss, "f32") ** 2.0 * factor)
    tx, tw = (torch.from_numpy(a.astype(np.float32)).requires_grad_() for a in (x, weight))
    scores = torch.nn.functional.linear(tx, tw).reshape(-1, CLASSES)
    expected = torch.nn.functional.cross_entropy(scores, torch.from_numpy(index.reshape(-1)))
    (expected**2 * factor).backward()
    for actual, wanted in ((X.grad, tx.grad), (W.grad, tw.grad)):
        error = np.asarray(actual.numpy(), np.float64) - wanted.numpy()
        assert np.linalg.norm(error) < tolerance * np.linalg.norm(wanted.numpy())


def test_bf16_on_a_device() -> None:
    x, weight, index = _arrays()
    x, weight = x.astype(ml_dtypes.bfloat16), weight.astype(ml_dtypes.bfloat16)
    X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight, requires_grad=True)
    T = nova.tensor(index)
    loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=128 * CLASSES * 2)
    nova.backward(loss)
    program = nova.compile(
        [loss, X.grad, W.grad], inputs=[X, W, T], target="cuda:sm_90a", run_mode="sim"
    )
    results = program(x, weight, index)
    tx, tw = (torch.from_numpy(a.astype(np.float32)).requires_grad_() for a in (x, weight))
    scores = torch.nn.functional.linear(tx, tw).reshape(-1, CLASSES)
    expected = torch.nn.functional.cross_entropy(scores, torch.from_numpy(index.reshape(-1)))
    expected.backward()
    for result, wanted in zip(results, (expected, tx.grad, tw.grad), strict=True):
        wide = wanted.detach().numpy()
        error = np.asarray(result, np.float32) - wide
        assert np.linalg.norm(error) < 2**-7 * np.linalg.norm(wide)


def test_gradients_are_added_in_the_epilogue_of_a_gemm() -> None:
    """The gradient of the weight is updated in place: its old values are loaded during matmuls."""
    rng = np.random.default_rng(1)
    rows, features, classes = 384, 192, 304
    x, weight = (
        (0.2 * rng.standard_normal(shape)).astype(ml_dtypes.bfloat16)
        for shape in ((rows, features), (classes, features))
    )
    index = rng.integers(0, classes, rows)
    X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight, requires_grad=True)
    T = nova.tensor(index)
    loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=128 * classes * 2)
    nova.backward(loss)
    with nova.knobs.override(gpu_gemm="wgmma-128x192"):
        program = nova.compile(W.grad, inputs=[X, W, T], target="cuda:sm_90a", run_mode="sim")
    assert "prefetch.global.L2" in program.stages["ptx"]
    tx, tw = (torch.from_numpy(a.astype(np.float32)).requires_grad_() for a in (x, weight))
    scores = torch.nn.functional.linear(tx, tw)
    torch.nn.functional.cross_entropy(scores, torch.from_numpy(index)).backward()
    error = np.asarray(program(x, weight, index), np.float32) - tw.grad.numpy()
    assert np.linalg.norm(error) < 2**-7 * np.linalg.norm(tw.grad.numpy())


def test_the_loss_alone_has_one_matmul_of_a_chunk() -> None:
    x, weight, index = _arrays()
    X, W, T = nova.tensor(x), nova.tensor(weight), nova.tensor(index)
    loss = nova.linear_cross_entropy(X, W, T, chunk_bytes=128 * CLASSES * 4)
    program = nova.compile(loss, inputs=[X, W, T], target="cuda:sm_90a", run_mode="sim")
    flops = 2 * index.size * FEATURES * CLASSES
    counted = str(program.plan).count("= linear(") * 2 * 128 * FEATURES * CLASSES
    assert "matmul" not in str(program.plan)
    assert flops <= counted < 1.5 * flops
    scores = torch.from_numpy(x) @ torch.from_numpy(weight).T
    expected = torch.nn.functional.cross_entropy(
        scores.reshape(-1, CLASSES), torch.from_numpy(index.reshape(-1))
    )
    np.testing.assert_allclose(program(x, weight, index), expected.numpy(), rtol=1e-5)


def test_other_reductions_are_refused() -> None:
    X, W = nova.tensor(np.zeros((4, 2), np.float32)), nova.tensor(np.zeros((3, 2), np.float32))
    with pytest.raises(AttributeValueError, match="'none' of linear_cross_entropy"):
        nova.linear_cross_entropy(X, W, nova.tensor(np.zeros(4, np.int64)), reduction="none")


@pytest.mark.parametrize("convert", [list, np.asarray], ids=["lists", "arrays"])
def test_operands_that_are_not_tensors(convert: Callable[[Any], Any]) -> None:
    x, weight, target = [[1.0, 2.0], [0.5, -1.0]], [[1.0, 2.0], [3.0, 4.0]], [0, 1]
    loss = nova.linear_cross_entropy(convert(x), convert(weight), convert(target))
    scores = torch.tensor(x) @ torch.tensor(weight).T
    expected = torch.nn.functional.cross_entropy(scores, torch.tensor(target))
    np.testing.assert_allclose(loss.numpy(), expected.numpy(), rtol=1e-6)


def test_mixed_dtypes_have_one_result_dtype() -> None:
    x = nova.tensor(np.ones((9, 5), ml_dtypes.bfloat16))
    weight, target = nova.tensor(np.ones((7, 5), "f4")), nova.tensor(np.zeros(9, "i8"))
    whole = nova.linear_cross_entropy(x, weight, target)
    parts = nova.linear_cross_entropy(x, weight, target, chunk_bytes=30)
    assert whole.dtype is parts.dtype is nova.f32
    np.testing.assert_allclose(parts.numpy(), whole.numpy(), rtol=1e-6)
