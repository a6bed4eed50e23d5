"""Calls in torch's own form: its order of arguments, its keywords, its meaning of operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import ArgumentTypeError, AttributeValueError, AxisError
from nova.graph.autodiff import gradients

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("f4")
BITS = np.array([[0, 1, 2, 7], [-1, 12, -8, 5]])


CALLS: tuple[Callable[..., Any], ...] = (
    lambda lib, x: lib.transpose(x, 0, 2),
    # One window that does not cover the axis.
    lambda lib, x: (lib if lib is nova else torch.nn.functional).avg_pool1d(x, 3, stride=3),
    lambda lib, x: x.transpose(-1, -2),
    lambda lib, x: lib.roll(x, 5),
    lambda lib, x: lib.roll(x, (1, -2), (0, 2)),
    lambda lib, x: lib.flatten(x, start_dim=1),
    lambda lib, x: lib.diagonal(x, 1, dim1=1, dim2=2),
    lambda lib, x: lib.diagonal(x, -1, dim1=2, dim2=0),
    lambda lib, x: lib.diag_embed(x, 1, dim1=0, dim2=-2),
    lambda lib, x: lib.abs(lib.fft.fft(x, dim=1)),
    lambda lib, x: lib.abs(lib.fft.fft2(x, dim=(0, 1))),
    lambda lib, x: lib.linalg.norm(x),
    lambda lib, x: lib.linalg.norm(x[0], 1, keepdim=True),
    lambda lib, x: lib.linalg.norm(x, "fro", dim=(2, 0)),
    lambda lib, x: lib.linalg.norm(x, 3, dim=1),
    lambda lib, x: lib.linalg.vector_norm(x, 1, dim=(0, 1), keepdim=True),
    lambda lib, x: lib.linalg.norm(x[0, 0] * 0, -3.5),
)


def test_values_and_gradients() -> None:
    t, x = torch.tensor(X, requires_grad=True), nova.tensor(X, name="X")
    rng = np.random.default_rng(1)
    expected, results = [], []
    for call in CALLS:
        correct, result = call(torch, t), call(nova, x)
        weight = rng.standard_normal(tuple(correct.shape)).astype("f4")
        slope = torch.autograd.grad((correct * torch.tensor(weight)).sum(), t)[0]
        expected += [correct.detach().numpy(), slope.numpy()]
        results += [result, *gradients(nova.sum(result * nova.tensor(weight)), [x])]
    values = nova.compile(results, inputs=[x]).run([X])
    for i, (actual, correct) in enumerate(zip(values, expected, strict=True)):
        np.testing.assert_allclose(actual, correct, rtol=1e-5, atol=1e-5, err_msg=f"call {i // 2}")


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_operators_on_integers_are_bitwise(name: str) -> None:
    """They were logical, which torch and numpy do not do."""
    function = getattr(operator, name)
    t = torch.tensor(BITS)
    for operand, torch_operand in ((nova.tensor(BITS), t), (nova.tensor(BITS > 0), t > 0)):
        for y in (3, True, BITS[0], BITS[0] > 1):
            correct = function(
                torch_operand, torch.tensor(y) if isinstance(y, np.ndarray) else y
            ).numpy()
            actual = function(operand, y).numpy()
            assert actual.dtype == correct.dtype and np.array_equal(actual, correct), y
    np.testing.assert_array_equal(function(6, nova.tensor(BITS)).numpy(), function(6, BITS))


def test_invert() -> None:
    np.testing.assert_array_equal((~nova.tensor(BITS)).numpy(), ~BITS)
    np.testing.assert_array_equal((~nova.tensor(BITS > 0)).numpy(), BITS <= 0)
    half = nova.tensor(np.array([0.0, 1.5], "f4"))
    np.testing.assert_array_equal((~half).numpy(), [True, False])
    np.testing.assert_array_equal((half & True).numpy(), [False, True])


def test_circular_padding_after_elements_are_removed() -> None:
    x = np.arange(12.0, dtype="f4").reshape(1, 3, 4)
    for widths in ((-1, 1), (2, -1), (-1, 2, 1, -1)):
        correct = torch.nn.functional.pad(torch.tensor(x), widths, "circular")
        actual = nova.pad_edges(x, widths, mode="circular").numpy()
        np.testing.assert_array_equal(actual, correct)


def test_parts_of_a_complex_number_without_axes() -> None:
    z = nova.tensor(np.array(1 - 2j, "c8"))
    assert (nova.real(z).numpy(), nova.imag(z).numpy()) == (1.0, -2.0)


def test_derivatives_at_equal_singular_values() -> None:
    """The derivative of an SVD divides by gaps of singular values; those of these do not."""
    a = np.eye(3, dtype="f8")[:, :2] * 2
    for call in (
        lambda lib, x: lib.linalg.pinv(x)[0, 0],
        lambda lib, x: lib.linalg.matrix_norm(x, "nuc"),
        lambda lib, x: lib.linalg.svdvals(x).sum(),
    ):
        t = torch.tensor(a, requires_grad=True)
        (expected,) = torch.autograd.grad(call(torch, t), t)
        actual = nova.grad(lambda x, call=call: call(nova, x))(a)
        np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_calls_that_do_not_fit() -> None:
    x = nova.tensor(X)
    with pytest.raises(AttributeValueError, match="2 shifts for 1 axes"):
        nova.roll(x, (1, 2), 0)
    for wrong in (lambda: nova.diagonal(x, 0, 1, -2), lambda: nova.diag_embed(x, 0, 1, 1)):
        with pytest.raises(AxisError, match="are the same"):
            wrong()
    with pytest.raises(AxisError, match="a norm of matrices has two"):
        nova.linalg.norm(x, 1)
    with pytest.raises(AxisError, match="are the same"):
        nova.linalg.norm(x, 1, axis=(1, 1))
    with pytest.raises(ArgumentTypeError, match="path is a str") as caught:
        nova.trace(x)
    assert "nova.matrix_trace" in str(caught.value)
