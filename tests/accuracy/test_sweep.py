"""The f32 functions a user compiles, over the bit patterns: at most 2 ulp, special values right.

Every run takes every 4001st pattern and the hardest known ones; `slow` takes all of them.
"""

from __future__ import annotations

import numpy as np
import pytest
import sweep
import table
from processors import runnable

BOUND = 2.0


LEVELS = runnable("cpu", "x86_64-v3", "x86_64")


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("name", sweep.FUNCTIONS)
def test_error_is_bounded(name: str, target: str) -> None:
    report = sweep.sweep(name, target, stride=4001)
    assert report.ulp <= BOUND, report
    assert report.wrong == 0, report


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("name", sweep.FUNCTIONS)
def test_error_is_bounded_everywhere(name: str, part: int) -> None:
    report = sweep.sweep(name, "cpu", part=part, parts=8)
    assert report.patterns == sweep.PATTERNS // 8
    assert report.ulp <= BOUND, report
    assert report.wrong == 0, report


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_next_to_multiples_of_a_quarter_turn(name: str, target: str) -> None:
    # Of all f32 these come nearest; the first lost two ulp to a rounding in the reduction.
    hardest = [float.fromhex(h) for h in ("0x1.f37c8ap+95", "0x1.921fb6p+0", "0x1.2d97c8p+2")]
    x = np.array([*hardest, *(-h for h in hardest)], np.float32)
    actual = np.empty_like(x)
    sweep.compile_function(name, target, x.size).run([x], out=[actual])
    exact = getattr(np, name)(x.astype(np.float64))
    error = np.abs(actual - exact) / np.spacing(np.abs(exact).astype("f4"))
    assert error.max() <= BOUND


@pytest.mark.parametrize("target", LEVELS)
def test_sigmoid_is_right_where_exp_overflows(target: str) -> None:
    x = np.array([-88.8, -95, -103.2, -104, -np.inf, np.inf, 88.8, 0, np.nan], np.float32)
    actual = np.empty_like(x)
    sweep.compile_function("sigmoid", target, x.size).run([x], out=[actual])
    with np.errstate(over="ignore"):
        exact = (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    np.testing.assert_array_max_ulp(actual[:-1], exact[:-1], 1)
    assert np.isnan(actual[-1])


def test_the_judge_sees_what_is_wrong() -> None:
    """A function judged as another one: errors, infinities, NaN and zeros are all counted."""
    report = sweep.RawReport()
    # Two NaN, then -0 and the first negative subnormal.
    actual = np.array([1.0, np.nan, 1.0, 1.0], np.float32)
    sweep.judge("log", report, 0x80000000 - 2, 1, actual)
    assert (report.nan, report.inf) == (2, 1)
    # sin(-0) is -0, and the sine of the least subnormal is that number.
    report = sweep.RawReport()
    sweep.judge("sin", report, 0x80000000, 1, np.array([0.0, -3e-45], np.float32))
    assert (report.zero, report.subnormal, report.at) == (1, 0, 0x80000001)
    assert report.ulp == pytest.approx(1.0)


def test_the_page_says_what_was_measured() -> None:
    assert table.PAGE.read_text() == table.written_page()


def test_what_was_measured_keeps_the_bound() -> None:
    rows = [row for rows in table.reports().values() for row in rows.values()]
    assert rows
    assert all(row.ulp <= BOUND and row.wrong == 0 for row in rows)
