"""Rows that make, move and join elements; sizes and axes are known at import."""

from __future__ import annotations

from math import ceil, prod
from typing import Any, Literal

import numpy as np

from nova.core.dtypes import f32, i64
from nova.core.sizes import is_static_shape
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import Coded, constant, dtype_of
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, counting, narrow, pad
from nova.frontends.onnx.sized import broadcast_sizes
from nova.frontends.onnx.table import row
from nova.ops import F


@row("Constant", lazy=True)
def _constant(node: Node) -> Any:
    attrs = node.attrs
    if "value" in attrs:
        return constant(attrs["value"])
    for name, dtype in (("value_int", np.int64), ("value_float", np.float32)):
        if name in attrs:
            return constant(np.asarray(attrs[name], dtype))
        if name + "s" in attrs:
            return constant(np.asarray(attrs[name + "s"], dtype))
    if "value_string" in attrs or "value_strings" in attrs:
        raise node.refused("strings")
    raise node.refused("a sparse value")


@row("ConstantOfShape")
def _constant_of_shape(node: Node) -> Any:
    value = node.attrs.get("value", np.zeros(1, np.float32))
    shape = node.ints(0)
    if any(n < 0 for n in shape):
        raise OnnxError(f"ConstantOfShape: shape {shape}")
    if np.asarray(value).size != 1:
        raise OnnxError("ConstantOfShape: value has more than one element")
    return F.expand(F.reshape(constant(value), (1,) * len(shape)), shape)


@row("Identity", lazy=True)
def _identity(node: Node) -> Any:
    return node.value(0)


@row("Shape", lazy=True)
def _shape(node: Node) -> Any:
    value = node.value(0)
    shape = value.shape if isinstance(value, Coded) else node.tensor(0).shape
    rank = len(shape)
    start, end = node.attr("start", 0), node.attr("end", rank)
    start = min(max(start + rank if start < 0 else start, 0), rank)
    end = min(max(end + rank if end < 0 else end, 0), rank)
    return node.importer.sizes.make(shape[start:end])


@row("Size", lazy=True)
def _size(node: Node) -> Any:
    value = node.value(0)
    return node.importer.sizes.make(prod(value.shape))


@row("Reshape")
def _reshape(node: Node) -> Any:
    x = node.tensor(0)
    shape = list(node.axes(1, "shape") or ())
    if not node.attr("allowzero", 0):
        if any(n == 0 and i >= x.ndim for i, n in enumerate(shape)):
            raise OnnxError(f"Reshape: {tuple(shape)} of {x.shape}")
        shape = [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    if -1 in shape and is_static_shape(shape) and x.type.is_static:
        others = prod(n for n in shape if n != -1)
        if not others or x.size % others:
            raise OnnxError(f"Reshape: {tuple(shape)} of {x.shape}")
        shape[shape.index(-1)] = x.size // others
    return F.reshape(x, tuple(shape))


@row("Flatten")
def _flatten(node: Node) -> Any:
    x = node.tensor(0)
    axis = node.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return F.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@row("Squeeze")
def _squeeze(node: Node) -> Any:
    x = node.tensor(0)
    axes = node.axes(1)
    if axes is None:
        axes = tuple(i for i, n in enumerate(x.shape) if n == 1)
    drop = {node.resolve(a, x.ndim) for a in axes}
    if any(x.shape[a] != 1 for a in drop):
        raise OnnxError(f"Squeeze: axes {axes} of {x.shape}")
    return F.reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in drop))


@row("Unsqueeze")
def _unsqueeze(node: Node) -> Any:
    x = node.tensor(0)
    axes = node.axes(1) or ()
    rank = x.ndim + len(axes)
    new = {node.resolve(a, rank) for a in axes}
    if len(new) != len(axes):
        raise OnnxError(f"Unsqueeze: axes {axes}")
    sizes = iter(x.shape)
    return F.reshape(x, tuple(1 if i in new else next(sizes) for i in range(rank)))


@row("Transpose")
def _transpose(node: Node) -> Any:
    x = node.tensor(0)
    axes = node.attr("perm", None) or tuple(reversed(range(x.ndim)))
    return F.permute(x, axes=tuple(node.resolve(a, x.ndim) for a in axes))


@row("Concat")
def _concat(node: Node) -> Any:
    tensors = node.tensors()
    axis = node.axis(tensors[0].ndim)
    return F.concat(tensors, axis=axis) if len(tensors) > 1 else tensors[0]


@row("Split")
def _split(node: Node) -> Any:
    x = node.tensor(0)
    axis = node.axis(x.ndim, 0)
    sizes = node.axes(1, "split")
    if sizes is None:
        count = node.attr("num_outputs", node.outputs)
        each = ceil(x.shape[axis] / count)
        sizes = tuple(min(each, max(x.shape[axis] - i * each, 0)) for i in range(count))
    if sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes):
        raise OnnxError(f"Split: {sizes} of an axis of {x.shape[axis]}")
    ends = np.cumsum(sizes)
    return tuple(narrow(x, axis, int(e - n), int(e)) for n, e in zip(sizes, ends, strict=True))


@row("Slice")
def _slice(node: Node) -> Any:
    x = node.tensor(0)
    if node.version < 10:
        starts, ends = tuple(node.attr("starts")), tuple(node.attr("ends"))
        axes, steps = node.attr("axes", None), None
    else:
        starts, ends = node.ints(1), node.ints(2)
        axes, steps = node.axes(3), node.axes(4)
    axes = range(len(starts)) if axes is None else [node.resolve(a, x.ndim) for a in axes]
    steps = steps or (1,) * len(starts)
    slices = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not step:
            raise OnnxError("Slice: a step of 0")
        n = x.shape[axis]
        if step > 0:
            stop: int | None = end
        else:
            # An end before the first element: Python has no other name for it than None.
            stop = None if end + n < 0 or end < -n else end
            start = min(start, n - 1)
        slices[axis] = slice(start, stop, step)
    return F.getitem(x, tuple(slices))


@row("Expand")
def _expand(node: Node) -> Any:
    x = node.tensor(0)
    return F.expand(x, broadcast_sizes(x.shape, node.ints(1)))


@row("Tile")
def _tile(node: Node) -> Any:
    return F.tile(node.tensor(0), *node.ints(1))


@row("Range", since=11)
def _range(node: Node) -> Any:
    arrays = [node.array(i).reshape(()) for i in range(3)]
    start, stop, step = (a.item() for a in arrays)
    if not step:
        raise OnnxError("Range: a delta of 0")
    count = max(ceil((stop - start) / step), 0)
    if count > 1 << 26:
        raise OnnxError(f"Range: {count} elements")
    dtype = arrays[0].dtype
    return constant((start + counting(count) * step).astype(dtype))


@row("EyeLike")
def _eye_like(node: Node) -> Any:
    x = node.tensor(0)
    if x.ndim != 2:
        raise OnnxError(f"EyeLike of {x.shape}")
    element = node.attr("dtype", None)
    dtype = x.dtype if element is None else dtype_of(element)
    return cast(F.eye(x.shape[0], x.shape[1], k=node.attr("k", 0), dtype=f32), dtype)


@row("Trilu", since=14)
def _trilu(node: Node) -> Any:
    x = node.tensor(0)
    k = int(node.scalar(1)) if node.has(1) else 0
    return F.triu(x, k=k) if node.attr("upper", 1) else F.tril(x, k=k)


# --- pad ------------------------------------------------------------------------------------------

_PAD_MODES: tuple[Literal["reflect", "edge", "wrap"], ...] = ("reflect", "edge", "wrap")


@row("Pad")
def _pad(node: Node) -> Any:
    x = node.tensor(0)
    pads = node.axes(1, "pads") or ()
    listed = node.axes(3)
    axes = [node.resolve(a, x.ndim) for a in (listed or range(x.ndim))]
    if len(pads) != 2 * len(axes):
        raise OnnxError(f"Pad: {len(pads)} widths for {len(axes)} axes")
    low, high = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        low[axis], high[axis] = pads[i], pads[i + len(axes)]
    mode = node.attr("mode", "constant")
    if mode == "constant":
        return _pad_constant(node, x, low, high)
    if mode not in _PAD_MODES:
        raise OnnxError(f"Pad: mode {mode!r}")
    mode = _PAD_MODES[_PAD_MODES.index(mode)]
    for axis, (a, b) in enumerate(zip(low, high, strict=True)):
        if a or b:
            positions = np.pad(
                counting(x.shape[axis])[max(-a, 0) : x.shape[axis] - max(-b, 0)],
                (max(a, 0), max(b, 0)),
                mode,
            )
            x = F.take(x, constant(positions), axis=axis)
    return x


def _pad_constant(node: Node, x: Any, low: list[int], high: list[int]) -> Any:
    if not node.has(2):
        return pad(x, low, high, node.attr("value", 0.0) if x.dtype.is_float else 0)
    value = node.tensor(2)
    if value.data is not None:
        number = value.data.reshape(()).item()
        return pad(x, low, high, bool(number) if x.dtype.kind == "b" else number)
    inside = pad(F.full(shape=x.shape, value=True, dtype="bool"), low, high, False)
    return F.where(inside, pad(x, low, high), F.reshape(value, ()))


@row("CenterCropPad", since=18)
def _center_crop_pad(node: Node) -> Any:
    x = node.tensor(0)
    axes = node.attr("axes", None)
    axes = range(x.ndim) if axes is None else [node.resolve(a, x.ndim) for a in axes]
    for axis, size in zip(axes, node.ints(1), strict=True):
        n = x.shape[axis]
        if size < n:
            start = (n - size) // 2
            x = narrow(x, axis, start, start + size)
        elif size > n:
            low, high = [0] * x.ndim, [0] * x.ndim
            low[axis] = (size - n) // 2
            high[axis] = size - n - low[axis]
            x = pad(x, low, high)
    return x


# --- blocks ---------------------------------------------------------------------------------------


@row("DepthToSpace")
def _depth_to_space(node: Node) -> Any:
    x = node.tensor(0)
    b, (n, c, h, w) = node.attr("blocksize"), x.shape
    if node.attr("mode", "DCR") == "DCR":
        parts = F.permute(F.reshape(x, (n, b, b, c // b**2, h, w)), axes=(0, 3, 4, 1, 5, 2))
    else:
        parts = F.permute(F.reshape(x, (n, c // b**2, b, b, h, w)), axes=(0, 1, 4, 2, 5, 3))
    return F.reshape(parts, (n, c // b**2, h * b, w * b))


@row("SpaceToDepth")
def _space_to_depth(node: Node) -> Any:
    x = node.tensor(0)
    b, (n, c, h, w) = node.attr("blocksize"), x.shape
    parts = F.permute(F.reshape(x, (n, c, h // b, b, w // b, b)), axes=(0, 3, 5, 1, 2, 4))
    return F.reshape(parts, (n, c * b**2, h // b, w // b))


@row("ReverseSequence")
def _reverse_sequence(node: Node) -> Any:
    x, lengths = node.tensor(0), node.tensor(1)
    time, batch = node.axis(x.ndim, 0, "time_axis"), node.axis(x.ndim, 1, "batch_axis")
    n = x.shape[time]

    def aligned_to(value: Any, axis: int) -> Any:
        return F.reshape(value, tuple(-1 if i == axis else 1 for i in range(x.ndim)))

    steps, ends = aligned_to(F.arange(n), time), aligned_to(cast(lengths, i64), batch)
    at = F.where(F.lt(steps, ends), ends - 1 - steps, steps)
    return F.gather(x, F.expand(at, x.shape), axis=time)
