"""Sorts, selections and searches."""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import bool_, i64, u8
from nova.frontends.torch.rows.table import axis_of, cast, row, unsupported
from nova.graph.tensor import Tensor


@row("sort.default", "sort.stable")
def _sort(
    F: Any, x: Any, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Any, Any]:
    if not x.shape:
        return x, F.full(shape=(), value=0, dtype=i64)
    values, positions = F.sort(_ordered(F, x), axis_of(dim, len(x.shape)), descending)
    return cast(F, values, x.dtype), positions


def _ordered(F: Any, x: Any) -> Any:
    return cast(F, x, u8) if x.dtype is bool_ else x


@row("argsort.default", "argsort.stable")
def _argsort(F: Any, x: Any, dim: int = -1, descending: bool = False, **stable: Any) -> Any:
    return _sort(F, x, dim, descending)[1]


@row("topk.default")
def _topk(
    F: Any, x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Any, Any]:
    if not x.shape:
        return x, F.full(shape=(), value=0, dtype=i64)
    values, positions = F.topk(x, k, axis_of(dim, len(x.shape)), largest)
    return values, positions


@row("kthvalue.default")
def _kthvalue(F: Any, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    if not x.shape:
        return x, F.full(shape=(), value=0, dtype=i64)
    values, positions = F.kthvalue(x, k, axis_of(dim, len(x.shape)), keepdim)
    return values, positions


@row("median.dim")
def _median_dim(F: Any, x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    if not x.shape:
        return x, F.full(shape=(), value=0, dtype=i64)
    values, positions = F.median(x, axis_of(dim, len(x.shape)), keepdim)
    return values, positions


@row("median.default")
def _median(F: Any, x: Any) -> Any:
    return F.median(x) if x.shape else x


@row("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    F: Any,
    sorted: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    if sorter is not None or not isinstance(values, Tensor):
        raise unsupported("searchsorted with a sorter, or of a number")
    return F.searchsorted(sorted, values, right=right or side == "right")


@row("bucketize.Tensor")
def _bucketize(
    F: Any, values: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False
) -> Any:
    return F.searchsorted(boundaries, values, right=right)
