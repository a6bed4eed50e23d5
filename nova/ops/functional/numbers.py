"""Elementwise functions of numbers that C and numpy have: fmod, fmax, frexp, nextafter, ..."""

from __future__ import annotations

from math import inf
from typing import Any

from nova.core.dtypes import accumulator, bf16, bool_, complex128, f16, f32, f64, i16, i32, i64
from nova.errors import DTypeError
from nova.ops.functional.common import (
    as_common,
    as_floats,
    as_integers,
    as_tensor,
    function,
    to_dtype,
)
from nova.ops.table import Op, register

NOGRAD = frozenset({"nograd"})
PAIR = ("x", "y")
# The integers that hold the bits of a float type, and how many bits its fraction has.
_BITS = {f16: (i16, 10), bf16: (i16, 7), f32: (i32, 23), f64: (i64, 52)}


def real_operands(F: Any, name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Both in their common type, which has an order and a sum: neither complex nor bool."""
    x, y = as_common(F, x, y)
    if x.dtype.is_complex or x.dtype is bool_:
        raise DTypeError(f"{name} of {x.dtype}", hint="cast to a float or an integer type first")
    return x, y


def _magnitude(F: Any, x: Any) -> Any:
    """|x| with the derivative 1 at 0."""
    return F.where(x < 0, -x, x)


def _fmod(F: Any, x: Any, y: Any) -> Any:
    x, y = real_operands(F, "fmod", x, y)
    if x.dtype.numpy.kind == "u":
        return F.mod(x, y)
    size = F.mod(_magnitude(F, x), _magnitude(F, y))
    # A remainder of an infinite divisor is x itself.
    if x.dtype.is_float:
        size = F.where(F.isinf(y) & F.isfinite(x), _magnitude(F, x), size)
    return F.where(x < 0, -size, size)


def _extreme(name: str, is_max: bool) -> Any:
    def build(F: Any, x: Any, y: Any) -> Any:
        x, y = as_common(F, x, y)
        if x.dtype.is_complex:
            raise DTypeError(f"{name} of {x.dtype}: complex numbers have no order")
        if not x.dtype.is_float:
            return F.maximum(x, y) if is_max else F.minimum(x, y)
        # Equal elements: all of the gradient goes to x, as in torch.
        first = F.ge(x, y) if is_max else F.le(x, y)
        return F.where(first | F.isnan(y), x, y)

    return build


def _float_power(F: Any, x: Any, y: Any) -> Any:
    x, y = as_common(F, x, y)
    wide = complex128 if x.dtype.is_complex else f64
    return F.pow(to_dtype(F, x, wide), to_dtype(F, y, wide))


def _is_infinity(name: str, value: float) -> Any:
    def build(F: Any, x: Any) -> Any:
        x = as_tensor(F, x)
        if x.dtype.is_complex:
            raise DTypeError(f"{name} of {x.dtype}", hint="test nova.real(x) and nova.imag(x)")
        return F.eq(x, value) if x.dtype.is_float else F.zeros(x.shape, dtype=bool_)

    return build


def _isreal(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    return F.eq(F.imag(x), 0) if x.dtype.is_complex else F.ones(x.shape, dtype=bool_)


def _positive(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    if x.dtype is bool_:
        raise DTypeError("positive of bool", hint="cast it to an integer type first")
    return x


def _clamp_to(name: str) -> Any:
    def build(F: Any, x: Any, bound: Any) -> Any:
        if not hasattr(bound, "shape"):
            return F.clamp(x, **{name: bound})
        x, bound = as_common(F, x, bound)
        inside = F.ge(x, bound) if name == "min" else F.le(x, bound)
        return F.where(inside | F.isnan(x) if x.dtype.is_float else inside, x, bound)

    return build


def _rsub(F: Any, x: Any, y: Any, alpha: Any = 1) -> Any:
    x = as_tensor(F, x)
    return F.sub(y, x if alpha == 1 else x * alpha)


def _cbrt(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    wide = to_dtype(F, x, f64)
    zero = F.eq(wide, 0.0) | F.logical_not(F.isfinite(wide))
    size = F.where(zero, 1.0, F.abs(wide))
    root = F.sign(wide) * F.exp(F.log(size) / 3.0)
    return to_dtype(F, F.where(zero, wide, root), x.dtype)


def _divmod(F: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return F.floor_div(x, y), F.mod(x, y)


def _modf(F: Any, x: Any) -> tuple[Any, Any]:
    (x,) = as_floats(F, x)
    whole = F.trunc(x)
    return F.where(F.isinf(x), F.zeros_like(x), x - whole), whole


# --- bits of floats -------------------------------------------------------------------------------


def _bit_layout(name: str, x: Any) -> tuple[Any, int]:
    if x.dtype not in _BITS:
        raise DTypeError(f"{name} of {x.dtype}", hint="cast it to f16, bf16, f32 or f64")
    return _BITS[x.dtype]


def _limits(type_: Any) -> Any:
    from ml_dtypes import finfo

    return finfo(type_.numpy)


def _frexp(F: Any, x: Any) -> tuple[Any, Any]:
    (x,) = as_floats(F, x)
    whole, fraction = _bit_layout("frexp", x)
    bias = (1 << (whole.bits - 2 - fraction)) - 1
    mask = 2 * bias + 1
    # Subnormal numbers are scaled into the range of the others first.
    small = F.abs(x) < float(_limits(x.dtype).tiny)
    normal = F.where(small, x * 2.0**fraction, x)
    bits = F.bitcast(F.detach(normal), dtype=whole)
    stored = F.bitwise_and(F.bitwise_right_shift(bits, fraction), mask)
    exponent = F.cast(stored, dtype=i32) - (bias - 1) - F.where(small, fraction, 0)
    kept = F.eq(x, 0.0) | F.logical_not(F.isfinite(x))
    exponent = F.cast(F.where(kept, 0, exponent), dtype=i32)
    return F.where(kept, x, _ldexp(F, x, -exponent)), exponent


def _ldexp(F: Any, x: Any, y: Any) -> Any:
    x, y = as_tensor(F, x), as_tensor(F, y)
    if y.dtype.is_float:
        (x,) = as_floats(F, x)
        return F.mul(x, F.exp2(y))
    (x,) = as_floats(F, x)
    power = as_integers(F, "ldexp", F.cast(y, dtype=i32) if y.dtype is bool_ else y, "the exponent")
    # Two factors: 2 ** y may be out of the range of the type where x * 2 ** y is not.
    half = F.floor_div(power, 2)
    wide = accumulator(x.dtype)
    factors = [F.exp2(F.cast(part, dtype=wide)) for part in (half, power - half)]
    return to_dtype(F, to_dtype(F, x, wide) * factors[0] * factors[1], x.dtype)


def _nextafter(F: Any, x: Any, y: Any) -> Any:
    x, y = as_floats(F, x, y)
    whole, _ = _bit_layout("nextafter", x)
    x, y = x + F.zeros_like(y), y + F.zeros_like(x)
    bits = F.bitcast(x, dtype=whole)
    # The bits of positive numbers are ordered as the numbers are, those of negative ones reversed.
    grows = F.eq(x < y, x > 0.0)
    step = F.cast(F.where(grows, 1, -1), dtype=whole)
    smallest = F.full((), float(_limits(x.dtype).smallest_subnormal), x.dtype)
    moved = F.bitcast(bits + step, dtype=x.dtype)
    from_zero = F.where(y > 0.0, smallest, -smallest)
    result = F.where(F.eq(x, 0.0), from_zero, moved)
    result = F.where(F.eq(x, y), y, result)
    result = F.detach(F.where(F.isnan(x) | F.isnan(y), x + y, result))
    # The derivative by x is 1, as in torch.
    return F.where(F.isfinite(x), result + (x - F.detach(x)), result)


def _array_equal(F: Any, x: Any, y: Any) -> Any:
    x, y = as_tensor(F, x), as_tensor(F, y)
    if tuple(x.shape) != tuple(y.shape):
        return F.zeros((), dtype=bool_)
    return F.all(F.eq(x, y))


def _bitwise_count(F: Any, x: Any) -> Any:
    x = as_integers(F, "bitwise_count", x, "x")
    total = F.zeros_like(x)
    for i in range(x.dtype.bits):
        total = total + F.bitwise_and(F.bitwise_right_shift(x, i), 1)
    return total


ROWS: tuple[Op, ...] = (
    function(
        "fmod",
        "The remainder of x / y with the sign of x, as C and torch.fmod have it.",
        _fmod,
        method=True,
        operands=PAIR,
    ),
    function(
        "fmax",
        "The larger of x and y; the other one where one is NaN.",
        _extreme("fmax", True),
        method=True,
        operands=PAIR,
    ),
    function(
        "fmin",
        "The smaller of x and y; the other one where one is NaN.",
        _extreme("fmin", False),
        method=True,
        operands=PAIR,
    ),
    function(
        "float_power", "x ** y in f64 or complex128.", _float_power, method=True, operands=PAIR
    ),
    function(
        "isneginf", "Whether x is -inf.", _is_infinity("isneginf", -inf), method=True, tags=NOGRAD
    ),
    function(
        "isposinf", "Whether x is inf.", _is_infinity("isposinf", inf), method=True, tags=NOGRAD
    ),
    function("isreal", "Whether the imaginary part is 0.", _isreal, method=True, tags=NOGRAD),
    function("positive", "x itself.", _positive, method=True),
    function("clamp_min", "x, at least `bound`.", _clamp_to("min"), method=True),
    function("clamp_max", "x, at most `bound`.", _clamp_to("max"), method=True),
    function("rsub", "y - alpha * x.", _rsub, operands=PAIR),
    function("cbrt", "The cube root, of negative numbers too.", _cbrt),
    function("divmod", "x // y and x % y.", _divmod, operands=PAIR),
    function("modf", "The fraction and the whole part of x, both with its sign.", _modf),
    function(
        "frexp",
        "(m, e) with x = m * 2 ** e and |m| in 0.5..1; e is i32.",
        _frexp,
        method=True,
    ),
    function("ldexp", "x * 2 ** y.", _ldexp, method=True, operands=PAIR),
    function(
        "nextafter",
        "The next number of the type after x, toward y.",
        _nextafter,
        method=True,
        operands=PAIR,
    ),
    function(
        "array_equal",
        "Whether x and y have the same shape and elements; gives a 0-d bool.",
        _array_equal,
        operands=PAIR,
        tags=NOGRAD,
    ),
    function("bitwise_count", "The number of 1 bits of integers.", _bitwise_count, tags=NOGRAD),
)


def register_rows() -> None:
    register(*ROWS)
