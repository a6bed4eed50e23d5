"""Attention whose rows of scores have a large offset, as finite masks make them: torch's digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import nova


def slopes(arrays: list[np.ndarray], mask: np.ndarray, dtype: torch.dtype) -> list[np.ndarray]:
    q, k, v = (torch.tensor(a, dtype=dtype, requires_grad=True) for a in arrays[:3])
    out = scaled_dot_product_attention(q, k, v, torch.tensor(mask, dtype=dtype))
    (out * torch.tensor(arrays[3], dtype=dtype)).sum().backward()
    return [t.detach().numpy() for t in (out, q.grad, k.grad, v.grad)]


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_gradients_of_rows_at_an_offset(offset: float) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 2, 64, 32)).astype("f4") for _ in range(4)]
    mask = np.zeros((1, 1, 64, 64), "f4")
    mask[:, :, :8] = offset
    right = slopes(arrays, mask, torch.float64)
    peer = slopes(arrays, mask, torch.float32)
    q, k, v = (nova.tensor(a, requires_grad=True) for a in arrays[:3])
    out = nova.scaled_dot_product_attention(q, k, v, nova.tensor(mask))
    nova.backward((out * arrays[3]).sum())
    for result, torch_result, expected in zip(
        (out, q.grad, k.grad, v.grad), peer, right, strict=True
    ):
        scale = np.abs(expected).max()
        error = np.abs(result.numpy() - expected).max() / scale
        assert error <= 4 * np.abs(torch_result - expected).max() / scale + 1e-6
