"""Options, integers, complex numbers and data-dependent arguments of functions, against torch.

All calls are one compiled program; each pair of functions takes the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import nova

RNG = np.random.default_rng(11)
WHOLE = RNG.integers(-4, 5, (3, 6))
FLAGS = RNG.random((3, 6)) < 0.5
REAL = RNG.standard_normal((3, 6))
Z = REAL + 1j * RNG.standard_normal((3, 6))
SIGNAL = RNG.standard_normal((2, 4, 7)) + 1j * RNG.standard_normal((2, 4, 7))
KERNEL = RNG.standard_normal((4, 2, 3)) + 1j * RNG.standard_normal((4, 2, 3))
CUBE = RNG.standard_normal((3, 4, 5, 6))
ROWS, COLUMNS = np.array([[0], [-1]]), np.array([1, 2, 0])
START, REPEATS = np.array(-2), np.array([2, 0, 3])
TF = torch.nn.functional

CALLS: list[tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]] = [
    (lambda x: nova.cumprod(x, 1), lambda x: torch.cumprod(x, 1), (WHOLE,)),
    (lambda x: nova.cumprod(x, 0), lambda x: torch.cumprod(x, 0), (Z,)),
    (lambda x: nova.diff(x), torch.diff, (FLAGS,)),
    (lambda x: x.round(decimals=1), lambda x: x.round(decimals=1), (REAL,)),
    (lambda x: x.round(decimals=400), lambda x: x.round(decimals=400), (REAL,)),
    (nova.logsumexp, lambda x: torch.logsumexp(x, (0, 1)), (Z,)),
    (nova.logaddexp, torch.logaddexp, (Z, Z[:1] * 2)),
    (nova.silu, TF.silu, (Z,)),
    (nova.softsign, TF.softsign, (Z,)),
    (nova.sinc, torch.sinc, (Z,)),
    (nova.normalize, TF.normalize, (Z,)),
    (nova.isclose, torch.isclose, (Z, Z + 1e-9)),
    (nova.l1_loss, TF.l1_loss, (Z, Z[:, ::-1].copy())),
    (
        lambda x, w: nova.conv1d(x, w, groups=2, padding=1),
        lambda x, w: TF.conv1d(x, w, groups=2, padding=1),
        (SIGNAL, KERNEL),
    ),
    (
        lambda x, w: nova.conv_transpose1d(x, w, stride=2),
        lambda x, w: TF.conv_transpose1d(x, w, stride=2),
        (SIGNAL, KERNEL),
    ),
    (
        lambda a, b: nova.linspace(a, b, 5, dtype="f64"),
        lambda a, b: torch.linspace(a, b, 5, dtype=torch.float64),
        (REAL[0, 0], REAL[1, 1]),
    ),
    (
        lambda x, i: nova.narrow(x, 1, i, 2),
        lambda x, i: torch.narrow(x, 1, i, 2),
        (REAL, START),
    ),
    (
        lambda x, r: nova.repeat_interleave(x, r, 0, output_size=5),
        lambda x, r: torch.repeat_interleave(x, r, 0),
        (REAL, REPEATS),
    ),
    (
        lambda x, w: nova.histogram(x, 4, None, weight=w, density=True)[0],
        lambda x, w: torch.histogram(x, 4, weight=w, density=True)[0],
        (REAL, abs(REAL)),
    ),
    (
        lambda x, m, v: nova.index_put(x, [m], v, accumulate=True),
        lambda x, m, v: torch.index_put(x, [m], v, accumulate=True),
        (REAL, FLAGS, RNG.standard_normal(int(FLAGS.sum()))),
    ),
    # One tensor of indices after the other, with a slice between, with an int, and with None.
    (lambda x, i, j: x[i, j], lambda x, i, j: x[i, j], (CUBE, ROWS, COLUMNS)),
    (lambda x, i, j: x[:, i, j], lambda x, i, j: x[:, i, j], (CUBE, ROWS, COLUMNS)),
    (lambda x, i, j: x[i, :, j], lambda x, i, j: x[i, :, j], (CUBE, ROWS, COLUMNS)),
    (lambda x, i: x[i, 1:, 1], lambda x, i: x[i, 1:, 1], (CUBE, COLUMNS)),
    (lambda x, i, j: x[..., i, 1, j], lambda x, i, j: x[..., i, 1, j], (CUBE, ROWS, COLUMNS)),
    (lambda x, i, j: x[i, None, ..., j], lambda x, i, j: x[i, None, ..., j], (Z, ROWS, COLUMNS)),
    (
        lambda a, r: nova.linalg.matrix_rank(a, r, atol=0.1, hermitian=True),
        lambda a, r: torch.linalg.matrix_rank(a, rtol=r, atol=torch.tensor(0.1), hermitian=True),
        (CUBE[0, :, :4, :4] @ CUBE[0, :, :4, :4].swapaxes(1, 2), np.array([0.1, 0.5, 1e-3, 0.9])),
    ),
]


def test_functions_are_those_of_torch() -> None:
    inputs = [[nova.tensor(x) for x in operands] for _, _, operands in CALLS]
    results = [function(*x) for (function, _, _), x in zip(CALLS, inputs, strict=True)]
    flat = [t for tensors in inputs for t in tensors]
    values = nova.compile(results, inputs=flat).run([t.data for t in flat])
    for i, (value, (_, function, operands)) in enumerate(zip(values, CALLS, strict=True)):
        want = function(*(torch.tensor(x) for x in operands)).numpy()
        assert (value.shape, value.dtype) == (want.shape, want.dtype), i
        np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-12, err_msg=str(i))


def test_gradients_of_complex_functions_and_indices() -> None:
    weights = RNG.standard_normal(CUBE[ROWS, :, COLUMNS].shape)

    def loss(x: Any, z: Any, signal: Any, kernel: Any, library: Any) -> Any:
        product = library.conv1d(signal, kernel, groups=2)
        total = library.real(library.cumprod(z, 1)).sum() + library.imag(product).sum()
        total = total + library.abs(library.logsumexp(z, 1)).sum()
        return total + (x[ROWS, :, COLUMNS] * library.tensor(weights)).sum()

    operands = (CUBE, Z, SIGNAL, KERNEL)
    actual = nova.grad(lambda *x: loss(*x, nova), argnums=(0, 1, 2, 3))(*operands)
    leaves = [torch.tensor(x, requires_grad=True) for x in operands]
    loss(*leaves, torch).backward()
    for gradient, leaf in zip(actual, leaves, strict=True):
        np.testing.assert_allclose(np.asarray(gradient), leaf.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_weights_of_losses_are_buffers() -> None:
    weight = np.arange(1.0, 7.0)
    ours, theirs = (
        library.BCEWithLogitsLoss(pos_weight=value)
        for library, value in ((nova.nn, weight), (torch.nn, torch.tensor(weight)))
    )
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["pos_weight"]
    target = FLAGS.astype("f8")
    want = theirs(torch.tensor(REAL), torch.tensor(target)).item()
    np.testing.assert_allclose(ours(nova.tensor(REAL), nova.tensor(target)).numpy(), want)
