"""Convolutions whose weights are constants, with bias, ReLU and a residual, against torch."""

from __future__ import annotations

import numpy as np
import pytest
from guard_pages import guarded
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from processors import runnable

import nova

torch = pytest.importorskip("torch")


def check(level, batch, groups, channels, size, kernel, stride, dilation, padding):
    """Compare one convolution with torch's, in f64."""
    rng = np.random.default_rng(sum(channels))
    inputs, outputs = channels
    x = rng.standard_normal((batch, inputs, *size)).astype(np.float32)
    w = rng.standard_normal((outputs, inputs // groups, *kernel)).astype(np.float32)
    b = rng.standard_normal(outputs).astype(np.float32)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    exact = torch.nn.functional.conv2d(
        *(torch.from_numpy(a).double() for a in (x, w, b)), **options
    ).numpy()
    residual = rng.standard_normal(exact.shape).astype(np.float32)
    X, R = nova.tensor(x, name="x"), nova.tensor(residual, name="residual")
    out = nova.relu(nova.conv2d(X, nova.tensor(w), nova.tensor(b), **options) + R)
    program = nova.compile(out, inputs=[X, R], target=level)
    depth = inputs // groups * kernel[0] * kernel[1]
    expected = np.maximum(exact + residual, 0)
    for threads in (1, 2):
        with nova.knobs.override(threads=threads):
            result = guarded(np.zeros(exact.shape, np.float32))
            program.run([guarded(x), guarded(residual)], out=result)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=3e-6 * depth)


@pytest.mark.parametrize("level", runnable("cpu", "x86_64-v3"))
@pytest.mark.parametrize(
    ("channels", "size", "kernel", "stride", "dilation", "padding"),
    [
        ((96, 160), (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((256, 136), (14, 14), (1, 1), (2, 2), (1, 1), (0, 0)),
        ((40, 72), (15, 13), (3, 3), (2, 1), (1, 2), (1, 2)),
        ((40, 72), (29, 15), (3, 3), (2, 2), (1, 1), (1, 1)),
        ((3, 32), (40, 41), (7, 7), (2, 2), (1, 1), (3, 3)),
        ((24, 48), (19, 50), (3, 3), (1, 2), (2, 2), (1, 0)),
    ],
)
def test_few_positions(level, channels, size, kernel, stride, dilation, padding):
    check(level, 2, 1, channels, size, kernel, stride, dilation, padding)


_PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    level=st.sampled_from(runnable("cpu", "x86_64-v3", "x86_64-v2")),
    batch=st.integers(1, 3),
    groups=st.sampled_from((1, 1, 1, 2, 4)),
    channels=st.tuples(st.integers(1, 40), st.integers(4, 50)),
    size=st.tuples(st.integers(3, 30), st.integers(3, 30)),
    kernel=st.sampled_from(((1, 1), (3, 3), (5, 5), (2, 3), (7, 1))),
    stride=_PAIRS,
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_generated(level, batch, groups, channels, size, kernel, stride, dilation, padding):
    spans = zip(size, kernel, dilation, padding, strict=True)
    assume(all(n + 2 * p >= d * (k - 1) + 1 for n, k, d, p in spans))
    channels = channels[0] * groups * 4, channels[1] * groups
    check(level, batch, groups, channels, size, kernel, stride, dilation, padding)
