"""Reads at positions that are tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nova.core.dtypes import accumulator, bool_, i64, u8
from nova.frontends.torch.rows.table import axis_of, cast, row, unsupported


@row("index_select.default")
def _index_select(F: Any, x: Any, dim: int, index: Any) -> Any:
    if not x.shape:
        return x
    index = index if index.shape else F.reshape(index, (1,))
    return F.take(x, index, axis=axis_of(dim, len(x.shape)))


@row("gather.default")
def _gather(F: Any, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if not x.shape or not index.shape:
        return F.reshape(F.expand(F.reshape(x, (-1,)), shape=(max(index.size, 1),)), index.shape)
    return F.gather(x, index, axis=axis_of(dim, len(x.shape)))


@row("take.default")
def _take(F: Any, x: Any, index: Any) -> Any:
    return F.take(F.reshape(x, (-1,)), index, axis=0)


@row("embedding.default")
def _embedding(
    F: Any,
    weight: Any,
    index: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    return F.embedding(weight, index)


@row("embedding_dense_backward.default")
def _embedding_backward(
    F: Any, g: Any, index: Any, rows: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    if scale_grad_by_freq:
        raise unsupported("an embedding with scale_grad_by_freq")
    width = g.shape[len(index.shape) :]
    flat = F.reshape(index, (index.size,))
    updates = cast(F, F.reshape(g, (index.size, *width)), accumulator(g.dtype))
    if padding_idx >= 0:
        used = F.reshape(F.ne(flat, padding_idx), (index.size, *(1,) * len(width)))
        updates = F.where(used, updates, 0.0)
    zeros = F.full(shape=(rows, *width), value=0.0, dtype=updates.dtype)
    return cast(F, F.index_add(zeros, flat, updates, axis=0), g.dtype)


class Selection:
    """x[..., i, j, ...] with index tensors, as one index into the indexed axes, which come first.

    order     the axes of x with the indexed ones first.
    sizes     of the indexed axes.
    rest      sizes of the other axes.
    index     the flat positions, of the broadcast shape of the index tensors.
    """

    def __init__(self, F: Any, x: Any, indices: Sequence[Any]):
        padded = [*indices, *[None] * (len(x.shape) - len(indices))]
        self.axes = [i for i, t in enumerate(padded) if t is not None]
        tensors = [t for t in padded if t is not None]
        if any(t.dtype in (bool_, u8) for t in tensors):
            raise unsupported("an index by a mask, whose size depends on values")
        if not tensors:
            raise unsupported("an index without tensors")
        self.order = (*self.axes, *(i for i in range(len(x.shape)) if i not in self.axes))
        self.sizes = tuple(x.shape[a] for a in self.axes)
        self.rest = tuple(x.shape[i] for i in self.order[len(self.axes) :])
        flat: Any = None
        for n, t in zip(self.sizes, tensors, strict=True):
            position = cast(F, t, i64)
            position = F.where(F.lt(position, 0), position + n, position)
            flat = position if flat is None else flat * n + position
        self.index = flat
        # Adjacent index tensors leave their axes in place, others come first (numpy's rule).
        together = self.axes == list(range(self.axes[0], self.axes[-1] + 1))
        self.lead = self.axes[0] if together else 0

    def rows(self, F: Any, x: Any) -> Any:
        """x as (indexed elements, other axes)."""
        return F.reshape(F.permute(x, axes=self.order), (prod(self.sizes), *self.rest))

    def unrows(self, F: Any, rows: Any) -> Any:
        """The inverse of `rows`."""
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        return F.permute(F.reshape(rows, (*self.sizes, *self.rest)), axes=tuple(inverse))

    def placed(self) -> tuple[int, ...]:
        """The axes of (index, rest) in the order of the result of x[...]."""
        count, rest = len(self.index.shape), len(self.rest)
        index_axes, rest_axes = range(count), range(count, count + rest)
        return (*rest_axes[: self.lead], *index_axes, *rest_axes[self.lead :])


@row("index.Tensor", "_unsafe_index.Tensor")
def _index(F: Any, x: Any, indices: Sequence[Any]) -> Any:
    selection = Selection(F, x, indices)
    picked = F.take(selection.rows(F, x), selection.index, axis=0)
    return F.permute(picked, axes=selection.placed()) if picked.shape else picked


@row("_unsafe_masked_index.default")
def _masked_index(F: Any, x: Any, mask: Any, indices: Sequence[Any], fill: Any) -> Any:
    clamped = [
        None if t is None else F.minimum(F.maximum(t, 0), n - 1)
        for t, n in zip(indices, x.shape, strict=False)
    ]
    return F.where(mask, _index(F, x, clamped), fill)
