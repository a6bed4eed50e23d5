"""Programs of jax, StableHLO and torch with 8-bit floats and quantized numbers, against them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines torch.ops.quantized_decomposed

import nova
from nova.errors import ImportedProgramError, NovaError

RANDOM = np.random.default_rng(11)
A = RANDOM.standard_normal((8, 16)).astype(np.float32)
E4M3 = A.astype(ml_dtypes.float8_e4m3fn)
E5M2 = RANDOM.standard_normal((16, 12)).astype(ml_dtypes.float8_e5m2)

JAX: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "convert": (lambda x: (x * 300).astype(jnp.float8_e4m3fn), (A,)),
    "widen": (lambda x: x.astype(jnp.float32), (E4M3,)),
    "dot": (lambda x, y: jax.lax.dot(x, y, preferred_element_type=jnp.float32), (E4M3, E5M2)),
    "dot_in_f8": (lambda x: jnp.dot(x, x.T), (E4M3,)),
    "add": (lambda x: x + x, (E4M3,)),
    "max": (lambda x: jnp.max(x, axis=1), (E4M3,)),
    "constant": (lambda x: x * E4M3.astype(jnp.float32), (A,)),
    "bitcast": (lambda x: jax.lax.bitcast_convert_type(x, jnp.uint8), (E4M3,)),
    "rows": (lambda x: x[jnp.array([1, 3, 2])], (E4M3,)),
}


@pytest.mark.parametrize("name", JAX)
def test_programs_of_jax(name: str) -> None:
    function, arrays = JAX[name]
    actual = np.asarray(nova.from_jax(function, *arrays)(*arrays))
    expected = np.asarray(function(*arrays))
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(
        actual.astype(np.float32), expected.astype(np.float32), rtol=1e-6, atol=1e-6
    )


def test_other_8_bit_floats_are_refused() -> None:
    with pytest.raises(ImportedProgramError, match="the type f8E4M3FNUZ"):
        nova.from_jax(lambda x: x.astype(jnp.float8_e4m3fnuz).astype(jnp.float32), A)


_QUANTIZED = """
func.func @main(%x: tensor<4x5xf32>, %w: tensor<5x3x!quant.uniform<i8:f32, 0.03>>)
    -> tensor<4x3xf32> {
  %0 = stablehlo.uniform_quantize %x
      : (tensor<4x5xf32>) -> tensor<4x5x!quant.uniform<i8:f32, 0.05:3>>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0]
      : (tensor<4x5x!quant.uniform<i8:f32, 0.05:3>>, tensor<5x3x!quant.uniform<i8:f32, 0.03>>)
      -> tensor<4x3x!quant.uniform<i32:f32, 0.0015>>
  %2 = stablehlo.uniform_dequantize %1
      : (tensor<4x3x!quant.uniform<i32:f32, 0.0015>>) -> tensor<4x3xf32>
  return %2 : tensor<4x3xf32>
}
"""
_PER_AXIS = """
func.func @main(%w: tensor<2x3x!quant.uniform<i8:f32:1, {0.5:1, 0.25:-2, 2.0:0}>>)
    -> tensor<2x3xf32> {
  %0 = stablehlo.uniform_dequantize %w
      : (tensor<2x3x!quant.uniform<i8:f32:1, {0.5:1, 0.25:-2, 2.0:0}>>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""
_FOUR_BITS = """
func.func @main(%w: tensor<2x3x!quant.uniform<i4:f32, 0.5>>) -> tensor<2x3xf32> {
  %0 = stablehlo.uniform_dequantize %w
      : (tensor<2x3x!quant.uniform<i4:f32, 0.5>>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""


def test_quantized_programs_of_stablehlo() -> None:
    x = RANDOM.standard_normal((4, 5)).astype(np.float32)
    w = RANDOM.integers(-128, 128, (5, 3)).astype(np.int8)
    codes = np.clip(np.rint(x / np.float32(0.05)) + 3, -128, 127)
    expected = ((codes - 3) @ w.astype(np.float32)) * np.float32(0.0015)
    np.testing.assert_allclose(nova.translate(_QUANTIZED).load()(x, w), expected, rtol=1e-5)


def test_quantized_numbers_per_axis() -> None:
    w = np.array([[1, 2, 3], [-4, -5, 127]], np.int8)
    expected = (w - np.array([1, -2, 0], np.float32)) * np.array([0.5, 0.25, 2.0], np.float32)
    np.testing.assert_array_equal(nova.translate(_PER_AXIS).load()(w), expected)


def test_quantized_numbers_of_4_bits_are_refused() -> None:
    with pytest.raises(NovaError, match="the type i4"):
        nova.translate(_FOUR_BITS)


# --- torch --------------------------------------------------------------------------------------

Q = torch.ops.quantized_decomposed


class Scaled(torch.nn.Module):
    def __init__(self, result: torch.dtype):
        super().__init__()
        self.result = result

    def forward(self, a: Any, b: Any, s: Any, t: Any) -> Any:
        return torch._scaled_mm(a, b.t(), scale_a=s, scale_b=t, out_dtype=self.result)


class Casts(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.to(torch.float8_e4m3fn), x.to(torch.float8_e5m2).float(), x.half() + 1


class Quantized(torch.nn.Module):
    """A linear layer as PT2E quantization exports it."""

    def __init__(self) -> None:
        super().__init__()
        # No product is halfway between two codes, where rounding errors decide: fixed weights.
        seed = torch.Generator().manual_seed(0)
        weight = torch.randint(-128, 127, (8, 16), dtype=torch.int8, generator=seed)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", torch.rand(8, generator=seed) * 0.1 + 0.01)
        self.register_buffer("points", torch.randint(-3, 3, (8,), generator=seed))

    def forward(self, x: Any) -> Any:
        codes = Q.quantize_per_tensor(x, 0.0503, 3, -128, 127, torch.int8)
        numbers = Q.dequantize_per_tensor(codes, 0.0503, 3, -128, 127, torch.int8)
        channel = (self.scales, self.points, 0, -128, 127, torch.int8)
        weight = Q.dequantize_per_channel(self.weight, *channel)
        product = torch.nn.functional.linear(numbers, weight)
        return product, Q.quantize_per_channel(product.T, *channel)


class Bits(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.view(torch.int32) + 1, (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32)


class Integers(torch.nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return torch._int_mm(a, b)


def _operands(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape).to(torch.float8_e4m3fn) for shape in shapes]


TORCH = {
    "scaled": (Scaled(torch.bfloat16), lambda: (*_operands((32, 64), (48, 64)), *torch.rand(2))),
    "scaled_f8": (
        Scaled(torch.float8_e4m3fn),
        lambda: (*_operands((32, 64), (48, 64)), *torch.rand(2)),
    ),
    "casts": (Casts(), lambda: (torch.tensor([0.3, 500, -1e9, torch.inf, -torch.inf, 1e-9]),)),
    "bits": (Bits(), lambda: (torch.randn(5, 3),)),
    "quantized": (Quantized(), lambda: (torch.randn(4, 16),)),
    "integers": (
        Integers(),
        lambda: tuple(
            torch.randint(-128, 127, shape, dtype=torch.int8) for shape in ((32, 64), (64, 16))
        ),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_modules_of_torch(name: str) -> None:
    torch.manual_seed(1)
    module, draw = TORCH[name]
    arguments = draw()
    expected = module(*arguments)
    actual = nova.from_torch(module, *arguments)(*arguments)
    if not isinstance(expected, tuple):
        expected, actual = (expected,), (actual,)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype is theirs.dtype
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=1e-5, atol=1e-5)
