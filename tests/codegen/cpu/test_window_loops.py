"""Depthwise convolutions and pooling by unrolled windows, against torch, on each x86 level."""

from __future__ import annotations

import numpy as np
import pytest
from guard_pages import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from processors import runnable

import nova

torch = pytest.importorskip("torch")
functional = torch.nn.functional

LEVELS = runnable("cpu", "x86_64-v3", "x86_64-v2")


def run(program: nova.Compiled, shape: tuple[int, ...], *arrays: np.ndarray) -> np.ndarray:
    out = guarded(np.zeros(shape, arrays[0].dtype))
    program.run([guarded(a) for a in arrays], out=out)
    return out


def depthwise(
    level: str, x: np.ndarray, w: np.ndarray, options: dict[str, int], relu: bool = True
) -> None:
    X, W = nova.tensor(x, name="x"), nova.tensor(w, name="w")
    result = nova.conv2d(X, W, groups=x.shape[1], **options)
    result = nova.relu(result) if relu else result
    program = nova.compile(result, inputs=[X, W], target=level)
    expected = torch.conv2d(torch.tensor(x), torch.tensor(w), groups=x.shape[1], **options)
    expected = (torch.relu(expected) if relu else expected).numpy()
    actual = run(program, expected.shape, x, w)
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("size", "kernel", "stride"),
    [((7, 7), 5, 1), ((14, 14), 3, 1), ((28, 28), 5, 2), ((9, 33), 3, 2), ((5, 18), 3, 1)],
)
def test_depthwise_convolution(level, size, kernel, stride):
    x, w = numbers(2, 40, *size), numbers(40, 1, kernel, kernel, seed=1)
    depthwise(level, x, w, {"stride": stride, "padding": kernel // 2})


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 2),
    st.integers(1, 40),
    st.integers(6, 40),
    st.integers(6, 40),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 2),
    st.sampled_from(LEVELS),
)
def test_any_depthwise_convolution(n, c, h, w, kernel, stride, padding, dilation, level):
    if min(h, w) + 2 * padding < dilation * (kernel - 1) + 1:
        return
    x, weight = numbers(n, c, h, w), numbers(c, 1, kernel, kernel, seed=1)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    depthwise(level, x, weight, options, relu=bool(h % 2))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(6, 20),
    st.integers(6, 40),
    st.integers(1, 5),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.sampled_from((1, 2, 4)),
    st.sampled_from(LEVELS),
)
def test_any_convolution(n, c, h, w, kernel, stride, padding, dilation, groups, level):
    if min(h, w) + 2 * padding < dilation * (kernel - 1) + 1:
        return
    x, weight = numbers(n, 4 * c, h, w), numbers(8, 4 * c // groups, kernel, kernel, seed=1)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    X, W = nova.tensor(x, name="x"), nova.tensor(weight, name="w")
    program = nova.compile(nova.conv2d(X, W, **options), inputs=[X, W], target=level)
    expected = torch.conv2d(torch.tensor(x), torch.tensor(weight), **options).numpy()
    np.testing.assert_allclose(run(program, expected.shape, x, weight), expected, atol=1e-4)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_pooling(level, kernel, stride, padding):
    x = numbers(2, 40, 23, 37)
    x[0, 0, 3, 3], x[0, 1, 2, 5] = np.nan, np.inf
    X = nova.tensor(x, name="x")
    arguments = {"kernel_size": kernel, "stride": stride, "padding": padding}
    results = [nova.max_pool2d(X, **arguments), nova.avg_pool2d(X, **arguments)]
    program = nova.compile(results, inputs=[X], target=level)
    source = torch.tensor(x)
    expected = [
        torch.nn.functional.max_pool2d(source, **arguments).numpy(),
        torch.nn.functional.avg_pool2d(source, **arguments).numpy(),
    ]
    out = [guarded(np.zeros_like(e)) for e in expected]
    program.run([guarded(x)], out=out)
    for actual, reference in zip(out, expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=1e-5, atol=1e-6)


def test_bits_do_not_depend_on_threads():
    x, w = numbers(1, 200, 28, 28), numbers(200, 1, 5, 5, seed=1)
    X, W = nova.tensor(x, name="x"), nova.tensor(w, name="w")
    program = nova.compile(nova.conv2d(X, W, padding=2, groups=200), inputs=[X, W])
    results = []
    for threads in (1, 2, 3):
        with nova.knobs.override(threads=threads):
            results.append(np.asarray(program(x, w)))
    assert all((r == results[0]).all() for r in results)


def test_an_even_row_reads_nothing_after_its_end():
    """Columns of stride 2, where the last window ends with the buffer and no padding follows."""
    for columns in (33, 34, 63, 64):
        depthwise("cpu", numbers(1, 8, 9, columns), numbers(8, 1, 3, 3, seed=1), {"stride": 2})


@pytest.mark.parametrize(("size", "padding"), [(7, 0), (5, 1)])
def test_one_window_with_input_left_over(size, padding):
    options = {"stride": 4, "padding": padding}
    depthwise("cpu", numbers(2, 4, size, size), numbers(4, 1, 4, 4, seed=1), options)


@pytest.mark.parametrize("pads", [((0, 1), (0, 1)), ((0, 2), (1, 0)), ((1, 2), (0, 1))])
def test_axes_that_are_padded_at_their_end_only(pads: tuple[tuple[int, int], ...]) -> None:
    """As `ceil_mode` pads, and `SAME` of even kernels."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2, 3, 9, 8)).astype("f4")
    w = generator.standard_normal((4, 3, 3, 2)).astype("f4")
    X, W = nova.tensor(x, name="x"), nova.tensor(w, name="w")
    padded = nova.pad(X, [(0, 0), (0, 0), *pads])
    results = [
        nova.conv2d(padded, W, stride=2),
        nova.max_pool2d(X, 2, ceil_mode=True),
        nova.avg_pool2d(X, 3, stride=2, ceil_mode=True),
    ]
    values = nova.compile(results, inputs=[X, W])(x, w)
    rows, columns = pads
    tx = torch.tensor(x)
    expected = [
        functional.conv2d(functional.pad(tx, (*columns, *rows)), torch.tensor(w), stride=2),
        functional.max_pool2d(tx, 2, ceil_mode=True),
        functional.avg_pool2d(tx, 3, stride=2, ceil_mode=True),
    ]
    for value, reference in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-5)
