"""Rows of elementwise arithmetic and rounding.

Integers wrap around; division and remainder by an integer zero give 0 and never trap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, bool_
from nova.errors import DTypeError
from nova.ops.pointwise import binary, same_number, unary
from nova.ops.rules import Types, same_type
from nova.ops.table import Op, register


def _number_type(title: str) -> Any:
    """`same_type`, but rejects bool as numpy does for unary and binary minus."""

    def infer(ins: Types, attrs: dict[str, Any]) -> TensorType:
        if ins[0].dtype is bool_:
            raise DTypeError(
                f"{title} is not defined for bool tensors",
                hint="use logical_not or logical_xor, or cast to a number first",
            )
        return same_type(ins, attrs)

    return infer


# --- integer arithmetic -------------------------------------------------------------------------


def _safe_divisor(s: Any, x: Any, y: Any) -> Any:
    """`y`, but 1 where the hardware would trap: y == 0, and INT_MIN / -1."""
    bad = s.compare("eq", y, 0)
    if x.dtype.kind == "i":
        least = -(1 << (x.dtype.bits - 1))
        bad = bad | (s.compare("eq", x, least) & s.compare("eq", y, -1))
    return s.select(bad, 1, y)


def _needs_floor(s: Any, rem: Any, y: Any) -> Any:
    """Whether C's remainder must be adjusted to the sign of the divisor."""
    return s.compare("ne", rem, 0) & s.compare("ne", rem < 0, y < 0)


def _scalar_floor_div(s: Any, x: Any, y: Any) -> Any:
    if x.dtype.is_float:
        # numpy's rule: through the exact remainder, so that x == (x // y) * y + x % y.
        rem = s.rem(x, y)
        quotient = (x - rem) / y
        quotient = s.select(_needs_floor(s, rem, y), quotient - 1, quotient)
        below = s.call("floor", quotient)
        nearest = s.select(quotient - below > 0.5, below + 1, below)
        zero = s.call("copysign", s.const(0, x.dtype), x / y)
        result = s.select(s.compare("eq", quotient, 0), zero, nearest)
        return s.select(s.compare("eq", y, 0), x / y, result)
    safe = _safe_divisor(s, x, y)
    quotient = x / safe
    if x.dtype.kind == "i":
        rem = x - quotient * safe
        quotient = s.select(_needs_floor(s, rem, safe), quotient - 1, quotient)
    return s.select(s.compare("eq", y, 0), 0, quotient)


def _scalar_mod(s: Any, x: Any, y: Any) -> Any:
    if x.dtype.is_float:
        rem = s.rem(x, y)
        moved = s.select(_needs_floor(s, rem, y), rem + y, rem)
        return s.select(s.compare("eq", rem, 0), s.call("copysign", moved, y), moved)
    safe = _safe_divisor(s, x, y)
    rem = s.rem(x, safe)
    return s.select(_needs_floor(s, rem, safe), rem + safe, rem) if x.dtype.kind == "i" else rem


def _scalar_pow(s: Any, x: Any, y: Any) -> Any:
    if x.dtype.is_float:
        return s.call("powf", x, y)
    # Square and multiply over all bits of the exponent, without branches so that it vectorizes.
    result, base, exponent = s.const(1, x.dtype), x, y
    const_1 = s.const(1, x.dtype)
    value_bits = x.dtype.bits - (x.dtype.kind == "i")
    for bit in range(value_bits):
        result = s.select(s.compare("ne", exponent & const_1, 0), result * base, result)
        if bit < value_bits - 1:
            base = base * base
            exponent = s.binary("shr_u", exponent, const_1)
    if x.dtype.kind == "u":
        return result
    odd = s.compare("ne", y & const_1, 0)
    minus_one = s.select(s.compare("eq", x, -1) & odd, -1, const_1)
    unit = s.compare("eq", x, 1) | s.compare("eq", x, -1)
    return s.select(y < 0, s.select(unit, minus_one, 0), result)


def _numpy_pow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "i":
        return np.power(x, y)
    # numpy rejects negative exponents of integers; Nova gives 1/x**-y rounded to zero.
    result = np.power(x, np.maximum(y, 0))
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, inverse, result).astype(x.dtype)


def _vjp_pow(F: Any, g: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    # x**0 is constant in x, and 0**y is constant in y >= 0: the factors that would give 0 * inf
    # there are replaced inside the function as well, or their own derivative would be NaN.
    flat_x = y == 0
    dx = F.where(flat_x, 0.0, g * y * F.pow(x, F.where(flat_x, 1.0, y) - 1.0))
    flat_y = F.logical_and(x == 0, y >= 0)
    dy = F.where(flat_y, 0.0, g * out * F.log(F.where(flat_y, 1.0, x)))
    return dx, dy


# --- unary bodies -------------------------------------------------------------------------------


def _scalar_abs(s: Any, x: Any) -> Any:
    if x.dtype.is_float:
        return s.call("absf", x)
    return s.select(x < 0, -x, x) if x.dtype.kind == "i" else x


def _scalar_sign(s: Any, x: Any) -> Any:
    if x.dtype is bool_:
        return x
    # The last branch keeps NaN; -0.0 becomes 0.0 as in numpy.
    zero_or_nan = s.select(s.compare("eq", x, 0), 0, x)
    negative = s.select(x < 0, -1, zero_or_nan) if x.dtype.kind != "u" else zero_or_nan
    return s.select(x > 0, 1, negative)


def _rounding(name: str, doc: str, numpy: Any, function: str) -> Op:
    """Rounding rows keep integers and bools as they are and have gradient zero."""
    return unary(
        name,
        f"{doc}; integers stay as they are.",
        lambda x: numpy(x) if x.dtype.kind == "f" else x,
        lambda s, x: s.call(function, x) if x.dtype.is_float else x,
        lambda F, g, out, x: None,
    )


# --- rows ---------------------------------------------------------------------------------------

ROWS = (
    unary(
        "neg",
        "-x; integers wrap around, bool is refused.",
        np.negative,
        lambda s, x: -x,
        lambda F, g, out, x: -g,
        infer=_number_type("negation"),
    ),
    binary(
        "add",
        "x + y; of bools, their logical or.",
        np.add,
        lambda s, x, y: x | y if x.dtype is bool_ else x + y,
        lambda F, g, out, x, y: (g, g),
    ),
    binary(
        "sub",
        "x - y; bool is refused.",
        np.subtract,
        lambda s, x, y: x - y,
        lambda F, g, out, x, y: (g, -g),
        infer=_number_type("subtraction"),
    ),
    binary(
        "mul",
        "x * y; of bools, their logical and.",
        np.multiply,
        lambda s, x, y: x * y,
        lambda F, g, out, x, y: (g * y, g * x),
        tags=("smooth",),
    ),
    binary(
        "div",
        "True division x / y; integers and bools divide as f32.",
        np.true_divide,
        lambda s, x, y: x / y,
        lambda F, g, out, x, y: (g / y, -g * (out / y)),
        cast="float",
        tags=("smooth",),
        domain=("real", "nonzero"),
    ),
    binary(
        "floor_div",
        "x // y rounded down; integer division by zero gives 0; the gradient is zero.",
        np.floor_divide,
        _scalar_floor_div,
        lambda F, g, out, x, y: (None, None),
        cast=same_number,
        domain=("real", "nonzero"),
    ),
    binary(
        "mod",
        "The remainder x - (x // y) * y, with the sign of y; an integer modulo zero is 0.",
        np.mod,
        _scalar_mod,
        lambda F, g, out, x, y: (g, -g * F.floor_div(x, y)),
        cast=same_number,
        domain=("real", "nonzero"),
    ),
    binary(
        "pow",
        "x ** y; an integer to a negative power is 1 / x**-y rounded toward zero.",
        _numpy_pow,
        _scalar_pow,
        _vjp_pow,
        cast=same_number,
        tags=("smooth",),
        domain=("positive", "real"),
    ),
    unary(
        "square",
        "x * x.",
        np.square,
        lambda s, x: x * x,
        lambda F, g, out, x: g * (2.0 * x),
        cast=same_number,
        tags=("smooth",),
    ),
    unary(
        "reciprocal",
        "1 / x; integers and bools are divided as f32.",
        lambda x: np.true_divide(x.dtype.type(1), x),
        lambda s, x: 1 / x,
        lambda F, g, out, x: -g * (out * out),
        cast="float",
        tags=("smooth",),
        domain="nonzero",
    ),
    unary(
        "abs",
        "The absolute value; the gradient at 0 and at NaN is 0.",
        np.absolute,
        _scalar_abs,
        lambda F, g, out, x: g * F.where(x > 0, 1.0, F.where(x < 0, -1.0, 0.0)),
    ),
    unary(
        "sign",
        "-1, 0 or 1 by the sign of x, NaN of NaN; the gradient is zero.",
        lambda x: x if x.dtype.kind == "b" else np.sign(x),
        _scalar_sign,
        lambda F, g, out, x: None,
    ),
    _rounding("floor", "The largest whole number not above x", np.floor, "floor"),
    _rounding("ceil", "The smallest whole number not below x", np.ceil, "ceil"),
    _rounding("round", "The nearest whole number, halves to the even one", np.rint, "roundeven"),
    _rounding("trunc", "x without its fraction, rounded toward zero", np.trunc, "trunc"),
)


def register_rows() -> None:
    register(*ROWS)
