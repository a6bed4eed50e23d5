"""`nova.from_jax`: functions of jax with their pytrees, as one call."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_programs import batch, mlp_loss, mlp_params, sgd_step
from test_import_jax import assert_equal, leaves

import nova
from nova import errors


def test_trees_come_and_go(tmp_path: Path) -> None:
    params, (x, y) = mlp_params(), batch()
    step = nova.from_jax(sgd_step, params, x, y)
    loss, updated = step(params, x, y)
    wanted = jax.jit(sgd_step)(params, x, y)
    assert sorted(updated) == sorted(params)
    assert_equal(leaves((loss, updated)), wanted)
    step.save(tmp_path / "step.nova")
    again = nova.load(tmp_path / "step.nova")(*leaves((params, x, y)))
    assert_equal(again, wanted)


def test_gradients_of_jax() -> None:
    params, (x, y) = mlp_params(), batch()
    gradient = jax.grad(mlp_loss)
    assert_equal(
        leaves(nova.from_jax(gradient, params, x, y)(params, x, y)), gradient(params, x, y)
    )


def test_static_arguments_are_fixed_and_unused_ones_stay() -> None:
    function = jax.jit(lambda x, n, unused: x * n, static_argnums=1)
    program = nova.from_jax(function, np.ones(3, "f4"), 3, np.zeros(5))
    np.testing.assert_array_equal(program(np.arange(3, dtype="f4"), np.zeros(5)), [0, 3, 6])


def test_keys_and_numbers() -> None:
    def noisy(key, x, scale):
        return x + scale * jax.random.normal(key, x.shape)

    x, key = np.zeros((4, 2), "f4"), jax.random.key(7)
    program = nova.from_jax(noisy, key, x, 2.0)
    other = jax.random.key(8)
    assert_equal([program(other, x, 0.5)], noisy(other, x, 0.5))


def test_64_bit_arrays_are_those_of_jax() -> None:
    """jax computes in 32 bits unless told otherwise, and so does the program."""
    program = nova.from_jax(jnp.sin, np.ones(3))
    assert_equal([program(np.linspace(0, 1, 3))], jnp.sin(np.linspace(0, 1, 3)))


def test_descriptions_and_keywords() -> None:
    spec = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    program = nova.from_jax(lambda x, *, y: x - y, spec, y=spec)
    x, y = np.ones((2, 3), "f4"), np.full((2, 3), 3, "f4")
    np.testing.assert_array_equal(program(x, y=y), x - y)
    with pytest.raises(errors.ArgumentTypeError, match="compiled for"):
        program(x, y)
    with pytest.raises(errors.ArgumentShapeError, match="compiled for"):
        program(x[:1], y=y)


def test_what_nova_cannot_import_is_an_error_at_the_line() -> None:
    with pytest.raises(errors.UnsupportedOpError, match="lapack_sgeev") as caught:
        nova.from_jax(lambda a: jnp.linalg.eig(a)[0].real, np.ones((3, 3), "f4"))
    assert caught.value.where


def test_an_exported_function_comes_back() -> None:
    exported = jax.export.export(jax.jit(lambda x, y: {"z": jnp.tanh(x) @ y}))(
        jax.ShapeDtypeStruct((2, 3), jnp.float32), jax.ShapeDtypeStruct((3, 4), jnp.float32)
    )
    program = nova.from_jax(jax.export.deserialize(exported.serialize()))
    x, y = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3), np.ones((3, 4), "f4")
    np.testing.assert_allclose(program(x, y)["z"], np.tanh(x) @ y, rtol=1e-5, atol=1e-6)
    [rows] = jax.export.symbolic_shape("rows")
    spec = jax.ShapeDtypeStruct((rows, 3), jnp.float32)
    program = nova.from_jax(jax.export.export(jax.jit(lambda x: x.sum(1)))(spec))
    for count in (1, 4):
        x = np.ones((count, 3), "f4")
        np.testing.assert_allclose(program(x), x.sum(1))
    with pytest.raises(errors.ArgumentTypeError, match="has the types of its arguments"):
        nova.from_jax(exported, x)
    with pytest.raises(errors.ArgumentTypeError, match="not a int"):
        nova.from_jax(3)  # type: ignore[arg-type]


def test_callbacks_of_the_host_are_refused() -> None:
    def printing(x):
        jax.debug.print("x is {}", x)
        return x * 2

    with pytest.raises(errors.ImportedProgramError, match="jax does not export printing") as caught:
        nova.from_jax(printing, np.ones(3, "f4"))
    assert "leave them out" in str(caught.value)


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(errors.MissingPackageError, match=r"from_jax needs jax"):
        nova.from_jax(np.sin, np.ones(3))
