"""Elementwise functions of numpy and torch, tests of values, and creation."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from nova.core.dtypes import accumulator, bool_, f32, f64, i64, real_of
from nova.core.dtypes import dtype as dtype_of
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.functional.common import (
    as_common,
    as_floats,
    as_inexact,
    as_tensor,
    choice,
    function,
    is_tensor,
    number,
    to_dtype,
)
from nova.ops.rules import int_value
from nova.ops.table import Op, register


def _nan_to_num(
    F: Any, x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    x = as_tensor(F, x)
    if x.dtype.is_complex:
        parts = (F.real(x), F.imag(x))
        return F.complex(*(_nan_to_num(F, part, nan, posinf, neginf) for part in parts))
    if not x.dtype.is_float:
        return x
    top = float(_largest(x.dtype)) if posinf is None else number("nan_to_num", "posinf", posinf)
    low = -float(_largest(x.dtype)) if neginf is None else number("nan_to_num", "neginf", neginf)
    value = number("nan_to_num", "nan", nan)
    finite = F.where(x == inf, top, F.where(x == -inf, low, x))
    return F.where(F.isnan(x), value, finite)


def _largest(type_: Any) -> Any:
    from ml_dtypes import finfo

    return finfo(type_.numpy).max


def _isclose(
    F: Any, x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    x, y = as_common(F, x, y)
    relative, absolute = number("isclose", "rtol", rtol, 0), number("isclose", "atol", atol, 0)
    if not x.dtype.is_float and not x.dtype.is_complex:
        if x.dtype is bool_:
            return F.eq(x, y)
        x, y = F.cast(x, dtype=i64), F.cast(y, dtype=i64)
        distance = F.cast(F.maximum(x, y) - F.minimum(x, y), dtype=f64)
        return distance <= F.abs(F.cast(y, dtype=f64)) * relative + absolute
    # x == y first: the difference of equal infinities is NaN.
    near = F.eq(x, y) | (F.isfinite(y) & (F.abs(x - y) <= F.abs(y) * relative + absolute))
    return near | (F.isnan(x) & F.isnan(y)) if equal_nan else near


def _allclose(
    F: Any, x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    return F.all(_isclose(F, x, y, rtol, atol, equal_nan))


def _lerp(F: Any, start: Any, end: Any, weight: Any) -> Any:
    start, end, weight = as_inexact(F, start, end, weight)
    return start + weight * (end - start)


def _addcmul(F: Any, x: Any, a: Any, b: Any, value: float = 1.0) -> Any:
    product = F.mul(a, b)
    return F.add(x, product if value == 1 else product * value)


def _addcdiv(F: Any, x: Any, a: Any, b: Any, value: float = 1.0) -> Any:
    quotient = F.div(a, b)
    return F.add(x, quotient if value == 1 else quotient * value)


def _logaddexp(F: Any, x: Any, y: Any) -> Any:
    x, y = as_inexact(F, x, y)
    if x.dtype.is_complex:
        is_first = F.detach(F.real(x)) >= F.detach(F.real(y))
        high, low = F.where(is_first, x, y), F.where(is_first, y, x)
        # Both are -inf: their difference is NaN, the sum of the exponentials is 0.
        is_empty = F.eq(F.detach(F.real(high)), -inf)
        gap = F.where(is_empty, 0.0, low - high)
        return high + F.log1p(F.exp(gap))
    high = F.maximum(x, y)
    # Equal infinities: their difference is NaN, the sum is that infinity.
    low = F.where(F.eq(x, y), 0.0, -F.abs(x - y))
    return high + F.log1p(F.exp(low))


def _logit(F: Any, x: Any, eps: float | None = None) -> Any:
    (x,) = as_floats(F, x)
    if eps is not None:
        margin = number("logit", "eps", eps, 0)
        x = F.clamp(x, min=margin, max=1.0 - margin)
    return F.log(x / (1.0 - x))


def _hypot(F: Any, x: Any, y: Any) -> Any:
    x, y = as_floats(F, x, y)
    a, b = (to_dtype(F, t, accumulator(t.dtype)) for t in (x, y))
    # Scaled by the larger one, so that the squares neither overflow nor vanish.
    high = F.detach(F.maximum(F.abs(a), F.abs(b)))
    scale = F.where(F.isfinite(high) & (high > 0), high, 1.0)
    result = F.sqrt(F.square(a / scale) + F.square(b / scale)) * scale
    infinite = F.eq(F.abs(a), inf) | F.eq(F.abs(b), inf)
    return to_dtype(F, F.where(infinite, inf, result), x.dtype)


def _sinc(F: Any, x: Any) -> Any:
    (x,) = as_inexact(F, x)
    angle = F.where(F.eq(x, 0.0), 1.0, x) * float(np.pi)
    return F.where(F.eq(x, 0.0), 1.0, F.sin(angle) / angle)


def _around(F: Any, x: Any, decimals: int = 0) -> Any:
    x = as_tensor(F, x)
    digits = int_value(decimals, "round: decimals")
    if not digits or not x.dtype.is_float:
        if digits:
            raise DTypeError(f"round: decimals of {x.type}", hint="cast it to a float type first")
        return F.round(x)
    scale = float(f"1e{abs(digits)}")  # infinite where a power would be an OverflowError
    wide = to_dtype(F, x, accumulator(x.dtype))
    result = F.round(wide * scale) / scale if digits > 0 else F.round(wide / scale) * scale
    return to_dtype(F, result, x.dtype)


def _frac(F: Any, x: Any) -> Any:
    (x,) = as_floats(F, x)
    return x - F.trunc(x)


def _copysign(F: Any, x: Any, y: Any) -> Any:
    x, y = as_floats(F, x, y)
    # 1 / y has the sign of a zero y too.
    negative = F.where(F.eq(y, 0.0), F.reciprocal(y) < 0, y < 0)
    return F.where(negative, -F.abs(x), F.abs(x))


def _heaviside(F: Any, x: Any, values: Any) -> Any:
    x, values = as_common(F, x, values)
    one, zero = F.ones_like(x), F.zeros_like(x)
    return F.where(F.isnan(x), x, F.where(F.eq(x, 0), values, F.where(x > 0, one, zero)))


def _xlogy(F: Any, x: Any, y: Any) -> Any:
    x, y = as_floats(F, x, y)
    zero = F.eq(x, 0.0) & F.logical_not(F.isnan(y))
    return F.where(zero, 0.0, x * F.log(F.where(zero, 1.0, y)))


def _scaled(factor: float) -> Any:
    def build(F: Any, x: Any) -> Any:
        (x,) = as_floats(F, x)
        return x * factor

    return build


def _count_nonzero(F: Any, x: Any, axis: Any = None) -> Any:
    return F.sum(F.ne(as_tensor(F, x), 0), axis=axis)


def _aminmax(F: Any, x: Any, axis: Any = None, keepdims: bool = False) -> tuple[Any, Any]:
    return F.min(x, axis=axis, keepdims=keepdims), F.max(x, axis=axis, keepdims=keepdims)


def _ptp(F: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    low, high = _aminmax(F, x, axis, keepdims)
    return high - low


def _steps(name: str, steps: Any) -> int:
    count = int_value(steps, f"{name}: steps")
    if count < 0:
        raise AttributeValueError(f"{name}: steps must be at least 0, not {count}")
    return count


def _are_tensors(name: str, start: Any, stop: Any) -> bool:
    tensors = [x for x in (start, stop) if is_tensor(x)]
    for x in tensors:
        if x.shape:
            raise ShapeError(f"{name}: a bound of shape {x.shape} is not a number")
    return bool(tensors)


def _spaced(F: Any, start: Any, stop: Any, count: int, type_: Any) -> Any:
    """Numbers from start to stop, of which one is a tensor; from both ends, so both are exact."""
    wide = type_ if type_.is_complex else f64
    first, last = (to_dtype(F, as_tensor(F, x), wide) for x in (start, stop))
    step = (last - first) / max(count - 1, 1)
    at = np.arange(count, dtype=np.float64).astype(real_of(wide).numpy)
    return F.where(at < (count + 1) // 2, first + step * at, last - step * (count - 1 - at))


def _linspace(F: Any, start: float, stop: float, steps: int, dtype: Any = f32) -> Any:
    count = _steps("linspace", steps)
    if _are_tensors("linspace", start, stop):
        return to_dtype(F, _spaced(F, start, stop, count, dtype_of(dtype)), dtype_of(dtype))
    first, last = number("linspace", "start", start), number("linspace", "stop", stop)
    return F.detach(np.linspace(first, last, count).astype(dtype_of(dtype).numpy))


def _logspace(
    F: Any, start: float, stop: float, steps: int, base: float = 10.0, dtype: Any = f32
) -> Any:
    count = _steps("logspace", steps)
    if _are_tensors("logspace", start, stop):
        exponents = _spaced(F, start, stop, count, dtype_of(dtype))
        powers = F.pow(F.full((), number("logspace", "base", base), exponents.dtype), exponents)
        return to_dtype(F, powers, dtype_of(dtype))
    exponents = np.linspace(
        number("logspace", "start", start), number("logspace", "stop", stop), count
    )
    return F.detach(
        np.power(number("logspace", "base", base), exponents).astype(dtype_of(dtype).numpy)
    )


def _meshgrid(F: Any, *tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    choice("meshgrid", "indexing", indexing, ("ij", "xy"))
    axes = list(
        tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    )
    vectors = [as_tensor(F, x) for x in axes]
    for vector in vectors:
        if len(vector.shape) > 1:
            raise AttributeValueError(f"meshgrid: {vector.shape} is not a vector")
    sizes = [v.size for v in vectors]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    shape = [sizes[i] for i in order]
    return tuple(
        F.expand(F.reshape(v, [sizes[i] if order[d] == i else 1 for d in range(len(order))]), shape)
        for i, v in enumerate(vectors)
    )


def _masked_fill(F: Any, x: Any, mask: Any, value: Any) -> Any:
    x, mask = as_tensor(F, x), as_tensor(F, mask)
    if mask.dtype is not bool_:
        raise DTypeError(f"masked_fill: the mask is {mask.dtype}, not bool")
    return F.where(mask, to_dtype(F, as_tensor(F, value), x.dtype), x)


def _var_mean(
    F: Any, x: Any, axis: Any = None, correction: float = 1, keepdims: bool = False
) -> tuple[Any, Any]:
    return (
        F.var(x, axis=axis, correction=correction, keepdims=keepdims),
        F.mean(x, axis=axis, keepdims=keepdims),
    )


PAIR = ("x", "y")
ROWS: tuple[Op, ...] = (
    function(
        "nan_to_num",
        "NaN and the infinities replaced by numbers: 0 and the largest of the type by default.",
        _nan_to_num,
        method=True,
    ),
    function(
        "isclose",
        "Whether |x - y| <= atol + rtol * |y|, element by element; infinities are close to "
        "themselves only.",
        _isclose,
        method=True,
        operands=PAIR,
        tags=frozenset({"nograd"}),
    ),
    function(
        "allclose",
        "Whether all elements are close, as `isclose` has it; gives a 0-d bool.",
        _allclose,
        operands=PAIR,
        tags=frozenset({"nograd"}),
    ),
    function(
        "lerp",
        "start + weight * (end - start).",
        _lerp,
        method=True,
        operands=("start", "end", "weight"),
    ),
    function("addcmul", "x + value * a * b.", _addcmul, operands=("x", "a", "b")),
    function("addcdiv", "x + value * a / b.", _addcdiv, operands=("x", "a", "b")),
    function("logaddexp", "log(exp(x) + exp(y)) without overflow.", _logaddexp, operands=PAIR),
    function("logit", "log(x / (1 - x)); x is limited to eps..1-eps if given.", _logit),
    function("hypot", "sqrt(x * x + y * y).", _hypot, operands=PAIR),
    function("sinc", "sin(pi * x) / (pi * x), 1 at 0.", _sinc),
    function(
        "around",
        "x rounded to a number of decimals, halves to the even digit; negative ones round tens.",
        _around,
        method=True,
    ),
    function("frac", "x - trunc(x).", _frac, method=True),
    function("copysign", "|x| with the sign of y.", _copysign, operands=PAIR),
    function(
        "heaviside",
        "0 below 0, 1 above, `values` at 0.",
        _heaviside,
        operands=("x", "values"),
        tags=frozenset({"nograd"}),
    ),
    function("xlogy", "x * log(y), 0 where x is 0.", _xlogy, operands=PAIR),
    function("deg2rad", "Degrees as radians.", _scaled(float(np.pi / 180))),
    function("rad2deg", "Radians as degrees.", _scaled(float(180 / np.pi))),
    function(
        "count_nonzero",
        "How many elements over the axes are not 0.",
        _count_nonzero,
        tags=frozenset({"nograd"}),
    ),
    function("aminmax", "The smallest and the largest element over the axes.", _aminmax),
    function("ptp", "The largest less the smallest element over the axes.", _ptp),
    function("var_mean", "The variance and the mean over the axes.", _var_mean),
    function(
        "masked_fill",
        "x with a number where the bool mask is true.",
        _masked_fill,
        method=True,
        operands=("x", "mask", "value"),
    ),
    function(
        "linspace",
        "`steps` numbers from start to stop, both included; those may be 0-d tensors.",
        _linspace,
        operands=(),
    ),
    function(
        "logspace",
        "base to the power of `steps` numbers from start to stop.",
        _logspace,
        operands=(),
    ),
    function(
        "meshgrid",
        "Vectors expanded to the grid that they span, a tuple; indexing 'ij' or 'xy'.",
        _meshgrid,
        operands=("*tensors",),
    ),
)


def register_rows() -> None:
    register(*ROWS)
