"""Functions beyond their tables of cases: ranges, special values, symbolic sizes, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import AttributeValueError, DTypeError, NovaError, ShapeError, SymbolicSizeError

X = np.linspace(-1, 1, 12).reshape(3, 4)


def test_special_functions_over_their_ranges() -> None:
    """Relative accuracy where values are tiny or huge, and at infinities and NaN."""
    x = np.concatenate([np.linspace(-40, 40, 401), [0.0, -0.0, 1e-300, 600.0, np.inf, np.nan]])
    p = np.concatenate([np.logspace(-300, -1, 60), np.linspace(0.1, 0.9, 9), [0.0, 1.0, 1.5]])
    q = np.concatenate([np.linspace(-7.3, 30, 97), [1e-3, 1e4]])
    names = ("i0", "i0e", "i1", "i1e", "erfcx", "ndtr", "log_ndtr", "entr")

    @nova.jit
    def run(x: Any, p: Any, q: Any) -> Any:
        values = [getattr(nova, name)(x) for name in names]
        orders = [nova.polygamma(n, q) for n in (1, 2, 3)]
        return values, nova.ndtri(p), nova.zeta(1.5, nova.abs(q)), orders

    values, inverse, zeta, orders = run(x, p, q)
    t = torch.tensor(x)
    for name, value in zip(names, values, strict=True):
        want = getattr(torch.special, name)(t).numpy()
        # torch's ndtr has no relative accuracy in the tail.
        atol = 1e-16 if name == "ndtr" else 1e-300
        np.testing.assert_allclose(value, want, rtol=4e-13, atol=atol, err_msg=name)
    # torch's own inverse is rounded less carefully in the tail.
    np.testing.assert_allclose(inverse, torch.special.ndtri(torch.tensor(p)), rtol=1e-12)
    other = torch.tensor(q)
    wide = torch.full_like(other, 1.5)
    np.testing.assert_allclose(zeta, torch.special.zeta(wide, other.abs()), rtol=1e-13)
    for n, value in enumerate(orders, 1):
        want = torch.polygamma(n, other)
        # torch's derivative of order 1 is a short series.
        np.testing.assert_allclose(value, want, rtol=2e-6 if n == 1 else 1e-11)


def test_remainders_and_bits_of_special_numbers() -> None:
    x = np.array([5.5, -5.5, np.inf, 3.0, -0.0, 1e308, 5e-324, -2.0, np.nan])
    y = np.array([2.0, 2.0, 2.0, np.inf, 1.0, 3.0, 1.0, 0.0, 1.0])

    @nova.jit
    def run(x: Any, y: Any) -> Any:
        return (
            nova.fmod(x, y),
            nova.frexp(x),
            nova.nextafter(x, y),
            nova.fmax(x, y),
            nova.ldexp(x, np.array([1, -1, 0, 1, 2, -2000, 2000, 3, 1])),
        )

    remainder, (mantissa, exponent), after, largest, scaled = run(x, y)
    t, u = torch.tensor(x), torch.tensor(y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(remainder, torch.fmod(t, u))
        finite = np.isfinite(x)
        np.testing.assert_array_equal(mantissa, torch.frexp(t)[0])
        np.testing.assert_array_equal(exponent[finite], torch.frexp(t)[1].numpy()[finite])
        np.testing.assert_array_equal(after, torch.nextafter(t, u))
        np.testing.assert_array_equal(largest, torch.fmax(t, u))
        np.testing.assert_array_equal(
            scaled[[0, 1, 3, 5, 6]],
            np.ldexp(x, [1, -1, 0, 1, 2, -2000, 2000, 3, 1])[[0, 1, 3, 5, 6]],
        )


@pytest.mark.parametrize("type_", ["i32", "i64", "u8"])
def test_integers(type_: str) -> None:
    rng = np.random.default_rng(1)
    spec = nova.core.dtypes.dtype(type_).numpy
    x, y = (rng.integers(0 if type_ == "u8" else -99, 100, (50,)).astype(spec) for _ in range(2))
    x[:3], y[:3] = (0, 12, 0), (0, 0, 7)
    divisor, multiple, remainder = nova.jit(
        lambda x, y: (nova.gcd(x, y), nova.lcm(x, y), nova.fmod(x, nova.maximum(y, 1)))
    )(x, y)
    np.testing.assert_array_equal(divisor, np.gcd(x, y))
    np.testing.assert_array_equal(multiple, np.lcm(x, y))
    np.testing.assert_array_equal(remainder, np.fmod(x, np.maximum(y, 1)))
    assert divisor.dtype == spec


def test_clamp_takes_tensors_as_bounds() -> None:
    low, high = X[0] * 0.5 - 0.2, np.float64(0.4)

    def loss(x: Any, low: Any) -> Any:
        return (x.clamp(min=low, max=high) ** 2).sum()

    value, (dx, dlow) = nova.jit(nova.value_and_grad(loss, (0, 1)))(X, low)
    t, u = (torch.tensor(a, requires_grad=True) for a in (X, low))
    expected = (t.clamp(min=u, max=torch.tensor(0.4, dtype=torch.float64)) ** 2).sum()
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-12)
    np.testing.assert_allclose(dx, t.grad, rtol=1e-12)
    np.testing.assert_allclose(dlow, u.grad, rtol=1e-12)


SYMBOLIC: dict[str, Callable[[Any], Any]] = {
    "fmod": lambda x: nova.fmod(x, 0.3),
    "nanmean": lambda x: nova.nanmean(x, 0),
    "i0": nova.i0,
    "ndtr": nova.ndtr,
    "polygamma": lambda x: nova.polygamma(1, x + 2.0),
    "cumulative_trapezoid": lambda x: nova.cumulative_trapezoid(x, axis=1),
    "take_along_dim": lambda x: nova.take_along_dim(x, nova.argmax(x, axis=1, keepdims=True), 1),
    "select_scatter": lambda x: nova.select_scatter(x, x[:, 0], 1, 2),
    "renorm": lambda x: nova.renorm(x, 2.0, 0, 0.5),
    "embedding_bag": lambda x: nova.embedding_bag(nova.cast(x > 0, dtype="i64"), X[:2]),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    function = SYMBOLIC[name]
    program = nova.compile(function(x := nova.input((nova.dim("N"), 4), "f64")), inputs=[x])
    for rows in (1, 3):
        np.testing.assert_allclose(
            program.run([X[:rows]]), nova.jit(function)(X[:rows]), rtol=1e-12, atol=1e-12
        )


ERRORS: list[tuple[Callable[[], Any], type[NovaError], str]] = [
    (lambda: nova.fmod(X > 0, X > 0), DTypeError, "fmod of bool"),
    (lambda: nova.gcd(X, X), DTypeError, "gcd of f64"),
    (lambda: nova.fmax(X + 1j, X), DTypeError, "no order"),
    (lambda: nova.frexp(nova.cast(X, dtype="f8e5m2")), DTypeError, "frexp of f8e5m2"),
    (lambda: nova.polygamma(-1, X), AttributeValueError, "polygamma"),
    (lambda: nova.mvlgamma(X, 0), AttributeValueError, "mvlgamma"),
    (lambda: nova.block_diag(X[None]), ShapeError, "block_diag"),
    (lambda: nova.combinations(X), ShapeError, "combinations"),
    (lambda: nova.tensor_split(X, 0), AttributeValueError, "tensor_split"),
    (lambda: nova.hsplit(X, 3), ShapeError, "hsplit"),
    (lambda: nova.split_with_sizes(X, (1, 1)), ShapeError, "split_with_sizes"),
    (lambda: nova.sum_to_size(X, 2, 4), ShapeError, "sum_to_size|broadcast"),
    (lambda: nova.select_scatter(X, X, 0, 1), ShapeError, "select_scatter"),
    (lambda: nova.slice_scatter(X, X, 0, 0, 2), ShapeError, "slice_scatter"),
    (lambda: nova.masked_scatter(X, X, X), DTypeError, "masked_scatter"),
    (lambda: nova.index_reduce(X, 0, [0], X[:1], "sum"), AttributeValueError, "index_reduce"),
    (lambda: nova.nanquantile(X, 2.0), AttributeValueError, "nanquantile"),
    (lambda: nova.mode(np.zeros((3, 0))), ShapeError, "mode"),
    (lambda: nova.gradient(X[:1], axis=0), ShapeError, "gradient"),
    (lambda: nova.renorm(X, 0.0, 0, 1.0), AttributeValueError, "renorm"),
    (lambda: nova.hann_window(-1), AttributeValueError, "hann_window"),
    (lambda: nova.embedding_bag([0, 1], X), ShapeError, "without offsets"),
    (lambda: nova.embedding_bag([[0, 1]], X, mode="prod"), AttributeValueError, "mode"),
    (
        lambda: nova.embedding_bag([[0, 1]], X, per_sample_weights=[[1.0, 2.0]]),
        AttributeValueError,
        "per_sample_weights",
    ),
    (lambda: nova.fractional_max_pool2d(X[None], 2, 2), AttributeValueError, "seed"),
    (lambda: nova.fractional_max_pool2d(X[None], 3, 3, seed=0), ShapeError, "windows of 3"),
    (
        lambda: nova.tensor_split(nova.input((nova.dim("N"),), "f32"), 2),
        SymbolicSizeError,
        "tensor_split",
    ),
]


@pytest.mark.parametrize(("call", "error", "says"), ERRORS)
def test_errors_name_the_function_and_the_line(
    call: Callable[[], Any], error: type[NovaError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        call()
    assert "test_added_functions.py" in str(caught.value)


def test_the_last_offset_ends_the_last_bag() -> None:
    torch = pytest.importorskip("torch")
    index, offsets = [1, 0, 2, 1, 1, 0, 2, 2], [0, 3, 6]
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = nova.embedding_bag(index, weight, offsets, mode="sum", include_last_offset=True)
    expected = torch.nn.functional.embedding_bag(
        *(torch.tensor(a) for a in (index, weight, offsets)), mode="sum", include_last_offset=True
    )
    np.testing.assert_array_equal(np.asarray(result.numpy()), expected.numpy())
