"""Programs of every kind of kernel, small: for compute-sanitizer, which makes them slow.

    compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck --error-exitcode 9 \
        python tests/gpu/sanitized.py [DEVICE]

Results are compared with those of the CPU, so that what the sanitizer saw did compute something.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import nova
from nova import nn, optim

TARGET = "cuda"


def draw(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    values = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return values.astype(np.float32).astype(dtype)


def attend(q: Any, k: Any, v: Any) -> Any:
    return nova.scaled_dot_product_attention(q, k, v, causal=True)


def attend_gradients(q: Any, k: Any, v: Any) -> Any:
    return nova.grad(lambda *a: (attend(*a) * attend(*a)).sum(), argnums=(0, 1, 2))(q, k, v)


HALF = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
PROGRAMS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "points": (lambda x, y: nova.gelu(x * y + x), [draw(65, 130), draw(65, 130, seed=1)]),
    "softmax": (nova.softmax, [draw(33, 1000)]),
    "long rows": (nova.softmax, [draw(5, 9000)]),
    "rows of a cluster": (nova.softmax, [draw(3, 50257)]),
    "layer norm": (nova.layer_norm, [draw(33, 768), draw(768), draw(768, seed=1)]),
    "all": (lambda x: x.sum(), [draw(300, 300)]),
    "columns": (lambda x: x.sum(axis=0), [draw(1000, 70)]),
    "transpose": (lambda x: x.transpose() * 2.0, [draw(130, 70)]),
    "product": (lambda x, y: nova.relu(x @ y), [draw(150, 130), draw(130, 170)]),
    "attention": (attend, [draw(2, 2, 80, 64, seed=s) for s in range(3)]),
    "attention gradients": (attend_gradients, [draw(2, 2, 80, 64, seed=s) for s in range(3)]),
    **{
        f"product {name}": (lambda x, y: x @ y, [draw(256, 128, dtype=d), draw(128, 256, dtype=d)])
        for name, d in HALF.items()
    },
    **{
        f"attention {name}": (attend, [draw(2, 2, 80, 64, seed=s, dtype=d) for s in range(3)])
        for name, d in HALF.items()
    },
}

LONG = [draw(2, 260, 64, seed=s, dtype=HALF["bf16"]) for s in range(3)]
PROGRAMS["long attention"] = (attend, LONG)
PROGRAMS["long attention gradients"] = (attend_gradients, LONG)
"""Long enough for warpgroup matmuls on a Hopper GPU."""


def _matmul_operands(m: int, n: int, k: int) -> list[np.ndarray]:
    return [draw(m, k, dtype=HALF["bf16"]), draw(k, n, dtype=HALF["bf16"])]


WGMMA = {
    "wgmma-128x64x1x1": _matmul_operands(136, 72, 648),
    "wgmma-128x256x2": _matmul_operands(256, 256, 64),
    "wgmma-128x64x1x4": _matmul_operands(128, 64, 640),
}
"""Tiles of a Hopper GPU, of every kind, and operands; other GPUs use `mma.sync` here."""


def check(name: str, function: Callable[..., Any], arrays: list[np.ndarray]) -> None:
    expected = nova.jit(function)(*arrays)
    actual = nova.jit(function, target=TARGET)(*arrays)
    for a, b in zip(np.atleast_1d(actual), np.atleast_1d(expected), strict=True):
        np.testing.assert_allclose(
            np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=3e-2, atol=3e-2, err_msg=name
        )


def train(target: str) -> list[float]:
    """Some steps of a transformer: embedding, attention, norms, cross entropy and AdamW."""
    nn.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(50, 64)
            self.norm = nn.LayerNorm(64)
            self.attention = nn.MultiheadAttention(64, 4, causal=True)
            self.head = nn.Linear(64, 50)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids)
            return self.head(x + self.attention(self.norm(x)))

    model = Model()
    step = nova.train_step(
        model,
        lambda m, x, y: nova.cross_entropy(m(x).reshape(-1, 50), y.reshape(-1)),
        optim.AdamW(model.parameters(), lr=1e-3),
        target=target,
    )
    ids = np.random.default_rng(0).integers(0, 50, (4, 33))
    return [float(step(ids[:, :-1].copy(), ids[:, 1:].copy())) for _ in range(3)]


def main() -> None:
    for name, (function, arrays) in PROGRAMS.items():
        check(name, function, arrays)
    for choice, arrays in WGMMA.items():
        with nova.knobs.override(gpu_gemm=choice):
            check(choice, lambda x, y: x @ y, arrays)
    np.testing.assert_allclose(train(TARGET), train("cpu"), rtol=1e-3)
    print(f"{len(PROGRAMS) + len(WGMMA)} programs and a training step agree with the CPU")


if __name__ == "__main__":
    TARGET = sys.argv[1] if len(sys.argv) > 1 else TARGET
    main()
