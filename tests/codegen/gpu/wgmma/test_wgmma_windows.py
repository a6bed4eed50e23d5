"""Convolutions as implicit GEMMs: windows of images in boxes of the copy engine, simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import nova
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.gpu.gemm.plan import EnclosingLoop, GpuGemm
from nova.codegen.gpu.wgmma.boxes import are_disjoint, box_positions, inner_box
from nova.codegen.gpu.wgmma.plan import TILES, WgmmaPlan, plan_wgmma

pytestmark = pytest.mark.graph_launch  # persistent kernels do not use warpgroups


@dataclass(frozen=True)
class Case:
    """Sizes of padded images (n, height, width, channels), outputs, and options."""

    images: tuple[int, int, int, int]
    outputs: int
    kernel: tuple[int, int] = (3, 3)
    stride: int = 1
    dilation: int = 1


CASES = {
    "3x3": Case((4, 10, 10, 64), 64),
    "boxes-not-full": Case((4, 9, 13, 64), 96),
    "several-tiles": Case((3, 18, 18, 128), 192),
    "stride-2": Case((4, 18, 18, 64), 64, stride=2),
    "stride-2-4x3": Case((2, 18, 10, 64), 64, (4, 3), stride=2),
    "dilated": Case((2, 12, 12, 64), 64, dilation=2),
    "1x1-stride-2": Case((3, 9, 9, 64), 64, (1, 1), stride=2),
}


def _arrays(case: Case) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(0)
    n, _, _, channels = case.images
    counts = [
        (size - case.dilation * (k - 1) - 1) // case.stride + 1
        for size, k in zip(case.images[1:3], case.kernel, strict=True)
    ]
    shapes = case.images, (case.outputs, *case.kernel, channels), (n, *counts, case.outputs)
    x, w, g = (generator.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes)
    return x, w, g


def _channels_first(array: Any) -> torch.Tensor:
    return torch.tensor(array.astype("f4")).permute(0, 3, 1, 2)


def _compile(result: Any, inputs: list[Any], target: str, choice: str) -> Any:
    with nova.knobs.override(gpu_gemm=choice):
        return nova.compile(result, inputs=inputs, target=target, run_mode="sim")


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_convolution_and_weight_gradient(name: str, target: str) -> None:
    case = CASES[name]
    if target == "cuda:sm_80" and name not in ("boxes-not-full", "stride-2", "dilated"):
        pytest.skip("the same code")
    choice = "wgmma" if target == "cuda:sm_90a" else "mma"
    x, w, g = _arrays(case)
    options: dict[str, Any] = {"stride": case.stride, "dilation": case.dilation}
    weight = _channels_first(w).requires_grad_()
    expected = torch.conv2d(_channels_first(x), weight, **options)
    expected.backward(_channels_first(g))

    X, W, G = nova.tensor(x), nova.tensor(w), nova.tensor(g)
    # With the epilogue of a residual block.
    result = nova.relu(nova.conv_channels_last(X, W, **options) + G)
    program = _compile(result, [X, W, G], target, choice)
    actual = np.asarray(program.run([x, w, g])).astype("f4")
    wanted = (expected.detach() + _channels_first(g)).relu().permute(0, 2, 3, 1).numpy()
    assert np.abs(actual - wanted).max() <= 0.008 * np.abs(wanted).max()
    if choice == "wgmma":
        assert "wgmma.mma_async" in program.stages["ptx"]

    gradient = nova.conv_channels_last_weight_gradient(X, G, kernel=case.kernel, **options)
    program = _compile(gradient, [X, G], target, choice)
    actual = np.asarray(program.run([x, g])).astype("f4")
    wanted = weight.grad.permute(0, 2, 3, 1).numpy()
    assert np.abs(actual - wanted).max() <= 0.008 * np.abs(wanted).max()


@pytest.mark.parametrize("columns", sorted({tile.columns for tile in TILES}))
def test_weight_gradients_in_tiles_of_any_width(columns: int) -> None:
    """Three windows of 64 channels: a second tile of 96 columns begins in the middle of one."""
    x, w, g = _arrays(CASES["3x3"])
    weight = torch.zeros(w.shape).permute(0, 3, 1, 2).requires_grad_()
    torch.conv2d(_channels_first(x), weight).backward(_channels_first(g))
    X, G = nova.tensor(x), nova.tensor(g)
    gradient = nova.conv_channels_last_weight_gradient(X, G, kernel=(3, 3))
    if columns % 64:
        with pytest.raises(nova.errors.LoweringError, match="end inside a box of a window"):
            _compile(gradient, [X, G], "cuda:sm_90a", f"wgmma-128x{columns}")
        return
    program = _compile(gradient, [X, G], "cuda:sm_90a", f"wgmma-128x{columns}")
    actual = np.asarray(program.run([x, g])).astype("f4")
    wanted = weight.grad.permute(0, 2, 3, 1).numpy()
    assert np.abs(actual - wanted).max() <= 0.008 * np.abs(wanted).max()


@pytest.mark.parametrize("schedule", ["early", "random"])
def test_copies_may_arrive_at_any_time(schedule: str) -> None:
    x, w, _ = _arrays(CASES["several-tiles"])
    X, W = nova.tensor(x), nova.tensor(w)
    with nova.knobs.override(sim_schedule=schedule):
        program = _compile(nova.conv_channels_last(X, W), [X, W], "cuda:sm_90a", "wgmma")
        actual = np.asarray(program.run([x, w])).astype("f4")
    wanted = torch.conv2d(_channels_first(x), _channels_first(w)).permute(0, 2, 3, 1).numpy()
    assert np.abs(actual - wanted).max() <= 0.008 * np.abs(wanted).max()


# --- plans ----------------------------------------------------------------------------------------


def _plan(stride: int, size: int, elements: int | None = None) -> WgmmaPlan | None:
    """A 3x3 convolution of eight padded images of size x size, with 64 channels and outputs."""
    channels, count = 64, (size - 3) // stride + 1
    row = size * channels
    spec = Contraction(
        m=count,
        n=channels,
        k=3 * channels,
        a_strides=(stride * channels, 1),
        b_strides=(1, 9 * channels),
        c_strides=(channels, 1),
        a_type="bf16",
        b_type="bf16",
        acc_type="f32",
        accumulate=False,
    )
    loops = (
        EnclosingLoop(8, (size * row, 0, count * count * channels)),
        EnclosingLoop(count, (stride * row, 0, count * channels)),
        EnclosingLoop(3, (row, 3 * channels, 0), parallel=False),
    )
    whole = 8 * size * row if elements is None else elements
    return plan_wgmma(GpuGemm(spec, loops), (0, 1), 132, None, (whole, 9 * channels * channels))


@pytest.mark.parametrize("stride", [1, 2])
def test_dimensions_do_not_overlap(stride: int) -> None:
    plan = _plan(stride, 18)
    assert plan is not None and plan.boxed is not None
    map_ = plan.lhs.map
    strides = [n // 2 for n in map_.strides]
    assert are_disjoint(map_.dims[0], list(zip(map_.dims[1:], strides, strict=True)))
    assert len(map_.dims) == (4 if stride == 1 else 5)
    assert plan.lhs.period == stride * 64  # windows of adjacent positions share elements


def test_positions_between_windows_are_in_the_buffer() -> None:
    assert _plan(2, 18) is not None
    assert _plan(2, 18, elements=8 * 18 * 18 * 64 - 1) is None
    assert _plan(2, 17) is None  # the last of nine rows would begin the next image


def test_boxes_have_no_position_twice() -> None:
    plan = _plan(1, 16)  # 14 x 14 positions
    assert plan is not None and plan.boxed is not None
    axes = plan.boxed.rows
    seen = [
        tuple(box_positions(axes, [0, 0, 0, 0], row)[axis.loop] for axis in axes)
        for row in range(plan.tile.rows)
    ]
    assert len(set(seen)) == plan.tile.rows
    assert np.prod(inner_box(axes, 64)) == 64
    assert plan.work_items * plan.tile.rows >= 8 * 14 * 14
