"""Causal attention as GPT-2 has it, alone: 12 heads of 64 features, forward and with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness.case import Case
from harness.peers import iree_case, jax_case, torch_case
from harness.rates import Work

TITLE = "attention, causal, 12 heads of 64"
MODE = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {
    "s128": {"length": 128},
    "s1024": {"length": 1024},
    "s128 with gradients": {"length": 128, "gradients": True},
    "s1024 with gradients": {"length": 1024, "gradients": True},
}
THREADS = (1,)
TOLERANCE = 1e-4

Arrays = list[np.ndarray]


def arrays(length: int, gradients: bool = False) -> Arrays:
    rng = np.random.default_rng(0)
    count = 4 if gradients else 3  # q, k, v and the gradient of the result
    return [rng.standard_normal((1, 12, length, 64), np.float32) for _ in range(count)]


def work(length: int, gradients: bool = False) -> Work:
    """Half of the scores are masked; two matmuls of them forward, five more backward."""
    pairs = 12 * length * (length + 1) / 2
    return Work(flop=2 * pairs * 64 * (7 if gradients else 2))


def oracle(data: Arrays) -> Arrays:
    q, k, v, *g = (a.astype(np.float64) for a in data)
    scale = q.shape[-1] ** -0.5
    scores = q @ k.swapaxes(-1, -2) * scale
    scores[..., ~np.tri(q.shape[-2], dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = weights @ v
    if not g:
        return [out]
    towards = g[0] @ v.swapaxes(-1, -2)
    by_score = weights * (towards - (g[0] * out).sum(-1, keepdims=True)) * scale
    return [
        out,
        by_score @ k,
        by_score.swapaxes(-1, -2) @ q,
        weights.swapaxes(-1, -2) @ g[0],
    ]


def nova_call(data: Arrays) -> Case:
    import nova

    q, k, v, *g = (nova.tensor(a, requires_grad=True) for a in data)
    out = nova.scaled_dot_product_attention(q, k, v, causal=True)
    if g:
        # The gradients of the sum of out * g are those that g leads to.
        nova.backward((out * g[0].detach()).sum())
        results = [out, q.grad, k.grad, v.grad]
    else:
        results = [out]
    return Case(nova.compile(results, inputs=[q, k, v, *g]), data)


def _torch(q: Any, k: Any, v: Any, *g: Any) -> Any:
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention
    if not g:
        return attend(q, k, v, is_causal=True)
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        out = attend(*leaves, is_causal=True)
        return (out.detach(), *torch.autograd.grad(out, leaves, g[0]))


def torch_eager(data: Arrays) -> Case:
    return torch_case(_torch, data)


def _jax(q: Any, k: Any, v: Any, *g: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        past = jnp.tri(q.shape[-2], dtype=bool)
        return jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-1) @ v

    if not g:
        return attend(q, k, v)
    out, pull = jax.vjp(attend, q, k, v)
    return (out, *pull(g[0]))


def jax_jit(data: Arrays) -> Case:
    return jax_case(_jax, data)


def iree(data: Arrays) -> Case:
    return iree_case(_jax, data)


CONTENDERS = {
    "Nova": ("nova", nova_call),
    "torch": ("torch", torch_eager),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
}
