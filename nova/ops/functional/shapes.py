"""Functions that arrange elements: tile, repeat, chunk, movedim, pixel_shuffle, pad modes, ..."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from nova.core.sizes import ceildiv, is_static
from nova.errors import AttributeValueError, AxisError, ShapeError
from nova.ops.functional.common import (
    as_integers,
    as_tensor,
    choice,
    function,
    is_tensor,
    require_rank,
    require_tensors,
)
from nova.ops.rules import int_tuple, int_value, resolve_axis, size_tuple
from nova.ops.table import Op, register
from nova.ops.views import check_divides


def _repeat(F: Any, x: Any, *sizes: Any) -> Any:
    """torch's repeat: the whole tensor, once more for each count."""
    x = as_tensor(F, x)
    counts = _counts("repeat", sizes)
    if len(counts) < len(x.shape):
        raise ShapeError(f"repeat: {len(counts)} counts for {x.shape}: one or more for each axis")
    return _tiled(F, x, counts)


def _tile(F: Any, x: Any, *reps: Any) -> Any:
    x = as_tensor(F, x)
    counts = _counts("tile", reps)
    return _tiled(F, x, (1,) * (len(x.shape) - len(counts)) + counts)


def _counts(name: str, args: tuple[Any, ...]) -> tuple[int, ...]:
    items = args[0] if len(args) == 1 else args
    counts = int_tuple(items, f"{name}: counts")
    if any(n < 0 for n in counts):
        raise AttributeValueError(f"{name}: counts {counts} are negative")
    return counts


def _tiled(F: Any, x: Any, counts: tuple[int, ...]) -> Any:
    shape = (1,) * (len(counts) - len(x.shape)) + tuple(x.shape)
    # A new axis before each axis, expanded to the count and merged with it.
    split = [n for size in shape for n in (1, size)]
    wide = [n for pair in zip(counts, shape, strict=True) for n in pair]
    merged = [c * n for c, n in zip(counts, shape, strict=True)]
    return F.reshape(F.expand(F.reshape(x, split), wide), merged)


def _repeat_interleave(
    F: Any, x: Any, repeats: Any, axis: Any = None, output_size: int | None = None
) -> Any:
    x = as_tensor(F, x)
    if axis is None:
        x, axis = F.reshape(x, (x.size,)), 0
    axis = resolve_axis(axis, len(x.shape))
    if is_tensor(repeats):
        return _repeat_by_data(F, x, repeats, axis, output_size)
    if isinstance(repeats, tuple | list) or np.ndim(repeats):
        counts = np.asarray(repeats)
        if counts.dtype.kind not in "iu" or counts.ndim != 1 or counts.size != x.shape[axis]:
            raise ShapeError(
                f"repeat_interleave: repeats {counts.tolist()} for an axis of {x.shape[axis]}"
            )
        if (counts < 0).any():
            raise AttributeValueError(f"repeat_interleave: repeats {counts.tolist()} are negative")
        index = np.repeat(np.arange(x.shape[axis]), counts)
        return F.take(x, index, axis=axis)
    count = int_value(repeats, "repeat_interleave: repeats")
    if count < 0:
        raise AttributeValueError(f"repeat_interleave: repeats must be at least 0, not {count}")
    shape = x.shape
    wide = (*shape[: axis + 1], count, *shape[axis + 1 :])
    merged = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    return F.reshape(F.expand(F.unsqueeze(x, axis + 1), wide), merged)


def _repeat_by_data(F: Any, x: Any, repeats: Any, axis: int, output_size: Any) -> Any:
    """Repeats that data have: `output_size` is their sum."""
    name = "repeat_interleave"
    repeats = as_integers(F, name, repeats, "repeats")
    n = x.shape[axis]
    if len(repeats.shape) > 1 or (repeats.shape and repeats.shape[0] not in (1, n)):
        raise ShapeError(f"{name}: repeats {repeats.shape} for an axis of {n}")
    if output_size is None:
        raise AttributeValueError(
            f"{name}: the size of the result depends on the values of repeats",
            hint="give it as output_size, or repeats as a list",
        )
    count = int_value(output_size, f"{name}: output_size")
    ends = F.cumsum(F.expand(repeats, (n,)), axis=0)
    return F.take(x, F.searchsorted(ends, F.arange(count), right=True), axis=axis)


def _chunk(F: Any, x: Any, chunks: int, axis: int = 0) -> tuple[Any, ...]:
    x = as_tensor(F, x)
    axis, count = resolve_axis(axis, len(x.shape)), int_value(chunks, "chunk: chunks")
    if count < 1:
        raise AttributeValueError(f"chunk: chunks must be at least 1, not {count}")
    n = x.shape[axis]
    check_divides("chunk", n, count, axis)
    each = ceildiv(n, count)
    if is_static(n):
        bounds = [*range(0, n, each), n] if n else [0] * (count + 1)
    else:
        bounds = [each * k for k in range(count + 1)]
    return tuple(_narrow(F, x, axis, a, b - a) for a, b in pairwise(bounds))


def _narrow(F: Any, x: Any, axis: int, start: int, length: int) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    if is_tensor(start):
        return _narrow_at(F, x, axis, start, int_value(length, "narrow: length"))
    start, length = size_tuple((start, length), "narrow: start and length")
    start = start + x.shape[axis] if start < 0 else start
    if start < 0 or length < 0 or start + length > x.shape[axis]:
        raise ShapeError(f"narrow: {start}..{start + length} of an axis of size {x.shape[axis]}")
    starts, stops = [0] * len(x.shape), list(x.shape)
    starts[axis], stops[axis] = start, start + length
    return F.slice(x, starts, stops)


def _narrow_at(F: Any, x: Any, axis: int, start: Any, length: int) -> Any:
    """From a start that data have: one out of range is moved into it, as `dynamic_slice` does."""
    start = as_integers(F, "narrow", start, "start")
    n = x.shape[axis]
    if start.shape or not 0 <= length <= n:
        raise ShapeError(f"narrow: {length} elements from {start.type} of an axis of size {n}")
    start = F.where(start < 0, start + n, start)
    starts = [start if i == axis else F.zeros_like(start) for i in range(len(x.shape))]
    sizes = tuple(length if i == axis else m for i, m in enumerate(x.shape))
    return F.dynamic_slice(x, F.stack(starts), slice_sizes=sizes)


def _select(F: Any, x: Any, axis: int, index: int) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    return F.getitem(x, (slice(None),) * axis + (int_value(index, "select: index"),))


def _unbind(F: Any, x: Any, axis: int = 0) -> tuple[Any, ...]:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    return tuple(_select(F, x, axis, i) for i in range(x.shape[axis]))


def _movedim(F: Any, x: Any, source: Any, destination: Any) -> Any:
    x = as_tensor(F, x)
    rank = len(x.shape)
    sources = [resolve_axis(a, rank) for a in int_tuple(source, "movedim: source")]
    targets = [resolve_axis(a, rank) for a in int_tuple(destination, "movedim: destination")]
    if len(sources) != len(targets) or len({*sources}) + len({*targets}) != 2 * len(sources):
        raise AxisError(f"movedim: axes {source} to {destination} do not match")
    order = [a for a in range(rank) if a not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return F.permute(x, order)


def _rot90(F: Any, x: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    x = as_tensor(F, x)
    plane = [resolve_axis(i, len(x.shape)) for i in int_tuple(axes, "rot90: axes")]
    if len(plane) != 2 or plane[0] == plane[1]:
        raise AxisError(f"rot90: axes {axes} are not two axes")
    a, b = plane
    quarter_turns = int_value(k, "rot90: k") % 4
    if quarter_turns == 0:
        return x
    if quarter_turns == 2:
        return F.flip(x, (a, b))
    swapped = F.swapaxes(x, a, b)
    return F.flip(swapped, (a,) if quarter_turns == 1 else (b,))


def _fliplr(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    require_rank("fliplr", x, 2)
    return F.flip(x, (1,))


def _flipud(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    require_rank("flipud", x, 1)
    return F.flip(x, (0,))


def _atleast(rank: int) -> Any:
    def build(F: Any, x: Any) -> Any:
        x = as_tensor(F, x)
        missing = rank - len(x.shape)
        if missing <= 0:
            return x
        if rank == 3 and missing == 1:
            return F.unsqueeze(x, 2)
        if rank == 3 and missing == 2:
            return F.reshape(x, (1, x.size, 1))
        return F.reshape(x, (1,) * missing + tuple(x.shape))

    return build


def _stacked(name: str, rank: int, axis: int) -> Any:
    def build(F: Any, *tensors: Any) -> Any:
        parts = [_atleast(rank)(F, t) for t in require_tensors(name, tensors)]
        if not parts:
            raise ShapeError(f"{name}: no tensors")
        joined = 0 if axis == 1 and len(parts[0].shape) == 1 else axis
        return F.concat(parts, axis=joined)

    return build


def _unflatten(F: Any, x: Any, axis: int, sizes: Any) -> Any:
    x = as_tensor(F, x)
    axis = resolve_axis(axis, len(x.shape))
    sizes = int_tuple(sizes, "unflatten: sizes")
    inferred = [i for i, n in enumerate(sizes) if n == -1]
    known = int(np.prod([n for n in sizes if n != -1], dtype=np.int64))
    if len(inferred) == 1 and known and not x.shape[axis] % known:
        sizes = tuple(x.shape[axis] // known if n == -1 else n for n in sizes)
    elif inferred or known != x.shape[axis]:
        raise ShapeError(f"unflatten: axis {axis} of size {x.shape[axis]} cannot become {sizes}")
    return F.reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


def _pixel_shuffle(F: Any, x: Any, upscale_factor: int) -> Any:
    x, r = as_tensor(F, x), int_value(upscale_factor, "pixel_shuffle: upscale_factor")
    require_rank("pixel_shuffle", x, 3)
    *lead, channels, height, width = x.shape
    if r < 1 or channels % (r * r):
        raise ShapeError(f"pixel_shuffle: {channels} channels for a factor of {r}")
    split = F.reshape(x, (*lead, channels // (r * r), r, r, height, width))
    n = len(lead)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return F.reshape(F.permute(split, order), (*lead, channels // (r * r), height * r, width * r))


def _pixel_unshuffle(F: Any, x: Any, downscale_factor: int) -> Any:
    x, r = as_tensor(F, x), int_value(downscale_factor, "pixel_unshuffle: downscale_factor")
    require_rank("pixel_unshuffle", x, 3)
    *lead, channels, height, width = x.shape
    if r < 1 or height % r or width % r:
        raise ShapeError(f"pixel_unshuffle: {height} x {width} for a factor of {r}")
    split = F.reshape(x, (*lead, channels, height // r, r, width // r, r))
    n = len(lead)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return F.reshape(F.permute(split, order), (*lead, channels * r * r, height // r, width // r))


def _channel_shuffle(F: Any, x: Any, groups: int) -> Any:
    x, g = as_tensor(F, x), int_value(groups, "channel_shuffle: groups")
    require_rank("channel_shuffle", x, 2)
    if g < 1 or x.shape[1] % g:
        raise ShapeError(
            f"channel_shuffle: {x.shape[1]} channels are not divisible into {g} groups",
            hint="the number of groups divides the channels, the second axis of x",
        )
    split = F.reshape(x, (x.shape[0], g, x.shape[1] // g, *x.shape[2:]))
    return F.reshape(F.swapaxes(split, 1, 2), x.shape)


PAD_MODES = ("constant", "reflect", "replicate", "circular")


def pad_edges(F: Any, x: Any, pad: Any, mode: str = "constant", value: float = 0.0) -> Any:
    """torch's pad: (low, high) of the last axis first; negative widths remove elements."""
    x = as_tensor(F, x)
    choice("pad_edges", "mode", mode, PAD_MODES)
    widths = int_tuple(pad, "pad_edges: widths")
    if len(widths) % 2 or len(widths) > 2 * len(x.shape):
        raise ShapeError(
            f"pad_edges: widths {widths} for {x.shape}: a pair for each of the last axes"
        )
    pairs = [(0, 0)] * (len(x.shape) - len(widths) // 2)
    pairs += [(widths[i], widths[i + 1]) for i in range(len(widths) - 2, -1, -2)]
    for axis, (n, (low, high)) in enumerate(zip(x.shape, pairs, strict=True)):
        if n + low + high < 0 or n + min(low, 0) + min(high, 0) < 0:
            raise ShapeError(
                f"pad_edges: widths {low} and {high} leave nothing of axis {axis}: {n}"
            )
    if mode == "constant":
        starts = [max(-low, 0) for low, _ in pairs]
        stops = [n + min(high, 0) for n, (_, high) in zip(x.shape, pairs, strict=True)]
        cut = F.slice(x, starts, stops) if any(w < 0 for p in pairs for w in p) else x
        ends = [[max(p[i], 0) for p in pairs] for i in (0, 1)]
        return F.pad(cut, ends[0], ends[1], value=value)
    if mode == "circular" and any(w < 0 for p in pairs for w in p):
        # Elements are removed first: those that remain repeat.
        stops = [n + min(high, 0) for n, (_, high) in zip(x.shape, pairs, strict=True)]
        x = F.slice(x, [max(-low, 0) for low, _ in pairs], stops)
        pairs = [(max(low, 0), max(high, 0)) for low, high in pairs]
    for axis, (low, high) in enumerate(pairs):
        if low or high:
            x = F.take(x, _edge_index(mode, x.shape[axis], low, high), axis=axis)
    return x


def _edge_index(mode: str, n: int, low: int, high: int) -> np.ndarray:
    """The element that each position of a padded axis copies."""
    limit = n - 1 if mode == "reflect" else n if mode == "circular" else None
    if n == 0 or (limit is not None and max(low, high) > limit):
        raise ShapeError(f"pad_edges: widths {low} and {high} of an axis of {n}, mode {mode!r}")
    at = np.arange(-low, n + high)
    if mode == "replicate":
        return np.clip(at, 0, n - 1)
    if mode == "circular":
        return at % n
    return np.where(at < 0, -at, np.where(at >= n, 2 * (n - 1) - at, at))


ROWS: tuple[Op, ...] = (
    function(
        "repeat", "The tensor `sizes` times along each axis (torch's repeat).", _repeat, method=True
    ),
    function(
        "tile", "The tensor `reps` times along the last axes (numpy's tile).", _tile, method=True
    ),
    function(
        "repeat_interleave",
        "Each element `repeats` times in a row along an axis (None: of the flattened tensor).",
        _repeat_interleave,
        method=True,
    ),
    function(
        "chunk",
        "At most `chunks` pieces of equal size; the last may be smaller.",
        _chunk,
        method=True,
    ),
    function("narrow", "`length` elements of an axis from `start`.", _narrow, method=True),
    function("select", "One position of an axis, which the result lacks.", _select, method=True),
    function("unbind", "The positions of an axis, as a tuple.", _unbind, method=True),
    function(
        "movedim", "Axes moved to other places, the others in their order.", _movedim, method=True
    ),
    function(
        "rot90", "Rotated k times by 90 degrees in the plane of two axes.", _rot90, method=True
    ),
    function("fliplr", "Axis 1 in reverse order.", _fliplr),
    function("flipud", "Axis 0 in reverse order.", _flipud),
    function("atleast_1d", "x, a 0-d tensor as a vector.", _atleast(1)),
    function("atleast_2d", "x with at least two axes, new ones first.", _atleast(2)),
    function("atleast_3d", "x with at least three axes, as numpy places them.", _atleast(3)),
    function(
        "vstack",
        "Joined along axis 0; vectors are rows.",
        _stacked("vstack", 2, 0),
        operands=("*tensors",),
    ),
    function(
        "hstack",
        "Joined along axis 1; vectors along axis 0.",
        _stacked("hstack", 1, 1),
        operands=("*tensors",),
    ),
    function("dstack", "Joined along axis 2.", _stacked("dstack", 3, 2), operands=("*tensors",)),
    function(
        "unflatten", "One axis split into several; one size may be -1.", _unflatten, method=True
    ),
    function(
        "pixel_shuffle",
        "(..., C r r, H, W) as (..., C, H r, W r).",
        _pixel_shuffle,
    ),
    function("pixel_unshuffle", "The inverse of pixel_shuffle.", _pixel_unshuffle),
    function("channel_shuffle", "The channels of `groups` interleaved.", _channel_shuffle),
    function(
        "pad_edges",
        "torch's `nn.functional.pad`: (low, high) widths of the last axis first; mode 'constant', "
        "'reflect', 'replicate' or 'circular'.",
        pad_edges,
    ),
)


def register_rows() -> None:
    register(*ROWS)
