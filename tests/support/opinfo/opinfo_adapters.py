"""Calls of torch as calls of Nova, where the two differ in more than the function's name.

Each adapter takes torch's arguments (with tensors of Nova) and is registered under the name of
torch's op database. An option that Nova does not have raises `NotInNova`, which the sweep counts
as refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nova
from nova.graph import Tensor

ADAPTERS: dict[str, Callable[..., Any]] = {}


class NotInNova(Exception):
    """A call of torch that Nova has no function for."""


def adapter(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for names of the database."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        ADAPTERS.update(dict.fromkeys(names, function))
        return function

    return register


def refuse_options(**options: Any) -> None:
    """Refuse options that are set."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise NotInNova(f"the option {name}")


SIZES: list[tuple[int, ...]] = []
"""The shapes of torch's results: functions of Nova take the number of selected elements."""


def real_part(x: Any, dtype: Any) -> Any:
    """What a cast of torch reads: the real part, if the type is not complex."""
    keeps_both = dtype.is_complex or dtype is nova.bool_
    return x if keeps_both or not x.dtype.is_complex else nova.real(x)


def cast_to(x: Any, dtype: Any) -> Any:
    """torch's cast, which drops the imaginary part."""
    return nova.cast(real_part(x, dtype), dtype=dtype)


def with_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch's axis 0 or -1 of a number: that of a tensor with one element."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        many = isinstance(x, list | tuple)
        if (x[0] if many else x).ndim:
            return function(x, *args, **kwargs)
        axes = [v for v in (*args, *kwargs.values()) if _is_first_axis(v)]
        if not axes and not many:
            return function(x, *args, **kwargs)
        tensors = [_as_vector(v) for v in args]
        options = {k: _as_vector(v) for k, v in kwargs.items()}
        results = function(_as_vector(x), *tensors, **options)
        if isinstance(results, tuple):
            return tuple(_sized(r, size) for r, size in zip(results, SIZES, strict=False))
        return _sized(results, SIZES[0])

    return call


def _is_first_axis(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return bool(value) and all(_is_first_axis(v) for v in value)
    return isinstance(value, int) and not isinstance(value, bool) and value in (0, -1)


def _as_vector(value: Any) -> Any:
    is_number = isinstance(value, Tensor) and not value.ndim
    return nova.reshape(value, (1,)) if is_number else value


def _sized(value: Any, size: tuple[int, ...]) -> Any:
    return nova.reshape(value, size) if value.size == 1 and not size else value


def cast_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch's `dtype=`, in which it computes."""

    def call(x: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        return function(x if dtype is None else cast_to(x, dtype), *args, **kwargs)

    return call


for _name in ("softmax", "log_softmax", "cumsum", "cumprod", "sum", "mean", "prod"):
    ADAPTERS[_name] = cast_first(getattr(nova, _name))


@adapter("add")
def _add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return nova.add(x, y if alpha == 1 else nova.mul(y, alpha))


@adapter("sub")
def _sub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return nova.sub(x, y if alpha == 1 else nova.mul(y, alpha))


@adapter("div")
def _div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return nova.floor_div(x, y)
    if rounding_mode == "trunc":
        if not x.dtype.is_float:
            quotient = nova.floor_div(x, y)
            is_inexact = nova.ne(quotient * y, x) & (quotient < 0)
            return nova.where(is_inexact, quotient + 1, quotient)
        return nova.trunc(nova.div(x, y))
    return nova.div(x, y)


@adapter("clamp")
def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else nova.maximum(x, min)
    return x if max is None else nova.minimum(x, max)


@adapter("max")
def _max(x: Any, *args: Any, **kwargs: Any) -> Any:
    return _extreme(nova.maximum, nova.max, nova.argmax, x, *args, **kwargs)


@adapter("min")
def _min(x: Any, *args: Any, **kwargs: Any) -> Any:
    return _extreme(nova.minimum, nova.min, nova.argmin, x, *args, **kwargs)


def _extreme(
    binary: Any, reduce: Any, position: Any, x: Any, dim: Any = None, keepdim: bool = False
) -> Any:
    if isinstance(dim, Tensor):
        return binary(x, dim)
    if dim is None:
        return reduce(x)
    return reduce(x, axis=dim, keepdims=keepdim), position(x, axis=dim, keepdims=keepdim)


def _moment(function: Any) -> Callable[..., Any]:
    def call(
        x: Any,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        return function(x, axis=dim, correction=correction, keepdims=keepdim)

    return call


for _name in ("std", "var", "var_mean"):
    ADAPTERS[_name] = _moment(getattr(nova, _name))


@adapter("square")
def _square(x: Any) -> Any:
    if x.dtype is nova.bool_:
        raise NotInNova("square of bool (Nova gives i8, as numpy does)")
    return nova.square(x)


@adapter("cdist")
def _cdist(x: Any, y: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    return nova.cdist(x, y, p=p)


@adapter("diff")
def _diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    if n == 0:
        return x
    parts = [t for t in (prepend, x, append) if t is not None]
    return nova.diff(nova.concat(parts, axis=dim) if len(parts) > 1 else x, n=n, axis=dim)


@adapter("trapezoid")
def _trapezoid(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Any:
    return nova.trapezoid(y, dx=dx, axis=dim, x=x)


@adapter("arange")
def _arange(*bounds: Any, dtype: Any = None) -> Any:
    # torch rounds the bounds to integers first.
    bounds = tuple(int(v) if _is_integer(dtype, v) else v for v in bounds)
    return nova.arange(*bounds, dtype=dtype)


@adapter("linspace")
def _linspace(start: Any, end: Any, steps: int, *, dtype: Any = nova.f32) -> Any:
    bounds = [_bound(dtype, v) for v in (start, end)]
    return nova.linspace(*bounds, steps, dtype=dtype)


@adapter("logspace")
def _logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = nova.f32
) -> Any:
    bounds = [_bound(dtype, v) for v in (start, end)]
    return nova.logspace(*bounds, steps, base=base, dtype=dtype)


def _bound(dtype: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        return cast_to(value, dtype) if dtype in (nova.i64, nova.i32) else value
    return int(value) if _is_integer(dtype, value) else value


def _is_integer(dtype: Any, value: Any) -> bool:
    return dtype in (nova.i64, nova.i32) and isinstance(value, int | float)


@adapter("trace")
def _trace(x: Any) -> Any:
    return nova.matrix_trace(x)


@adapter("where")
def _where(x: Any, condition: Any, y: Any) -> Any:
    return nova.where(condition, x, y)


@adapter("einsum")
def _einsum(operands: Any, equation: str) -> Any:
    return nova.einsum(equation, *operands)


@adapter("squeeze")
def _squeeze(x: Any, dim: Any = None) -> Any:
    # torch leaves axes of another size as they are.
    if dim is None:
        return nova.squeeze(x)
    axes = [dim] if isinstance(dim, int) else list(dim)
    axes = [a for a in axes if not x.ndim or x.shape[a] == 1]
    return nova.squeeze(x, axis=tuple(axes)) if axes else x


@adapter("split", "split_with_sizes", "unsafe_split")
def _split(x: Any, size: Any, dim: int = 0) -> Any:
    total = x.shape[dim]
    sizes = (
        list(size)
        if isinstance(size, list | tuple)
        else [min(size, total - at) for at in range(0, total, size)]
    )
    return nova.split(x, sizes, axis=dim)


@adapter("roll")
def _roll(x: Any, shifts: Any, dims: Any = None) -> Any:
    return nova.roll(x, shifts, None if dims == () else dims)


@adapter("take")
def _take(x: Any, index: Any) -> Any:
    return nova.take(nova.reshape(x, (-1,)), index)


@adapter("index_select")
def _index_select(x: Any, dim: int, index: Any) -> Any:
    return nova.take(x, index, axis=dim)


@adapter("gather")
def _gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    return nova.gather(x, index, axis=dim)


@adapter("take_along_dim")
def _take_along_dim(x: Any, index: Any, dim: Any = None) -> Any:
    if dim is None:
        return _take(x, nova.reshape(index, (-1,)))
    sizes = [max(x.shape[a], index.shape[a]) for a in range(x.ndim)]
    sizes[dim] = index.shape[dim]
    index = nova.expand(index, sizes)
    sizes[dim] = x.shape[dim]
    return nova.gather(nova.expand(x, sizes), index, axis=dim)


@adapter("index_add")
def _index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return nova.index_add(x, index, source if alpha == 1 else source * alpha, axis=dim)


@adapter("scatter")
def _scatter(x: Any, dim: int, index: Any, src: Any = None, *, reduce: Any = None) -> Any:
    if reduce not in (None, "add"):
        raise NotInNova(f"scatter with reduce={reduce!r}")
    if not isinstance(src, Tensor):
        src = nova.full(index.shape, src, dtype=x.dtype)
    return (nova.scatter_add if reduce else nova.scatter)(x, index, src, axis=dim)


@adapter("scatter_reduce")
def _scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, **options: Any) -> Any:
    return nova.scatter_reduce(x, dim, index, src, reduce, **options)


@adapter("scatter_add")
def _scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    return nova.scatter_add(x, index, src, axis=dim)


@adapter("topk")
def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return nova.topk(x, k, axis=dim, largest=largest)


@adapter("sort")
def _sort(x: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return nova.sort(x, axis=dim, descending=descending)


@adapter("argsort")
def _argsort(x: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
    return nova.argsort(x, axis=dim, descending=descending)


@adapter("searchsorted")
def _searchsorted(
    boundaries: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Any:
    if sorter is not None:
        boundaries = nova.gather(boundaries, sorter, axis=-1)
    result = nova.searchsorted(boundaries, values, right=right or side == "right")
    return nova.cast(result, dtype=nova.i32) if out_int32 else result


@adapter("bucketize")
def _bucketize(
    values: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False
) -> Any:
    result = nova.bucketize(values, boundaries, right=right)
    return nova.cast(result, dtype=nova.i32) if out_int32 else result


@adapter("bincount")
def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    (bins,) = SIZES[0]
    if weights is not None and not weights.dtype.is_float:  # torch sums these in f64
        weights = nova.cast(weights, dtype=nova.f64)
    return nova.bincount(x, bins, weights)


@adapter("nonzero")
def _nonzero(x: Any, *, as_tuple: bool = False) -> Any:
    rank = x.ndim
    x = x if rank else nova.reshape(x, (1,))
    indices = nova.nonzero(x, size=SIZES[0][0] if SIZES else 0)
    if as_tuple:
        return indices
    return nova.stack(indices, axis=1) if rank else nova.zeros((SIZES[0][0], 0), dtype=nova.i64)


@adapter("masked_select")
def _masked_select(x: Any, mask: Any) -> Any:
    return nova.masked_select(x, mask, size=SIZES[0][0])


@adapter("unique")
def _unique(
    x: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Any = None,
) -> Any:
    refuse_options(dim=None if dim is None else str(dim))
    return nova.unique(
        x, size=SIZES[0][0], return_inverse=return_inverse, return_counts=return_counts
    )


@adapter("unique_consecutive")
def _unique_consecutive(
    x: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    refuse_options(dim=None if dim is None else str(dim))
    size = SIZES[0][0]
    return nova.unique_consecutive(x, size, return_inverse, return_counts)


@adapter("repeat_interleave")
def _repeat_interleave(
    x: Any, repeats: Any, dim: Any = None, *, output_size: int | None = None
) -> Any:
    size = SIZES[0][0 if dim is None else dim] if isinstance(repeats, Tensor) else None
    return nova.repeat_interleave(x, repeats, dim, size)


@adapter("histogram")
def _histogram(
    x: Any, bins: int, *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    counts, edges = nova.histogram(x, bins, range, weight, density)
    return nova.cast(counts, dtype=x.dtype), edges


@adapter("index_fill")
def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    value = nova.reshape(value, ()) if isinstance(value, Tensor) else value
    return nova.index_fill(x, dim, index, value)


@adapter("round")
def _round(x: Any, *, decimals: int = 0) -> Any:
    return nova.around(x, decimals)


@adapter("to")
def _to(x: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    types = [a for a in (*args, dtype) if isinstance(a, nova.DType)]
    others = [a.dtype for a in args if isinstance(a, Tensor)]
    return cast_to(x, (types or others)[0]) if types or others else x


_CASTS = {
    "double": nova.f64,
    "float": nova.f32,
    "half": nova.f16,
    "bfloat16": nova.bf16,
    "long": nova.i64,
    "int": nova.i32,
    "short": nova.i16,
    "char": nova.i8,
    "byte": nova.u8,
}
for _name, _type in _CASTS.items():
    ADAPTERS[_name] = lambda x, dtype=_type: cast_to(x, dtype)


def _of_each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one tensor as one of several."""

    def call(x: Any, *more: Any) -> Any:
        many = x if isinstance(x, tuple | list) else (x, *more)
        results = tuple(function(t) for t in many)
        return results if len(results) > 1 else results[0]

    return call


for _name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    ADAPTERS[_name] = _of_each(getattr(nova, _name))
