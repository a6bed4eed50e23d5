"""Factorizations of complex matrices against torch: values and gradients, compiled together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import linalg
from nova.errors import GradientError, ShapeError
from nova.graph.interpret import evaluate

RNG = np.random.default_rng(5)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


def positive(*shape: int) -> np.ndarray:
    x = draw(*shape)
    return x @ x.conj().swapaxes(-1, -2) + np.eye(shape[-1])


def hermitian(a: Any) -> Any:
    return a + (a.mH if isinstance(a, torch.Tensor) else nova.conj(a).swapaxes(-1, -2))


def magnitudes(value: Any) -> Any:
    """Without the phases of vectors, which are not defined."""
    return tuple(abs(v) for v in value)


# A name, a function of `nova.linalg` or `torch.linalg`, and its operands.
CASES: list[tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]] = [
    ("cholesky", lambda m, a: m.cholesky(hermitian(a)), (positive(2, 4, 4),)),
    ("cholesky_upper", lambda m, a: m.cholesky(hermitian(a), upper=True), (positive(3, 3),)),
    ("lower", lambda m, a, b: m.solve_triangular(a, b, upper=False), (positive(4, 4), draw(4, 2))),
    (
        "upper_right_unit",
        lambda m, a, b: m.solve_triangular(a, b, upper=True, left=False, unitriangular=True),
        (draw(3, 3), draw(2, 3)),
    ),
    ("solve", lambda m, a, b: m.solve(a, b), (draw(2, 4, 4), draw(2, 4, 2))),
    ("inv", lambda m, a: m.inv(a), (draw(2, 3, 3),)),
    ("det", lambda m, a: m.det(a), (draw(3, 4, 4),)),
    ("slogdet", lambda m, a: tuple(m.slogdet(a)), (draw(2, 4, 4),)),
    ("lu", lambda m, a: tuple(m.lu(a)), (draw(2, 4, 4),)),
    ("lu_wide", lambda m, a: tuple(m.lu(a)), (draw(3, 5),)),
    ("qr_tall", lambda m, a: tuple(m.qr(a)), (draw(2, 5, 3),)),
    ("qr_wide", lambda m, a: tuple(m.qr(a)), (draw(3, 5),)),
    ("eigh", lambda m, a: magnitudes(m.eigh(hermitian(a))), (draw(2, 5, 5),)),
    ("svd_tall", lambda m, a: magnitudes(m.svd(a, full_matrices=False)), (draw(2, 5, 3),)),
    ("svd_wide", lambda m, a: magnitudes(m.svd(a, full_matrices=False)), (draw(2, 4),)),
    ("svdvals", lambda m, a: m.svdvals(a), (draw(3, 4),)),
    ("pinv", lambda m, a: m.pinv(a), (draw(5, 3),)),
    ("nuclear", lambda m, a: m.matrix_norm(a, "nuc"), (draw(2, 3, 4),)),
    ("power", lambda m, a: m.matrix_power(a, -3), (draw(3, 3),)),
]


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def loss(values: tuple[Any, ...], library: Any) -> Any:
    """A real number of both parts of all values."""
    total = 0.0
    for value in values:
        if library.is_complex(value):
            value = library.real(value) + 0.5 * library.imag(value)
        total = total + (value * library.cos(value)).sum()
    return total


def build(cases: list[Any]) -> tuple[list[Any], list[Any], list[np.ndarray], list[str]]:
    """Inputs, results and gradients of all cases, those of torch, and their names."""
    inputs, results, expected, names = [], [], [], []
    for name, function, operands in cases:
        tensors = [nova.tensor(x, requires_grad=True) for x in operands]
        truths = [torch.tensor(x, requires_grad=True) for x in operands]
        values = as_tuple(function(linalg, *tensors))
        wanted = as_tuple(function(torch.linalg, *truths))
        nova.backward(loss(values, nova))
        loss(wanted, torch).backward()
        values += tuple(t.grad for t in tensors)
        wanted += tuple(t.grad for t in truths)
        inputs += tensors
        results += values
        expected += [w.detach().resolve_conj().numpy() for w in wanted]
        names += [f"{name}: value {i}" for i in range(len(values))]
    return inputs, results, expected, names


def compare(outcome: Any, expected: list[np.ndarray], names: list[str]) -> None:
    for name, actual, want in zip(names, outcome, expected, strict=True):
        assert (actual.shape, actual.dtype) == (want.shape, want.dtype), name
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(actual, want, rtol=1e-8, atol=1e-9 * scale, err_msg=name)


def test_values_and_gradients() -> None:
    inputs, results, expected, names = build(CASES)
    values = evaluate(results, {t: t.data for t in inputs})
    compare([np.asarray(v) for v in values], expected, names)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(3))
def test_compiled(group: int) -> None:
    inputs, results, expected, names = build(CASES[group::3])
    outcome = nova.compile(results, inputs=inputs).run([t.data for t in inputs])
    compare(outcome, expected, names)


def test_many_rotations_keep_vectors_unitary() -> None:
    """The elements that rotations remove become denormal: their phases must stay phases."""
    a = draw(20, 20).astype("c8")
    a = a + a.conj().T
    w, v = (t.numpy() for t in linalg.eigh(nova.tensor(a)))
    assert np.allclose(v.conj().T @ v, np.eye(20), atol=1e-5)
    assert np.allclose((v * w) @ v.conj().T, a, atol=1e-4)
    u, s, vh = (t.numpy() for t in linalg.svd(nova.tensor(a[:, :7])))
    assert np.allclose((u[:, :7] * s) @ vh, a[:, :7], atol=1e-4)
    assert np.allclose(u.conj().T @ u, np.eye(20), atol=1e-5)


def test_a_real_side_is_promoted() -> None:
    a, b = draw(3, 3).astype("c8"), RNG.standard_normal((3, 2)).astype("f4")
    x = linalg.solve(nova.tensor(a), nova.tensor(b)).numpy()
    assert x.dtype == np.complex64
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-4, atol=1e-4)


def test_cholesky_reads_the_real_part_of_the_diagonal() -> None:
    a = draw(3, 3)
    a = a @ a.conj().T + np.eye(3) + np.diag([0, 5j, 2j])
    factor = linalg.cholesky(nova.tensor(a)).numpy()
    np.testing.assert_allclose(factor, torch.linalg.cholesky(torch.tensor(a)).numpy(), rtol=1e-9)


@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "slogdet", "lu", "qr", "eigh", "svd"])
def test_matrices_of_no_rows(name: str) -> None:
    values = as_tuple(getattr(linalg, name)(np.zeros((2, 0, 0), "c8")))
    truths = getattr(torch.linalg, name)(torch.zeros(2, 0, 0, dtype=torch.complex64))
    truths = (truths,) if isinstance(truths, torch.Tensor) else tuple(truths)
    assert [(v.shape, str(v.dtype.numpy)) for v in values] == [
        (tuple(t.shape), str(t.numpy().dtype)) for t in truths
    ]


def test_errors() -> None:
    with pytest.raises(ShapeError, match="not square"):
        linalg.inv(draw(3, 4))
    with pytest.raises(GradientError, match="the square U and V"):
        nova.grad(lambda x: nova.abs(linalg.svd(x)[0]).sum())(draw(4, 3))
