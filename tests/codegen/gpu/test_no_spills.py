"""Kernels that need almost all registers: NVIDIA's assembler gives them all, without spills.

Sizes are those of real programs, because index arithmetic takes registers too. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.artifact.cubins.ptxas import use_of_kernels
from nova.codegen.gpu.rowwise import shared_rows

_SLOW = pytest.mark.slow


def _zeros(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return nova.tensor(np.broadcast_to(np.zeros((), dtype), shape))


def _spills(outputs: Any, inputs: list[Any], arch: str = "sm_90a") -> dict[str, int]:
    target = f"cuda:{arch}"
    text = nova.compile(outputs, inputs=inputs, target=target, run_mode="sim").stages["ptx"]
    uses = use_of_kernels(text, arch)
    assert uses
    return {name: use.spilled for name, use in uses.items() if use.spilled}


@pytest.mark.parametrize(
    ("shape", "causal"),
    [
        ((8, 12, 1024, 64), True),
        pytest.param((1, 16, 8192, 128), True, marks=_SLOW),
        pytest.param((8, 12, 1024, 64), False, marks=_SLOW),
        pytest.param((1, 16, 8192, 128), False, marks=_SLOW),
        pytest.param((8, 12, 1001, 64), True, marks=_SLOW),
        pytest.param((1, 16, 8190, 128), True, marks=_SLOW),
        *(
            pytest.param((8, 12, rows, features), True, marks=_SLOW)
            for rows in (260, 1000)
            for features in (64, 96, 128)
        ),
        pytest.param((2, 16, 1024, 256), True, marks=_SLOW),
    ],
)
def test_gradients_of_attention(shape: tuple[int, ...], causal: bool) -> None:
    q, k, v, g = (_zeros(shape, ml_dtypes.bfloat16) for _ in range(4))
    out = nova.scaled_dot_product_attention(q, k, v, causal=causal)
    gradients = nova.graph.gradients(nova.sum(out * g), [q, k, v])
    assert _spills(gradients, [q, k, v, g]) == {}


@pytest.mark.parametrize(
    ("rows", "features", "causal", "mask"),
    [
        (1001, 64, True, np.float32),
        pytest.param(1001, 64, False, np.float32, marks=_SLOW),
        pytest.param(1000, 64, True, ml_dtypes.bfloat16, marks=_SLOW),
        pytest.param(1024, 128, True, np.float32, marks=_SLOW),
        pytest.param(1001, 128, False, np.float32, marks=_SLOW),
        pytest.param(1001, 128, True, np.bool_, marks=_SLOW),
        pytest.param(1001, 256, True, np.float32, marks=_SLOW),
        pytest.param(1001, 256, False, np.bool_, marks=_SLOW),
    ],
)
def test_gradients_of_masked_attention(rows: int, features: int, causal: bool, mask: Any) -> None:
    q, k, v, g = (_zeros((2, 16, rows, features), ml_dtypes.bfloat16) for _ in range(4))
    hidden = _zeros((2, 1, rows, rows), mask)
    out = nova.attention(q, k, v, hidden, causal=causal)
    gradients = nova.graph.gradients(nova.sum(out * g), [q, k, v])
    assert _spills([out, *gradients], [q, k, v, g, hidden]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("features", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_packed_attention(features: int, causal: bool, dropout: float) -> None:
    q, k, v, g = (_zeros((2, 16, 1024, features), ml_dtypes.bfloat16) for _ in range(4))
    ids, seed = _zeros((2, 1024), np.int32), _zeros((), np.int64)
    inputs = [q, k, v, g, ids, *([seed] if dropout else [])]
    options = {"dropout": dropout, "seed": seed} if dropout else {}
    out = nova.attention(q, k, v, causal=causal, segment_ids=ids, **options)
    gradients = nova.graph.gradients(nova.sum(out * g), [q, k, v])
    assert _spills([out, *gradients], inputs) == {}


_ROWS: dict[str, Callable[[Any], Any]] = {
    "softmax": nova.softmax,
    "log_softmax": nova.log_softmax,
    "norm": lambda x: x / nova.sqrt(nova.mean(x * x, axis=-1, keepdims=True) + 1e-5),
}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("length", [50257, 50304])
@pytest.mark.parametrize("name", _ROWS)
def test_long_rows(name: str, length: int, dtype: Any) -> None:
    x = _zeros((4096, length), dtype)
    assert _spills(_ROWS[name](x), [x]) == {}


@pytest.mark.parametrize("columns", [768, 1024])
def test_gradient_of_a_norm_in_a_warp(columns: int) -> None:
    shapes = (8192, columns), (columns,), (columns,), (8192, columns), (8192, columns)
    x, w, b, g, residual = (_zeros(shape, ml_dtypes.bfloat16) for shape in shapes)
    out = nova.layer_norm(x, w, b) * g
    (gradient,) = nova.graph.gradients(nova.sum(nova.cast(out, "f32")), [x])
    assert _spills(gradient + residual, [x, w, b, g, residual]) == {}


@pytest.mark.parametrize("shared", [False, True])
def test_a_row_that_is_not_aligned_fits(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """A block of 512 threads has a multiprocessor alone: 128 registers a thread.

    It has a row in shared memory, or half of a row in registers.
    """
    if not shared:
        monkeypatch.setattr(shared_rows, "_BLOCKS", ())
    x = _zeros((4096, 50257))
    program = nova.compile(nova.softmax(x), inputs=[x], target="cuda:sm_90a", run_mode="sim")
    text = program.stages["ptx"]
    (use,) = use_of_kernels(text, "sm_90a").values()
    assert ".maxntid 512" in text and use.registers <= 128 and not use.spilled


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("columns", [64, 8192])
def test_sums_of_columns(columns: int, arch: str) -> None:
    x = _zeros((4096, columns))
    assert _spills(nova.tanh(x).sum(axis=0), [x], arch) == {}


@pytest.mark.slow
def test_a_training_step_of_gpt2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers of GPT-2 small: identical layers share their kernels."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "examples")
    from gpt import GPT, Config

    nn.manual_seed(0)
    model = GPT(Config(50304, 1024, 768, 12, 2))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    step = nova.train_step(
        model,
        lambda m, x, y: m.loss(x, y),
        optimizer,
        precision="bf16",
        target="cuda:sm_90a",
        run_mode="sim",
    )
    tokens = np.zeros((8, 1024), np.int64)
    uses = use_of_kernels(step.lower(tokens, tokens).stages["ptx"], "sm_90a")
    assert {name: use.spilled for name, use in uses.items() if use.spilled} == {}
