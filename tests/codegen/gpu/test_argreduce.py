"""Positions of extremes on a device: found by the lanes of a warp, and the first one counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_runs import check

import nova

_RANDOM = np.random.default_rng(0)


def _array(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("find", (nova.argmax, nova.argmin))
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((5000,), 0),
        ((8193,), 0),
        ((20000,), 0),
        ((100, 1000), 1),
        ((300, 50), 0),
        ((8, 300, 20), 1),
    ],
)
def test_first_of_equal_ones(find, shape, axis):
    program = check(lambda x: find(x, axis=axis), np.round(_array(*shape)))
    assert "shfl.sync" in program.ptx


@pytest.mark.parametrize("length", (8192, 8193, 20_000, 150_001))
def test_a_long_row_is_searched_by_a_cluster(length: int) -> None:
    """The first of equal ones, in any block of the cluster, and of NaNs."""
    x = np.round(_array(length))
    programs = {}
    for find in (nova.argmax, nova.argmin):
        row = nova.input((length,))
        programs[find] = nova.compile(
            find(row * 2), inputs=[row], target="cuda:sm_90a", run_mode="sim"
        )
        assert "barrier.cluster" in programs[find].stages["ptx"]
    for places in ((), (length - 1,), (length // 2, 5000), (0, length - 1)):
        x[list(places)] = np.nan
        assert programs[nova.argmax](x) == np.argmax(x)
        assert programs[nova.argmin](x) == np.argmin(x)


def test_special_values():
    x = _array(40, 500)
    x[3, [100, 50]] = np.nan
    x[4], x[5], x[6] = -np.inf, np.nan, np.inf
    check(lambda x: [nova.argmax(x, axis=-1), nova.argmin(x, axis=-1)], x)


def test_what_is_computed_on_the_way_and_other_types():
    program = check(lambda x: nova.argmax(x * x, axis=-1), np.round(_array(64, 300)))
    assert len(program.kernels) == 1 and "shfl.sync" in program.ptx
    check(lambda x: nova.argmin(x, axis=-1), _RANDOM.integers(-5, 5, (64, 300)))
    check(lambda x: nova.argmin(x, axis=-1), _RANDOM.integers(3, 255, (64, 300)).astype("u1"))


@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 5), 0), ((5, 5), 1), ((6, 5, 7), 1), ((70, 8, 33), 1)]
)
def test_short_axes_of_odd_sizes(shape: tuple[int, ...], axis: int) -> None:
    data = np.random.default_rng(3).standard_normal(shape, np.float32)
    x = nova.input(shape)
    program = nova.compile(
        [nova.argmax(x, axis), nova.argmin(x, axis)],
        inputs=[x],
        target="cuda:sm_90a",
        run_mode="sim",
    )
    largest, smallest = program(data)
    np.testing.assert_array_equal(largest, data.argmax(axis))
    np.testing.assert_array_equal(smallest, data.argmin(axis))


def test_flags_at_the_end_of_shared_memory(on_device: dict[str, Any]) -> None:
    """LLVM loads the last of 21 bytes as part of 8: the block has memory for all of them."""
    data = np.random.default_rng(0).standard_normal((3, 7)).astype("f4")
    x = nova.tensor(data, name="x")
    results = [nova.msort(x), *nova.topk(x, 3), *nova.kthvalue(x, 2), nova.median(x)]
    results += [*nova.cummax(x, 1), *nova.cummin(x, 1)]
    values = nova.compile(results, inputs=[x], **on_device)(data)
    expected = nova.compile(results, inputs=[x])(data)
    for value, reference in zip(values, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(value), np.asarray(reference))
    np.testing.assert_array_equal(np.asarray(values[0]), np.sort(data, axis=0))
