"""jax's own suite through Nova: its programs are right, or refused by an error of their own."""

from __future__ import annotations

import jax
import numpy as np
import pytest

pytest.importorskip("absl", reason="jax's own suite needs absl-py")

import jax_harnesses

# One of each lowering for every run; `make nightly` goes through all groups.
SAMPLE = ("add", "cumsum", "reduce_window_max", "select_and_scatter_add", "sort", "random_split")


def outcomes(most: int, groups: tuple[str, ...] = ()) -> dict[str, tuple[str, str]]:
    with jax.enable_x64(True):
        harnesses = jax_harnesses.all_harnesses(most, groups)
        return {harness.fullname: jax_harnesses.run_harness(harness) for harness in harnesses}


def test_a_sample_passes() -> None:
    results = outcomes(1, SAMPLE)
    assert len(results) == len(SAMPLE)
    assert not {name: result for name, result in results.items() if result[0] != "pass"}


def test_an_unstable_sort_may_order_ties_freely() -> None:
    """Keys in another order, or other values for them, are still wrong."""
    keys, values = np.array([1, 2, 2, 2], "i4"), np.array([4.0, 3.0, 1.0, 2.0], "f4")
    order = jax_harnesses._order_ties((keys, values), 1, 0)
    np.testing.assert_array_equal(order[1], [4, 1, 2, 3])
    swapped = jax_harnesses._order_ties((keys[::-1], values[::-1]), 1, 0)
    np.testing.assert_array_equal(swapped[0], [2, 2, 2, 1])
    with jax.enable_x64(True):
        harnesses = [
            h
            for h in jax_harnesses.all_harnesses(0, ("sort",))
            if h.params["num_keys"] < h.params["num_arrays"] and not h.params["is_stable"]
        ]
        assert {jax_harnesses.run_harness(h) for h in harnesses} == {("pass", "")}


def test_complex_numbers_and_transforms_pass() -> None:
    assert {result[0] for result in outcomes(1, ("complex", "fft")).values()} == {"pass"}


@pytest.mark.slow
def test_no_program_is_wrong() -> None:
    results = outcomes(4)
    bad = {name: result for name, result in results.items() if result[0] in ("wrong", "unclean")}
    assert not bad
    passed = sum(result[0] == "pass" for result in results.values())
    assert passed >= 0.75 * len(results), f"{passed} of {len(results)}"
