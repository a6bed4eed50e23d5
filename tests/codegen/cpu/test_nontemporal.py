"""Streaming stores: which outputs take them, and that results lie anywhere and are the same."""

from __future__ import annotations

import numpy as np
import pytest
from processors import needs

import nova
from nova.core.targets import parse_target

LARGE = (32 << 20) // 4
LEVELS = [
    n
    for n in ("cpu", "x86_64-v3", "x86_64")
    if parse_target(n).arch == "x86_64"
    and set(parse_target(n).features) <= set(parse_target("cpu").features)
]


def program(level: str, size: int) -> nova.Compiled:
    x = nova.tensor(np.empty(size, np.float32), name="x")
    return nova.compile(x * 2.0 + 1.0, inputs=[x], target=level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [LARGE, LARGE + 13])
def test_large_results_stream_and_are_right_wherever_they_lie(level, size):
    compiled = program(level, size)
    assert "nontemporal" in compiled.stages["ll"]
    assert "sfence" in compiled.stages["ll"]
    x = np.arange(size, dtype=np.float32)
    expected = x * np.float32(2) + np.float32(1)
    for shift in (0, 1, 4, 16):  # elements: unaligned, and aligned to 16 and 64 bytes
        area = np.zeros(size + 32, np.float32)
        first = -(area.ctypes.data // 4) % 16 + shift
        compiled.run([x], out=[area[first : first + size]])
        assert (area[first : first + size] == expected).all()
        assert not area[:first].any()
        assert not area[first + size :].any()


@needs("x86_64-v3")
def test_small_and_updated_results_stay_in_the_caches():
    assert "nontemporal" not in program("x86_64-v3", 1 << 20).stages["ll"]
    x = nova.tensor(np.zeros(LARGE, np.float32), name="x")
    total = nova.compile(nova.sum(x * 2.0), inputs=[x], target="x86_64-v3")
    assert "nontemporal" not in total.stages["ll"]


@pytest.mark.parametrize("level", LEVELS)
def test_tiles_that_begin_anywhere(level):
    """The copies of windows stream into tiles of a buffer whose offsets are no whole vectors."""
    x, w = np.ones((5, 64, 30, 61), np.float32), np.ones((1, 64, 3, 3), np.float32)
    inputs = [nova.input(x.shape), nova.input(w.shape)]
    compiled = nova.compile(nova.conv2d(*inputs, padding=(1, 0)), inputs=inputs, target=level)
    result = np.asarray(compiled(x, w))
    assert (result[:, :, 1:-1] == 576).all()
    assert (result[:, :, [0, -1]] == 384).all()
