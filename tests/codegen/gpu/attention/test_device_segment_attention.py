"""Attention of packed sequences on devices, in the simulator, against torch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from segment_attention import check_segments, sample_ids

import nova
from nova.artifact.cubins.ptxas import use_of_kernels
from nova.codegen.gpu.attention.segments import SegmentRange
from nova.ir.bindings import arith
from nova.ir.index import compare

_SLOW = pytest.mark.slow


def _ids(order: str, batch: int, sizes: Any) -> tuple[np.ndarray, np.ndarray]:
    if order == "long":  # with blocks of keys that one segment fills
        lengths = [100, 500, sizes[0] - 600]
        row = np.repeat([3, 7, 9], lengths).astype("i4")
        ids = np.broadcast_to(row, (batch, sizes[0])).copy()
        return ids, ids
    first, second = (sample_ids(order, batch, length) for length in sizes[:2])
    return first, second


@pytest.mark.parametrize(
    ("type_", "batch", "sizes", "order", "options"),
    [
        pytest.param("f32", (2,), (20, 40, 16, 16), "sorted", {}, marks=_SLOW),
        ("bf16", (2,), (150, 150, 16, 16), "padded", {"causal": True}),
        pytest.param("f64", (2,), (40, 70, 16, 8), "any", {}, marks=_SLOW),
        pytest.param("bf16", (2,), (100, 70, 16, 16), "any", {"dropout": 0.3}, marks=_SLOW),
        pytest.param("f16", (2, 2), (100, 100, 16, 16), "sorted", {"shared": (2, 1)}, marks=_SLOW),
        pytest.param("f16", (1,), (700, 700, 64, 64), "long", {"causal": True}, marks=_SLOW),
        pytest.param("bf16", (2, 3), (3, 600, 16, 16), "sorted", {}, marks=_SLOW),
    ],
)
def test_mma(type_: str, batch: Any, sizes: Any, order: str, options: dict[str, Any]) -> None:
    ids = _ids(order, batch[0], sizes)
    check_segments(type_, batch, sizes, ids, target="cuda:sm_80", **options)


@pytest.mark.parametrize(
    ("batch", "sizes", "order", "options"),
    [
        pytest.param((1,), (300, 280, 32, 32), "sorted", {}, marks=_SLOW),
        ((1,), (800, 800, 64, 64), "long", {"causal": True}),
        pytest.param((1,), (300, 300, 64, 64), "padded", {"causal": True}, marks=_SLOW),
        pytest.param((2,), (900, 900, 64, 64), "long", {}, marks=_SLOW),
        pytest.param((1,), (800, 800, 128, 128), "long", {"causal": True}, marks=_SLOW),
        pytest.param(
            (2,), (256, 256, 128, 128), "any", {"causal": True, "dropout": 0.2}, marks=_SLOW
        ),
        pytest.param((1,), (256, 256, 192, 256), "padded", {"mask": True}, marks=_SLOW),
        pytest.param((2, 4), (256, 256, 64, 64), "sorted", {"shared": (2, 1)}, marks=_SLOW),
    ],
)
def test_wgmma(batch: Any, sizes: Any, order: str, options: dict[str, Any]) -> None:
    if "mask" in options:
        options = {"mask": np.random.default_rng(0).random(sizes[:2]) < 0.7}
    ids = _ids(order, batch[0], sizes)
    program = check_segments("bf16", batch, sizes, ids, target="cuda:sm_90a", **options)
    assert "wgmma.mma_async" in program.stages["ptx"]


@_SLOW
def test_persistent_launch() -> None:
    ids = _ids("padded", 2, (100, 100))
    check_segments(
        "f32", (2,), (100, 100, 16, 16), ids, target="cuda:sm_80", launch="persistent", causal=True
    )


@_SLOW
def test_whole_blocks_do_not_compare_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges are used: where all blocks count as visible, other segments take part."""
    monkeypatch.setattr(
        SegmentRange, "covers", lambda self, first, size: compare(arith.CmpIPredicate.eq, 0, 0)
    )
    ids = np.repeat([[1, 2]], 64, axis=1).astype("i4")
    sizes = (128, 128, 16, 16)
    # Tiles of 64 rows have one segment each, and visit one block of keys: still right.
    check_segments("f32", (1,), sizes, (ids, ids), target="cuda:sm_80")
    with pytest.raises(AssertionError, match="out"):
        short = np.repeat([[1, 2]], [32, 96], axis=1).astype("i4")
        check_segments("f32", (1,), sizes, (ids, short), target="cuda:sm_80")


@pytest.mark.parametrize(
    ("shape", "causal", "arch"),
    [
        pytest.param((8, 12, 1024, 64), True, "sm_90a", marks=_SLOW),
        pytest.param((8, 12, 1024, 64), False, "sm_90a", marks=_SLOW),
        pytest.param((1, 16, 8192, 128), False, "sm_90a", marks=_SLOW),
        pytest.param((2, 16, 1024, 128), True, "sm_90a", marks=_SLOW),
        pytest.param((2, 16, 1000, 128), False, "sm_90a", marks=_SLOW),
        pytest.param((2, 16, 1024, 192), True, "sm_90a", marks=_SLOW),
        pytest.param((2, 16, 1024, 256), False, "sm_90a", marks=_SLOW),
        pytest.param((8, 12, 1024, 64), True, "sm_80", marks=_SLOW),
        pytest.param((8, 12, 1024, 128), False, "sm_80", marks=_SLOW),
    ],
)
def test_no_spills(shape: tuple[int, ...], causal: bool, arch: str) -> None:
    zeros = np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), shape)
    q, k, v, g = leaves = [nova.tensor(zeros) for _ in range(4)]
    ids = nova.tensor(np.zeros((shape[0], shape[2]), "i4"))
    out = nova.attention(q, k, v, causal=causal, segment_ids=ids)
    slopes = nova.graph.gradients(nova.sum(out * g), [q, k, v])
    program = nova.compile(
        [out, *slopes], inputs=[*leaves, ids], target=f"cuda:{arch}", run_mode="sim"
    )
    uses = use_of_kernels(program.stages["ptx"], arch)
    assert {name: use.spilled for name, use in uses.items() if use.spilled} == {}
