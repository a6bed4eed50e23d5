"""Ops on i16, u16, u32 and u64: results of numpy, compiled and by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova
from nova import errors
from nova.core.dtypes import MORE_INTEGERS, DType, promote
from nova.core.dtypes import dtype as dtype_of
from nova.graph.interpret import evaluate

RNG = np.random.default_rng(2)


def values(dtype: DType, *shape: int) -> np.ndarray:
    """Any bits: sums and products wrap around."""
    info = np.iinfo(dtype.numpy)
    array = RNG.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    array.reshape(-1)[:3] = info.min, info.max, 1
    return array


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (nova.add, np.add),
    "sub": (nova.sub, np.subtract),
    "mul": (nova.mul, np.multiply),
    "floor_div": (
        lambda x, y: nova.floor_div(x, nova.maximum(y, 3)),
        lambda x, y: x // np.maximum(y, x.dtype.type(3)),
    ),
    "mod": (
        lambda x, y: nova.mod(x, nova.maximum(y, 3)),
        lambda x, y: x % np.maximum(y, x.dtype.type(3)),
    ),
    "minimum": (nova.minimum, np.minimum),
    "maximum": (nova.maximum, np.maximum),
    "eq": (nova.eq, np.equal),
    "lt": (nova.lt, np.less),
    "ge": (nova.ge, np.greater_equal),
    "bitwise_and": (nova.bitwise_and, np.bitwise_and),
    "bitwise_xor": (nova.bitwise_xor, np.bitwise_xor),
    "bitwise_not": (lambda x, y: nova.bitwise_not(x), lambda x, y: ~x),
    "where": (lambda x, y: nova.where(x > y, x, y), lambda x, y: np.where(x > y, x, y)),
    "max": (lambda x, y: nova.max(x, axis=1), lambda x, y: x.max(axis=1)),
    "min": (lambda x, y: nova.min(x, axis=0), lambda x, y: x.min(axis=0)),
    "argmax": (lambda x, y: nova.argmax(x, axis=1), lambda x, y: x.argmax(axis=1)),
    "sort": (lambda x, y: nova.sort(x, axis=1)[0], lambda x, y: np.sort(x, axis=1)),
    "matmul": (lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    "slice": (lambda x, y: x[::-1, 1::2], lambda x, y: x[::-1, 1::2]),
    "concat": (lambda x, y: nova.concat([x, y], axis=0), lambda x, y: np.concatenate([x, y])),
    "pad": (
        lambda x, y: nova.pad(x, (1, 0), (0, 2), value=7),
        lambda x, y: np.pad(x, ((1, 0), (0, 2)), constant_values=7),
    ),
    "float": (lambda x, y: nova.cast(x, dtype="f64"), lambda x, y: x.astype("f8")),
    "narrow": (lambda x, y: nova.cast(x, dtype="i8"), lambda x, y: x.astype("i1")),
    "wide": (lambda x, y: nova.cast(x, dtype="i64"), lambda x, y: x.astype("i8")),
    "gather": (lambda x, y: nova.take(x, np.array([2, 0]), axis=0), lambda x, y: x[[2, 0]]),
    "shift": (
        lambda x, y: nova.bitwise_left_shift(x, nova.full_like(x, 3)),
        lambda x, y: x << x.dtype.type(3),
    ),
}


@pytest.mark.parametrize("dtype", MORE_INTEGERS, ids=str)
def test_ops_are_numpys(dtype: DType) -> None:
    x, y = values(dtype, 4, 6), values(dtype, 4, 6)
    X, Y = nova.tensor(x, name="x"), nova.tensor(y, name="y")
    outputs, expected = {}, {}
    for name, (function, reference) in FUNCTIONS.items():
        outputs[name] = function(X, Y)
        with np.errstate(all="ignore"):
            expected[name] = reference(x, y)
    interpreted = evaluate(list(outputs.values()))
    compiled = nova.compile(list(outputs.values()), inputs=[X, Y]).run([x, y])
    for name, a, b in zip(outputs, interpreted, compiled, strict=True):
        assert a.dtype == b.dtype == expected[name].dtype, name
        np.testing.assert_array_equal(a, expected[name], err_msg=name)
        np.testing.assert_array_equal(b, expected[name], err_msg=name)


def test_promotion_has_room_for_both() -> None:
    names = {
        ("i16", "u16"): "i32",
        ("i16", "u8"): "i16",
        ("u16", "i8"): "i32",
        ("u16", "u8"): "u16",
        ("u32", "i32"): "i64",
        ("u32", "i64"): "i64",
        ("u64", "u32"): "u64",
        ("i16", "bool"): "i16",
        ("u64", "f16"): "f16",
    }
    for (a, b), result in names.items():
        assert promote(dtype_of(a), dtype_of(b)).name == result
    with pytest.raises(errors.DTypeError, match="i64 and u64 have no common type"):
        nova.add(nova.tensor(np.zeros(2, "i8")), nova.tensor(np.zeros(2, "u8")))


def test_a_file_and_a_plan_keep_the_types(tmp_path: Any) -> None:
    x = nova.tensor(values(nova.u32, 5), name="x")
    program = nova.compile(x * 3, inputs=[x])
    assert "u32[5]" in str(program.plan)
    assert nova.compile_plan(str(program.plan)).run([x.data]).dtype == np.uint32
    program.save(tmp_path / "program.nova")
    np.testing.assert_array_equal(nova.load(tmp_path / "program.nova")(x.data), x.data * 3)
