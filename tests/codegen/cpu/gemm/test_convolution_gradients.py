"""Convolutions with weights as arguments and their gradients, against torch in f64."""

from __future__ import annotations

import numpy as np
import pytest
from guard_pages import guarded
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from processors import runnable

import nova
from nova.graph.autodiff import gradients

torch = pytest.importorskip("torch")


def check(level, shape, outputs, kernel, *, transposed=False, **options):
    """Compare the result and both gradients of a convolution with those of torch."""
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape).astype(np.float32)
    groups = options.get("groups", 1)
    ends = (shape[1], outputs // groups) if transposed else (outputs, shape[1] // groups)
    w = rng.standard_normal((*ends, *kernel)).astype(np.float32)
    name = f"conv{'_transpose' if transposed else ''}{len(kernel)}d"
    tx, tw = (torch.from_numpy(a).double().requires_grad_() for a in (x, w))
    result = getattr(torch.nn.functional, name)(tx, tw, **options)
    g = rng.standard_normal(tuple(result.shape)).astype(np.float32)
    result.backward(torch.from_numpy(g).double())
    expected = [t.detach().numpy() for t in (result, tx.grad, tw.grad)]

    X, W, G = (nova.tensor(a, name=n) for a, n in ((x, "x"), (w, "w"), (g, "g")))
    out = getattr(nova, name)(X, W, **options)
    program = nova.compile([out, *gradients(out, [X, W], G)], inputs=[X, W, G], target=level)
    for threads in (1, 2):
        with nova.knobs.override(threads=threads):
            actual = [guarded(np.zeros(e.shape, np.float32)) for e in expected]
            program.run([guarded(a) for a in (x, w, g)], out=actual)
        for value, exact in zip(actual, expected, strict=True):
            bound = 1e-6 * max(1.0, np.abs(exact).max())
            np.testing.assert_allclose(value, exact, rtol=1e-4, atol=20 * bound)


@pytest.mark.parametrize("level", runnable("cpu", "x86_64-v3"))
@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "options"),
    [
        ((4, 32, 7, 7), 64, (3, 3), {"padding": 1}),
        ((5, 96, 14, 14), 64, (3, 3), {"padding": 1}),
        ((2, 24, 9, 13), 40, (3, 5), {"padding": (0, 3), "dilation": (2, 1)}),
        ((2, 20, 11, 8), 24, (3, 3), {"padding": 3}),
        ((2, 24, 12, 12), 32, (3, 3), {"padding": 1, "stride": 2}),
        ((2, 32, 8, 8), 48, (3, 3), {"padding": 1, "groups": 2}),
    ],
)
def test_gradients(level, shape, outputs, kernel, options):
    check(level, shape, outputs, kernel, **options)


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((3, 17, 40), (5,), {"padding": 2}),
        ((1, 16, 5, 6, 7), (3, 2, 3), {"padding": (1, 0, 1)}),
        ((2, 32, 9, 9), (4, 4), {"padding": 1, "transposed": True}),
        ((2, 16, 6, 7), (3, 3), {"stride": 2, "output_padding": 1, "transposed": True}),
    ],
)
def test_other_ranks_and_transposes(shape, kernel, options):
    check("cpu", shape, 24, kernel, **options)


@pytest.mark.parametrize("level", runnable("x86_64-v2"))
def test_windows_without_masks(level):
    check(level, (2, 16, 9, 11), 20, (3, 3), padding=1)
    check(level, (2, 16, 19, 21), 20, (3, 3), padding=1, stride=2)


@pytest.mark.parametrize("stride", [1, 2])
def test_no_copy_of_windows(stride):
    """A matmul reads the padded image, on each processor."""
    x, w = nova.tensor(np.zeros((2, 32, 14, 14), "f4")), nova.tensor(np.zeros((48, 32, 3, 3), "f4"))
    program = nova.compile(nova.conv2d(x, w, stride=stride, padding=1), inputs=[x, w])
    assert "nova_pack_windows" in str(program.stages["loops"])
    assert "2x32x3x3x" not in str(program.stages["kernels"])
    assert nova.translate(program, targets="aarch64")


def test_weights_of_a_batch_are_packed_once():
    check("cpu", (4, 128, 7, 7), 128, (3, 3), padding=1)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    level=st.sampled_from(runnable("cpu", "x86_64-v3", "x86_64-v2")),
    batch=st.integers(1, 5),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    size=st.tuples(st.integers(3, 30), st.integers(3, 30)),
    kernel=st.sampled_from(((1, 1), (3, 3), (5, 5), (2, 3), (7, 1))),
    stride=st.tuples(st.sampled_from((1, 1, 1, 2)), st.sampled_from((1, 1, 2, 3))),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_generated(level, batch, channels, size, kernel, stride, dilation, padding):
    spans = zip(size, kernel, dilation, padding, strict=True)
    assume(all(n + 2 * p >= d * (k - 1) + 1 for n, k, d, p in spans))
    options = {"stride": stride, "dilation": dilation, "padding": padding}
    check(level, (batch, channels[0], *size), channels[1], kernel, **options)
