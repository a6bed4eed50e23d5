"""Adding at computed positions on a device: in parallel, and in the order of the loops."""

from __future__ import annotations

import numpy as np
import pytest
from device_runs import check, compile_function

import nova

_RANDOM = np.random.default_rng(0)


def _array(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype("f4")


def _positions(size: int, *shape: int) -> np.ndarray:
    return _RANDOM.integers(-size, size, shape)


@pytest.mark.parametrize(
    ("shape", "axis", "count", "blocks"),
    [
        ((100, 256), 0, 512, 50),  # two strips of 128 elements, a row per warp
        ((1000, 70), 0, 333, 250),  # lanes without elements
        ((30, 40, 20), 1, 77, 50),  # something before and behind the positions
        ((9000, 40), 0, 100, 563),  # four rows per warp, and warps without rows
        ((5000,), 0, 3000, 157),  # nothing at a position but one number
    ],
)
def test_slices_at_positions(shape, axis, count, blocks):
    updates = _array(*shape[:axis], count, *shape[axis + 1 :])
    program = check(
        lambda x, i, u: nova.index_add(x, i, u, axis=axis),
        _array(*shape),
        _positions(shape[axis], count),
        updates,
    )
    assert [k.device.grid[0] for k in program.kernels] == [blocks]


@pytest.mark.parametrize(("count", "width"), [(500, 64), (512, 128), (96, 256), (384, 100)])
def test_sums_have_the_order_of_the_loops(count, width):
    x, index = np.zeros((64, width), "f4"), np.zeros(count, np.int64)
    scales = 10.0 ** _RANDOM.integers(-6, 6, (count, width))
    updates = (_array(count, width) * scales).astype("f4")
    program, _ = compile_function(
        lambda x, i, u: nova.index_add(x, i, u, axis=0), [x, index, updates]
    )
    right = np.zeros(width, "f4")
    for row in updates:
        right += row
    (inputs,) = program.run([x, index, updates])
    np.testing.assert_array_equal(inputs[0], right)
    assert not inputs[1:].any()


@pytest.mark.parametrize("count", [128, 512, 640])
def test_frequent_positions(count):
    """Some positions have most of the updates, several of them among 32 adjacent ones."""
    index = (40 * _RANDOM.random(count) ** 3).astype(np.int64)
    check(
        lambda x, i, u: nova.index_add(x, i, u, axis=0), _array(40, 384), index, _array(count, 384)
    )


def test_a_lane_has_a_line_that_has_its_own_positions():
    program = check(
        lambda x, i, u: nova.scatter_add(x, i, u, axis=1),
        _array(640, 50),
        _positions(50, 640, 10),
        _array(640, 10),
    )
    assert [k.device.grid[0] for k in program.kernels] == [5]


def test_types_that_are_summed_in_others():
    half = _array(100, 256).astype("f2"), _positions(100, 512), _array(512, 256).astype("f2")
    check(lambda x, i, u: nova.index_add(x, i, u, axis=0), *half, tolerance=3e-3)
    full = _positions(9, 200, 64), _positions(200, 512), _positions(9, 512, 64)
    check(lambda x, i, u: nova.index_add(x, i, u, axis=0), *full)


def test_gradient_of_an_embedding():
    def loss(w, i, y):
        w.requires_grad = True
        nova.backward(nova.sum(nova.embedding(w, i) * y))
        return w.grad

    program = check(loss, _array(500, 96), _positions(500, 4, 128), _array(4, 128, 96))
    assert max(k.device.grid[0] for k in program.kernels) > 100
