"""The dtypes and shapes of carried values: those of `jax.lax`, whose numbers are weak, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova
from nova import nn
from nova.errors import CarryError, DTypeError

jax = pytest.importorskip("jax")

Body = Callable[[Any], Any]

BF16 = np.ones((), ml_dtypes.bfloat16)
INITIAL: dict[str, Any] = {
    "int": 0,
    "float": 1.0,
    "bool": True,
    "complex": 1j,
    "i8": np.int8(0),
    "i32": np.int32(0),
    "bf16": BF16,
    "f32": np.float32(0),
}
BODIES: dict[str, Body] = {
    "itself": lambda c: c,
    "plus int": lambda c: c + 1,
    "plus float": lambda c: c + 1.5,
    "plus complex": lambda c: c + 1j,
    "plus i8": lambda c: c + np.int8(1),
    "plus bf16": lambda c: c + BF16,
    "plus f32": lambda c: c + np.float32(1.5),
    "plus f32[3]": lambda c: c + np.ones(3, "f4"),
    "half": lambda c: c / 2,
    "an i8": lambda c: np.int8(1),
    "an i32": lambda c: np.int32(1),
    "a float": lambda c: 1.0,
}
LOOPS: dict[str, Callable[[Any, Body, Any, Any], Any]] = {
    "while_loop": lambda lib, f, x, n: lib.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1])), (0, x)
    )[1],
    "fori_loop": lambda lib, f, x, n: lib.fori_loop(0, 3, lambda i, c: f(c), x),
    "fori_loop of a tensor": lambda lib, f, x, n: lib.fori_loop(0, n, lambda i, c: f(c), x),
    "scan": lambda lib, f, x, n: lib.scan(lambda c, _: (f(c), None), x, None, 3)[0],
    "scan of nothing": lambda lib, f, x, n: lib.scan(lambda c, _: (f(c), None), x, None, 0)[0],
    "scan of one": lambda lib, f, x, n: lib.scan(lambda c, _: (f(c), None), x, None, 1)[0],
    "unrolled": lambda lib, f, x, n: lib.scan(lambda c, _: (f(c), None), x, None, 3, unroll=True)[
        0
    ],
}


@pytest.mark.parametrize("loop", LOOPS)
def test_carries_have_the_dtypes_of_jax(loop: str) -> None:
    """Nova's integers have 64 bits by default; no other dtype differs, and the same are errors."""
    count = np.array(3, "i4")
    for body_name, body in BODIES.items():
        for initial_name, initial in INITIAL.items():
            try:
                loop_of_jax = partial(LOOPS[loop], jax.lax, body, initial)
                theirs = jax.eval_shape(loop_of_jax, count)
                expected: Any = theirs.dtype
            except TypeError:
                expected = CarryError
            try:
                value = LOOPS[loop](nova, body, initial, nova.tensor(count))
                actual: Any = value.dtype.numpy
                assert value.shape == ()
            except CarryError as error:
                actual = CarryError
                assert "test_carry_types.py" in str(error)
            if initial_name == "int" and actual == np.int64:
                actual = np.dtype("i4")
            assert actual == expected, (body_name, initial_name)


def test_values_of_promoted_carries() -> None:
    bf16 = np.arange(4).astype(ml_dtypes.bfloat16)

    @nova.jit
    def run(xs: Any) -> Any:
        grown = nova.while_loop(lambda c: c < 4, lambda c: c + 1.5, 0)
        total, sums = nova.scan(lambda c, x: (c + x, c), 0.0, xs)
        complex_ = nova.fori_loop(0, 3, lambda i, c: c * 1j, 2)
        return grown, total, sums, complex_

    grown, total, sums, complex_ = run(bf16)
    assert grown == 4.5 and complex_ == -2j
    assert total.dtype == sums.dtype == ml_dtypes.bfloat16
    assert float(total) == 6 and sums.astype("f4").tolist() == [0, 0, 1, 3]


def test_numbers_are_converted_once() -> None:
    """As f32 first, 0.1 would not be the nearest f64."""

    def body(c: Any, _: Any) -> Any:
        return c + np.zeros((), "f8"), None

    for unroll in (1, True):
        last = nova.scan(body, 0.1, length=2, unroll=unroll)[0]
        assert last.dtype is nova.f64 and last.numpy() == 0.1
    assert nova.jit(lambda start: nova.scan(body, start, length=2)[0])(0.1) == 0.1
    turned = nova.jit(lambda start: nova.fori_loop(0, 3, lambda i, c: c * 1j, start))(2)
    assert turned == -2j
    with pytest.raises(DTypeError, match=r"scan: carry: 300 does not fit i8") as raised:
        nova.scan(lambda c, _: (c + np.int8(1), None), 300, length=2)
    assert "test_carry_types.py" in raised.value.where


def test_numbers_as_arguments_of_a_jitted_function_are_weak() -> None:
    run = nova.jit(lambda start, x: nova.scan(lambda c, _: (c + x, None), start, length=3)[0])
    for start, x, expected in ((0, np.float32(0.5), 1.5), (1.0, BF16, 4.0), (0, np.int8(2), 6)):
        last = run(start, x)
        assert last.dtype == x.dtype and last == expected
    with pytest.raises(CarryError, match=r"carry as f32\[\] and returns i32\[\]"):
        nova.jit(lambda s: nova.fori_loop(0, 3, lambda i, c: np.int32(1), s))(1.5)
    with pytest.raises(CarryError, match=r"carry as bool\[\] and returns i64\[\]"):
        nova.jit(lambda s: nova.fori_loop(0, 3, lambda i, c: c + 1, s))(True)


@pytest.mark.parametrize("lower", [0, 2])
@pytest.mark.parametrize("upper", [5, 3, np.array(5)])
def test_the_index_of_a_fori_loop_is_a_number(lower: int, upper: Any) -> None:
    """Added to a carry, it takes the dtype of the carry, as in jax."""
    bound = nova.tensor(upper) if isinstance(upper, np.ndarray) else upper
    for unroll in (None, True) if isinstance(upper, int) else (None,):
        total = nova.fori_loop(lower, bound, lambda i, c: c + i, np.int8(0), unroll=unroll)
        assert total.dtype is nova.i8
        assert total.numpy() == sum(range(lower, int(upper)))
    last = nova.jit(lambda n: nova.fori_loop(n, bound, lambda i, c: c + i, np.int8(0)))(lower)
    assert last.dtype == np.int8 and last == sum(range(lower, int(upper)))


def test_rows_of_an_unrolled_scan_have_the_dtypes_of_the_loop() -> None:
    def body(c: Any, x: Any) -> Any:
        return c + 1, c * x

    for start, x in ((0, np.ones(3, "i1")), (0.0, np.ones(3, ml_dtypes.bfloat16))):
        loop, unrolled = (nova.scan(body, start, x, unroll=u) for u in (1, True))
        assert [t.type for t in loop] == [t.type for t in unrolled]
        assert loop[1].dtype.numpy == x.dtype
        np.testing.assert_array_equal(
            loop[1].numpy().astype("f4"), unrolled[1].numpy().astype("f4")
        )


def test_one_iteration_with_arrays_is_no_region() -> None:
    """It may assign a buffer, as straight-line code."""
    model = nn.BatchNorm1d(3)
    nova.jit(lambda x: nova.fori_loop(0, 1, lambda i, v: model(v), x))(np.ones((4, 3), "f4"))
    assert model.num_batches_tracked == 1


@pytest.mark.parametrize(
    ("run", "text", "hint"),
    [
        (
            lambda x: nova.while_loop(
                lambda c: c["n"] < 3, lambda c: {"n": c["n"] + 1, "x": c["x"] / 2}, {"n": 0, "x": x}
            ),
            r"while_loop: the body takes carry\.x as i32\[\] and returns f32\[\]",
            'nova.cast(value, "i32"), or the initial one to f32',
        ),
        (
            lambda x: nova.fori_loop(0, nova.tensor(3), lambda i, c: (c[0], c[0] * 1.5), (x, x)),
            r"fori_loop: the body takes carry\.1 as i32\[\] and returns f32\[\]",
            'nova.cast(value, "i32")',
        ),
        (
            lambda x: nova.scan(lambda c, _: (x, None), 1.5, length=3),
            r"scan: the body takes carry as f32\[\] \(the number 1\.5\) and returns i32\[\]",
            'nova.cast(value, "f32"), or the initial one to i32',
        ),
        (
            lambda x: nova.fori_loop(0, 1, lambda i, c: c + np.ones(3, "i4"), x),
            r"fori_loop: the body takes carry as i32\[\] and returns i32\[3\]",
            "reshape or reduce the new value, or the initial one",
        ),
    ],
)
def test_errors_name_the_carry_both_types_and_the_cast(run: Any, text: str, hint: str) -> None:
    with pytest.raises(CarryError, match=text) as raised:
        run(nova.tensor(np.int32(1)))
    assert hint in raised.value.hint
    assert "test_carry_types.py" in raised.value.where
