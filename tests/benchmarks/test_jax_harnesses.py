"""jax's own suite through Nova: its programs are right, or refused by an error of their own."""

from __future__ import annotations

import jax
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


def test_complex_numbers_and_transforms_pass() -> None:
    assert {result[0] for result in outcomes(1, ("complex", "fft")).values()} == {"pass"}


@pytest.mark.slow
def test_no_program_is_wrong() -> None:
    results = outcomes(4)
    bad = {name: result for name, result in results.items() if result[0] in ("wrong", "unclean")}
    assert not bad
    passed = sum(result[0] == "pass" for result in results.values())
    assert passed >= 0.75 * len(results), f"{passed} of {len(results)}"
