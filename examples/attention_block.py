"""A transformer block as a plain function, compiled and differentiated with `nova.jit`.

`nova.value_and_grad` makes a new function of the same arguments; compiled, forward and backward of
the whole block are one program. Parameters are a dict: arguments may be nested as you like.
"""

from __future__ import annotations

import numpy as np

import nova

BATCH, TIME, HEADS, WIDTH = 2, 16, 4, 32


def block(x: nova.Tensor, p: dict[str, nova.Tensor]) -> nova.Tensor:
    """Causal self-attention and a gated MLP, each after a norm, with a residual connection."""
    batch, time, width = x.shape

    def heads(t: nova.Tensor) -> nova.Tensor:
        return t.reshape((batch, time, HEADS, width // HEADS)).permute((0, 2, 1, 3))

    normed = nova.rms_norm(x, p["norm1"])
    q, k, v = (heads(normed @ p[name]) for name in ("wq", "wk", "wv"))
    mixed = nova.scaled_dot_product_attention(q, k, v, causal=True)
    x = x + mixed.permute((0, 2, 1, 3)).reshape((batch, time, width)) @ p["wo"]
    normed = nova.rms_norm(x, p["norm2"])
    return x + nova.swiglu(normed @ p["up"], normed @ p["gate"]) @ p["down"]


def loss(p: dict[str, nova.Tensor], x: nova.Tensor, target: nova.Tensor) -> nova.Tensor:
    return nova.mse_loss(block(x, p), target)


def make_parameters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    params = {name: matrix(WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")}
    params |= {"up": matrix(WIDTH, 2 * WIDTH), "gate": matrix(WIDTH, 2 * WIDTH)}
    params |= {"down": matrix(2 * WIDTH, WIDTH)}
    params |= {name: np.ones(WIDTH, np.float32) for name in ("norm1", "norm2")}
    return params


def main() -> tuple[float, float]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, TIME, WIDTH), np.float32)
    target = np.roll(x, 1, axis=1)
    params = make_parameters(rng)
    step = nova.jit(nova.value_and_grad(loss))

    first = last = 0.0
    for number in range(60):
        value, gradients = step(params, x, target)
        last = float(value)
        first = first or last
        if number % 20 == 0:
            print(f"step {number:2d}  loss {last:.4f}")
        params = {name: a - np.float32(0.3) * gradients[name] for name, a in params.items()}
    print(f"loss {first:.4f} became {last:.4f}; {step.cache_info()}")
    return first, last


if __name__ == "__main__":
    main()
