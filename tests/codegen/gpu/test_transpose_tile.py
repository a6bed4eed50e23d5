"""Transposed inputs on a device: read and written in the order of memory, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
from device_runs import check

_RANDOM = np.random.default_rng(0)


def _array(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype("f4")


@pytest.mark.parametrize(
    ("shape", "order", "blocks"),
    [
        ((128, 64), (1, 0), 8),
        ((100, 130), (1, 0), 20),  # tiles with a rest
        ((9, 600), (1, 0), 19),
        ((5, 40, 70), (0, 2, 1), 30),  # a square for each of a batch
        ((30, 20, 33), (2, 1, 0), 40),
    ],
)
def test_tiles_go_through_shared_memory(shape, order, blocks):
    x = _array(*shape)
    second = _array(*(shape[d] for d in order))
    program = check(lambda x, y: x.permute(order) * y, x, second)
    (kernel,) = program.kernels
    assert (kernel.device.grid[0], kernel.device.shared) == (blocks, 4 * 32 * 33)
    assert "bar.sync" in program.ptx


def test_two_inputs_of_two_types():
    x, mask = _array(80, 70), _RANDOM.integers(0, 2, (80, 70)).astype(bool)
    program = check(lambda x, m, y: (x.T + 1.0) * m.T.cast("f4") + y, x, mask, _array(70, 80))
    assert len(program.kernels) == 1 and program.kernels[0].device.shared > 4 * 32 * 33


def test_rows_that_stay_whole_need_no_tiles():
    program = check(lambda x: x.permute((0, 2, 1, 3)), _array(4, 32, 8, 16))
    assert [k.device.shared for k in program.kernels] == [0]
