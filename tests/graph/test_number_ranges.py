"""Numbers and shapes beyond what types hold; gradients at infinities and NaN."""

import numpy as np
import pytest

import nova
from nova.errors import AttributeValueError, DTypeError, ShapeError

U8 = np.array([1, 200], "u1")


@pytest.mark.parametrize(
    "build",
    [
        lambda: nova.tensor(U8) + 300,
        lambda: nova.tensor(U8) < 300,
        lambda: nova.tensor(U8) * -1,
        lambda: nova.tensor(np.arange(3)) + 2**70,
        lambda: nova.tensor(np.ones(3, "f4")) + 10**400,
        lambda: nova.full((2,), 300, dtype="u8"),
        lambda: nova.full((2,), 2**63),
        lambda: nova.full((2,), 10**400, dtype="f32"),
        lambda: nova.pad(nova.tensor(U8), 1, value=-1),
        lambda: nova.arange(2**63 - 3, 2**63),
        lambda: nova.arange(2**64, 2**64 + 3),
    ],
)
def test_an_integer_that_the_type_cannot_hold(build):
    with pytest.raises(DTypeError) as caught:
        build()
    assert __file__ in caught.value.where


def test_a_float_beyond_the_range_is_infinite():
    # With warnings as errors, numpy's warning about the overflow would be raised here.
    x = nova.tensor(np.array([1, -1], "f4"))
    np.testing.assert_array_equal((x * 1e300).numpy(), [np.inf, -np.inf])
    np.testing.assert_array_equal(nova.full((1,), 1e6, dtype="f16").numpy(), [np.inf])


def test_numpy_numbers_as_values():
    np.testing.assert_array_equal(nova.full((2,), np.float32(3), dtype="i32").numpy(), [3, 3])
    half = nova.bf16.numpy.type(1.5)
    np.testing.assert_array_equal(nova.full((2,), half, dtype="bf16").numpy(), [half, half])


@pytest.mark.parametrize(
    "build",
    [
        lambda: nova.full((2**62, 4), 1),
        lambda: nova.full((2**62, 0, 4), 1),
        lambda: nova.eye(2**40),
        lambda: nova.full((2**40, 1), 1.0) @ nova.full((1, 2**40), 1.0),
    ],
)
def test_a_shape_beyond_memory(build):
    with pytest.raises(ShapeError) as caught:
        build()
    assert __file__ in caught.value.where


def test_an_attribute_beyond_64_bits():
    with pytest.raises(AttributeValueError, match="not a 64-bit integer"):
        nova.tril(nova.tensor(np.ones((3, 3), "f4")), 2**70).numpy()


def test_gradient_of_logsumexp_at_nan_and_infinities():
    inf, nan = np.inf, np.nan
    x = np.array([[nan, 1, 2], [inf, 1, 2], [-inf, 1, 1], [-inf] * 3], "f4")
    gradient = nova.grad(lambda a: nova.logsumexp(a, 1).sum())(nova.tensor(x)).numpy()
    # As torch has it; of a row of nothing but -inf torch gives NaN, Nova 0.
    expected = [[nan] * 3, [nan, 0, 0], [0, 0.5, 0.5], [0, 0, 0]]
    np.testing.assert_allclose(gradient, np.array(expected, "f4"), rtol=1e-6)
