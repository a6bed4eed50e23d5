"""Complex functions on the axes and branch cuts, powers, selections: values and gradients."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
import torch

import nova
from nova import errors

AXES = np.array([4 + 0j, -4 + 0j, 3j, -3j, 2.5 + 0j, complex(-2.0, -0.0), complex(-0.0, 1.5)])
ROOTS = ("sqrt", "rsqrt", "asin", "acos", "asinh", "acosh")


def scaled(name: str, factor: float) -> np.ndarray:
    """A function of torch along the axes: zeros keep their signs, so points stay on their side."""
    x = torch.complex(torch.tensor(AXES.real * factor), torch.tensor(AXES.imag * factor))
    result: np.ndarray = getattr(torch, name)(x).numpy()
    return result


@pytest.mark.parametrize("name", ROOTS)
def test_values_and_gradients_on_the_axes(name: str) -> None:
    weight = np.exp(1j * np.arange(AXES.size))

    def loss(z: nova.Tensor) -> nova.Tensor:
        return nova.real(getattr(nova, name)(z) * weight).sum()

    x = nova.tensor(AXES, dtype="complex128")
    np.testing.assert_allclose(getattr(nova, name)(x).numpy(), scaled(name, 1.0), rtol=1e-12)
    # torch's gradients of asin and asinh have the sign of the other side of a cut.
    step = 1e-5
    slope = (scaled(name, 1 + step) - scaled(name, 1 - step)) / (2 * step * AXES)
    gradient = nova.grad(loss)(x).numpy()
    np.testing.assert_allclose(gradient, np.conj(slope * weight), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["sqrt", "rsqrt"])
def test_gradients_of_roots_are_those_of_torch(name: str) -> None:
    x = torch.tensor(AXES, requires_grad=True)
    getattr(torch, name)(x).imag.sum().backward()
    gradient = nova.grad(lambda z: nova.imag(getattr(nova, name)(z)).sum())(
        nova.tensor(AXES, dtype="complex128")
    )
    assert x.grad is not None
    np.testing.assert_allclose(gradient.numpy(), x.grad.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["asin", "acos", "asinh"])
def test_branch_cuts_far_from_zero(name: str) -> None:
    sizes = (1e4, -1e4, 1e6, -300.0)
    cuts = [complex(s, z) for s in sizes for z in (0.0, -0.0)]
    cuts += [complex(z, s) for s in sizes for z in (0.0, -0.0)]
    x = np.array(cuts, np.complex64)
    expected = getattr(torch, name)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(getattr(nova, name)(x).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_powers_are_computed_in_the_promoted_type() -> None:
    z = np.array([1.3 - 0.7j, -2.1 + 0.4j, 0.3 + 3j])
    narrow = np.array([1.7, 0.3, 2.9], np.float32)
    pairs = [
        (z.astype(np.complex64), np.array([11.3, 7.7, -9.1])),
        (narrow, z),
        (z, narrow),
        (z.astype(np.complex64), z),
    ]
    for base, exponent in pairs:
        actual = nova.pow(
            nova.tensor(base, dtype=base.dtype), nova.tensor(exponent, dtype=exponent.dtype)
        )
        expected = torch.pow(torch.tensor(base), torch.tensor(exponent))
        assert str(actual.dtype) == "complex128"
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-12)
    wide = nova.tensor(z, dtype="complex128")
    np.testing.assert_allclose(nova.pow(2.3, wide).numpy(), 2.3**z, rtol=1e-12)
    np.testing.assert_allclose((wide ** (0.3 - 2j)).numpy(), z ** (0.3 - 2j), rtol=1e-12)


@pytest.mark.parametrize("exponent", [nan, inf])
def test_powers_of_no_number(exponent: float) -> None:
    z = np.array([1 + 1j], np.complex64)
    expected = torch.pow(torch.tensor(z), exponent).numpy()
    np.testing.assert_array_equal(
        np.isnan((nova.tensor(z) ** exponent).numpy()), np.isnan(expected)
    )


def test_nan_to_num_of_each_part() -> None:
    x = np.array([complex(nan, 1), complex(inf, -inf), complex(2, nan)], np.complex64)
    np.testing.assert_array_equal(nova.nan_to_num(x).numpy(), np.nan_to_num(x))
    actual = nova.nan_to_num(x, nan=3.0, posinf=7.0, neginf=-5.0).numpy()
    np.testing.assert_array_equal(actual, np.nan_to_num(x, nan=3.0, posinf=7.0, neginf=-5.0))


def test_a_condition_is_not_complex() -> None:
    x = np.array([1j, 0], np.complex64)
    for choices in ((1.0, 2.0), (x, x)):
        with pytest.raises(errors.DTypeError, match="condition is complex") as caught:
            nova.where(x, *choices)
        assert "test_axes.py" in str(caught.value)
