"""What the functions of this folder share: operands as tensors, checks of options, rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.core.dtypes import DType, dtype, float_of, promote_all
from nova.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    ShapeError,
)
from nova.ops.rules import is_real
from nova.ops.table import Op

REDUCTIONS = ("mean", "sum", "none")


def as_tensor(F: Any, x: Any) -> Any:
    """`x` as a tensor: arrays, lists and numbers become constants."""
    return x if is_tensor(x) else F.detach(x)


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor of Nova; torch's have another dtype."""
    return hasattr(x, "is_leaf") and isinstance(getattr(x, "dtype", None), DType)


def as_floats(F: Any, *tensors: Any) -> list[Any]:
    """The tensors in their common float type: integers become f32, complex ones are refused."""
    operands = [as_tensor(F, x) for x in tensors]
    for x in operands:
        if x.dtype.is_complex:
            raise DTypeError(
                f"{x.type} is complex, and this function is one of real numbers",
                hint="compute with nova.real(x) and nova.imag(x), or with nova.abs(x)",
            )
    return as_inexact(F, *operands)


def as_inexact(F: Any, *tensors: Any) -> list[Any]:
    """The tensors in their common float or complex type: integers become f32."""
    operands = [as_tensor(F, x) for x in tensors]
    common = float_of(promote_all([x.dtype for x in operands]))
    return [to_dtype(F, x, common) for x in operands]


def as_common(F: Any, *tensors: Any) -> list[Any]:
    """The tensors in their common type."""
    operands = [as_tensor(F, x) for x in tensors]
    common = promote_all([x.dtype for x in operands])
    return [to_dtype(F, x, common) for x in operands]


def to_dtype(F: Any, x: Any, type_: DType) -> Any:
    """`x` cast to `type_`; no node if it has that type."""
    return x if x.dtype is type_ else F.cast(x, dtype=type_)


def as_integers(F: Any, name: str, x: Any, operand: str = "index") -> Any:
    """`x` as a tensor of integers; DTypeError for any other type."""
    x = as_tensor(F, x)
    if not x.dtype.is_integer:
        raise DTypeError(f"{name}: {operand} must hold integers, not {x.dtype}")
    return x


def number(name: str, option: str, value: Any, low: float | None = None) -> float:
    """A number, at least `low`; AttributeValueError names the function and the option."""
    if not is_real(value):
        raise AttributeValueError(f"{name}: {option} must be a number, not {value!r}")
    if low is not None and not value >= low:
        raise AttributeValueError(f"{name}: {option} must be at least {low}, not {value!r}")
    return float(value)


def choice(name: str, option: str, value: Any, options: tuple[str, ...]) -> str:
    """One of the names in `options`."""
    if hasattr(value, "shape"):
        raise AttributeValueError(
            f"{name}: {option} is a tensor of shape {tuple(value.shape)}",
            hint=f"{option} is one of {', '.join(options)}; write weight= for a tensor of weights",
        )
    if value not in options:
        raise AttributeValueError(
            f"{name}: {option} {value!r} is unknown", hint=f"it is one of {', '.join(options)}"
        )
    return str(value)


def require_rank(name: str, x: Any, low: int, high: int | None = None) -> None:
    """ShapeError unless the rank of `x` is in low..high."""
    rank = len(x.shape)
    if rank < low or (high is not None and rank > high):
        ranks = str(low) if low == high else f"{low} or more" if high is None else f"{low}..{high}"
        raise ShapeError(f"{name}: {x.shape} has rank {rank}, not {ranks}")


def require_tensors(name: str, tensors: Any) -> list[Any]:
    """The tensors of f([a, b]) or f(a, b)."""
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        tensors = tensors[0]
    for x in tensors:
        if not hasattr(x, "shape"):
            raise ArgumentTypeError(
                f"{name}: a {type(x).__name__} is not a tensor", hint="wrap data with nova.tensor"
            )
    return list(tensors)


def reduce_terms(F: Any, name: str, terms: Any, reduction: str) -> Any:
    """The terms of a loss by their `reduction`."""
    choice(name, "reduction", reduction, REDUCTIONS)
    if reduction == "none":
        return terms
    return F.mean(terms) if reduction == "mean" else F.sum(terms)


def dtype_or(spec: Any, default: DType) -> DType:
    """The dtype that `spec` names, or the default for None."""
    return default if spec is None else dtype(spec)


def function(
    name: str, doc: str, build: Callable[..., Any], *, method: bool = False, **more: Any
) -> Op:
    """A sugar row; with `method` also a method of Tensor."""
    return Op(name, doc, build=build, methods=(name,) if method else (), **more)
