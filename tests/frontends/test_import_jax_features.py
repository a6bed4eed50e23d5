"""Features of StableHLO that jax programs use, translated and compared with what jax computes."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_features import FEATURES, ON_DEVICE
from test_import_jax import assert_equal, exported, leaves, run

import nova


@pytest.mark.parametrize("name", FEATURES)
def test_feature(name: str) -> None:
    function, arguments = FEATURES[name]
    with jax.enable_x64(True):
        text = exported(function, arguments).mlir_module()
        expected = leaves(jax.jit(function)(*arguments))
    assert_equal(run(nova.translate(text), arguments), expected)


@pytest.mark.parametrize("name", ON_DEVICE)
def test_feature_on_a_device(name: str, tmp_path: Path) -> None:
    function, arguments = FEATURES[name]
    with jax.enable_x64(True):
        text = exported(function, arguments).mlir_module()
        expected = leaves(jax.jit(function)(*arguments))
    nova.translate(text, targets="cuda:sm_80").save(tmp_path / "program.nova")
    results = nova.load(tmp_path / "program.nova", device="sim")(*leaves(arguments))
    assert_equal(results if isinstance(results, tuple) else (results,), expected)


@pytest.mark.parametrize("name", ["scan_1d", "scan_unsigned"])
def test_scans_are_linear(name: str) -> None:
    """Every scan is a loop that is as long as its axis, and none is a reduction of windows."""
    function, arguments = FEATURES[name]
    with jax.enable_x64(True):
        text = exported(function, arguments).mlir_module()
    stage = nova.translate(text, emit="linalg").data.decode()
    assert text.count('"stablehlo.reduce_window"') == stage.count("scf.for ") > 1
    assert "reduction" not in stage


ADD = """func.func @main(%x: tensor<3xTYPE>, %y: tensor<TYPE>) -> tensor<3xTYPE> {
  %0 = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<TYPE>) -> tensor<3xTYPE>
  %1 = stablehlo.add %x, %0 : tensor<3xTYPE>
  return %1 : tensor<3xTYPE>
}
"""
TYPES = {"i16": "int16", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64"}


@pytest.mark.parametrize("element", TYPES)
def test_arrays_and_files_have_the_type(element: str, tmp_path: Path) -> None:
    """Signature, file, Python numbers, arrays of other libraries and of devices."""
    torch = pytest.importorskip("torch")
    dtype = np.dtype(TYPES[element])
    high = np.iinfo(dtype).max
    program = nova.translate(ADD.replace("TYPE", element), targets=["cpu", "cuda:sm_80"])
    program.save(tmp_path / "add.nova")
    loaded = nova.load(tmp_path / "add.nova")
    name = element.replace("ui", "u")
    assert [spec.dtype for spec in loaded.signature.inputs] == [name, name]
    x = np.array([0, 1, high - 5], dtype)
    expected = x + dtype.type(5)
    for value in (x, torch.from_numpy(x)):
        result = loaded(value, 5)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)
    with pytest.raises(nova.errors.ArgumentDTypeError, match=f"compiled for {name}"):
        loaded(x.astype("f4"), 5)
    with pytest.raises(nova.errors.NovaError, match=name):
        loaded(x, high + 1)
    on_device = nova.to_device(x, "sim")
    assert on_device.dtype == dtype
    result = nova.load(tmp_path / "add.nova", device="sim")(on_device, np.asarray(5, dtype))
    np.testing.assert_array_equal(np.asarray(result.numpy()), expected)
    again = nova.translate(program.stages["linalg"], start_from="linalg").load()
    np.testing.assert_array_equal(again(x, 5), expected)


@pytest.mark.parametrize(("window", "stride"), [(2, 2), (3, 2), (3, 1)])
def test_the_gradient_of_max_pooling_goes_to_the_first_of_equal_elements(
    window: int, stride: int
) -> None:
    def pooled(x: jax.Array) -> jax.Array:
        windows, strides = (1, window, window, 1), (1, stride, stride, 1)
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, windows, strides, "VALID").sum()

    gradient = jax.grad(pooled)
    ties = np.random.default_rng(0).integers(0, 2, (2, 6, 6, 1)).astype("f4")
    for x in (np.ones_like(ties), ties):
        assert_equal((nova.from_jax(gradient, x)(x),), (jax.jit(gradient)(x),))


def test_the_angle_of_constant_zeros() -> None:
    """By the signs of the zeros, as in C99; as ops of jax and of Nova."""
    signs = [(y, x) for y in (0.0, -0.0) for x in (0.0, -0.0)]

    def angles(a: jax.Array) -> tuple[jax.Array, ...]:
        return *(jnp.arctan2(jnp.full(3, y), jnp.full(3, x)) for y, x in signs), a

    a = np.ones(3, "f4")
    x = nova.input((3,), name="x")
    of_nova = [nova.atan2(nova.full((3,), y), nova.full((3,), n)) for y, n in signs]
    for results in (nova.from_jax(angles, a)(a), nova.compile([*of_nova, x], inputs=[x])(a)):
        for result, (y, n) in zip(results, signs, strict=False):
            expected = np.full(3, np.arctan2(np.float32(y), np.float32(n)))
            np.testing.assert_array_equal(result, expected)
            np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
