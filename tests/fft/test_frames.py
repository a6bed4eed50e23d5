"""`stft` and `istft` against torch: values and gradients; transforms of Hermitian sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import AttributeValueError, DTypeError, ShapeError

RNG = np.random.default_rng(8)
SIGNAL = RNG.standard_normal((2, 120))
WINDOW = np.hanning(22)[1:-1] + 0.1

OPTIONS: list[dict[str, Any]] = [
    {},
    {"hop_length": 7, "win_length": 20, "window": WINDOW, "normalized": True},
    {"center": False, "onesided": False},
    {"pad_mode": "constant"},
]


def of_torch(options: dict[str, Any]) -> dict[str, Any]:
    return {k: torch.tensor(v) if k == "window" else v for k, v in options.items()}


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "window", "two-sided", "zeros"])
def test_transforms_and_gradients_as_torch(options: dict[str, Any]) -> None:
    weights = RNG.standard_normal(2)
    t = torch.tensor(SIGNAL, requires_grad=True)
    expected = torch.stft(t, 24, return_complex=True, **of_torch(options))
    (expected.real * weights[0] + expected.imag * weights[1]).sum().backward()

    @nova.jit
    def run(x: Any) -> Any:
        terms = nova.stft(x, 24, **options)
        slope = nova.grad(
            lambda y: (
                nova.real(nova.stft(y, 24, **options)) * weights[0]
                + nova.imag(nova.stft(y, 24, **options)) * weights[1]
            ).sum()
        )(x)
        return terms, slope

    terms, slope = run(SIGNAL)
    np.testing.assert_allclose(terms, expected.detach().numpy(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(slope, t.grad.numpy(), rtol=1e-10, atol=1e-10)


def test_the_inverse_restores_a_signal() -> None:
    options = {"hop_length": 5, "win_length": 20, "window": WINDOW}
    terms = torch.stft(torch.tensor(SIGNAL), 24, return_complex=True, **of_torch(options))
    run = nova.jit(lambda x: nova.istft(x, 24, length=120, **options))
    signal = run(terms.numpy())
    np.testing.assert_allclose(signal, SIGNAL, rtol=1e-10, atol=1e-10)
    expected = torch.istft(terms, 24, length=120, **of_torch(options))
    np.testing.assert_allclose(signal, expected.numpy(), rtol=1e-10, atol=1e-10)
    parts = nova.stft(SIGNAL[0], 24, return_complex=False, **options).numpy()
    np.testing.assert_allclose(parts[..., 0], terms[0].real.numpy(), rtol=1e-10, atol=1e-10)


def test_hermitian_sequences_of_several_axes() -> None:
    z = RNG.standard_normal((3, 4, 5)) + 1j * RNG.standard_normal((3, 4, 5))
    for name, x in (("hfft2", z), ("hfftn", z), ("ihfft2", z.real), ("ihfftn", z.real)):
        actual = getattr(nova.fft, name)(x, norm="ortho").numpy()
        expected = getattr(torch.fft, name)(torch.tensor(x), norm="ortho").numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10, err_msg=name)


def test_errors() -> None:
    with pytest.raises(DTypeError, match="stft"):
        nova.stft(np.arange(9), 4)
    with pytest.raises(ShapeError, match="frames of 24"):
        nova.stft(SIGNAL[:, :9], 24, center=False)
    with pytest.raises(ShapeError, match="a window of"):
        nova.stft(SIGNAL, 24, window=WINDOW)
    with pytest.raises(AttributeValueError, match="hop_length 0"):
        nova.stft(SIGNAL, 24, hop_length=0)
    with pytest.raises(ShapeError, match="frequencies for n_fft"):
        nova.istft(np.ones((5, 5), "c8"), 24)
