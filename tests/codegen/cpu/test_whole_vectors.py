"""Ranges that are whole vectors have no loop for a remainder, and rows of paddings are vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nova

LAYER = """
func.func @main(%x: tensor<{m}x256xf32>, %w: tensor<256x{n}xf32>, %b: tensor<{n}xf32>)
    -> tensor<{m}x{n}xf32> {{
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<{m}x256xf32>, tensor<256x{n}xf32>) -> tensor<{m}x{n}xf32>
  %c = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<{n}xf32>) -> tensor<{m}x{n}xf32>
  %z = stablehlo.add %y, %c : tensor<{m}x{n}xf32>
  %r = stablehlo.tanh %z : tensor<{m}x{n}xf32>
  return %r : tensor<{m}x{n}xf32>
}}"""
WINDOWS = """
func.func @main(%x: tensor<1x9x9x{c}xf32>, %w: tensor<3x3x{c}x{o}xf32>) -> tensor<1x5x5x{o}xf32> {{
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{stride = [2, 2], pad = [[1, 1], [1, 1]]}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<1x9x9x{c}xf32>, tensor<3x3x{c}x{o}xf32>) -> tensor<1x5x5x{o}xf32>
  return %y : tensor<1x5x5x{o}xf32>
}}"""
POOL = """
func.func @main(%x: tensor<1x9x9x{c}xf32>) -> tensor<1x5x5x{c}xf32> {{
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %y = "stablehlo.reduce_window"(%x, %low) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }}) {{window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>,
       padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>}}
    : (tensor<1x9x9x{c}xf32>, tensor<f32>) -> tensor<1x5x5x{c}xf32>
  return %y : tensor<1x5x5x{c}xf32>
}}"""


def kernels_at_loops(text: str, target: str) -> list[str]:
    """The texts of kernels, and of the elementwise functions that they share."""
    loops = nova.translate(text, targets=target, emit="loops").data.decode()
    function = r"^  func\.func private @(?:kernel|nova_rows).*?^  }"
    return re.findall(function, loops, re.MULTILINE | re.DOTALL)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("columns", "has_mask"), [(512, False), (520, False), (500, True)])
def test_only_partial_vectors_are_masked(columns: int, has_mask: bool) -> None:
    kernels = kernels_at_loops(LAYER.format(m=784, n=columns), "x86_64-v3")
    assert any("math.tanh" in kernel for kernel in kernels)
    assert any("mask" in kernel for kernel in kernels) == has_mask


@pytest.mark.parametrize("columns", [512, 520, 500])
def test_layers_agree_with_numpy(columns: int) -> None:
    x, w, b = random(784, 256), random(256, columns) / 16, random(columns)
    program = nova.translate(LAYER.format(m=784, n=columns)).load()
    np.testing.assert_allclose(program(x, w, b), np.tanh(x @ w + b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [8, 13, 64])
@pytest.mark.parametrize("text", [WINDOWS, POOL], ids=["windows", "pool"])
def test_rows_of_padded_images_are_vectors(text: str, channels: int) -> None:
    kernels = kernels_at_loops(text.format(c=channels, o=16), "x86_64-v3")
    assert kernels
    assert not any("nova.scalar_loops" in kernel for kernel in kernels)


def windows_of(image: np.ndarray, padding: float) -> np.ndarray:
    """[row, column, tap, tap, channel] of 3 by 3 windows with stride 2."""
    padded = np.pad(image[0], ((1, 1), (1, 1), (0, 0)), constant_values=padding)
    return np.stack(
        [
            np.stack([padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 3] for j in range(5)])
            for i in range(5)
        ]
    )


@pytest.mark.parametrize("channels", [3, 8, 13, 64])
@pytest.mark.parametrize("target", ["cpu", "x86_64"])
def test_padded_windows_agree_with_numpy(channels: int, target: str) -> None:
    x, w = random(1, 9, 9, channels), random(3, 3, channels, 16)
    program = nova.translate(WINDOWS.format(c=channels, o=16), targets=target).load()
    expected = np.einsum("ijklc,klco->ijo", windows_of(x, 0.0), w)[None]
    np.testing.assert_allclose(program(x, w), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("channels", [3, 8, 13, 64])
@pytest.mark.parametrize("target", ["cpu", "x86_64"])
def test_padded_pooling_agrees_with_numpy(channels: int, target: str) -> None:
    x = random(1, 9, 9, channels)
    program = nova.translate(POOL.format(c=channels), targets=target).load()
    np.testing.assert_array_equal(program(x), windows_of(x, -np.inf).max((2, 3))[None])
