"""Complex tensors through `torch.compile` and `nova.from_torch`, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nova

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
Function = Callable[..., tuple[torch.Tensor, ...]]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The compiled function; an op without a row, and a graph break, is an error."""
    settings = {"fallback": False}
    return torch.compile(function, backend="nova", options=settings, fullgraph=True, **options)


def reals(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def pairs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex64)


def rotary_embedding(x: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Positions as rotations, in the form of Llama's first release."""
    rotations = torch.polar(torch.ones_like(angles), angles)
    rows = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return (torch.view_as_real(rows * rotations[None, :, None]).flatten(3).type_as(x),)


def transforms(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.fft.fft(z, n=10),
        torch.fft.ifftn(z, norm="ortho"),
        torch.fft.rfft2(x, norm="forward"),
        torch.fft.irfft(z, n=11),
        torch.fft.irfft2(z),
        torch.fft.hfft(z),
        torch.fft.ihfft(x),
        torch.fft.fftshift(torch.fft.fft(x, dim=0)),
    )


def frames(x: torch.Tensor, window: torch.Tensor) -> tuple[torch.Tensor, ...]:
    spectrum = torch.stft(x, 16, hop_length=4, window=window, return_complex=True)
    return spectrum.abs(), torch.istft(spectrum * 0.5, 16, hop_length=4, window=window)


def arithmetic(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        a * b + a / b - 2j * a,
        a.abs() + torch.angle(b) + a.real * b.imag,
        a.conj() * b + (a.conj().imag + 1j),
        torch.where(a.real > 0, a, b),
        torch.cat([a, b.real], 1),
        torch.sgn(a) + a.square() + a**2.5 + a**-1,
    )


def elementary(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    functions = (torch.exp, torch.log, torch.sqrt, torch.tanh, torch.sigmoid, torch.sin)
    return (*(f(a) for f in functions), torch.complex(b, b * 2).rsqrt())


def reductions(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return a.sum(0), a.mean(), a.prod(1), a.cumsum(1), a.norm(), a.var(0), a.std()


def products(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
    linear = nn.functional.linear(a, b, c)
    return (
        a @ b.mT,
        torch.einsum("ij,kj->ik", a, b.conj()),
        b.mH @ linear.mT,
        torch.vdot(a[0], b[0]),
        torch.addmm(c, a, b.mT, beta=2j, alpha=1 - 1j),
    )


CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "rotary_embedding": (rotary_embedding, (reals(2, 5, 3, 8), reals(5, 4))),
    "transforms": (transforms, (reals(4, 6), pairs(4, 6))),
    "frames": (frames, (reals(2, 64), torch.hann_window(16))),
    "arithmetic": (arithmetic, (pairs(4, 5), pairs(4, 5))),
    "elementary": (elementary, (pairs(4, 5), reals(6))),
    "reductions": (reductions, (pairs(4, 5),)),
    "products": (products, (pairs(4, 5), pairs(3, 5), pairs(3))),
}


def loss_of(results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """A real number that weighs each part of each result."""
    parts = [torch.view_as_real(r.resolve_conj()) if r.is_complex() else r for r in results]
    return sum((p * torch.arange(1.0, p.numel() + 1).cos().view(p.shape)).sum() for p in parts)


SLOW = ("arithmetic", "elementary", "frames", "products")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES]
)
def test_results_and_gradients_are_those_of_eager(name: str) -> None:
    function, arguments = CASES[name]
    eager = [a.clone().requires_grad_() for a in arguments]
    ours = [a.clone().requires_grad_() for a in arguments]
    expected, results = function(*eager), compiled(function)(*ours)
    torch.testing.assert_close(results, expected, rtol=2e-4, atol=2e-5)
    loss_of(expected).backward()
    loss_of(results).backward()
    for a, b in zip(eager, ours, strict=True):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=1e-3)


def test_inference_takes_complex128() -> None:
    a, b = (torch.randn(3, 4, dtype=torch.complex128) for _ in range(2))

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (torch.fft.fft(a) * b.conj()).real

    with torch.no_grad():
        torch.testing.assert_close(compiled(function)(a, b), function(a, b))


def test_conjugate_and_negative_views_are_read_with_their_values() -> None:
    z = pairs(4, 6)
    views = (z.conj(), z.mT.conj(), z.conj().imag, z[0].expand(3, 6).conj(), z[:, ::2].conj())
    assert views[2].is_neg()
    for view in views:
        torch.testing.assert_close(compiled(lambda a: a * 2 + 1)(view), view * 2 + 1)


def test_gradients_of_results_may_be_conjugate_or_negative_views() -> None:
    z, tangent = pairs(4, 6), pairs(4, 6).conj()
    for leaf, seed in ((z, tangent), (z.real.clone(), tangent.imag)):
        ours, eager = leaf.clone().requires_grad_(), leaf.clone().requires_grad_()
        compiled(torch.exp)(ours).backward(seed)
        torch.exp(eager).backward(seed)
        torch.testing.assert_close(ours.grad, eager.grad)


@pytest.mark.parametrize("lazy", [False, True])
def test_writes_into_complex_arguments(lazy: bool) -> None:
    def double(z: torch.Tensor) -> torch.Tensor:
        z.mul_(2j)
        return z.conj()

    ours = pairs(3, 4)
    eager = ours.clone()
    results = [f(z.conj() if lazy else z) for f, z in ((compiled(double), ours), (double, eager))]
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(ours, eager)


def test_sizes_of_complex_tensors_may_change() -> None:
    function = compiled(lambda x, w: torch.fft.rfft(x) * w.conj(), dynamic=True)
    for n in (3, 4, 7):
        x, w = reals(n, 12), pairs(n, 7)
        expected = torch.fft.rfft(x) * w.conj()
        torch.testing.assert_close(function(x, w), expected, rtol=1e-4, atol=1e-4)


class Spectral(nn.Module):
    """A layer of weights in the frequency domain, as in Fourier neural operators."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rotation", torch.polar(torch.ones(7), torch.randn(7)))
        self.weight = nn.Parameter(pairs(7, 7))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spectrum = (torch.fft.rfft(x) * self.rotation) @ self.weight
        return torch.fft.irfft(spectrum, n=12), spectrum


def test_exported_modules_have_complex_weights_and_gradients(tmp_path: Path) -> None:
    module, x = Spectral(), reals(3, 12)
    program = nova.from_torch(module, x)
    for result, expected in zip(program(x), module(x), strict=True):
        torch.testing.assert_close(result, expected.detach(), rtol=1e-4, atol=1e-4)
    program.save(tmp_path / "spectral.nova")
    saved = nova.load(tmp_path / "spectral.nova")(x.numpy())
    assert saved[1].dtype == np.complex64
    np.testing.assert_allclose(saved[1], module(x)[1].detach(), rtol=1e-4, atol=1e-4)

    gradient = nova.grad(lambda t: nova.sum(nova.square(program.function(t)[0])))(x.numpy())
    leaf = x.clone().requires_grad_()
    module(leaf)[0].square().sum().backward()
    np.testing.assert_allclose(gradient.numpy(), leaf.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*discards the imaginary part")
def test_conversions_drop_the_imaginary_part_as_in_torch() -> None:
    z = pairs(3, 4)

    def function(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return z.to(torch.float32), z.to(torch.bool), z.view(torch.float32)

    torch.testing.assert_close(compiled(function)(z), function(z))


def test_the_angle_of_real_numbers_ignores_the_sign_of_zero() -> None:
    x = torch.tensor([1.0, -1.0, 0.0, -0.0, float("nan"), float("-inf")])
    torch.testing.assert_close(compiled(torch.angle)(x), torch.angle(x), equal_nan=True)


def test_copies_of_views_and_sums_of_numbers() -> None:
    def function(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moved = torch.permute_copy(x, (2, 0, 1)), torch.narrow_copy(x, 1, 1, 2)
        return torch.view_copy(x, (6, 4)), *moved, *torch.unbind_copy(x, 1), z.logsumexp(0)

    x, z = pairs(2, 3, 4), torch.tensor(1 + 2j)
    with torch.no_grad():
        torch.testing.assert_close(compiled(function)(x, z), function(x, z))
