"""Convolutions by Winograd's algorithm: their numbers, and which convolutions use it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from guard_pages import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from processors import runnable

import nova
from nova import knobs
from nova.codegen.cpu.winograd.matrices import SIZES, TAPS, matrices

torch = pytest.importorskip("torch")

LEVELS = runnable("cpu", "x86_64-v3", "x86_64")
SHAPES = [
    # batch, channels, outputs, height, width, padding
    (1, 24, 32, 23, 61, 1),
    (1, 16, 16, 14, 14, 1),
    (5, 17, 40, 7, 7, 1),
    (3, 8, 48, 28, 10, 0),
    (2, 400, 16, 6, 9, 1),
    (20, 8, 24, 5, 8, 1),
]


def data(batch, channels, outputs, height, width, padding):
    """Images, weights, a bias and a residual, and the exact result with a ReLU."""
    rng = np.random.default_rng(batch * height + width)
    x = rng.standard_normal((batch, channels, height, width)).astype("f4")
    w = rng.standard_normal((outputs, channels, 3, 3)).astype("f4")
    b = rng.standard_normal(outputs).astype("f4")
    exact = torch.nn.functional.conv2d(
        *(torch.from_numpy(a).double() for a in (x, w, b)), padding=padding
    ).numpy()
    r = rng.standard_normal(exact.shape).astype("f4")
    return (x, w, b, r), np.maximum(exact + r, 0)


def compiled(arrays, padding, *, constant, winograd="on", target="cpu"):
    """The program of `relu(conv2d(x, w, b) + r)`; its inputs are x and r, or all."""
    x, w, b, r = (nova.input(a.shape) for a in arrays)
    inputs = [x, w, b, r]
    if constant:
        w, b, inputs = nova.tensor(arrays[1]), nova.tensor(arrays[2]), [x, r]
    out = nova.relu(nova.conv2d(x, w, b, padding=padding) + r)
    with knobs.override(winograd=winograd):
        return nova.compile(out, inputs=inputs, target=target)


def is_winograd(program) -> bool:
    return "nova_winograd_input" in program.stages["loops"]


def check(shape, target, constant):
    arrays, exact = data(*shape)
    program = compiled(arrays, shape[-1], constant=constant, target=target)
    assert is_winograd(program)
    passed = (arrays[0], arrays[3]) if constant else arrays
    results = []
    for threads in (1, 2, 3):
        with knobs.override(threads=threads):
            result = guarded(np.zeros(exact.shape, "f4"))
            program.run([guarded(a) for a in passed], out=result)
            results.append(result)
    depth = 9 * shape[1]
    np.testing.assert_allclose(results[0], exact, rtol=1e-4, atol=3e-6 * depth)
    assert all(np.array_equal(results[0], result) for result in results[1:])


def test_matrices_are_exact() -> None:
    for m in SIZES:
        of = matrices(m)
        d, g = [Fraction(i * i - 7) for i in range(m + TAPS - 1)], [Fraction(k) for k in (3, -5, 2)]

        def product(matrix, column):
            return [sum(a * b for a, b in zip(row, column, strict=True)) for row in matrix]

        pairs = zip(product(of.weights, g), product(of.inputs, d), strict=True)
        y = product(of.outputs, [a * b for a, b in pairs])
        assert y == [sum(d[i + k] * g[k] for k in range(TAPS)) for i in range(m)]


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "argument"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_are_exact_within_rounding(shape, constant, target) -> None:
    check(shape, target, constant)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(8, 80),
    st.integers(16, 80),
    st.integers(8, 40),
    st.integers(8, 70),
    st.integers(0, 1),
    st.booleans(),
    st.sampled_from(LEVELS),
)
def test_any_sizes(batch, channels, outputs, height, width, padding, constant, target) -> None:
    shape = (batch, channels, outputs, height, width, padding)
    arrays, exact = data(*shape)
    program = compiled(arrays, padding, constant=constant, target=target)
    result = program(*((arrays[0], arrays[3]) if constant else arrays))
    np.testing.assert_allclose(result, exact, rtol=1e-4, atol=3e-6 * 9 * channels)


@pytest.mark.parametrize("shape", [(1, 64, 64, 56, 56, 1), (1, 256, 64, 14, 14, 1)], ids=str)
def test_errors_are_a_small_multiple_of_those_of_one_matmul(shape) -> None:
    """As docs/fast-math.md states: at most 4 times on average, and 8 times at the worst."""
    arrays, exact = data(*shape)
    errors = {}
    for winograd in ("on", "off"):
        program = compiled(arrays, shape[-1], constant=True, winograd=winograd)
        assert is_winograd(program) == (winograd == "on")
        errors[winograd] = np.abs(program(arrays[0], arrays[3]) - exact)
    assert np.sqrt((errors["on"] ** 2).mean()) < 4 * np.sqrt((errors["off"] ** 2).mean())
    assert errors["on"].max() < 8 * errors["off"].max()


def test_infinities_stay_in_their_tiles() -> None:
    arrays, exact = data(1, 16, 16, 20, 20, 1)
    arrays[0][0, 3, 9, 9] = np.inf
    program = compiled(arrays, 1, constant=True)
    assert is_winograd(program)
    result = program(arrays[0], arrays[3])
    touched = np.zeros((20, 20), bool)
    touched[4:12, 4:12] = True  # the tiles of 4x4 outputs that read position (9, 9)
    np.testing.assert_allclose(
        result[0, :, ~touched], exact[0, :, ~touched], rtol=1e-4, atol=3e-6 * 144
    )
    assert np.isnan(result[0, :, 8:11, 8:11]).any()


def test_auto_uses_it_where_it_is_faster() -> None:
    def uses(batch, channels, outputs, size, **options) -> bool:
        x = nova.input((batch, channels, size, size))
        w = nova.input((outputs, channels // options.get("groups", 1), 3, 3))
        out = nova.conv2d(x, w, **{"padding": 1, **options})
        return is_winograd(nova.compile(out, inputs=[x, w], target="x86_64-v4"))

    assert uses(1, 64, 64, 56)
    assert uses(16, 256, 256, 14)
    assert not uses(1, 512, 512, 7)  # the weights take longer than the multiplications
    assert not uses(1, 64, 64, 56, stride=2)
    assert not uses(1, 64, 64, 56, dilation=2, padding=2)
    assert not uses(4, 64, 64, 56, groups=2)
    with knobs.override(winograd="off"):
        assert not uses(1, 64, 64, 56)


def test_targets_without_masks_and_symbolic_sizes_keep_one_matmul() -> None:
    x, w = nova.input((4, 64, 56, 56)), nova.input((64, 64, 3, 3))
    out = nova.conv2d(x, w, padding=1)
    assert not is_winograd(nova.compile(out, inputs=[x, w], target="x86_64"))
    x = nova.input((nova.dim("n", max=8), 64, 56, 56))
    out = nova.conv2d(x, w, padding=1)
    with knobs.override(winograd="on"):
        assert not is_winograd(nova.compile(out, inputs=[x, w]))


def test_gradients_are_those_of_torch() -> None:
    """The data gradient of a convolution is one too; its weights are flipped in each run."""
    (x, w, b, r), _ = data(4, 24, 32, 14, 14, 1)
    X, W, B = (nova.tensor(a, requires_grad=True) for a in (x, w, b))
    loss = (nova.relu(nova.conv2d(X, W, B, padding=1)) * nova.tensor(r)).sum()
    with knobs.override(winograd="on"):
        loss.backward()
    leaves = [torch.from_numpy(a).double().requires_grad_() for a in (x, w, b)]
    y = torch.relu(torch.nn.functional.conv2d(*leaves, padding=1))
    (y * torch.from_numpy(r).double()).sum().backward()
    for ours, theirs in zip((X, W, B), leaves, strict=True):
        exact = theirs.grad.numpy()
        np.testing.assert_allclose(ours.grad, exact, rtol=1e-3, atol=1e-4 * exact.std())
