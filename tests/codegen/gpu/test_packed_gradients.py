"""Gradients of an attention that a program joins, on the simulated device, against torch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

torch = pytest.importorskip("torch")
_RANDOM = np.random.default_rng(21)
_SIM: dict[str, Any] = {"target": "cuda:sm_90a", "run_mode": "sim"}


def _attention(qkv: nova.Tensor, heads: int) -> nova.Tensor:
    """Attention of queries, keys and values that lie one after the other in a row."""
    batch, rows, width = qkv.shape
    parts = (qkv[:, :, i * width // 3 : (i + 1) * width // 3] for i in range(3))
    q, k, v = (p.reshape((batch, rows, heads, -1)).permute((0, 2, 1, 3)) for p in parts)
    out = nova.scaled_dot_product_attention(q, k, v, causal=True)
    return out.permute((0, 2, 1, 3)).reshape((batch, rows, width // 3))


def _torch_gradient(qkv: np.ndarray, g: np.ndarray, heads: int) -> np.ndarray:
    leaf = torch.from_numpy(qkv.astype(np.float64)).requires_grad_()
    batch, rows, width = qkv.shape
    q, k, v = leaf.view(batch, rows, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out = out.transpose(1, 2).reshape(batch, rows, width // 3)
    (out * torch.from_numpy(g.astype(np.float64))).sum().backward()
    return np.asarray(leaf.grad.numpy())


def _check(batch: int, rows: int, heads: int, features: int, dtype: Any, bound: float) -> Any:
    width = heads * features
    qkv = _RANDOM.standard_normal((batch, rows, 3 * width)).astype(dtype)
    g = _RANDOM.standard_normal((batch, rows, width)).astype(dtype)
    X, G = nova.tensor(qkv), nova.tensor(g)
    outputs = nova.graph.gradients(nova.sum(_attention(X, heads) * G), [X])
    program = nova.compile(outputs, inputs=[X, G], **_SIM)
    actual = np.asarray(program(qkv, g), np.float64)
    expected = _torch_gradient(qkv, g, heads)
    assert np.abs(actual - expected).max() <= bound * np.abs(expected).max()
    return program


@pytest.mark.parametrize(
    ("dtype", "bound"), [(np.float32, 1e-5), (ml_dtypes.bfloat16, 1.2e-2)], ids=["f32", "bf16"]
)
def test_joined_gradients_are_written_into_one_tensor(dtype: Any, bound: float) -> None:
    program = _check(4, 32, 2, 16, dtype, bound)
    buffers = program.stages["buffers"]
    (kernel,) = [part for part in buffers.split("func.func") if "attend_gradient_point" in part]
    assert kernel.count("memref<4x32x3x2x16x") > 4
    assert "arith.select" not in buffers  # no kernel joins them


def test_gradients_of_few_batches_are_joined_afterwards() -> None:
    program = _check(1, 272, 1, 16, np.float32, 1e-5)
    assert "arith.select" in program.stages["buffers"]


@pytest.mark.slow
@pytest.mark.graph_launch
def test_joined_gradients_by_wgmma() -> None:
    program = _check(8, 256, 1, 64, ml_dtypes.bfloat16, 1.2e-2)
    assert "wgmma.mma_async" in program.stages["ptx"]


def test_a_batch_of_one_keeps_its_epilogue_in_the_gemm() -> None:
    x, w, b = (
        _RANDOM.standard_normal(s).astype(ml_dtypes.bfloat16)
        for s in ((1, 64, 32), (48, 32), (48,))
    )
    X, W, B = map(nova.tensor, (x, w, b))
    program = nova.compile(nova.gelu(nova.linear(X, W, B)), inputs=[X, W, B], **_SIM)
    assert program.stages["buffers"].count("nova.kernel") == 1
    wide = [torch.from_numpy(a.astype(np.float32)) for a in (x, w, b)]
    expected = torch.nn.functional.gelu(torch.nn.functional.linear(*wide)).numpy()
    actual = np.asarray(program(x, w, b), np.float32)
    np.testing.assert_allclose(actual, expected, rtol=0.01, atol=0.02)
