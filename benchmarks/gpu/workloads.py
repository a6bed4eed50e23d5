"""The workloads of the GPU benchmark, each in Nova, torch and jax, on the same data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu.contenders import (
    Contender,
    Workload,
    jax_forward,
    nova_forward,
    torch_forward,
)
from gpu.training import training_contenders

MODES = (None, "default", "max-autotune-no-cudagraphs", "reduce-overhead")
Make = Callable[[], Contender]


def _draw(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(s, np.float32) for s in shapes]


def _forward(
    arrays: Sequence[np.ndarray], nova: Any, torch: Any, jax: Any, modes: Any, half: bool = False
) -> list[Make]:
    return [
        nova_forward(nova, arrays, half),
        *(torch_forward(torch, arrays, mode, half) for mode in modes),
        jax_forward(jax, arrays, half),
    ]


def gelu_chain() -> list[Make]:
    import jax
    import torch.nn.functional as f

    import nova

    arrays = _draw(*[(1 << 26,)] * 3)
    return _forward(
        arrays,
        lambda a, b, c: nova.gelu(a * b + c),
        lambda a, b, c: f.gelu(a * b + c),
        lambda a, b, c: jax.nn.gelu(a * b + c, approximate=False),
        (None, "default"),
    )


def softmax() -> list[Make]:
    import jax
    import torch

    import nova

    arrays = _draw((8192, 8192))
    return _forward(
        arrays, nova.softmax, lambda x: torch.softmax(x, -1), jax.nn.softmax, (None, "default")
    )


def layer_norm() -> list[Make]:
    import torch.nn.functional as f
    from workloads.gpt_block import _Jax

    import nova

    arrays = _draw((8192, 8192), (8192,), (8192,))
    return _forward(
        arrays,
        nova.layer_norm,
        lambda x, w, b: f.layer_norm(x, (8192,), w, b),
        _Jax().norm,
        (None, "default"),
    )


def matmul(n: int) -> Callable[[], list[Make]]:
    def make() -> list[Make]:
        arrays = _draw((n, n), (n, n))

        def multiply(a: Any, b: Any) -> Any:
            return a @ b

        return _forward(arrays, multiply, multiply, multiply, (None,), half=True)

    return make


def attention(features: int, half: bool) -> Callable[[], list[Make]]:
    """Causal, 4 x 16 heads of 2048 rows."""

    def make() -> list[Make]:
        import jax
        import torch.nn.functional as f

        import nova

        def swapped(q: Any, k: Any, v: Any) -> Any:  # in jax heads come after rows
            q, k, v = (jax.numpy.swapaxes(x, 1, 2) for x in (q, k, v))
            out = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            return jax.numpy.swapaxes(out, 1, 2)

        return _forward(
            _draw(*[(4, 16, 2048, features)] * 3),
            lambda q, k, v: nova.scaled_dot_product_attention(q, k, v, causal=True),
            lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True),
            swapped,
            (None,),
            half=half,
        )

    return make


def gpt_block() -> list[Make]:
    from workloads import gpt_block as block

    def over(ops: Any) -> Any:
        return lambda *arrays: block._block(ops, *arrays)

    modes = (None, "default", "reduce-overhead")
    ops = block._Nova(), block._Torch(), block._Jax()
    return _forward(block.arrays(), *map(over, ops), modes, half=True)


def training(name: str) -> Callable[[], list[Make]]:
    return lambda: training_contenders(name)


WORKLOADS = {
    "gelu": Workload("gelu(a*b+c), 64M f32", gelu_chain, most_ratio=0.85, moved=4 * 4 * 2.0**26),
    "softmax": Workload("softmax 8192x8192 f32", softmax, most_ratio=0.85, moved=8 * 2.0**26),
    "layer_norm": Workload(
        "layer norm 8192x8192 f32", layer_norm, most_ratio=0.85, moved=8 * 2.0**26, tolerance=1e-3
    ),
    "train_small": Workload("train step 8x16->10, SGD", training("train_small"), most_us=12),
    "train_mlp": Workload(
        "train step MLP 64x[784,512,512,10], SGD", training("train_mlp"), most_us=80
    ),
    "gpt_block": Workload(
        "GPT-2 block forward b1 s128, bf16", gpt_block, most_us=125, tolerance=5e-2
    ),
    "train_gpt": Workload(
        "tiny GPT AdamW step f32", training("train_gpt"), most_us=1500, tolerance=1e-3
    ),
    **{
        f"attention_{element}_{features}": Workload(
            f"causal attention {element}, 4x16 heads, 2048x{features}",
            attention(features, element == "bf16"),
            flops=2.0 * 4 * 16 * 2048 * 2048 * features,
            tolerance=2e-2 if element == "bf16" else 1e-4,
        )
        for element in ("bf16", "f32")
        for features in (64, 128)
    },
    **{
        f"matmul_{n}": Workload(
            f"matmul bf16 {n}",
            matmul(n),
            flops=2.0 * n**3,
            least_tflops=300 if n == 4096 else None,
            tolerance=2e-2,
        )
        for n in (1024, 2048, 4096, 8192)
    },
}
