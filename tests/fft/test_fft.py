"""`nova.fft` against numpy in f64, and its gradients against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import errors
from nova.graph.interpret import evaluate

RNG = np.random.default_rng(5)
LENGTHS = (1, 2, 3, 5, 8, 63, 64, 65, 66, 96, 100, 101, 127, 128, 131, 139, 262, 360, 1000, 1024)
"""Direct, split, split with an odd part, primes by matrix and by Bluestein, even and odd."""


def reals(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def numbers(*shape: int) -> np.ndarray:
    return np.asarray(reals(*shape) + 1j * reals(*shape))


def slowly(*values: Any) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def all_transforms(z: Any, x: Any, half: Any, n: int) -> Any:
    f = nova.fft
    return f.fft(z), f.ifft(z), f.fft(x), f.rfft(x), f.irfft(half, n)


def compare_all(results: Any, z: np.ndarray, x: np.ndarray, half: np.ndarray, n: int) -> None:
    f = np.fft
    expected = (f.fft(z), f.ifft(z), f.fft(x), f.rfft(x), f.irfft(half, n))
    for result, want in zip(results, expected, strict=True):
        assert result.dtype == want.dtype
        np.testing.assert_allclose(result, want, rtol=0, atol=1e-13 * n * max(1, abs(want).max()))


@pytest.mark.parametrize("n", LENGTHS)
def test_every_length_is_numpy_s(n: int) -> None:
    z, x, half = numbers(2, n), reals(2, n), numbers(2, n // 2 + 1)
    tensors = all_transforms(nova.tensor(z), nova.tensor(x), nova.tensor(half), n)
    compare_all(evaluate(tensors), z, x, half, n)


@pytest.mark.parametrize("n", [68, *slowly(64, 96, 101, 139, 1000, 1024, 4096)])
def test_compiled_transforms_are_numpy_s(n: int) -> None:
    z, x, half = numbers(2, n), reals(2, n), numbers(2, n // 2 + 1)
    results = nova.jit(lambda *args: all_transforms(*args, n))(z, x, half)
    compare_all(results, z, x, half, n)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_kernels_of_every_radix(dtype: str) -> None:
    """Rows of all radices, real rows, and columns that are not whole vectors, in one program."""
    lengths = (8, 12, 22, 26, 30, 49, 120, 256)
    rows = [numbers(3, n).astype(dtype) for n in lengths]
    planes = [numbers(2, n, m).astype(dtype) for n, m in ((12, 7), (2, 33), (35, 16))]
    cuts = [z.real.copy() for z in rows]

    @nova.jit
    def run(rows: Any, planes: Any, cuts: Any) -> Any:
        f = nova.fft
        return (
            [f.ifft(f.fft(z)) for z in rows],
            [f.fft(z) for z in rows],
            [f.fft(z, axis=1) for z in planes],
            [f.rfft(x) for x in cuts],
            [f.irfft(f.rfft(x), x.shape[-1]) for x in cuts],
        )

    f = np.fft
    wide, reals64 = [z.astype("c16") for z in rows], [x.astype("f8") for x in cuts]
    plane_terms = [f.fft(z.astype("c16"), axis=1) for z in planes]
    terms, halves = [f.fft(z) for z in wide], [f.rfft(x) for x in reals64]
    expected = (wide, terms, plane_terms, halves, reals64)
    tolerance = 1e-6 if dtype == "c8" else 1e-14
    for results, wants in zip(run(rows, planes, cuts), expected, strict=True):
        for result, want in zip(results, wants, strict=True):
            assert abs(result - want).max() <= tolerance * abs(want).max(), want.shape


@pytest.mark.parametrize("target", ["x86_64", "x86_64-v3"])
def test_kernels_of_other_vectors(target: str) -> None:
    z = numbers(2, 240)
    function = nova.jit(lambda z: (nova.fft.fft(z), nova.fft.irfft(z, 478)), target=target)
    terms, elements = function(z)
    np.testing.assert_allclose(terms, np.fft.fft(z), rtol=0, atol=1e-12)
    np.testing.assert_allclose(elements, np.fft.irfft(z, 478), rtol=0, atol=1e-12)


def test_long_transforms_are_rows_and_columns() -> None:
    z = numbers(2, 10_000)
    program = nova.jit(nova.fft.ifft)
    np.testing.assert_allclose(program(z), np.fft.ifft(z), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [66, 139])
def test_expanded_transforms(n: int) -> None:
    """A symbolic batch has no kernels: matmuls, and Bluestein's algorithm."""
    batch = nova.dim("B")
    z = nova.input((batch, n), "complex128", name="z")
    x = nova.input((batch, n), "f64", name="x")
    half = nova.input((batch, n // 2 + 1), "complex128", name="half")
    program = nova.compile(list(all_transforms(z, x, half, n)), inputs=[z, x, half])
    arrays = numbers(3, n), reals(3, n), numbers(3, n // 2 + 1)
    compare_all(program(*arrays), *arrays, n)


@pytest.mark.parametrize("n", [128, *slowly(60, 1024, 1009)])
def test_error_in_f32_is_that_of_rounding(n: int) -> None:
    z = numbers(4, n).astype("c8")
    want = np.fft.fft(z.astype("c16"))
    error = abs(nova.fft.fft(z).numpy() - want).max() / abs(want).max()
    assert error < 2e-6
    error = abs(nova.fft.rfft(z.real).numpy() - np.fft.rfft(z.real.astype("f8"))).max()
    assert error / abs(want).max() < 2e-6


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_norms_axes_and_sizes(norm: str | None) -> None:
    z, x = numbers(6, 5, 4), reals(6, 5, 4)
    cases = (
        ("fft", z, {"axis": 0, "n": 8}),
        ("ifft", z, {"axis": 1, "n": 3}),
        ("rfft", x, {"axis": 1}),
        ("irfft", z, {"axis": 0}),
        ("irfft", z, {"axis": 0, "n": 7}),
        ("hfft", z, {"axis": 2}),
        ("ihfft", x, {"axis": 1, "n": 4}),
        ("fft2", z, {}),
        ("ifft2", z, {"axes": (0, 1), "s": (4, 7)}),
        ("fftn", z, {"axes": (2, 0)}),
        ("ifftn", z, {}),
        ("rfftn", x, {}),
        ("rfft2", x, {"axes": (2, 0)}),
        ("irfftn", z, {"s": (6, 5, 7), "axes": (0, 1, 2)}),
        ("irfft2", z, {}),
    )

    tensors = [
        getattr(nova.fft, name)(operand, norm=norm, **options) for name, operand, options in cases
    ]
    for result, (name, operand, options) in zip(evaluate(tensors), cases, strict=True):
        want = getattr(np.fft, name)(operand, norm=norm, **options)
        np.testing.assert_allclose(result, want, rtol=1e-10, atol=1e-10, err_msg=name)


GRADIENTS = (("fft", 66, None), ("ifft", 101, "ortho"), ("rfft", 66, None), ("rfft", 9, None))


@pytest.mark.parametrize(
    ("name", "n", "norm"), [*GRADIENTS, ("irfft", 67, None), ("irfft", 68, None)]
)
def test_gradients_are_torch_s(name: str, n: int, norm: str | None) -> None:
    x = reals(2, n) if name == "rfft" else numbers(2, n // 2 + 1 if name == "irfft" else n)
    options = {"n": n} if name == "irfft" else {}
    reference = torch.tensor(x, requires_grad=True)
    want = getattr(torch.fft, name)(reference, norm=norm, **options)
    weight = reals(*want.shape)
    (abs(want) * torch.tensor(weight)).sum().backward()

    def loss(x: Any) -> Any:
        value = getattr(nova.fft, name)(x, norm=norm, **options)
        return (nova.abs(value) * weight).sum()

    assert reference.grad is not None
    gradient = nova.jit(nova.grad(loss))(x)
    np.testing.assert_allclose(gradient, reference.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_types_and_helpers() -> None:
    assert nova.fft.fft(np.arange(4)).dtype is nova.complex64
    assert nova.fft.rfft(np.ones(4, "f2")).dtype is nova.complex64
    assert nova.fft.irfft(np.ones(3, "c16")).dtype is nova.f64
    for n in (5, 6):
        np.testing.assert_allclose(
            nova.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6
        )
        np.testing.assert_allclose(nova.fft.rfftfreq(n).numpy(), np.fft.rfftfreq(n), rtol=1e-6)
        x = reals(n, 4)
        assert np.array_equal(nova.fft.fftshift(x).numpy(), np.fft.fftshift(x))
        assert np.array_equal(nova.fft.ifftshift(x, 0).numpy(), np.fft.ifftshift(x, 0))


def test_symbolic_batch_and_simulated_device() -> None:
    x = nova.input((nova.dim("B"), 96), "complex64", name="x")
    program = nova.compile(nova.fft.fft(x), inputs=[x])
    for size in (1, 3):
        z = numbers(size, 96).astype("c8")
        np.testing.assert_allclose(program(z), np.fft.fft(z), rtol=1e-4, atol=1e-4)
    device = nova.jit(lambda x: nova.fft.rfft(x), target="cuda:sm_80", run_mode="sim")
    x = reals(2, 128).astype("f4")
    np.testing.assert_allclose(np.asarray(device(x)), np.fft.rfft(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("error", "call", "text"),
    [
        (errors.DTypeError, lambda: nova.fft.rfft(numbers(4)), "rfft: .* is not real"),
        (errors.AttributeValueError, lambda: nova.fft.fft(numbers(4), n=0), "fft: n must be"),
        (errors.AttributeValueError, lambda: nova.fft.fft(numbers(4), norm="x"), "norm 'x'"),
        (errors.AttributeValueError, lambda: nova.fft.irfft(numbers(1)), "irfft: 1 terms give 0"),
        (errors.AttributeValueError, lambda: nova.fft.fft(numbers(0)), "size 0"),
        (
            errors.AttributeValueError,
            lambda: nova.fft.fftn(numbers(4, 4), s=(1, 2, 3), axes=(0,)),
            "size",
        ),
        (errors.ShapeError, lambda: nova.fft.fft(1.0), "0-d"),
        (errors.AxisError, lambda: nova.fft.fft(numbers(4), axis=1), "axis 1"),
    ],
)
def test_refusals(error: type, call: Any, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call()
    assert "test_fft.py" in str(caught.value)


@pytest.mark.parametrize("frequencies", [nova.fft.fftfreq, nova.fft.rfftfreq])
def test_frequencies_are_checked(frequencies: Any) -> None:
    for n in (0, -3, 2.5, "a", True):
        with pytest.raises(errors.AttributeValueError, match="n must be a positive int"):
            frequencies(n)
    for d in (0, "x", None):
        with pytest.raises(errors.AttributeValueError, match="d must be a number other than 0"):
            frequencies(4, d=d)
    expected = getattr(np.fft, frequencies.__name__)(5, 0.5)
    np.testing.assert_allclose(frequencies(np.int64(5), d=np.float32(0.5)).numpy(), expected)


@pytest.mark.parametrize(
    ("name", "dtype", "shown"),
    [
        ("fft", "f32", "complex64[n,4]"),
        ("ifft2", "complex128", "complex128[n,4]"),
        ("rfft", "f64", "f64[n,4]"),
        ("irfft", "complex64", "complex64[n,4]"),
    ],
)
def test_a_symbolic_axis_is_refused_with_the_callers_type(name: str, dtype: str, shown: str):
    """Not with that of the parts of complex numbers."""
    x = nova.input((nova.dim("n"), 4), dtype, name="x")
    axes: dict[str, Any] = {} if name.endswith("2") else {"axis": 0}
    with pytest.raises(errors.SymbolicSizeError) as caught:
        getattr(nova.fft, name)(x, **axes)
    assert f"{name} transforms axis 0 of {shown}, whose size n" in caught.value.what
