"""Views, which are copies after functionalization, and joins of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.dtypes import real_of
from nova.core.sizes import Size, known_equal, size_max, size_min
from nova.frontends.torch.rows.table import axes_of, axis_of, cast, common_dtype, row, unsupported


@row(
    *("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default"),
    "view_copy.default",
)
def _view(F: Any, x: Any, size: Sequence[int], strides: Any = None) -> Any:
    return F.reshape(x, shape=tuple(size))


@row("view.dtype")
def _view_dtype(F: Any, x: Any, dtype: Any) -> Any:
    if x.dtype is dtype:
        return x
    if x.dtype.is_complex and dtype is real_of(x.dtype):
        parts = F.view_as_real(x)
        return F.reshape(parts, (*x.shape[:-1], 2 * x.shape[-1]) if x.shape else (2,))
    if dtype.is_complex and x.dtype is real_of(dtype):
        return F.view_as_complex(F.reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2)))
    if dtype.itemsize != x.dtype.itemsize or x.dtype.is_complex or dtype.is_complex:
        raise unsupported(f"a view of {x.dtype} as {dtype}, which has another width")
    return F.bitcast(x, dtype=dtype)


@row("expand.default")
def _expand(F: Any, x: Any, size: Sequence[int], *, implicit: bool = False) -> Any:
    return F.expand(x, shape=tuple(size))


@row("permute.default", "permute_copy.default", "prims.transpose.default")
def _permute(F: Any, x: Any, dims: Sequence[int]) -> Any:
    rank = len(x.shape)
    return F.permute(x, axes=tuple(d % rank for d in dims)) if rank else x


@row("transpose.int")
def _transpose(F: Any, x: Any, dim0: int, dim1: int) -> Any:
    rank = len(x.shape)
    return F.swapaxes(x, dim0 % rank, dim1 % rank) if rank else x


@row("t.default")
def _t(F: Any, x: Any) -> Any:
    return F.swapaxes(x, 0, 1) if len(x.shape) == 2 else x


@row("squeeze.default", "squeeze.dim", "squeeze.dims")
def _squeeze(F: Any, x: Any, dim: Any = None) -> Any:
    axes = axes_of(dim, len(x.shape)) if dim != [] else ()
    sizes = [n for i, n in enumerate(x.shape) if i not in axes or n != 1]
    return F.reshape(x, shape=tuple(sizes))


@row("unsqueeze.default")
def _unsqueeze(F: Any, x: Any, dim: int) -> Any:
    return F.unsqueeze(x, dim % (len(x.shape) + 1))


def _range(n: Size, start: Any, end: Any) -> tuple[Size, Size]:
    first, last = (
        _bounded(n, 0 if start is None else start),
        _bounded(n, n if end is None else end),
    )
    return first, size_max(last, first)


def _bounded(n: Size, position: Size) -> Size:
    """A position within an axis of size `n`; a negative one counts from the end."""
    return size_max(position + n, 0) if position < 0 else size_min(position, n)


@row("slice.Tensor")
def _slice(F: Any, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    axis = axis_of(dim, len(x.shape))
    first, last = _range(x.shape[axis], start, end)
    if step == 1 and known_equal(first, 0) and known_equal(last, x.shape[axis]):
        return x
    starts: list[Size] = [0] * len(x.shape)
    stops, steps = list(x.shape), [1] * len(x.shape)
    starts[axis], stops[axis], steps[axis] = first, last, step
    return F.slice(x, starts, stops, steps)


@row("select.int")
def _select(F: Any, x: Any, dim: int, index: int) -> Any:
    axis = axis_of(dim, len(x.shape))
    return F.select(x, axis, index if index >= 0 else index + x.shape[axis])


@row("narrow.default", "narrow_copy.default")
def _narrow(F: Any, x: Any, dim: int, start: int, length: int) -> Any:
    return _slice(F, x, dim, start, start + length)


@row("diagonal.default")
def _diagonal(F: Any, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    others = [i for i in range(rank) if i not in (first, second)]
    return F.diagonal(F.permute(x, axes=(*others, first, second)), offset)


@row("unbind.int", "unbind_copy.int")
def _unbind(F: Any, x: Any, dim: int = 0) -> tuple[Any, ...]:
    axis = axis_of(dim, len(x.shape))
    return tuple(_select(F, x, axis, i) for i in range(x.shape[axis]))


@row("split_with_sizes.default")
def _split_with_sizes(F: Any, x: Any, sizes: Sequence[int], dim: int = 0) -> tuple[Any, ...]:
    axis = axis_of(dim, len(x.shape))
    pieces, start = [], 0
    for n in sizes:
        pieces.append(_slice(F, x, axis, start, start + n))
        start += n
    return tuple(pieces)


@row("split.Tensor")
def _split(F: Any, x: Any, size: int, dim: int = 0) -> tuple[Any, ...]:
    total = x.shape[axis_of(dim, len(x.shape))]
    sizes = [min(size, total - i) for i in range(0, max(total, 1), max(size, 1))]
    return _split_with_sizes(F, x, sizes, dim)


@row("cat.default")
def _cat(F: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    dtype = common_dtype(tensors)
    # A vector without elements joins anything (a legacy of torch).
    joined = [cast(F, x, dtype) for x in tensors if x.shape != (0,)]
    if not joined:
        return cast(F, tensors[0], dtype)
    axis = axis_of(dim, len(joined[0].shape))
    return F.concat(joined, axis=axis) if len(joined) > 1 else joined[0]


@row("stack.default")
def _stack(F: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    dtype = common_dtype(tensors)
    axis = dim % (len(tensors[0].shape) + 1)
    return F.stack([cast(F, x, dtype) for x in tensors], axis=axis)


@row("repeat.default")
def _repeat(F: Any, x: Any, repeats: Sequence[int]) -> Any:
    lead = len(repeats) - len(x.shape)
    shape = (*(1,) * lead, *x.shape)
    pairs = [p for r, n in zip(repeats, shape, strict=True) for p in (r, n)]
    split = F.reshape(x, tuple(p for n in shape for p in (1, n)))
    out = F.expand(split, shape=tuple(pairs))
    return F.reshape(out, tuple(r * n for r, n in zip(repeats, shape, strict=True)))


@row("flip.default")
def _flip(F: Any, x: Any, dims: Sequence[int]) -> Any:
    return F.flip(x, axes=tuple(d % len(x.shape) for d in dims)) if x.shape and dims else x


@row("roll.default")
def _roll(F: Any, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if not dims:
        return F.reshape(F.roll(F.reshape(x, (-1,)), shifts[0], 0), x.shape) if x.size else x
    for shift, dim in zip(shifts, dims, strict=True):
        x = F.roll(x, shift, dim % len(x.shape)) if x.size else x
    return x


@row("constant_pad_nd.default")
def _constant_pad(F: Any, x: Any, pad: Sequence[int], value: Any = 0) -> Any:
    rank = len(x.shape)
    pairs = [(0, 0)] * rank
    for i in range(len(pad) // 2):
        pairs[rank - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    starts = [max(-low, 0) for low, _ in pairs]
    stops = [n - max(-high, 0) for n, (_, high) in zip(x.shape, pairs, strict=True)]
    if any(starts) or tuple(stops) != x.shape:
        x = F.slice(x, starts, stops)
    low, high = [max(p, 0) for p, _ in pairs], [max(p, 0) for _, p in pairs]
    if not any(low) and not any(high):
        return x
    return F.pad(x, tuple(low), tuple(high), value=value)


@row("tril.default")
def _tril(F: Any, x: Any, diagonal: int = 0) -> Any:
    return F.tril(x, k=diagonal)


@row("triu.default")
def _triu(F: Any, x: Any, diagonal: int = 0) -> Any:
    return F.triu(x, k=diagonal)


@row("unfold.default")
def _unfold(F: Any, x: Any, dimension: int, size: int, step: int) -> Any:
    if not x.shape:
        return F.reshape(x, (1,) if size else (0,))
    axis = axis_of(dimension, len(x.shape))
    rank = len(x.shape)
    last = F.permute(x, axes=(*(i for i in range(rank) if i != axis), axis))
    taps = F.windows(last, kernel=(size,), stride=(step,), dilation=(1,))
    # (..., taps, positions): positions take the place of the axis, taps are last.
    order = [*range(rank - 1)]
    order.insert(axis, rank)
    return F.permute(taps, axes=(*order, rank - 1))


@row("expand_copy.default")
def _expand_copy(F: Any, x: Any, size: Sequence[int], *, implicit: bool = False) -> Any:
    return _expand(F, x, size)


@row("prims.broadcast_in_dim.default")
def _broadcast_in_dim(F: Any, x: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
    sizes = [1] * len(shape)
    for n, d in zip(x.shape, dims, strict=True):
        sizes[d] = n
    return F.expand(F.reshape(x, tuple(sizes)), shape=tuple(shape))


@row("channel_shuffle.default")
def _channel_shuffle(F: Any, x: Any, groups: int) -> Any:
    return F.channel_shuffle(x, groups)


@row("pixel_shuffle.default")
def _pixel_shuffle(F: Any, x: Any, factor: int) -> Any:
    return F.pixel_shuffle(x, factor)


@row("pixel_unshuffle.default")
def _pixel_unshuffle(F: Any, x: Any, factor: int) -> Any:
    return F.pixel_unshuffle(x, factor)
