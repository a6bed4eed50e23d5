"""Reductions to few results on a device: in two launches, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from device_runs import check

import nova

_RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("function", "shape", "launches"),
    [
        (nova.sum, (512, 512), 2),
        (lambda x: nova.mean(nova.exp(x)), (64, 1000, 10), 2),
        (lambda x: nova.max(x, axis=0), (70_000, 6), 2),
        (lambda x: nova.sum(x, axis=(0, 2)), (100, 4, 900), 2),
        (lambda x: nova.sum(x * x, axis=1), (3, 66_000), 2),
        (nova.sum, (65_537,), 1),  # a prime number: nothing to cut
        (nova.sum, (8_000,), 1),
    ],
)
def test_parts_first(function, shape, launches):
    x = _RANDOM.standard_normal(shape).astype("f4")
    program = check(function, x, tolerance=1e-4)
    assert len(program.kernels) == launches
    if launches == 2:
        assert program.kernels[0].device.grid[0] >= 24
    again, second = program.run([x]), program.run([x])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(again, second, strict=True))


def test_operands_after_a_sum_of_columns_are_loaded_before_it() -> None:
    """Such as the moments of an optimizer: after the exchange, nothing waits for memory."""
    x, moment = nova.input((512, 256)), nova.input((256,))
    program = nova.compile(
        moment * 0.9 + nova.tanh(x).sum(0) * moment,
        inputs=[x, moment],
        target="cuda:sm_90a",
        run_mode="sim",
    )
    text = program.stages["ptx"]
    last = max(text.rfind("bar.sync"), text.rfind("barrier.cluster"))
    assert last > 0 and "st.global" in text[last:] and "ld.global" not in text[last:]
    a = np.random.default_rng(0).standard_normal((512, 256), np.float32)
    b = np.random.default_rng(1).standard_normal(256, np.float32)
    want = b * 0.9 + np.tanh(a.astype(np.float64)).sum(0) * b
    np.testing.assert_allclose(np.asarray(program(a, b)), want, rtol=0, atol=2e-4)
