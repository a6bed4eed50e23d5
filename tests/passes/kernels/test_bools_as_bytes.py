"""Constants of bools: one byte each in memory, of every size."""

from __future__ import annotations

import numpy as np
import pytest

import nova

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (), (1,), (9,), (17, 3), (70_001,)])
def test_constant_bools(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype("f4")
    X = nova.tensor(x, name="X")
    for mask in (RNG.random(shape) > 0.5, np.ones(shape, bool), np.zeros(shape, bool)):
        program = nova.compile(nova.where(nova.tensor(mask), X, -X), inputs=[X])
        assert np.array_equal(program.run([x]), np.where(mask, x, -x))


def test_large_constant_bools_are_not_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from nova.passes.kernels import bools_as_bytes

    calls = []
    monkeypatch.setattr(
        bools_as_bytes, "_byte", lambda byte=bools_as_bytes._byte: (calls.append(1), byte())[1]
    )
    mask = RNG.random(50_000) > 0.5
    x = RNG.standard_normal(50_000).astype("f4")
    X = nova.tensor(x, name="X")
    with nova.knobs.override(cache=False):
        program = nova.compile(nova.where(nova.tensor(mask), X, -X), inputs=[X])
    assert np.array_equal(program.run([x]), np.where(mask, x, -x))
    assert len(calls) < 1000
