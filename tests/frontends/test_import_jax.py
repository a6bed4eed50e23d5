"""Programs that jax exports, translated and compared with what jax computes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax_programs import MODELS, PROGRAMS, batch, mlp_params, sgd_step
from jaxlib.mlir.dialects import stablehlo

import nova
from nova.tools import nova_translate


def exported(function, arguments):
    return export.export(jax.jit(function))(*arguments)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def run(translation, arguments):
    results = translation.load()(*leaves(arguments))
    return results if isinstance(results, tuple) else (results,)


def assert_equal(results, wanted, tolerance=2e-5):
    wanted = leaves(wanted)
    assert len(results) == len(wanted)
    for actual, want in zip(results, wanted, strict=True):
        assert (actual.shape, actual.dtype) == (want.shape, want.dtype)
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(actual, want)
        else:
            rough = 2e-2 if want.dtype.itemsize == 2 else tolerance
            np.testing.assert_allclose(
                np.asarray(actual, "f8"), np.asarray(want, "f8"), rtol=rough, atol=rough
            )


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    function, arguments = PROGRAMS[name]
    translation = nova.translate(exported(function, arguments).mlir_module())
    # Sums of many terms: jax itself differs this much from f64.
    tolerance = 2e-4 if name in ("attention_grad", "conv_grad", "large_state") else 2e-5
    assert_equal(run(translation, arguments), jax.jit(function)(*arguments), tolerance)
    assert "stablehlo" not in translation.stages["linalg"]


def test_training_step_through_the_tool(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The portable artifact of a training step becomes a file, which trains as jax does."""
    params, (x, y) = mlp_params(), batch()
    source, target = tmp_path / "step.mlirbc", tmp_path / "step.nova"
    source.write_bytes(exported(sgd_step, (params, x, y)).mlir_module_serialized)
    assert nova_translate.main([str(source), "--target", "cpu", "-o", str(target)]) == 0
    assert capfd.readouterr() == ("", "")
    from nova.artifact.format import load_artifact
    from nova.runtime.executor import Executable

    step = Executable(load_artifact(target)).program
    local, reference = leaves(params), params
    losses = []
    for _ in range(20):
        loss, *local = step(*local, x, y)
        theirs_loss, reference = jax.jit(sgd_step)(reference, x, y)
        np.testing.assert_allclose(loss, theirs_loss, rtol=1e-4)
        losses.append(float(loss))
    assert losses[-1] < 0.7 * losses[0], "it learns"
    assert_equal(local, reference, 1e-4)


@pytest.mark.parametrize("version", ["0.9.0", "0.19.0", "1.0.0", "1.9.0", None])
def test_portable_artifacts_of_every_age(version: str | None) -> None:
    """From the oldest version of VHLO that StableHLO promises to read to the newest one."""
    function, arguments = MODELS["attention"]
    newest = stablehlo.get_current_version()
    artifact = stablehlo.serialize_portable_artifact_str(
        exported(function, arguments).mlir_module(), version or newest
    )
    expected = jax.jit(function)(*arguments)
    assert_equal(run(nova.translate(artifact), arguments), expected, 2e-5)


@pytest.mark.parametrize("name", ["sgd", "attention"])
def test_bytecode_gives_the_same_file_as_text(name: str) -> None:
    function, arguments = MODELS[name]
    module = exported(function, arguments)
    from_text = nova.translate(module.mlir_module())
    from_bytes = nova.translate(module.mlir_module_serialized)
    assert from_bytes.stages["linalg"] == from_text.stages["linalg"]
    assert from_bytes.stages["ll"] == from_text.stages["ll"]


def test_names_are_those_of_jax() -> None:
    params, (x, y) = mlp_params(), batch()
    translation = nova.translate(exported(sgd_step, (params, x, y)).mlir_module(), emit="linalg")
    names = [spec.name for spec in translation.signature.args]
    assert names == [f"params['{n}']" for n in sorted(params)] + ["x", "y"]
    assert [spec.name for spec in translation.signature.outputs][:2] == [
        "result[0]",
        "result[1]['b1']",
    ]
    assert "nova.name = \"params['b1']\"" in translation.data.decode()


def test_donated_arguments_are_updated_in_place() -> None:
    params, (x, y) = mlp_params(), batch()
    donating = jax.jit(sgd_step, donate_argnums=0)
    module = export.export(donating)(params, x, y).mlir_module()
    assert "tf.aliasing_output" in module
    translation = nova.translate(module)
    assert [s.alias for s in translation.signature.outputs] == [-1, 0, 1, 2, 3, 4, 5]
    expected = leaves(jax.jit(sgd_step)(params, x, y))
    arrays = [a.copy() for a in leaves(params)]
    loss, *updated = translation.load()(*arrays, x, y)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-5)
    for inputs, result, want in zip(arrays, updated, expected[1:], strict=True):
        assert result is inputs
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_start_of_a_loop_is_not_changed() -> None:
    """What a loop carries is written in place: not into the caller's arrays."""
    function, arguments = PROGRAMS["large_state"]
    before = arguments[0].copy()
    run(nova.translate(exported(function, arguments).mlir_module()), arguments)
    np.testing.assert_array_equal(arguments[0], before)


def test_constants_and_zeros_have_no_kernels() -> None:
    """Broadcast constants that layers share, and the zeros of matmuls with a batch of one."""

    def norm(x: Any, scale: Any) -> Any:
        variance = jnp.square(x).mean(-1, keepdims=True)
        return x * jax.lax.rsqrt(variance + 1e-5) * scale

    def layers(x: Any, weight: Any, bias: Any, scale: Any) -> Any:
        for _ in range(2):
            heads = (norm(x, scale) @ weight + bias).reshape(1, 64, 4, 32).transpose(0, 2, 1, 3)
            scores = jnp.einsum("bhqd,bhkd->bhqk", heads, heads)
            mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), heads)
            x = x + mixed.transpose(0, 2, 1, 3).reshape(x.shape)
        return x

    rng = np.random.default_rng(0)
    shapes = ((1, 64, 128), (128, 128), (128,), (128,))
    arguments = [(0.1 * rng.standard_normal(shape)).astype("f4") for shape in shapes]
    translation = nova.translate(exported(layers, arguments).mlir_module())
    assert "call @kernel_" in translation.stages["kernels"]
    assert not re.search(r"call @kernel_\d+\(\)", translation.stages["kernels"])
    assert_equal(run(translation, arguments), jax.jit(layers)(*arguments))
