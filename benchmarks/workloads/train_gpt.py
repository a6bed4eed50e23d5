"""Training steps of the GPT in `examples/gpt.py`: width 256, 4 layers, 4 heads, AdamW.

A step takes random windows of a stream of tokens, batches of 4 and context 128 of 1024 tokens. All
contenders see the same windows, start from the same weights, and have the same losses.
`train_compile_cold` and `train_compile_disk` compile the step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness.case import Case
from harness.rates import Work, matmul_work
from harness.training import JaxTraining, NovaTraining, TorchTraining, TrainingCase

TITLE = "Training step of a GPT, 4x128 tokens, width 256, 4 layers, with AdamW, loading included"
MODE = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1, 2)
TOLERANCE = 1e-4

BATCH, CONTEXT, WIDTH, HEADS, LAYERS, VOCABULARY = 4, 128, 256, 4, 4, 1024
RATE, BETAS, EPS, DECAY, STEPS = 1e-3, (0.9, 0.999), 1e-8, 0.01, 3
Weights = dict[str, np.ndarray]
Data = tuple[np.ndarray, Weights]


def arrays() -> Data:
    """The stream of tokens, and the weights by the names of the example, linear ones (in, out)."""
    generator = np.random.default_rng(0)
    d = WIDTH
    norm = {"weight": (d,), "bias": (d,)}
    shapes = {"tokens.weight": (VOCABULARY, d), "positions.weight": (CONTEXT, d)}
    for i in range(LAYERS):
        parts = {
            **{f"norm1.{n}": s for n, s in norm.items()},
            "attention.in_proj_weight": (d, 3 * d),
            "attention.in_proj_bias": (3 * d,),
            "attention.out_proj.weight": (d, d),
            "attention.out_proj.bias": (d,),
            **{f"norm2.{n}": s for n, s in norm.items()},
            "up.weight": (d, 4 * d),
            "up.bias": (4 * d,),
            "down.weight": (4 * d, d),
            "down.bias": (d,),
        }
        shapes |= {f"blocks.{i}.{n}": s for n, s in parts.items()}
    shapes |= {f"norm.{n}": s for n, s in norm.items()}
    weights = {}
    for name, shape in shapes.items():
        mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        drawn = mean + 0.02 * generator.standard_normal(shape)
        weights[name] = drawn.astype(np.float32)
    # Some tokens are far more likely than others, so that there is something to learn.
    stream = (VOCABULARY * generator.random(100_000) ** 3).astype(np.int64)
    return stream, weights


def work() -> Work:
    """The matmuls, forward and twice as much backward; attention without its softmax."""
    rows, d = BATCH * CONTEXT, WIDTH
    linear = [(rows, d, 3 * d), (rows, d, d), (rows, d, 4 * d), (rows, 4 * d, d)] * LAYERS
    attention = [(CONTEXT, d // HEADS, CONTEXT), (CONTEXT, CONTEXT, d // HEADS)]
    attention *= BATCH * HEADS * LAYERS
    return matmul_work(*linear, *attention, (rows, d, VOCABULARY), times=3)


def _windows(stream: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Random windows of the stream, and the same windows one token later."""
    generator = np.random.default_rng(1)
    while True:
        starts = generator.integers(0, len(stream) - CONTEXT - 1, BATCH)
        windows = np.stack([stream[s : s + CONTEXT + 1] for s in starts])
        yield np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


def oracle(data: Data, steps: int = STEPS) -> list[np.ndarray]:
    from harness.gpt_by_hand import adamw, loss_and_gradients

    stream, weights = data
    params = {n: a.astype(np.float64) for n, a in weights.items()}
    state: dict[str, Any] = {}
    losses, windows = [], _windows(stream)
    for step in range(1, steps + 1):
        loss, grads = loss_and_gradients(params, *next(windows), layers=LAYERS, heads=HEADS)
        adamw(params, grads, state, step, RATE, BETAS, EPS, DECAY)
        losses.append(loss)
    return [np.array(losses)]


def _rows_first(weights: Weights) -> Weights:
    """Linear weights as (out, in), which the layers of Nova and torch have."""
    return {
        n: np.ascontiguousarray(a.T) if n.startswith("blocks.") else a for n, a in weights.items()
    }


def nova_training(data: Data, target: str | None = None) -> NovaTraining:
    import nova
    from nova import optim

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from gpt import GPT, Config

    stream, weights = data
    model = GPT(Config(VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS))
    model.load_state_dict(_rows_first(weights))
    optimizer = optim.AdamW(model.parameters(), RATE, BETAS, EPS, DECAY)
    program = nova.train_step(model, lambda m, x, y: m.loss(x, y), optimizer, target=target)
    return NovaTraining(program, lambda: _windows(stream))


def torch_training(data: Data, compiled: bool = False) -> TorchTraining:
    import torch
    from torch.nn import functional as f

    stream, weights = data

    def norm(p: Any, name: str, x: Any) -> Any:
        return f.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"])

    def linear(p: Any, name: str, x: Any) -> Any:
        return f.linear(x, p[f"{name}weight"], p[f"{name}bias"])

    def block(p: Any, b: str, x: Any) -> Any:
        qkv = linear(p, f"{b}.attention.in_proj_", norm(p, f"{b}.norm1", x))
        qkv = qkv.view(BATCH, CONTEXT, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = f.scaled_dot_product_attention(*qkv.unbind(), is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH)
        x = x + linear(p, f"{b}.attention.out_proj.", mixed)
        hidden = f.gelu(linear(p, f"{b}.up.", norm(p, f"{b}.norm2", x)), approximate="tanh")
        return x + linear(p, f"{b}.down.", hidden)

    def loss(p: Any, tokens: Any, following: Any) -> Any:
        x = f.embedding(tokens, p["tokens.weight"]) + p["positions.weight"]
        for i in range(LAYERS):
            x = block(p, f"blocks.{i}", x)
        scores = norm(p, "norm", x) @ p["tokens.weight"].T
        return f.cross_entropy(scores.view(-1, VOCABULARY), following.view(-1))

    def load() -> Iterator[Any]:
        return (tuple(map(torch.from_numpy, batch)) for batch in _windows(stream))

    return TorchTraining(
        _rows_first(weights),
        loss,
        lambda params: torch.optim.AdamW(params, RATE, BETAS, EPS, DECAY, fused=True),
        load,
        compiled,
    )


def jax_training(data: Data) -> JaxTraining:
    import jax
    import jax.numpy as jnp

    stream, weights = data

    def norm(p: Any, name: str, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        unit = centred * jax.lax.rsqrt(variance + 1e-5)
        return unit * p[f"{name}.weight"] + p[f"{name}.bias"]

    def linear(p: Any, name: str, x: Any) -> Any:
        return x @ p[f"{name}weight"] + p[f"{name}bias"]

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) * (WIDTH // HEADS) ** -0.5
        past = np.tril(np.ones((CONTEXT, CONTEXT), bool))
        return jax.nn.softmax(jnp.where(past, scores, -np.inf)) @ v

    def block(p: Any, b: str, x: Any) -> Any:
        qkv = linear(p, f"{b}.attention.in_proj_", norm(p, f"{b}.norm1", x))
        qkv = qkv.reshape(BATCH, CONTEXT, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
        mixed = attend(*qkv).swapaxes(1, 2).reshape(BATCH, CONTEXT, WIDTH)
        x = x + linear(p, f"{b}.attention.out_proj.", mixed)
        hidden = jax.nn.gelu(linear(p, f"{b}.up.", norm(p, f"{b}.norm2", x)), approximate=True)
        return x + linear(p, f"{b}.down.", hidden)

    def loss(p: Any, tokens: Any, following: Any) -> Any:
        x = p["tokens.weight"][tokens] + p["positions.weight"]
        for i in range(LAYERS):
            x = block(p, f"blocks.{i}", x)
        scores = norm(p, "norm", x) @ p["tokens.weight"].T
        chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), following[..., None], -1)
        return -chosen.mean()

    def update(state: Any, grads: Any) -> Any:
        step = state["step"] + 1
        m = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, state["m"], grads)
        v = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, state["v"], grads)
        size, correction = RATE / (1 - BETAS[0] ** step), jnp.sqrt(1 - BETAS[1] ** step)
        params = jax.tree.map(
            lambda p, m, v: p * (1 - RATE * DECAY) - size * m / (jnp.sqrt(v) / correction + EPS),
            state["params"],
            m,
            v,
        )
        return {"params": params, "m": m, "v": v, "step": step}

    zeros = {n: np.zeros_like(a) for n, a in weights.items()}
    state = {"params": weights, "m": zeros, "v": zeros, "step": np.float32(0)}
    return JaxTraining(state, loss, update, lambda: _windows(stream))


def nova_steps(data: Data) -> Case:
    return TrainingCase(nova_training(data), STEPS)


def torch_steps(data: Data) -> Case:
    return TrainingCase(torch_training(data), STEPS)


def torch_compiled(data: Data) -> Case:
    return TrainingCase(torch_training(data, compiled=True), STEPS)


def jax_steps(data: Data) -> Case:
    return TrainingCase(jax_training(data), STEPS)


CONTENDERS = {
    "Nova, train_step": ("nova", nova_steps),
    "torch, fused AdamW": ("torch", torch_steps),
    "torch.compile, fused AdamW": ("torch", torch_compiled),
    "jax.jit, donated": ("jax", jax_steps),
}
