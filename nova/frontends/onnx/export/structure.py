"""Export rows of ops that move and index elements, of windows, and of normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import i64
from nova.errors import UnsupportedOpError
from nova.frontends.onnx.export.writer import Writer, exports
from nova.frontends.onnx.package import onnx_package
from nova.graph.tensor import Tensor


@exports("reshape")
def _reshape(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Reshape", names[0], w.ints(t.shape), allowzero=1)


@exports("permute")
def _permute(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Transpose", names[0], perm=list(t.attrs["axes"]))


@exports("expand")
def _expand(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Expand", names[0], w.ints(t.shape))


@exports("flip")
def _flip(w: Writer, t: Tensor, names: list[str]) -> str:
    axes = t.attrs["axes"]
    axes = range(t.ndim) if axes is None else axes
    count = len(axes)
    if not count:
        return w.node("Identity", names[0])
    least = np.iinfo(np.int64).min
    bounds = (w.ints([-1] * count), w.ints([least] * count), w.ints(axes), w.ints([-1] * count))
    return w.node("Slice", names[0], *bounds)


@exports("slice")
def _slice(w: Writer, t: Tensor, names: list[str]) -> str:
    x, axes = t.inputs[0], range(t.ndim)
    starts, stops = t.attrs["starts"], t.attrs["stops"]
    steps = t.attrs["steps"] or (1,) * t.ndim
    if not t.ndim:
        return w.node("Identity", names[0])
    ends = []
    for start, stop, step, n in zip(starts, stops, steps, x.shape, strict=True):
        positions = range(*slice(start, stop, step).indices(n))
        last = positions[-1] if len(positions) else None
        # An end before the first element has no index: ONNX clamps the least integer.
        ends.append(
            start
            if last is None
            else last + 1
            if step > 0
            else last - 1
            if last > 0
            else np.iinfo(np.int64).min
        )
    return w.node("Slice", names[0], w.ints(starts), w.ints(ends), w.ints(axes), w.ints(steps))


@exports("unslice")
def _unslice(w: Writer, t: Tensor, names: list[str]) -> str:
    """Zeros with the elements written along one axis after the other."""
    result, shape = names[0], list(t.inputs[0].shape)
    starts, steps = t.attrs["starts"], t.attrs["steps"] or (1,) * t.ndim
    for axis, n in enumerate(t.shape):
        if shape[axis] == n and starts[axis] == 0 and steps[axis] == 1:
            continue
        positions = starts[axis] + np.arange(shape[axis]) * steps[axis]
        index = np.broadcast_to(
            positions.reshape([-1 if i == axis else 1 for i in range(t.ndim)]), shape
        )
        shape[axis] = n
        zeros = w.node("Expand", w.constant(0, t.dtype), w.ints(shape))
        result = w.node("ScatterElements", zeros, w.constant(index, i64), result, axis=axis)
    return result


@exports("pad")
def _pad(w: Writer, t: Tensor, names: list[str]) -> str:
    pads = w.ints([*t.attrs["low"], *t.attrs["high"]])
    return w.node("Pad", names[0], pads, w.constant(t.attrs["value"], t.dtype))


@exports("join")
def _join(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Concat", *names, axis=t.attrs["axis"])


@exports("tril", "triu")
def _triangle(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    k = w.constant(t.attrs["k"], i64)
    return w.node("Trilu", names[0], k, upper=int(t.op.name == "triu"))


@exports("barrier")
def _barrier(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Identity", names[0])


# --- indices --------------------------------------------------------------------------------------


@exports("take")
def _take(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Gather", *names, axis=t.attrs["axis"])


@exports("embedding")
def _embedding(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Gather", *names, axis=0)


@exports("gather")
def _gather(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("GatherElements", *names, axis=t.attrs["axis"])


_SCATTERS = {"scatter": "none", "scatter_add": "add", "scatter_max": "max", "scatter_min": "min"}


@exports(*_SCATTERS)
def _scatter(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    options = {"axis": t.attrs["axis"], "reduction": _SCATTERS[t.op.name]}
    return w.node("ScatterElements", *names, **options)


@exports("index_add")
def _index_add(w: Writer, t: Tensor, names: list[str]) -> str:
    axis, updates = t.attrs["axis"], t.inputs[2]
    shape = [-1 if i == axis else 1 for i in range(t.ndim)]
    index = w.node("Expand", w.node("Reshape", names[1], w.ints(shape)), w.ints(updates.shape))
    return w.node("ScatterElements", names[0], index, names[2], axis=axis, reduction="add")


@exports("one_hot")
def _one_hot(w: Writer, t: Tensor, names: list[str]) -> str:
    depth = w.constant(t.attrs["num_classes"], i64)
    return w.node("OneHot", names[0], depth, w.constant([0, 1], t.dtype), axis=-1)


@exports("arange")
def _arange(w: Writer, t: Tensor, names: list[str]) -> str:
    start, step = t.attrs["start"], t.attrs["step"]
    [count] = t.shape
    return w.constant(start + np.arange(count) * step, t.dtype)


@exports("full")
def _full(w: Writer, t: Tensor, names: list[str]) -> str:
    return w.node("Expand", w.constant(t.attrs["value"], t.dtype), w.ints(t.shape))


@exports("argsort")
def _argsort(w: Writer, t: Tensor, names: list[str]) -> str:
    return _positions(w, t, names, t.attrs["descending"])


@exports("argtopk")
def _argtopk(w: Writer, t: Tensor, names: list[str]) -> str:
    return _positions(w, t, names, t.attrs["largest"])


def _positions(w: Writer, t: Tensor, names: list[str], is_descending: bool) -> str:
    axis, largest = t.attrs["axis"], int(is_descending)
    outputs = [w.fresh("sorted"), w.fresh("order")]
    inputs = [names[0], w.ints([t.shape[axis]])]
    w.nodes.append(
        onnx_package().helper.make_node("TopK", inputs, outputs, axis=axis, largest=largest)
    )
    return outputs[1]


@exports("cumsum")
def _cumsum(w: Writer, t: Tensor, names: list[str]) -> str:
    x = names[0] if t.inputs[0].dtype is t.dtype else w.cast(names[0], t.dtype)
    return w.node("CumSum", x, w.constant(t.attrs["axis"], i64))


# --- windows --------------------------------------------------------------------------------------


@exports("windows")
def _windows(w: Writer, t: Tensor, names: list[str]) -> str:
    """A Gather of (taps, positions) along each axis, then taps before positions."""
    kernel, stride, dilation = (t.attrs[n] for n in ("kernel", "stride", "dilation"))
    rank, lead = len(kernel), t.ndim - 2 * len(kernel)
    result = names[0]
    for i in range(rank):
        count = t.shape[lead + rank + i]
        index = np.arange(kernel[i])[:, None] * dilation[i] + np.arange(count)[None] * stride[i]
        result = w.node("Gather", result, w.constant(index, i64), axis=lead + 2 * i)
    order = [*range(lead), *(lead + 2 * i for i in range(rank))]
    return w.node("Transpose", result, perm=[*order, *(lead + 2 * i + 1 for i in range(rank))])


@exports("overlap_add")
def _overlap_add(w: Writer, t: Tensor, names: list[str]) -> str:
    """Each element added at its position in the flattened axes."""
    stride, dilation, size = (t.attrs[n] for n in ("stride", "dilation", "size"))
    x, rank = t.inputs[0], len(size)
    lead = x.ndim - 2 * rank
    kernel, counts = x.shape[lead : lead + rank], x.shape[lead + rank :]
    position = np.zeros((1,) * (2 * rank), np.int64)
    for i in range(rank):
        grid = np.arange(kernel[i])[:, None] * dilation[i] + np.arange(counts[i])[None] * stride[i]
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = grid.shape
        position = position + grid.reshape(shape) * int(np.prod(size[i + 1 :]))
    rows = int(np.prod(x.shape[:lead]))
    index = np.broadcast_to(position.reshape(1, -1), (rows, position.size))
    flat = w.node("Reshape", names[0], w.ints([rows, position.size]))
    zeros = w.node("Expand", w.constant(0, t.dtype), w.ints([rows, int(np.prod(size))]))
    options: dict[str, Any] = {"axis": 1, "reduction": "add"}
    total = w.node("ScatterElements", zeros, w.constant(index, i64), flat, **options)
    return w.node("Reshape", total, w.ints(t.shape))


# --- layers ---------------------------------------------------------------------------------------


@exports("softmax", "log_softmax")
def _softmax(w: Writer, t: Tensor, names: list[str]) -> str:
    assert t.op is not None
    op = "Softmax" if t.op.name == "softmax" else "LogSoftmax"
    return w.node(op, names[0], axis=t.attrs["axis"])


@exports("layer_norm")
def _layer_norm(w: Writer, t: Tensor, names: list[str]) -> str:
    ndim = t.attrs["ndim"]
    inner = t.shape[t.ndim - ndim :]
    scale = names[1] if len(names) > 1 else w.constant(np.ones(inner), t.dtype)
    options = {"axis": -ndim, "epsilon": float(t.attrs["eps"])}
    return w.node("LayerNormalization", names[0], scale, *names[2:], **options)


@exports("uniform")
def _uniform(w: Writer, t: Tensor, names: list[str]) -> str:
    raise UnsupportedOpError("uniform: ONNX leaves the generator of random numbers open")
