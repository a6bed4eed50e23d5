"""Reductions and running sums along axes."""

from __future__ import annotations

from math import inf, nan, prod
from typing import Any

from nova.core.dtypes import accumulator, bool_, float_of, i64, real_of
from nova.frontends.torch.rows.table import (
    axes_of,
    axis_of,
    cast,
    converted,
    row,
    squared_size,
    unsupported,
)


def _wide(F: Any, x: Any, dtype: Any = None) -> Any:
    """`x` in the dtype that torch accumulates in."""
    x = x if dtype is None else converted(F, x, dtype)
    return cast(F, x, accumulator(x.dtype))


def _reduced(F: Any, name: str, x: Any, axes: tuple[int, ...], keepdim: bool) -> Any:
    """A reduction of Nova; without axes, of each element alone."""
    if not axes:
        return x
    return getattr(F, name)(x, axis=axes, keepdims=keepdim)


@row("sum.default", "sum.dim_IntList")
def _sum(F: Any, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dtype is None and not x.dtype.is_differentiable:
        dtype = i64
    return _reduced(F, "sum", _wide(F, x, dtype), axes_of(dim, len(x.shape)), keepdim)


@row("nansum.default")
def _nansum(F: Any, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    x = F.where(F.isnan(x), 0.0, x) if x.dtype.is_float else x
    return _sum(F, x, dim, keepdim, dtype=dtype)


@row("prod.default")
def _prod(F: Any, x: Any, *, dtype: Any = None) -> Any:
    return _reduced(F, "prod", _wide(F, x, dtype), axes_of(None, len(x.shape)), False)


@row("prod.dim_int")
def _prod_dim(F: Any, x: Any, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _reduced(F, "prod", _wide(F, x, dtype), axes_of(dim, len(x.shape)), keepdim)


@row("mean.default", "mean.dim")
def _mean(F: Any, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    wide = _wide(F, x, dtype)
    axes = axes_of(dim, len(x.shape))
    total = _reduced(F, "sum", wide, axes, keepdim)
    count = prod(x.shape[a] for a in axes)
    return total / count if count else total * nan


@row("amax.default")
def _amax(F: Any, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return _reduced(F, "max", x, axes_of(dim, len(x.shape)), keepdim)


@row("amin.default")
def _amin(F: Any, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return _reduced(F, "min", x, axes_of(dim, len(x.shape)), keepdim)


@row("max.default")
def _max(F: Any, x: Any) -> Any:
    return _amax(F, x)


@row("min.default")
def _min(F: Any, x: Any) -> Any:
    return _amin(F, x)


def _with_position(name: str) -> Any:
    def build(F: Any, x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
        if not x.shape:
            return x, F.full(shape=(), value=0, dtype=i64)
        axis = axis_of(dim, len(x.shape))
        values = getattr(F, name)(x, axis=(axis,), keepdims=keepdim)
        return values, getattr(F, f"arg{name}")(x, axis=axis, keepdims=keepdim)

    return build


row("max.dim")(_with_position("max"))
row("min.dim")(_with_position("min"))


def _argument(name: str) -> Any:
    def build(F: Any, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if not x.shape:
            return F.full(shape=(), value=0, dtype=i64)
        axis = None if dim is None else axis_of(dim, len(x.shape))
        return getattr(F, name)(x, axis=axis, keepdims=keepdim)

    return build


row("argmax.default")(_argument("argmax"))
row("argmin.default")(_argument("argmin"))


def _truth(name: str) -> Any:
    def build(F: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        axes = axes_of(dim, len(x.shape))
        return getattr(F, name)(x, axis=axes, keepdims=keepdim) if axes else cast(F, x, bool_)

    return build


row("any.default", "any.dim", "any.dims")(_truth("any"))
row("all.default", "all.dim", "all.dims")(_truth("all"))


def _variance(
    F: Any, x: Any, dim: Any, correction: Any, keepdim: bool
) -> tuple[Any, Any, tuple[int, ...]]:
    wide = _wide(F, x)
    axes = axes_of(dim, len(x.shape))
    if not x.shape:
        wide, axes = F.reshape(wide, (1,)), (0,)
    correction = 1 if correction is None else correction
    count = prod(wide.shape[a] for a in axes)
    mean = F.mean(wide, axis=axes, keepdims=True)
    total = F.sum(squared_size(F, wide - mean), axis=axes, keepdims=keepdim)
    divisor = max(count - correction, 0)
    variance = total / divisor if divisor else total * inf + (nan if count <= 1 else 0.0)
    mean = mean if keepdim else F.reshape(mean, variance.shape)
    if not x.shape:
        return F.reshape(variance, ()), F.reshape(mean, ()), ()
    return variance, mean, axes


@row("var.correction")
def _var(F: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _variance(F, x, dim, correction, keepdim)[0]


@row("std.correction")
def _std(F: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return F.sqrt(_variance(F, x, dim, correction, keepdim)[0])


@row("var_mean.correction")
def _var_mean(
    F: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Any, Any]:
    return _variance(F, x, dim, correction, keepdim)[:2]


@row("std_mean.correction")
def _std_mean(
    F: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Any, Any]:
    variance, mean, _ = _variance(F, x, dim, correction, keepdim)
    return F.sqrt(variance), mean


@row("logsumexp.default")
def _logsumexp(F: Any, x: Any, dim: Any, keepdim: bool = False) -> Any:
    axes = axes_of(dim, len(x.shape))
    if axes:
        return F.logsumexp(_wide(F, x), axis=axes, keepdims=keepdim)
    # The imaginary part is the angle of exp(x), which a complex x itself does not have.
    return F.log(F.exp(x)) if x.dtype.is_complex else _floats(F, x)


def _floats(F: Any, x: Any) -> Any:
    return cast(F, x, float_of(x.dtype))


@row("linalg_vector_norm.default")
def _vector_norm(
    F: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    wide = _wide(F, x, dtype)
    axes = axes_of(dim, len(x.shape))
    if not x.size:
        raise unsupported("a norm of an empty tensor")
    if not axes:
        return F.abs(wide) if ord != 0 else cast(F, F.ne(wide, 0.0), real_of(wide.dtype))
    size = F.abs(wide)
    if ord == inf:
        return F.max(size, axis=axes, keepdims=keepdim)
    if ord == -inf:
        return F.min(size, axis=axes, keepdims=keepdim)
    if ord == 0:
        return F.sum(cast(F, F.ne(wide, 0.0), size.dtype), axis=axes, keepdims=keepdim)
    if ord == 1:
        return F.sum(size, axis=axes, keepdims=keepdim)
    if ord == 2:
        return F.sqrt(F.sum(squared_size(F, wide), axis=axes, keepdims=keepdim))
    return F.pow(F.sum(F.pow(size, float(ord)), axis=axes, keepdims=keepdim), 1.0 / ord)


# --- running ops ----------------------------------------------------------------------------------


@row("cumsum.default")
def _cumsum(F: Any, x: Any, dim: int, *, dtype: Any = None) -> Any:
    if dtype is None and not x.dtype.is_differentiable:
        dtype = i64
    wide = _wide(F, x, dtype)
    return F.cumsum(wide, axis=axis_of(dim, len(x.shape))) if x.shape else wide


@row("cumprod.default")
def _cumprod(F: Any, x: Any, dim: int, *, dtype: Any = None) -> Any:
    if dtype is None and not x.dtype.is_differentiable:
        dtype = i64
    wide = _wide(F, x, dtype)
    if not x.shape or not x.size:
        return wide
    if not wide.dtype.is_differentiable:
        raise unsupported("a running product of integers")
    return F.cumprod(wide, axis=axis_of(dim, len(x.shape)))


@row("logcumsumexp.default")
def _logcumsumexp(F: Any, x: Any, dim: int) -> Any:
    return F.logcumsumexp(x, axis=axis_of(dim, len(x.shape))) if x.shape else x


def _running(name: str) -> Any:
    def build(F: Any, x: Any, dim: int) -> tuple[Any, Any]:
        if not x.shape:
            return x, F.full(shape=(), value=0, dtype=i64)
        values, positions = getattr(F, name)(x, axis_of(dim, len(x.shape)))
        return values, positions

    return build


row("cummax.default")(_running("cummax"))
row("cummin.default")(_running("cummin"))
