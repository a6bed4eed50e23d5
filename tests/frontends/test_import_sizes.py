"""Programs with `?` sizes, compiled for the sizes of example arguments."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from test_import_jax import assert_equal, run

import nova
from nova import errors
from nova.tools import nova_translate


def several(x, y):
    masked = jnp.where(jnp.arange(x.shape[0])[:, None] > 1, x, 0)
    return jnp.tanh(x @ y).sum(0), jnp.concatenate([x, x]), x.reshape(-1), jax.nn.softmax(masked)


def symbolic(function, *specs: str) -> str:
    scope = export.SymbolicScope()
    types = [
        jax.ShapeDtypeStruct(export.symbolic_shape(spec, scope=scope), jnp.float32)
        for spec in specs
    ]
    return export.export(jax.jit(function))(*types).mlir_module()


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype("f4") for shape in shapes]


@pytest.mark.parametrize(("a", "b"), [(3, 5), (1, 1), (16, 2)])
def test_one_program_for_several_sizes(a: int, b: int) -> None:
    text = symbolic(several, "a, 4", "4, b")
    arguments = arrays((a, 4), (4, b))
    assert_equal(run(nova.translate(text, args=arguments), arguments), several(*arguments))


def test_descriptions_of_arguments_are_enough() -> None:
    text = symbolic(several, "a, 4", "4, b")
    specs = [jax.ShapeDtypeStruct((2, 4), "float32"), nova.TensorType((4, 3), nova.f32)]
    translation = nova.translate(text, args=specs, emit="linalg")
    assert [spec.shape for spec in translation.signature.args] == [(2, 4), (4, 3)]


def test_loops_of_unknown_sizes() -> None:
    def scan(x):
        return jax.lax.fori_loop(0, x.shape[0], lambda i, s: s + x[i], jnp.zeros(x.shape[1:]))

    arguments = [jnp.asarray(a) for a in arrays((20, 3))]
    assert_equal(
        run(nova.translate(symbolic(scan, "n, 3"), args=arguments), arguments), scan(*arguments)
    )


def test_the_tool_takes_shapes(tmp_path: Path) -> None:
    source, target = tmp_path / "several.mlir", tmp_path / "several.nova"
    source.write_text(symbolic(several, "a, 4", "4, b"))
    words = [str(source), "--shape", "3x4", "--shape", "4x5", "-o", str(target)]
    assert nova_translate.main(words) == 0
    arguments = arrays((3, 4), (4, 5))
    assert_equal(nova.load(target)(*arguments), several(*arguments))


X, Y = arrays((3, 4), (4, 5))


@pytest.mark.parametrize(
    ("error", "args", "message"),
    [
        (errors.ArgumentCountError, [X], "1 example arguments given, the program has 2"),
        (errors.ArgumentShapeError, [Y, X], r"example argument 0 has shape \(4, 5\)"),
        (errors.ArgumentShapeError, [X[0], Y], r"example argument 0 has shape \(4,\)"),
        (errors.ArgumentDTypeError, [X.astype("f8"), Y], "example argument 0 is of f64"),
        (errors.ArgumentShapeError, [X[:0], Y], "does not hold: Input shapes do not match"),
        (errors.OptionTypeError, [X, "y"], "an example argument is 'y', of type str"),
    ],
)
def test_wrong_examples(error, args, message: str) -> None:
    text = symbolic(several, "a, 4", "4, b")
    with pytest.raises(errors.NovaError, match=f"(?s){message}") as caught:
        nova.translate(text, args=args, emit="linalg")
    assert type(caught.value) is error
    assert caught.value.where


def test_sizes_that_a_run_computes_are_refused() -> None:
    """A size that is no function of the arguments' sizes stays unknown."""
    text = """func.func @main(%x: tensor<?xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dynamic_broadcast_in_dim %c, %n, dims = [] :
    (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
    with pytest.raises(errors.ImportedProgramError, match="size that is not known"):
        nova.translate(text, args=[np.zeros(3, "f4"), np.ones(1, "i4")])
