"""Epilogues of warpgroup GEMMs: results of several types, taken at any op of a chain.

Barriers and matrix stores of a warp stay outside of branches that only some of its lanes take. The
simulator refuses code in which they do not.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova
from nova.compiler.gpu.emit_ptx import mark_convergent

pytestmark = pytest.mark.graph_launch  # persistent kernels do not use warpgroups

_ON_HOPPER = {"target": "cuda:sm_90a", "run_mode": "sim"}
_TILES = ("wgmma-128x64x1x1", "wgmma-128x144x1x1", "wgmma-256x128x1x1", "wgmma-128x128x1x2")
_SHAPES = ((256, 128, 128), (136, 72, 72), (128, 192, 200), (130, 71, 72))
_STEPS = ("relu", "bias", "residual", "wide residual", "round", "widen", "scale", "result", "both")


def _chain(steps: list[str], x: Any, w: Any, others: dict[str, Any]) -> list[Any]:
    """The results of a matmul with an epilogue of these steps; its last value is one of them."""
    value, results = x @ w.T, []
    for step in steps:
        if step == "relu":
            value = nova.relu(value)
        elif step == "round":
            value = value.astype("bf16")
        elif step == "widen":
            value = value.astype("f32")
        elif step == "scale":
            value = value * 0.5
        elif step == "result":
            results.append(value)
        elif step == "both":
            results += [value.astype("bf16"), value.astype("f32")]
        else:
            value = value + others[step].astype(value.dtype)
    return [*results, value]


def _check(steps: list[str], shape: tuple[int, int, int], tile: str) -> None:
    """Run the chain on the simulated device, and compare with the CPU."""
    m, n, k = shape
    random = np.random.default_rng(len(steps))
    sizes = {"x": (m, k), "w": (n, k), "bias": (n,), "residual": (m, n)}
    arrays = {
        name: random.standard_normal(size).astype(ml_dtypes.bfloat16)
        for name, size in sizes.items()
    }
    arrays["wide residual"] = random.standard_normal((m, n)).astype(np.float32)
    leaves = {name: nova.tensor(array) for name, array in arrays.items()}
    results = _chain(steps, leaves["x"], leaves["w"], leaves)
    inputs = list(leaves.values())
    with nova.knobs.override(gpu_gemm=tile):
        program = nova.compile(results, inputs=inputs, **_ON_HOPPER)
    assert "wgmma.mma_async" in program.stages["ptx"]
    outputs = program(*arrays.values())
    references = nova.compile(results, inputs=inputs, target="cpu")(*arrays.values())
    for output, reference in zip(outputs, references, strict=True):
        values, expected = (np.asarray(array, np.float64) for array in (output, reference))
        assert np.abs(values - expected).max() <= 2e-2 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("steps", "tile"),
    [
        (["widen", "both"], "wgmma-128x64x1x1"),
        (["round", "result", "widen", "wide residual"], "wgmma-256x128x1x1"),
        (["bias", "result", "relu", "both"], "wgmma-128x144x1x1"),
    ],
)
def test_results_of_both_types(steps: list[str], tile: str) -> None:
    """A result that is not the first one: LLVM knows which thread stores boxes from the first."""
    _check(steps, (256, 288, 128), tile)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
def test_a_result_that_is_updated_in_place(dtype: Any) -> None:
    """A weight gradient that updates the weight, and is a result in the other type, too."""
    random = np.random.default_rng(3)
    x, g = (random.standard_normal((128, 256)).astype(ml_dtypes.bfloat16) for _ in range(2))
    w = random.standard_normal((256, 256)).astype(dtype)
    leaves = [nova.tensor(array) for array in (x, g, w)]
    gradient = leaves[0].T @ leaves[1]
    other = gradient.astype("f32" if dtype is ml_dtypes.bfloat16 else "bf16")
    update = leaves[2] - gradient.astype(leaves[2].dtype) * 0.5
    results = []
    for where in (_ON_HOPPER, {"target": "cpu"}):
        with nova.knobs.override(gpu_gemm="wgmma-128x64x1x1"):
            step = nova.compile(
                other, inputs=leaves[:2], params=leaves[2:], updates={leaves[2]: update}, **where
            )
        weight = w.copy()
        value = step.run([x, g], [weight])
        results.append([np.asarray(array, np.float64) for array in (value, weight)])
    assert np.abs(results[1][1] - w.astype(np.float64)).max() > 1
    for output, reference in zip(*results, strict=True):
        assert np.abs(output - reference).max() <= 2e-2 * np.abs(reference).max()


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from(_STEPS), max_size=6), st.sampled_from(_SHAPES), st.sampled_from(_TILES)
)
def test_any_order(steps: list[str], shape: tuple[int, int, int], tile: str) -> None:
    _check(steps, shape, tile)


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(
    st.lists(st.sampled_from(_STEPS), max_size=9), st.sampled_from(_SHAPES), st.sampled_from(_TILES)
)
def test_any_longer_order(steps: list[str], shape: tuple[int, int, int], tile: str) -> None:
    _check(steps, shape, tile)


def test_barriers_are_not_duplicated() -> None:
    """Of each barrier and matrix store in the LLVM IR, the PTX has one; one is of the block."""
    leaves = [nova.tensor(np.zeros((256, 128), ml_dtypes.bfloat16)) for _ in range(2)]
    results = _chain(["widen", "both", "relu"], *leaves, {})
    with nova.knobs.override(gpu_gemm="wgmma-128x64x1x1"):
        stages = nova.compile(results, inputs=leaves, **_ON_HOPPER).stages
    assert stages["ptx"].count("bar.sync") == stages["ll"].count("bar.sync") + 1
    assert stages["ptx"].count("stmatrix") == stages["ll"].count("stmatrix") > 0


def test_the_mark_of_convergent_assembly() -> None:
    marked = 'call void asm sideeffect "bar.sync $0, $1;", "r,r,~{memory}"(i32 %1, i32 128)'
    others = [
        'call void asm sideeffect "mbarrier.arrive.shared::cta.b64 _, [$0];", "r"(i32 %2)',
        'call void asm sideeffect "cp.async.bulk.wait_group 0;", "~{memory}"()',
        '%3 = call i32 asm "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f"(float %4, float %5)',
    ]
    text = "\n".join([marked, *others, f"{marked}, !dbg !7", f"{marked} #3"])
    assert mark_convergent(text).splitlines() == [
        f"{marked} convergent",
        *others,
        f"{marked} convergent, !dbg !7",
        f"{marked} convergent #3",
    ]
