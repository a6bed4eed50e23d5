"""Bitwise rows of integers and bool, and shifts of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import DType, bool_, promote_all
from nova.errors import DTypeError
from nova.ops.pointwise import binary, unary
from nova.ops.table import Op, register


def _whole(types: tuple[DType, ...]) -> tuple[DType, ...]:
    """The common type, which is an integer or bool."""
    common = promote_all(types)
    if common.is_float:
        raise DTypeError(f"bits of {common}", hint="cast to an integer type first")
    return (common,) * len(types)


def _integers(types: tuple[DType, ...]) -> tuple[DType, ...]:
    """The common type, which is an integer."""
    (common, *_) = _whole(types)
    if common is bool_:
        raise DTypeError("shifts of bool", hint="cast to an integer type first")
    return (common,) * len(types)


def _bits(name: str, doc: str, numpy: Any, symbol: str) -> Op:
    return binary(
        f"bitwise_{name}",
        f"{doc} of the bits of integers, or of bools.",
        numpy,
        lambda s, x, y: s.binary(symbol, x, y),
        None,
        cast=_whole,
    )


def _in_range(x: np.ndarray, count: np.ndarray) -> np.ndarray:
    return (count >= 0) & (count < x.dtype.itemsize * 8)


def _left_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    inside = _in_range(x, y)
    return np.where(inside, np.left_shift(x, np.where(inside, y, 0)), x.dtype.type(0))


def _right_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    most = x.dtype.type(x.dtype.itemsize * 8 - 1)
    return np.right_shift(x, np.where(_in_range(x, y), y, most).astype(x.dtype))


def _left_scalar(s: Any, x: Any, y: Any) -> Any:
    # A count out of range is poison in LLVM: all bits are shifted out.
    inside = (y >= 0) & (y < x.dtype.bits)
    return s.select(inside, s.binary("shl", x, s.select(inside, y, 0)), 0)


def _right_scalar(s: Any, x: Any, y: Any) -> Any:
    inside = (y >= 0) & (y < x.dtype.bits)
    count = s.select(inside, y, x.dtype.bits - 1)
    return s.binary("shr", x, count)


ROWS: tuple[Op, ...] = (
    _bits("and", "The conjunction", np.bitwise_and, "and"),
    _bits("or", "The disjunction", np.bitwise_or, "or"),
    _bits("xor", "The exclusive or", np.bitwise_xor, "xor"),
    unary(
        "bitwise_not",
        "The complement of the bits of an integer, or of a bool.",
        np.invert,
        lambda s, x: x ^ (1 if x.dtype is bool_ else -1),
        None,
        cast=_whole,
    ),
    binary(
        "bitwise_left_shift",
        "x shifted left by y bits; 0 where y is not below the width.",
        _left_numpy,
        _left_scalar,
        None,
        cast=_integers,
    ),
    binary(
        "bitwise_right_shift",
        "x shifted right by y bits, with the sign coming in; as by the width less 1 where y is "
        "not below it.",
        _right_numpy,
        _right_scalar,
        None,
        cast=_integers,
    ),
)


def register_rows() -> None:
    register(*ROWS)
