"""Rows of elementwise selection, comparison, logic and conversion."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, bool_, converted, dtype, promote
from nova.errors import AttributeValueError, DTypeError
from nova.ops.pointwise import binary, pointwise, unary
from nova.ops.rules import Types, bool_type, broadcast_shapes
from nova.ops.table import REQUIRED, Op, register

# --- where --------------------------------------------------------------------------------------


def _where_cast(types: tuple[DType, ...]) -> tuple[DType, ...]:
    common = promote(types[1], types[2])
    return (bool_, common, common)


def _where_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    return TensorType(broadcast_shapes(*(t.shape for t in ins)), ins[1].dtype)


# --- clamp --------------------------------------------------------------------------------------


def _clamp_attrs(ins: Types, attrs: dict[str, Any]) -> dict[str, Any]:
    if attrs["min"] is None and attrs["max"] is None:
        raise AttributeValueError("needs min, max or both")
    return {key: _clamp_bound(key, attrs[key], ins[0].dtype) for key in ("min", "max")}


def _clamp_bound(key: str, value: Any, type_: DType) -> int | float | None:
    if value is None:
        return None
    if not isinstance(value, (bool, int, float, np.number)):
        raise AttributeValueError(
            f"{key} must be a number, not {value!r}", hint="use minimum and maximum"
        )
    if type_.is_float:
        return float(value)
    if value != value or (abs(value) != inf and int(value) != value):
        raise AttributeValueError(
            f"{key}={value!r} is not an integer but the tensor is {type_}",
            hint="cast the tensor to a float type first",
        )
    # A bound outside the dtype's range is clamped to that range: Python ints are unbounded.
    low, high = (0, 1) if type_ is bool_ else _integer_range(type_)
    return int(min(max(value, low), high))


def _integer_range(type_: DType) -> tuple[int, int]:
    info = np.iinfo(type_.numpy)
    return int(info.min), int(info.max)


def _numpy_clamp(x: np.ndarray, min: Any, max: Any) -> np.ndarray:
    x = x if min is None else np.maximum(x, x.dtype.type(min))
    return x if max is None else np.minimum(x, x.dtype.type(max))


def _scalar_clamp(s: Any, x: Any, min: Any, max: Any) -> Any:
    x = x if min is None else s.maximum(x, min)
    return x if max is None else s.minimum(x, max)


def _vjp_clamp(F: Any, g: Any, out: Any, x: Any, min: Any, max: Any) -> Any:
    g = g if min is None else F.where(x >= min, g, 0.0)
    return g if max is None else F.where(x <= max, g, 0.0)


# --- cast ---------------------------------------------------------------------------------------


def _numpy_cast(x: np.ndarray, dtype: DType) -> np.ndarray:
    if x.dtype.kind == "b" or dtype.is_float or x.dtype.kind in "iu":
        return converted(x, dtype)
    if dtype is bool_:
        return x != 0
    # Float to integer: numpy leaves NaN and out-of-range values undefined; see Body.cast.
    wide = np.float32 if x.dtype.itemsize <= 4 else np.float64
    top = np.nextafter(wide(2.0**63), wide(0))
    clipped = np.clip(
        np.nan_to_num(x.astype(wide), nan=0.0, posinf=np.inf, neginf=-np.inf), wide(-(2.0**63)), top
    )
    return clipped.astype(np.int64).astype(dtype.numpy)


def _vjp_cast(F: Any, g: Any, out: Any, x: Any, dtype: DType) -> Any:
    return F.cast(g, dtype=x.dtype) if dtype.is_float and x.dtype.is_float else None


# --- rows ---------------------------------------------------------------------------------------


def _compare(name: str, sign: str, numpy: Any) -> Op:
    return binary(
        name,
        f"x {sign} y element by element, in the common type; gives bool.",
        numpy,
        lambda s, x, y: s.compare(name, x, y),
        None,
        infer=bool_type,
    )


def _logical(name: str, doc: str, numpy: Any, scalar: Any) -> Op:
    return binary(
        name,
        f"{doc} of the truth of x and y (non-zero is true); any types, gives bool.",
        numpy,
        lambda s, x, y: scalar(s.cast(x, bool_), s.cast(y, bool_)),
        None,
        infer=bool_type,
        cast="none",
    )


def _test(name: str, doc: str, numpy: Any, scalar: Any) -> Op:
    """Float predicates; constant False or True for the other dtypes."""
    return unary(name, doc, numpy, scalar, None, infer=bool_type)


def _larger(F: Any, g: Any, x: Any, y: Any) -> Any:
    """The share of `g` that goes to `x` in maximum(x, y): half at ties."""
    return F.where(x < y, 0.0, F.where(x == y, g * 0.5, g))


SELECTION = (
    binary(
        "minimum",
        "The smaller of x and y; NaN if one is NaN; ties share the gradient evenly.",
        np.minimum,
        lambda s, x, y: s.minimum(x, y),
        lambda F, g, out, x, y: (_larger(F, g, y, x), _larger(F, g, x, y)),
    ),
    binary(
        "maximum",
        "The larger of x and y; NaN if one is NaN; ties share the gradient evenly.",
        np.maximum,
        lambda s, x, y: s.maximum(x, y),
        lambda F, g, out, x, y: (_larger(F, g, x, y), _larger(F, g, y, x)),
    ),
    unary(
        "clamp",
        "x limited to the numbers min and max (one may be left out); the gradient passes where "
        "min <= x <= max, not at NaN.",
        _numpy_clamp,
        _scalar_clamp,
        _vjp_clamp,
        attrs={"min": None, "max": None},
        canon=_clamp_attrs,
        methods=("clamp", "clip"),
    ),
    pointwise(
        "where",
        "x where cond is true (non-zero), else y, in the common type of x and y.",
        ("cond", "x", "y"),
        np.where,
        lambda s, cond, x, y: s.select(cond, x, y),
        lambda F, g, out, cond, x, y: (None, F.where(cond, g, 0.0), F.where(cond, 0.0, g)),
        infer=_where_type,
        cast=_where_cast,
        methods=(),
        domain=("bool", "real", "real"),
    ),
)

COMPARISON = (
    _compare("eq", "==", np.equal),
    _compare("ne", "!=", np.not_equal),
    _compare("lt", "<", np.less),
    _compare("le", "<=", np.less_equal),
    _compare("gt", ">", np.greater),
    _compare("ge", ">=", np.greater_equal),
    _test(
        "isnan",
        "Whether x is NaN; gives bool.",
        np.isnan,
        lambda s, x: s.is_nan(x) if x.dtype.is_float else s.const(0, bool_),
    ),
    _test(
        "isinf",
        "Whether x is plus or minus infinity; gives bool.",
        np.isinf,
        lambda s, x: (
            s.compare("eq", s.call("absf", x), float("inf"))
            if x.dtype.is_float
            else s.const(0, bool_)
        ),
    ),
    _test(
        "isfinite",
        "Whether x is neither infinite nor NaN; gives bool.",
        np.isfinite,
        lambda s, x: s.call("absf", x) < float("inf") if x.dtype.is_float else s.const(1, bool_),
    ),
)

LOGIC = (
    _logical("logical_and", "The conjunction", np.logical_and, lambda x, y: x & y),
    _logical("logical_or", "The disjunction", np.logical_or, lambda x, y: x | y),
    _logical("logical_xor", "The exclusive or", np.logical_xor, lambda x, y: x ^ y),
    unary(
        "logical_not",
        "True where x is zero; any type, gives bool.",
        np.logical_not,
        lambda s, x: s.logical_not(s.cast(x, bool_)),
        None,
        infer=bool_type,
    ),
)


def _bitcast_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    (x,), target = ins, attrs["dtype"]
    if target.itemsize != x.dtype.itemsize or target.is_complex or x.dtype.is_complex:
        raise DTypeError(
            f"the bits of {x.dtype} are not a {target}",
            hint="give a dtype of the same width; numbers are converted by cast",
        )
    if target is bool_ and x.dtype is not bool_:
        raise DTypeError(f"not every {x.dtype} is the byte of a bool", hint="compare with 0")
    return x.with_dtype(target)


CONVERSION = (
    Op(
        "bitcast",
        "The bits of x as another dtype of the same width, as torch's `x.view(dtype)`.",
        attrs={"dtype": REQUIRED},
        canon=lambda ins, attrs: {"dtype": dtype(attrs["dtype"])},
        infer=_bitcast_type,
        numpy=lambda x, dtype: np.ascontiguousarray(x).view(dtype.numpy).reshape(x.shape),
        lower=lambda b, out, x, dtype: b.bitcast(out, x),
        tags=frozenset({"nograd"}),
    ),
    unary(
        "cast",
        "x as another element type: floats truncate toward zero to integers (NaN gives 0), "
        "integers wrap around, non-zero is True; a float result is rounded once.",
        _numpy_cast,
        lambda s, x, dtype: x,
        _vjp_cast,
        rounded=False,
        attrs={"dtype": REQUIRED},
        canon=lambda ins, attrs: {"dtype": dtype(attrs["dtype"])},
        infer=lambda ins, attrs: ins[0].with_dtype(attrs["dtype"]),
        methods=("cast", "astype"),
    ),
    unary(
        "detach",
        "x itself, with the gradient stopped.",
        lambda x: x,
        lambda s, x: x,
        lambda F, g, out, x: None,
        tags=("view",),
    ),
)


def register_rows() -> None:
    register(*SELECTION, *COMPARISON, *LOGIC, *CONVERSION)
