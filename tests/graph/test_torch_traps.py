"""Calls that mean something else in torch: they do what torch does, warn, or say what to write."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn
from nova.errors import (
    ArgumentTypeError,
    AttributeValueError,
    BroadcastWarning,
    DTypeError,
    GraphError,
    ShapeError,
)

RNG = np.random.default_rng(16)


@pytest.mark.parametrize("name", ["zeros", "ones"])
def test_sizes_are_separate_arguments_or_a_tuple(name: str) -> None:
    ours, theirs = getattr(nova, name), getattr(torch, name)
    for args in [(2, 3), (2,), ((2, 3),), (np.int64(2), 3, 4)]:
        np.testing.assert_array_equal(ours(*args).numpy(), theirs(*args).numpy())
    assert ours(2, 3, dtype="f64").dtype is nova.f64
    assert ours((2, 3), "f64").dtype is nova.f64
    batch = nova.dim("B")
    assert ours(batch, 3).shape == (batch, 3)


@pytest.mark.parametrize("name", ["rand", "randn", "uniform", "normal"])
def test_a_size_is_not_read_as_the_seed(name: str) -> None:
    function = getattr(nova, name)
    for args in [(2, 3), (2, 3, 4), ((2, 3),), ([2, 3],)]:
        with pytest.raises(ArgumentTypeError, match=rf"{name}\(seed, \(2, 3.*\)\)") as caught:
            function(*args)
        assert "test_torch_traps.py" in str(caught.value)
    assert function(2, (2, 3)).shape == (2, 3)
    assert function(2, shape=3).shape == (3,)
    assert function(nova.tensor(2), 3).shape == (3,)
    batch = nova.dim("B")
    assert function(0, batch).shape == (batch,)
    with pytest.raises(ArgumentTypeError, match=rf"hint: write {name}\(0, \(3,\)\) if 0"):
        function(0, 3)
    with pytest.raises(ArgumentTypeError, match=rf"hint: write {name}\(seed, \(B, 3\)\):"):
        function(batch, 3)


CREATED = [
    ("zeros", ((2, 3),), "f4"),
    ("ones", ((2, 3),), "f4"),
    ("full", ((2, 3), 1.5), "f4"),
    ("eye", (3,), "f4"),
    ("linspace", (0, 1, 5), "f4"),
    ("logspace", (0, 1, 5), "f4"),
    ("arange", (3,), "i8"),
]


@pytest.mark.parametrize(("name", "args", "expected"), CREATED)
def test_no_dtype_is_the_default(name: str, args: tuple[Any, ...], expected: str) -> None:
    ours = getattr(nova, name)(*args, dtype=None).numpy()
    assert ours.dtype == expected
    theirs = getattr(torch, name)(*args, dtype=None).numpy()
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_no_dtype_of_random_numbers_and_inputs() -> None:
    assert nova.rand(0, (2,), None).dtype is nova.rand(0, (2,), dtype=None).dtype is nova.f32
    assert nova.zeros((2,), None).dtype is nova.zeros(2, 3, dtype=None).dtype is nova.f32
    assert nova.randint(0, 1, 3, (2,), dtype=None).dtype is nova.i64
    assert nova.one_hot(np.array([1]), 3, dtype=None).dtype is nova.i64
    assert nova.input((2,), None).dtype is nova.f32


LOSSES = [
    ("mse_loss", (4, 1), (4,)),
    ("l1_loss", (4,), (4, 1)),
    ("smooth_l1_loss", (2, 3), (3,)),
    ("huber_loss", (4, 1), (4,)),
]


@pytest.mark.parametrize(("name", "x", "target"), LOSSES)
def test_losses_of_two_shapes_warn(name: str, x: tuple[int, ...], target: tuple[int, ...]) -> None:
    a, b = (RNG.standard_normal(shape).astype("f4") for shape in (x, target))
    with pytest.warns(BroadcastWarning, match=f"{name}|mae_loss") as caught:
        ours = getattr(nova, name)(a, b)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="target size"):
        theirs = getattr(torch.nn.functional, name)(torch.tensor(a), torch.tensor(b))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


def test_losses_of_one_shape_or_a_number_do_not_warn() -> None:
    x = nova.tensor(RNG.standard_normal((4, 1)).astype("f4"), requires_grad=True)
    for name, *_ in LOSSES:
        for target in (x.numpy(), 0.5, np.ones(1, "f4")):
            loss = getattr(nova, name)(x, target)
            nova.backward(loss)
            loss.numpy()


def test_a_line_warns_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            nova.mse_loss(np.ones((3, 1), "f4"), np.ones(3, "f4"))
        nova.mse_loss(np.ones((3, 1), "f4"), np.ones(3, "f4"))
    assert len(caught) == 2


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.ones((3,), "f4"), ShapeError),
        (np.ones((4, 1), "f8"), DTypeError),
        ([[1.0]] * 4, ArgumentTypeError),
    ],
)
def test_new_data_have_the_type_of_the_tensor(array: Any, error: type[Exception]) -> None:
    x = nova.tensor(np.ones((4, 1), "f4"))
    with pytest.raises(error, match="the data of <Tensor") as caught:
        x.data = array
    assert "test_torch_traps.py" in str(caught.value)
    x.data = np.full((4, 1), 3, "f4")
    np.testing.assert_array_equal((x * 2).numpy(), np.full((4, 1), 6, "f4"))


def test_results_have_no_data_to_set() -> None:
    y = nova.tensor(np.ones(2, "f4")) + 1
    with pytest.raises(GraphError, match="a run would compute it again"):
        y.data = np.ones(2, "f4")


@pytest.mark.parametrize(
    "call",
    [
        lambda p: nova.dropout(np.ones(8, "f4"), 3, p),
        lambda p: nn.Dropout(p).eval()(np.ones(8, "f4")),
        lambda p: nova.attention(*[np.ones((2, 4), "f4")] * 3, scale=p),
        lambda p: nova.layer_norm(np.ones((2, 4), "f4"), eps=p),
        lambda p: nova.smooth_l1_loss(np.ones(8, "f4"), np.zeros(8, "f4"), beta=p),
        lambda p: nova.huber_loss(np.ones(8, "f4"), np.zeros(8, "f4"), delta=p),
    ],
)
def test_options_are_numbers_of_python_or_numpy(call: Callable[[Any], Any]) -> None:
    for p in (np.float32(0.5), np.float64(0.5)):
        np.testing.assert_array_equal(call(p).numpy(), call(0.5).numpy())
    for p in ("0.5", True, np.complex64(0.5)):
        with pytest.raises(AttributeValueError):
            call(p)


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0, 2, 3), (0, 0)])
def test_norms_of_matrices_without_elements(shape: tuple[int, ...], order: Any) -> None:
    try:
        expected = torch.linalg.matrix_norm(torch.ones(shape), order)
    except IndexError:  # the smallest of no values
        with pytest.raises(ShapeError, match="no elements"):
            nova.linalg.matrix_norm(np.ones(shape, "f4"), order)
        return
    actual = nova.linalg.matrix_norm(np.ones(shape, "f4"), order)
    np.testing.assert_array_equal(actual.numpy(), expected.numpy())


def test_a_histogram_has_the_range_of_its_data() -> None:
    x = RNG.normal(3, 2, 100).astype("f4")
    counts, edges = nova.histogram(x, 7)
    expected, places = np.histogram(x, 7)
    np.testing.assert_array_equal(counts.numpy(), expected)
    np.testing.assert_allclose(edges.numpy(), places, rtol=1e-6)


@pytest.mark.parametrize("name", ["dropout", "feature_dropout"])
def test_a_dropped_infinity_is_zero(name: str) -> None:
    x = np.where(np.arange(48).reshape(4, 12) % 3, np.inf, -np.inf).astype("f4")
    dropped = np.asarray(nova.jit(lambda x, seed: getattr(nova, name)(x, seed, 0.5))(x, 3))
    kept = np.asarray(
        nova.jit(lambda x, seed: getattr(nova, name)(x, seed, 0.5))(np.ones_like(x), 3)
    )
    assert (kept == 0).any() and (kept == 2).any()
    np.testing.assert_array_equal(dropped, np.where(kept == 0, 0, x))
