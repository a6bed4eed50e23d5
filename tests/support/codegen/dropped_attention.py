"""Attention with dropout, written out in f64 with torch, from random bits made by hand."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from op_philox import weight_factors

import nova
from nova.graph.autodiff import gradients

TYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
CLOSE = {"f64": 1e-13, "f32": 4e-6, "f16": 3e-3, "bf16": 2e-2}
"""Of the largest result."""
SEED = 2**40 + 12345


def reference(
    arrays: list[np.ndarray], dropout: float, seed: int, causal: bool, mask: Any
) -> list[np.ndarray]:
    """The result and the gradients of q, k and v."""
    q, k, v, g = (torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in arrays)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        hidden = torch.from_numpy(mask)
        is_bool = mask.dtype == bool
        scores = scores.masked_fill(~hidden, -torch.inf) if is_bool else scores + hidden
    if causal:
        past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~past, -torch.inf)
    weights = scores.softmax(-1)
    factors = weight_factors(seed, tuple(weights.shape), dropout)
    out = (weights * torch.from_numpy(factors)) @ v
    return [t.detach().numpy() for t in (out, *torch.autograd.grad(out, (q, k, v), g))]


def check_dropout(
    type_: str,
    batch: tuple[int, ...],
    sizes: tuple[int, int, int, int],
    dropout: float,
    *,
    causal: bool = False,
    mask: Any = None,
    target: str = "cpu",
    shared: tuple[int, ...] | None = None,
) -> Any:
    """Compare the kernels of an attention and its gradients; `shared` is the batch of k and v."""
    i, j, e, f = sizes
    rng = np.random.default_rng(i + j)
    few = batch if shared is None else shared
    shapes = [(*batch, i, e), (*few, j, e), (*few, j, f), (*batch, i, f)]
    arrays = [rng.standard_normal(shape).astype(TYPES[type_]) for shape in shapes]
    q, k, v, g = (nova.tensor(a) for a in arrays)
    inputs, arguments = [q, k, v, g, nova.tensor(np.array(0))], [*arrays, np.array(SEED)]
    hidden = None
    if mask is not None:
        hidden = nova.tensor(mask)
        inputs.append(hidden)
        arguments.append(mask)
    out = nova.attention(q, k, v, hidden, causal=causal, dropout=dropout, seed=inputs[4])
    outputs = [out, *gradients(out, [q, k, v], g)]
    mode = "sim" if target.startswith("cuda") else "native"
    program = nova.compile(outputs, inputs=inputs, target=target, run_mode=mode)
    text = program.stages["linalg"]
    assert "nova.attend_dropout_point" in text and "nova.attend_gradient_dropout_point" in text
    wanted = reference(arrays, dropout, SEED, causal, mask)
    for name, a, b in zip(("out", "q", "k", "v"), program.run(arguments), wanted, strict=True):
        scale = np.abs(b).max()
        actual = np.asarray(a, np.float64)
        np.testing.assert_allclose(
            actual / scale, b / scale, atol=CLOSE[type_], rtol=0, err_msg=name
        )
    return program
