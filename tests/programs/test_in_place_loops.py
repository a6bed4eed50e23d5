"""Loops whose carries are updated in place: random bodies against numpy, and the texts of plans.

The bodies update slices of carries, read old values before and after an update, exchange carries,
and carry them through a loop inside. Values are small integers: results are exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nova

ROWS, WIDTH = 5, 3

Statement = tuple[str, int, int, int]
"""A statement, two carries, and a row relative to the iteration."""

STATEMENTS = st.tuples(
    st.sampled_from(
        ["set_row", "set_block", "add_row", "move_row", "save", "add", "swap", "copy", "nested"]
    ),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(-2, 6),
)


class _Numpy:
    """The functions that bodies use, on arrays."""

    @staticmethod
    def update(x: np.ndarray, rows: np.ndarray, start: int) -> np.ndarray:
        start = start + ROWS if start < 0 else start
        start = min(max(start, 0), ROWS - len(rows))
        out = x.copy()
        out[start : start + len(rows)] = rows
        return out

    @staticmethod
    def rows(x: np.ndarray, start: int, count: int) -> np.ndarray:
        start = start + ROWS if start < 0 else start
        start = min(max(start, 0), ROWS - count)
        return x[start : start + count].copy()

    @staticmethod
    def loop(count: int, body: Callable[..., Any], state: Any) -> Any:
        for i in range(count):
            state = body(i, state)
        return state


class _Nova:
    """The same on tensors."""

    @staticmethod
    def update(x: Any, rows: Any, start: Any) -> Any:
        return nova.dynamic_update_slice(x, rows, (start, 0))

    @staticmethod
    def rows(x: Any, start: Any, count: int) -> Any:
        return nova.dynamic_slice(x, (start, 0), (count, WIDTH))

    @staticmethod
    def loop(count: int, body: Callable[..., Any], state: Any) -> Any:
        return nova.fori_loop(0, count, body, state)


def _body(f: Any, statements: list[Statement], i: Any, state: Any) -> Any:
    """One iteration; the last of the state collects reads of old values."""
    *caches, total = state
    saved = caches[0]
    for name, a, b, row in statements:
        if name == "set_row":
            caches[a] = f.update(caches[a], f.rows(caches[b], row, 1) + 1, i + row)
        elif name == "set_block":
            caches[a] = f.update(caches[a], f.rows(caches[b], row, 2) - 2, i - row)
        elif name == "add_row":
            caches[a] = f.update(caches[a], f.rows(caches[a], i + row, 1) + 3, i + row)
        elif name == "move_row":
            caches[a] = f.update(caches[a], f.rows(caches[a], row, 1), i)
        elif name == "save":
            total, saved = total + saved, caches[a]
        elif name == "add":
            caches[a] = caches[a] + caches[b]
        elif name == "swap":
            caches[a], caches[b] = caches[b], caches[a]
        elif name == "copy":
            caches[a] = caches[b]
        else:
            caches[a] = f.loop(2, partial(_inner, f, row), caches[a])
    return [*caches, total + saved]


def _inner(f: Any, row: int, k: Any, cache: Any) -> Any:
    return f.update(cache, f.rows(cache, k, 1) + 1, k + row)


def _arrays() -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 9, (4, ROWS, WIDTH)))


def _in_loop(f: Any, statements: list[Statement]) -> Callable[..., Any]:
    def function(*state: Any) -> Any:
        return f.loop(4, lambda i, s: _body(f, statements, i, s), list(state))

    return function


def _while(statements: list[Statement]) -> Callable[..., Any]:
    """The loop that ends by its condition, which reads a carry."""

    def function(*state: Any) -> Any:
        def body(carry: Any) -> Any:
            return carry[0] + 1, _body(_Nova, statements, carry[0], carry[1])

        def condition(carry: Any) -> Any:
            return (carry[0] < 4) & (carry[1][0].sum() != 1 << 40)

        return nova.while_loop(condition, body, (0, list(state)))[1]

    return function


QUICK = settings(
    max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
SLOW = settings(QUICK, max_examples=60)


def _check(statements: list[Statement]) -> None:
    arrays = _arrays()
    expected = _in_loop(_Numpy, statements)(*arrays)
    for function in (_in_loop(_Nova, statements), _while(statements)):
        given_arrays = [a.copy() for a in arrays]
        results = nova.jit(function)(*given_arrays)
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, right)
        for before, after in zip(arrays, given_arrays, strict=True):
            np.testing.assert_array_equal(after, before, err_msg="an argument was changed")


@QUICK
@given(st.lists(STATEMENTS, min_size=1, max_size=5))
def test_random_bodies(statements: list[Statement]) -> None:
    _check(statements)


@pytest.mark.slow
@SLOW
@given(st.lists(STATEMENTS, min_size=1, max_size=6))
def test_many_random_bodies(statements: list[Statement]) -> None:
    _check(statements)


# --- texts ----------------------------------------------------------------------------------------


def _plan(function: Callable[..., Any], *arrays: Any) -> str:
    return str(nova.jit(function).lower(*arrays).stages["buffers"])


def _function(text: str, name: str) -> str:
    """The text of a function."""
    match = re.search(rf"func\.func (?:private )?@{name}\(.*?\n  }}", text, re.DOTALL)
    assert match is not None, name
    return match.group()


def _copies_cache(text: str) -> bool:
    """Whether a kernel reads a cache to write a cache."""
    cache = "memref<512x64xf32>"
    pattern = rf"ins\([^)]*: [^)]*{cache}[^)]*\) outs\([^)]*: [^)]*{cache}"
    return re.search(pattern, text) is not None


CACHE, ROW = np.zeros((512, 64), np.float32), np.ones((1, 64), np.float32)


def _fill(cache: Any, row: Any, reads_old: bool = False) -> Any:
    def body(carry: Any) -> Any:
        i, cache, total = carry
        new = nova.dynamic_update_slice(cache, row * i, (i, 0))
        return i + 1, new, total + (cache if reads_old else new)[0, 0]

    return nova.while_loop(lambda carry: carry[0] < 512, body, (0, cache, np.float32(0)))


def test_a_row_of_a_carry_is_written_in_place() -> None:
    text = _plan(_fill, CACHE, ROW)
    region = _function(text, "loop_1_0")
    assert re.search(r"nova.in_place = array<i64: 1\b", region)
    # No kernel copies the cache, and there is no second buffer for it.
    assert not _copies_cache(text)
    assert "memref.store" in text
    [size] = re.findall(r"nova.workspace = (\d+)", _function(text, "main"))
    assert int(size) < CACHE.nbytes


def test_two_loops_share_the_buffer_of_a_carry() -> None:
    """The second loop goes on with the buffer of the first, which is the output."""

    def twice(cache: Any, row: Any) -> Any:
        _, cache, _ = _fill(cache, row)
        return _fill(cache, row + 1)[1]

    main = _function(_plan(twice, CACHE, ROW), "main")
    first, second = re.findall(r"call @loop_\d+\((.*?)\)", main)
    output = re.findall(r"%arg\d+(?=: memref<512x64xf32>)", main)[1]
    assert output in first and second.count(output) == 2


def test_an_updated_argument_is_the_carry() -> None:
    """A donated buffer is the memory of the loop: nothing of its size is copied."""
    cache = nova.tensor(CACHE, name="cache", requires_grad=True)
    row = nova.tensor(ROW, name="row")
    new = _fill(cache, row)[1]
    program = nova.compile(new[0, 0], inputs=[row], params=[cache], updates={cache: new})
    main = _function(str(program.stages["buffers"]), "main")
    [operands] = re.findall(r"call @loop_\d+\((.*?)\)", main)
    [argument] = re.findall(r"%arg\d+(?=: memref<512x64xf32>)", main)
    assert operands.split(", ").count(argument) == 2
    arrays = CACHE.copy()
    program.run([ROW], [arrays])
    np.testing.assert_array_equal(arrays, np.arange(512, dtype=np.float32)[:, None] * ROW)


def test_a_straight_update_of_an_argument_is_in_place() -> None:
    cache = nova.tensor(CACHE, name="cache", requires_grad=True)
    row = nova.tensor(ROW, name="row")
    new = nova.dynamic_update_slice(cache, row, (3, 0))
    program = nova.compile(row.sum(), inputs=[row], params=[cache], updates={cache: new})
    assert not _copies_cache(str(program.stages["buffers"]))
    arrays = CACHE.copy()
    program.run([ROW], [arrays])
    assert arrays.sum() == 64 and (arrays[3] == 1).all()


def test_an_old_value_that_is_read_later_stays() -> None:
    """The first result is the old value of each iteration: the carry has two buffers."""
    index, cache, total = nova.jit(lambda c, r: _fill(c, r, reads_old=True))(CACHE + 2, ROW)
    assert total == 2 and int(index) == 512  # the first row is 2, then 0
    np.testing.assert_array_equal(cache, np.arange(512, dtype=np.float32)[:, None] * ROW)
