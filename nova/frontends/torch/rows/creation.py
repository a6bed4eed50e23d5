"""Tensors allocations of numbers: constants, ranges, diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.dtypes import bool_, f32, f64, i64
from nova.frontends.torch.rows.table import number_dtype, row, unsupported


def _filled(
    F: Any, size: Sequence[int], value: Any, dtype: Any, device: Any = None, **layout: Any
) -> Any:
    if dtype is None:
        dtype = number_dtype(value)
    if not dtype.is_differentiable and dtype is not bool_:
        value = int(value)
    return F.full(shape=tuple(size), value=value, dtype=dtype)


@row("full.default")
def _full(F: Any, size: Sequence[int], value: Any, *, dtype: Any = None, **layout: Any) -> Any:
    return _filled(F, size, value, dtype, **layout)


@row("full_like.default")
def _full_like(F: Any, x: Any, value: Any, *, dtype: Any = None, **layout: Any) -> Any:
    return _filled(F, x.shape, value, dtype or x.dtype, **layout)


def _constant(value: int) -> tuple[Any, Any]:
    def build(F: Any, size: Sequence[int], *, dtype: Any = None, **layout: Any) -> Any:
        return _filled(F, size, value, dtype or f32, **layout)

    def build_like(F: Any, x: Any, *, dtype: Any = None, **layout: Any) -> Any:
        return _filled(F, x.shape, value, dtype or x.dtype, **layout)

    return build, build_like


for _name, _value in (("zeros", 0), ("ones", 1)):
    _build, _build_like = _constant(_value)
    row(f"{_name}.default")(_build)
    row(f"{_name}_like.default")(_build_like)


# Memory without values: zeros, which every program may read.
_empty, _empty_like = _constant(0)
row("empty.memory_format")(_empty)
row("empty_like.default")(_empty_like)


@row("empty_strided.default", "new_empty_strided.default")
def _empty_strided(F: Any, *args: Any, dtype: Any = None, **layout: Any) -> Any:
    if len(args) == 3:  # new_empty_strided(x, size, strides)
        return _filled(F, args[1], 0, dtype or args[0].dtype, **layout)
    return _filled(F, args[0], 0, dtype or f32, **layout)


@row("empty_permuted.default")
def _empty_permuted(F: Any, size: Any, physical: Any, *, dtype: Any = None, **layout: Any) -> Any:
    return _filled(F, size, 0, dtype or f32, **layout)


def _new(value: int) -> Any:
    def build(F: Any, x: Any, size: Sequence[int], *, dtype: Any = None, **layout: Any) -> Any:
        return _filled(F, size, value, dtype or x.dtype, **layout)

    return build


row("new_zeros.default")(_new(0))
row("new_ones.default")(_new(1))
row("new_empty.default")(_new(0))


@row("new_full.default")
def _new_full(
    F: Any, x: Any, size: Sequence[int], value: Any, *, dtype: Any = None, **layout: Any
) -> Any:
    return _filled(F, size, value, dtype or x.dtype, **layout)


@row("scalar_tensor.default")
def _scalar_tensor(F: Any, value: Any, *, dtype: Any = None, **layout: Any) -> Any:
    return _filled(F, (), value, dtype or f32, **layout)


@row("arange.default", "arange.start", "arange.start_step")
def _arange(
    F: Any, *bounds: Any, dtype: Any = None, device: Any = None, layout: Any = None, **more: Any
) -> Any:
    start, stop, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
    if dtype is None:
        dtype = i64 if all(isinstance(v, int) for v in (start, stop, step)) else f32
    return F.arange(start=start, stop=stop, step=step, dtype=dtype)


@row("prims.iota.default")
def _iota(
    F: Any, length: int, *, start: int, step: int, dtype: Any, device: Any, requires_grad: bool
) -> Any:
    if not step:
        return F.full(shape=(length,), value=start, dtype=dtype)
    return F.arange(start=start, stop=start + length * step, step=step, dtype=dtype)


@row("linspace.default")
def _linspace(
    F: Any, start: Any, stop: Any, steps: int, *, dtype: Any = None, device: Any = None, **more: Any
) -> Any:
    dtype = dtype or f32
    if not dtype.is_float or steps < 2:
        raise unsupported("linspace of integers, or of fewer than two steps")
    width = (stop - start) / (steps - 1)
    position = F.arange(start=0, stop=steps, step=1, dtype=f64)
    low, high = position * width + start, stop - (steps - 1 - position) * width
    return F.cast(F.where(F.lt(position, steps // 2), low, high), dtype=dtype)


def _triangle(name: str) -> Any:
    def build(
        F: Any, rows: int, columns: int, offset: int = 0, *, dtype: Any = None, **layout: Any
    ) -> Any:
        return getattr(F, name)(rows, columns, offset, dtype=dtype or i64)

    return build


for _name in ("tril_indices", "triu_indices"):
    row(f"{_name}.default")(_triangle(_name))


@row("eye.default", "eye.m")
def _eye(F: Any, n: int, *columns: int, dtype: Any = None, device: Any = None, **more: Any) -> Any:
    return F.eye(n, columns[0] if columns else None, dtype=dtype or f32)
