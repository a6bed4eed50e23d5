"""Functions of jax with symbolic sizes: one program, compared with jax at many sizes."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from test_import_jax import assert_equal, leaves

import nova
from nova import errors
from nova.tools import nova_translate

SIZES = (1, 2, 7, 31, 64, 65)
"""One, odd, prime, and around the borders of tiles."""


def several(x, y):
    masked = jnp.where(jnp.arange(x.shape[0])[:, None] > 1, x, 0)
    return jnp.tanh(x @ y).sum(0), jnp.concatenate([x, x]), x.reshape(-1), jax.nn.softmax(masked)


def rows_after_the_first(x):
    """Sizes n - 1, which are 0 for a single row."""
    rest = x[1:]
    return rest.sum(0), rest * 2, jnp.concatenate([rest, x]), rest @ x.T, jnp.cumsum(x, 0)


def attention(q, k, v):
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[1:])) > 0, scores, -1e9)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), v)


def normalize(x, scale):
    centered = x - x.mean(-1, keepdims=True)
    return centered / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def loops(x):
    total = jax.lax.fori_loop(0, x.shape[0], lambda i, s: s + x[i], jnp.zeros(x.shape[1:]))
    last, states = jax.lax.scan(lambda h, r: (jnp.tanh(h + r), h), jnp.zeros(x.shape[1:]), x)
    grown = jax.lax.while_loop(lambda c: jnp.abs(c).max() < 9, lambda c: c * 2 + 1, x)
    chosen = jax.lax.cond(x.sum() > 0, lambda v: v * 2 + v.shape[0], lambda v: v - 1, x)
    return total, last, states, grown, chosen


def windows(x, w):
    y = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME"))
    return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def positions(x):
    n = x.shape[0]
    reversed_rows = x[jnp.arange(n)[::-1]]
    return (
        jnp.take(x, jnp.array([0, 0, 1]), axis=0),
        reversed_rows,
        x.at[jnp.array([0, 1, 0])].add(1.0),
        jnp.roll(x, 1, 0),
        jnp.argmax(x, 0),
        jnp.eye(n),
        x[: n // 2],
        jnp.pad(x, ((0, n), (1, 1))),
    )


def halves(x):
    return x.reshape(2, -1), x[-2:], x[::2], jnp.flip(x)


def odd_rows(x):
    """Sizes 2*n + 1, and the n of them."""
    return x * 2, x.reshape(-1), x.sum(0), x[1::2] + x[:-1:2]


def joined(x, y, w):
    return jnp.concatenate([x, y, x]), jnp.concatenate([y, x, y, x, y]) @ w


loss_gradient = jax.grad(lambda w, x, y: jnp.mean((jnp.tanh(x @ w) - y) ** 2))

PROGRAMS = {
    "several": (several, ("a, 4", "4, b")),
    "rows": (rows_after_the_first, ("n, 3",)),
    "attention": (attention, ("b, s, 8",) * 3),
    "normalize": (normalize, ("b, s, d", "d")),
    "loops": (loops, ("n, m",)),
    "windows": (windows, ("b, 3, h, w", "5, 3, 3, 3")),
    "positions": (positions, ("n, 5",)),
    "halves": (halves, ("2*n, 3",)),
    "odd": (odd_rows, ("2*n + 1, 3",)),
    "shifted": (lambda x: (x + 1, x[2:].reshape(3, -1)), ("3*n + 2",)),
    "joined": (joined, ("a, 4", "b, 4", "4, c")),
    "gradient": (loss_gradient, ("k, m", "n, k", "n, m")),
    "longer": (lambda x, y: x[: y.shape[0]] + y, ("n", "m")),
}
CONSTRAINTS = {"longer": ("n >= m",), "windows": ("h >= 2", "w >= 2")}
LEAST = {"positions": {"n": 2}, "windows": {"h": 2, "w": 2}}


def types_of(specs, constraints=()):
    scope = export.SymbolicScope(constraints)
    return [
        jax.ShapeDtypeStruct(export.symbolic_shape(spec, scope=scope), jnp.float32)
        for spec in specs
    ]


def symbolic(function, specs, constraints=()) -> str:
    return export.export(jax.jit(function))(*types_of(specs, constraints)).mlir_module()


def combinations(name: str, specs, count: int):
    """Sizes of the names in the specs: each name has each of SIZES, next to others of it."""
    names = sorted(set(re.findall(r"[a-z]+", ",".join(specs))))
    for step in range(count):
        values = {}
        for i, dim in enumerate(names):
            size = SIZES[(step * (1 + 2 * i) + i) % len(SIZES)]
            values[dim] = max(size, LEAST.get(name, {}).get(dim, 1))
        if name == "longer":
            values["n"] = max(values["n"], values["m"])
        yield values


def arrays(specs, values):
    rng = np.random.default_rng(0)
    shapes = [tuple(eval(size, {}, dict(values)) for size in spec.split(",")) for spec in specs]
    return [rng.standard_normal(shape).astype("f4") for shape in shapes]


def check(name: str, model, function, specs, count: int) -> None:
    for values in combinations(name, specs, count):
        arguments = arrays(specs, values)
        results = model(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        assert_equal(results, jax.jit(function)(*arguments), 1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_sizes(name: str) -> None:
    function, specs = PROGRAMS[name]
    translation = nova.translate(symbolic(function, specs, CONSTRAINTS.get(name, ())))
    check(name, translation.load(), function, specs, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_sizes(name: str) -> None:
    function, specs = PROGRAMS[name]
    translation = nova.translate(symbolic(function, specs, CONSTRAINTS.get(name, ())))
    check(name, translation.load(), function, specs, 24)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["several", "normalize", "gradient", "attention"])
def test_one_program_for_a_device(name: str, tmp_path: Path) -> None:
    function, specs = PROGRAMS[name]
    path = tmp_path / "program.nova"
    nova.translate(symbolic(function, specs), targets="cuda:sm_80").save(path)
    check(name, nova.load(path, device="sim"), function, specs, 2)


def test_the_signature_has_the_names_of_jax() -> None:
    text = symbolic(lambda x, y: x + 2 * y, ["n, 4", "n, 4"])
    signature = str(nova.translate(text).load().signature)
    assert "n=1..2147483647" in signature
    assert signature.count("f32[n,4]") == 3


def test_the_tool_writes_one_file(tmp_path: Path) -> None:
    source, target = tmp_path / "several.mlir", tmp_path / "several.nova"
    source.write_text(symbolic(several, ["a, 4", "4, b"]))
    assert nova_translate.main([str(source), "-o", str(target)]) == 0
    check("several", nova.load(target), several, ["a, 4", "4, b"], 2)


def test_dims_of_the_caller_have_names_and_bounds() -> None:
    text = symbolic(lambda x, y: jnp.tanh(x) + y, ["a, 4", "a, 4"])
    rows = nova.dim("rows", min=2, max=64)
    x = nova.TensorType((rows, 4), nova.f32)
    model = nova.translate(text, args=[x, x]).load()
    assert "rows=2..64" in str(model.signature)
    array = np.ones((5, 4), "f4")
    np.testing.assert_allclose(model(array, array), np.tanh(array) + array, rtol=1e-5)
    with pytest.raises(errors.SignatureError, match=r"it must be in 2\.\.64"):
        model(np.ones((65, 4), "f4"), np.ones((65, 4), "f4"))


def test_sizes_that_disagree_name_both_axes() -> None:
    model = nova.translate(symbolic(lambda x, y: x + y, ["n, 4", "n, 4"])).load()
    with pytest.raises(errors.SignatureError, match=r"axis 0 of 'arg1' is 6, and n is 5"):
        model(np.ones((5, 4), "f4"), np.ones((6, 4), "f4"))
    with pytest.raises(errors.SignatureError, match=r"n is 0: it must be in 1\.\."):
        model(np.ones((0, 4), "f4"), np.ones((0, 4), "f4"))


def test_a_call_of_an_odd_size_says_what_the_program_takes() -> None:
    model = nova.translate(symbolic(halves, ["2*n, 3"])).load()
    with pytest.raises(errors.SignatureError, match=r"is 5, which is not .* for any"):
        model(np.ones((5, 3), "f4"))


def test_a_call_of_an_even_size_says_what_the_program_takes() -> None:
    model = nova.translate(symbolic(odd_rows, ["2*n + 1, 3"])).load()
    assert "n*2 + 1" in str(model.signature)
    for size in (0, 1, 6):
        with pytest.raises(errors.SignatureError, match=rf"is {size}"):
            model(np.ones((size, 3), "f4"))


def test_from_jax_takes_symbolic_shapes(tmp_path: Path) -> None:
    def layer(params, x):
        return {"y": jnp.tanh(x @ params["w"])}

    [x] = types_of(["rows, 16"])
    params = {"w": np.full((16, 4), 0.1, np.float32)}
    program = nova.from_jax(layer, params, x)
    assert program.explain() == "one program for all sizes: rows=1..2147483647"
    program.save(tmp_path / "layer.nova")
    model = nova.load(tmp_path / "layer.nova")
    for count in SIZES:
        batch = np.ones((count, 16), np.float32)
        assert_equal(leaves(program(params, batch)), layer(params, batch))
        assert_equal([model(params["w"], batch)], layer(params, batch))


def test_from_jax_compiles_each_size_if_an_op_needs_numbers(tmp_path: Path) -> None:
    [x] = types_of(["n, 3"])
    program = nova.from_jax(lambda x: jnp.sort(x, axis=0), x)
    reason = program.explain()
    assert reason.startswith("compiled for the sizes of each call")
    assert "a sort along an axis of the symbolic size n" in reason
    for count in (5, 1, 5):
        values = np.random.default_rng(1).standard_normal((count, 3)).astype("f4")
        np.testing.assert_array_equal(program(values), np.sort(values, axis=0))
    with pytest.raises(errors.ImportedProgramError, match="no program for all sizes to save"):
        program.save(tmp_path / "sort.nova")


# --- programs in text -----------------------------------------------------------------------------

EQUAL = """func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.add %x, %y : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""


@pytest.mark.parametrize("size", [0, 1, 7, 64])
def test_ops_make_sizes_equal(size: int) -> None:
    model = nova.translate(EQUAL).load()
    x = np.arange(size, dtype="f4")
    np.testing.assert_array_equal(model(x, x), x + x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            """func.func @main(%x: tensor<?xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dynamic_broadcast_in_dim %c, %n, dims = [] :
    (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
""",
            "the shape of stablehlo.dynamic_broadcast_in_dim is computed from data",
        ),
        (
            """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
""",
            "a sort along an axis of the symbolic size arg0_0",
        ),
        (
            """func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<6xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
""",
            r"arg0_0 \+ arg1_0 and 6 must be equal, and no dim is a solution",
        ),
        (
            """func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = tosa.add %x, %y : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
""",
            "tosa.add has no rule for symbolic sizes",
        ),
    ],
)
def test_programs_that_need_numbers(text: str, message: str) -> None:
    with pytest.raises(errors.SymbolicImportError, match=message) as caught:
        nova.translate(text)
    assert caught.value.where and "args=" in str(caught.value)


def test_sizes_of_the_shape_dialect_are_refused() -> None:
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<1xindex> {
  %0 = shape.shape_of %x : tensor<?xf32> -> tensor<1xindex>
  return %0 : tensor<1xindex>
}
"""
    with pytest.raises(errors.UnsupportedOpError, match="shape_of is of a dialect") as caught:
        nova.translate(text)
    assert caught.value.where == "<text>:2:8"
