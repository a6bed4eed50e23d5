"""`nova.vmap`: every row of the table batched, by the interpreter; functions against jax.vmap."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from op_cases import Built, build, domains
from op_samples import SAMPLES

import nova
from nova import nn
from nova.core.dtypes import dtype
from nova.errors import ArgumentCountError, AxisError, ShapeError
from nova.graph.batching import _RULES, batched_graph
from nova.graph.interpret import evaluate
from nova.graph.tensor import placeholder
from nova.ops import OPS

SIZE = 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3))
W = RNG.standard_normal((3, 5))
# Their rows create tensors, or order the steps of a program.
WITHOUT_OPERANDS = {"arange", "full", "extent", "barrier"}


def examples(array: np.ndarray, domain: str) -> np.ndarray:
    """SIZE different arrays of a domain."""
    if domain == "sorted":
        return np.stack([array * (i + 1) for i in range(SIZE)]).astype(array.dtype)
    if domain == "seed":
        return np.stack([array + i for i in range(SIZE)])
    return np.stack([np.roll(array.ravel(), i).reshape(array.shape) for i in range(SIZE)])


def subsets(count: int) -> list[tuple[bool, ...]]:
    """All operands, and each one alone."""
    alone = [tuple(i == j for j in range(count)) for i in range(count)]
    return [(True,) * count, *(alone if count > 1 else [])]


def check(built: Built, flags: tuple[bool, ...]) -> None:
    kinds = domains(built.name, built.case)
    batch, feed, rows = {}, {}, []
    for tensor, array, kind, flag in zip(built.inputs, built.arrays, kinds, flags, strict=True):
        stacked = examples(array, kind) if flag else array
        own = placeholder(stacked.shape, dtype(stacked.dtype)) if flag else tensor
        feed[own] = stacked
        if flag:
            batch[id(tensor)] = own
        rows.append((tensor, stacked, flag))
    outputs = [o for o in built.outputs if o.op is not None]
    actual = evaluate(batched_graph(outputs, batch, SIZE), feed)
    for i in range(SIZE):
        expected = evaluate(outputs, {t: a[i] if flag else a for t, a, flag in rows})
        for whole, one in zip(actual, expected, strict=True):
            assert whole[i].shape == one.shape, f"{built.title} {flags}"
            a, b = whole[i].astype("f8"), one.astype("f8")
            # NumPy adds the terms of one row and of many in other orders, and terms may cancel.
            largest = np.abs(b[np.isfinite(b)]).max(initial=1.0)
            close = np.allclose(a, b, rtol=1e-5, atol=1e-6 * largest, equal_nan=True)
            assert close, f"{built.title} {flags}"


@pytest.mark.parametrize("name", [n for n in SAMPLES if n not in WITHOUT_OPERANDS])
def test_every_row(name: str) -> None:
    sample = SAMPLES[name]
    for case in sample.cases[:2]:
        if case.operands:
            built = build(name, case, sample.usual)
            for flags in subsets(len(case.operands)):
                check(built, flags)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SAMPLES if n not in WITHOUT_OPERANDS])
def test_every_case(name: str) -> None:
    for case in SAMPLES[name].cases:
        if case.operands:
            for flags in subsets(len(case.operands)):
                check(build(name, case, SAMPLES[name].usual), flags)


def test_rules_are_of_rows_that_exist() -> None:
    assert _RULES.keys() <= OPS.keys()
    assert not any("elementwise" in OPS[name].tags for name in _RULES)


def loss(x: Any, w: Any) -> Any:
    return nova.tanh(x @ w).sum()


def jax_loss(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w).sum()


@pytest.fixture(autouse=True)
def in_f64() -> Any:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


PAIRS: dict[str, tuple[Any, Any, tuple[np.ndarray, ...]]] = {
    "shared weights": (nova.vmap(loss, (0, None)), jax.vmap(jax_loss, (0, None)), (X, W)),
    "gradients of examples": (
        nova.vmap(nova.grad(loss, 1), (0, None)),
        jax.vmap(jax.grad(jax_loss, 1), (0, None)),
        (X, W),
    ),
    "gradient of a batch": (
        nova.grad(lambda w: nova.vmap(loss, (0, None))(X, w).sum()),
        jax.grad(lambda w: jax.vmap(jax_loss, (0, None))(X, w).sum()),
        (W,),
    ),
    "other axes": (
        nova.vmap(lambda x, y: (x * y, x.sum()), (1, -1), (1, 0)),
        jax.vmap(lambda x, y: (x * y, x.sum()), (1, -1), (1, 0)),
        (X, X + 1),
    ),
    "nested": (
        nova.vmap(nova.vmap(lambda x, y: nova.dot(x, y), (None, 0)), (0, None)),
        jax.vmap(jax.vmap(jnp.dot, (None, 0)), (0, None)),
        (X, X * 2),
    ),
    "indexing": (
        nova.vmap(lambda x, i: nova.take(x, i, axis=0) * x[0]),
        jax.vmap(lambda x, i: jnp.take(x, i, axis=0) * x[0]),
        (X, np.array([[0, 1], [2, 2], [1, 0], [2, 1]])),
    ),
    "sorting": (
        nova.vmap(lambda x: nova.sort(x)[0][::-1] + nova.softmax(x)),
        jax.vmap(lambda x: jnp.sort(x)[::-1] + jax.nn.softmax(x)),
        (X,),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_functions_as_jax(name: str) -> None:
    ours, theirs, arrays = PAIRS[name]
    expected = jax.tree.leaves(theirs(*arrays))
    results = nova.jit(ours)(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    for actual, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, want, rtol=1e-12, atol=1e-14)


def test_modules_and_pytrees() -> None:
    """An ensemble: one network, a batch of weights; and convolutions of single images."""
    layer = nn.Conv2d(2, 3, 3, padding=1)
    images = RNG.standard_normal((4, 2, 6, 5)).astype("f4")
    single = nova.vmap(lambda image: layer(image[None])[0])
    np.testing.assert_allclose(single(images).numpy(), layer(images).numpy(), rtol=1e-4, atol=1e-5)
    weights = {"w": RNG.standard_normal((6, 3, 2)), "b": RNG.standard_normal((6, 2))}
    ensemble = nova.vmap(lambda p, x: {"y": x @ p["w"] + p["b"]}, (0, None))
    expected = X @ weights["w"] + weights["b"][:, None]
    np.testing.assert_allclose(ensemble(weights, X)["y"].numpy(), expected, rtol=1e-12)
    by_keyword = nova.vmap(lambda x, *, y: x + y)
    np.testing.assert_allclose(by_keyword(X, y=X).numpy(), X + X)


def test_an_index_out_of_range_stays_in_its_example() -> None:
    rows = np.arange(20.0).reshape(4, 5)
    taken = nova.vmap(lambda a, i: nova.take(a, i, axis=0))(rows, np.array([0, -1, 7, 3]))
    np.testing.assert_array_equal(taken.numpy(), [0, 9, 14, 18])


def test_jitted_functions_stay_jitted() -> None:
    batched = nova.vmap(nova.jit(loss), (0, None))
    assert batched.cache_info().misses == 0
    np.testing.assert_allclose(batched(X, W), jax.vmap(jax_loss, (0, None))(X, W), rtol=1e-12)
    assert batched.cache_info().misses == 1


def test_an_empty_batch_and_results_that_do_not_depend_on_it() -> None:
    assert nova.vmap(lambda x: nova.sort(x)[0])(X[:0]).numpy().shape == (0, 3)
    same = nova.vmap(lambda x: nova.tensor(W))(X).numpy()
    np.testing.assert_array_equal(same, np.broadcast_to(W, (4, 3, 5)))


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: nova.vmap(loss)(X, W), ShapeError, "4 examples and 'x1' has 3"),
        (lambda: nova.vmap(loss, (0,))(X, W), ArgumentCountError, "in_axes has 1 items for 2"),
        (lambda: nova.vmap(loss, (2, None))(X, W), AxisError, "has no axis 2"),
        (lambda: nova.vmap(loss, None)(X, W), AxisError, "no argument a batch axis"),
        (lambda: nova.vmap(loss, (0, None), (0, 0))(X, W), AxisError, "out_axes"),
        (lambda: nova.vmap(lambda x: x + 1)(2.0), AxisError, "in_axes=None shares"),
    ],
)
def test_mistakes(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        use()
    assert __file__ in caught.value.where  # type: ignore[attr-defined]
