"""Gradients at the points where formulas break: kinks, ties, zeros, saturation, masked rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf
from op_reference import check
from op_samples import SAMPLES

import nova
from nova.core.dtypes import f64
from nova.graph.autodiff import gradients
from nova.graph.tensor import placeholder
from nova.ops import OPS

CLOSE = (1e-10, 1e-12)
POINTS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -3.0, 19.0, 21.0, -40.0, 88.0, 1e4, -1e4])
UNARY = [
    n
    for n, row in OPS.items()
    if "elementwise" in row.tags and row.vjp is not None and row.operands == ("x",) and n != "cast"
]
ATTRS = {"clamp": {"min": -1, "max": 1}}


def slopes(function: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The compiled gradients of the sum of function(*arrays)."""
    inputs = [placeholder(a.shape, f64) for a in arrays]
    grads = gradients(nova.sum(function(*inputs)), inputs)
    results = nova.compile(grads, inputs=inputs).run(list(arrays))
    return list(results) if isinstance(results, tuple) else [results]


def torch_slopes(function: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    result = torch.autograd.grad(function(*leaves).sum(), leaves, allow_unused=True)
    return [
        np.zeros(a.shape) if g is None else g.numpy() for a, g in zip(arrays, result, strict=True)
    ]


def agree(
    computed: Any, peer: Any, *arrays: np.ndarray, close: tuple[float, float] = CLOSE
) -> None:
    expected = torch_slopes(peer, *arrays)
    for i, (actual, want) in enumerate(zip(slopes(computed, *arrays), expected, strict=True)):
        check(actual, want, f"gradient of operand {i}", tolerance=close)


@pytest.mark.parametrize("name", [n for n in UNARY if n != "detach"])
def test_unary_at_difficult_points(name: str) -> None:
    attrs = ATTRS.get(name, {})
    peer = SAMPLES[name].torch
    assert peer is not None
    expected = torch_slopes(lambda x: peer(x, **attrs), POINTS)[0]
    actual = slopes(lambda x: getattr(nova, name)(x, **attrs), POINTS)[0]
    defined = np.isfinite(peer(torch.from_numpy(POINTS), **attrs).numpy())
    check(actual[defined], expected[defined], f"gradient of {name}", tolerance=CLOSE)


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_equal_operands_share_the_gradient(name: str) -> None:
    x = np.array([1.0, 2.0, 3.0, 0.0])
    y = np.array([1.0, 3.0, 2.0, -0.0])
    agree(getattr(nova, name), getattr(torch, name), x, y)


@pytest.mark.parametrize("name", ["min", "max"])
def test_ties_share_the_gradient(name: str) -> None:
    x = np.array([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    peer = torch.amax if name == "max" else torch.amin
    agree(lambda t: getattr(nova, name)(t, axis=1), lambda t: peer(t, 1), x)


def test_product_with_zeros() -> None:
    rows = np.array([[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    agree(lambda t: nova.prod(t, axis=1), lambda t: t.prod(1), rows)


def test_power_at_zero() -> None:
    x = np.array([0.0, 0.0, 0.0, 2.0, -2.0])
    y = np.array([2.0, 1.0, 0.0, 0.0, 3.0])
    actual = slopes(nova.pow, x, y)
    assert np.array_equal(actual[0], [0.0, 1.0, 0.0, 0.0, 12.0])
    assert np.array_equal(actual[1][:3], [0.0, 0.0, 0.0])


def test_deviation_of_equal_elements() -> None:
    actual = slopes(lambda t: nova.std(t, axis=1), np.full((2, 5), 3.0))
    assert np.array_equal(actual[0], np.zeros((2, 5)))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_extreme_scores(name: str) -> None:
    x = np.array([[1e4, 0.0, -1e4], [-np.inf, 0.0, 1.0], [5.0, 5.0, 5.0]])
    actual, peer = getattr(nova, name), getattr(torch, name)
    w = np.array([[0.3, 0.5, 0.2], [0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    if name == "logsumexp":
        agree(lambda t: actual(t, axis=1), lambda t: peer(t, 1), x)
    else:
        retained = np.where(np.isfinite(x), x, -50.0)
        agree(
            lambda t: actual(t, axis=1) * nova.tensor(w),
            lambda t: peer(t, 1) * torch.from_numpy(w),
            retained,
        )


def test_rows_that_see_nothing() -> None:
    """Attention with a fully masked row: zeros, and no NaN in the gradients of the others."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((3, 4)) for _ in range(3))
    mask = np.array([[True, False, True], [False, False, False], [True, True, True]])

    def actual(q: Any, k: Any, v: Any) -> Any:
        return nova.scaled_dot_product_attention(q, k, v, nova.tensor(mask))

    inputs = [placeholder(a.shape, f64) for a in (q, k, v)]
    value = nova.compile(actual(*inputs), inputs=inputs).run([q, k, v])
    assert np.array_equal(value[1], np.zeros(4))
    for slope in slopes(actual, q, k, v):
        assert np.isfinite(slope).all()


def test_mean_over_ignored_targets_is_nan() -> None:
    x = np.zeros((2, 3))
    target = np.array([-100, -100])
    p = placeholder((2, 3), f64)
    loss = nova.cross_entropy(p, nova.tensor(target))
    actual = nova.compile(loss, inputs=[p]).run([x])
    assert np.isnan(actual) and torch.isnan(
        tf.cross_entropy(torch.zeros(2, 3), torch.tensor(target))
    )


def test_certain_and_wrong_costs_a_hundred() -> None:
    x, target = np.array([0.0, 1.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0, 1.0])
    p = placeholder((4,), f64)
    loss = nova.bce_loss(p, nova.tensor(target), reduction="none")
    assert np.array_equal(nova.compile(loss, inputs=[p]).run([x]), [100.0, 100.0, 0.0, 0.0])
    agree(
        lambda t: nova.bce_loss(t, nova.tensor(target), reduction="none"),
        lambda t: tf.binary_cross_entropy(t, torch.from_numpy(target), reduction="none"),
        x,
        close=(1e-8, 1e-12),  # torch's 1e-12 is an f32 number
    )


def test_indices_out_of_range_are_clamped_and_equal_ones_add() -> None:
    x = placeholder((3,), f64)
    where = np.array([-100, -3, -1, 2, 50, 0, 0])
    picked = nova.take(x, nova.tensor(where))
    grad = gradients(nova.sum(picked), [x])[0]
    actual, slope = nova.compile([picked, grad], inputs=[x]).run([np.array([1.0, 2.0, 3.0])])
    assert np.array_equal(actual, [1, 1, 3, 3, 3, 1, 1])
    assert np.array_equal(slope, [4, 0, 3])


@pytest.mark.parametrize(
    ("name", "kinks"),
    [
        ("relu", (0.0,)),
        ("relu6", (0.0, 6.0)),
        ("hardtanh", (-1.0, 1.0)),
        ("hardsigmoid", (-3.0, 3.0)),
        ("hardswish", (-3.0, 3.0)),
        ("clamp", (-1.0, 1.0)),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_kinks_of_limited_functions(name: str, kinks: tuple[float, ...], dtype: str) -> None:
    """At each kink, at its neighbors, and on both sides; `clamp` passes the gradient there."""
    attrs = {"min": -1.0, "max": 1.0} if name == "clamp" else {}
    points = np.array(kinks, dtype)
    below, above = (np.nextafter(points, points.dtype.type(end)) for end in (-99, 99))
    x = np.concatenate([points, below, above, points - 1, points + 1])
    leaf = torch.tensor(x, requires_grad=True)
    getattr(torch if name == "clamp" else tf, name)(leaf, **attrs).sum().backward()
    assert leaf.grad is not None
    grad = nova.grad(lambda v: nova.sum(getattr(nova, name)(v, **attrs)))(x)
    # torch's hardsigmoid multiplies by 1/6 of f32 precision.
    np.testing.assert_allclose(np.asarray(grad), leaf.grad.numpy(), rtol=1e-6, atol=0)


def test_hardtanh_with_other_bounds() -> None:
    x = np.array([-0.5, 0.25, 0.0, -1.0, 1.0])
    agree(lambda v: nova.hardtanh(v, -0.5, 0.25), lambda v: tf.hardtanh(v, -0.5, 0.25), x)


def test_relu_passes_gradients_at_nan() -> None:
    agree(nova.relu, torch.relu, np.array([np.nan, 0.0, -1.0, 2.0, np.inf, -np.inf]))
