"""Dropout of attention weights on devices: the bits of the CPU, in the simulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from dropped_attention import check_dropout

import nova
from nova.artifact.cubins.ptxas import use_of_kernels

_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("type_", "batch", "sizes", "causal"),
    [
        ("f32", (2,), (20, 40, 16, 16), False),
        ("bf16", (2,), (40, 40, 16, 16), True),
        pytest.param("f64", (2,), (40, 70, 16, 8), False, marks=_SLOW),
        pytest.param("f32", (2, 3), (70, 70, 16, 16), True, marks=_SLOW),
        pytest.param("f16", (2,), (40, 70, 128, 128), False, marks=_SLOW),
        pytest.param("bf16", (2, 3), (3, 600, 16, 16), False, marks=_SLOW),
    ],
)
def test_mma(type_: str, batch: Any, sizes: Any, causal: bool) -> None:
    check_dropout(type_, batch, sizes, 0.3, causal=causal, target="cuda:sm_80")


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((256, 264, 32, 32), {}),
        pytest.param((300, 300, 64, 64), {"causal": True}, marks=_SLOW),
        pytest.param((256, 256, 128, 128), {"causal": True}, marks=_SLOW),
        pytest.param((256, 256, 192, 256), {"mask": True}, marks=_SLOW),
    ],
)
def test_wgmma(sizes: Any, options: dict[str, Any]) -> None:
    if "mask" in options:
        options = {"mask": np.random.default_rng(0).random(sizes[:2]) < 0.7}
    program = check_dropout("bf16", (1,), sizes, 0.2, target="cuda:sm_90a", **options)
    assert "wgmma.mma_async" in program.stages["ptx"]


@pytest.mark.parametrize(
    ("shape", "causal", "arch"),
    [
        ((8, 12, 1024, 64), True, "sm_90a"),
        pytest.param((8, 12, 1024, 64), False, "sm_90a", marks=_SLOW),
        pytest.param((4, 16, 2048, 64), True, "sm_90a", marks=_SLOW),
        pytest.param((1, 16, 8192, 128), False, "sm_90a", marks=_SLOW),
        pytest.param((2, 16, 1024, 128), True, "sm_90a", marks=_SLOW),
        pytest.param((2, 16, 1024, 256), True, "sm_90a", marks=_SLOW),
        pytest.param((8, 12, 1024, 64), True, "sm_80", marks=_SLOW),
        pytest.param((8, 12, 1024, 128), False, "sm_80", marks=_SLOW),
    ],
)
def test_no_spills(shape: tuple[int, ...], causal: bool, arch: str) -> None:
    zeros = np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), shape)
    q, k, v, g = leaves = [nova.tensor(zeros) for _ in range(4)]
    seed = nova.tensor(np.array(0))
    out = nova.attention(q, k, v, causal=causal, dropout=0.1, seed=seed)
    slopes = nova.graph.gradients(nova.sum(out * g), [q, k, v])
    program = nova.compile(
        [out, *slopes], inputs=[*leaves, seed], target=f"cuda:{arch}", run_mode="sim"
    )
    uses = use_of_kernels(program.stages["ptx"], arch)
    assert {name: use.spilled for name, use in uses.items() if use.spilled} == {}
