"""What the rows share: casts, constants, padding, and the axes of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import DType, accumulator
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.ops import F

# Tables of positions that rows compute at import have at most this many entries.
_MOST_POSITIONS = 1 << 24


def counting(count: int) -> np.ndarray:
    """0, 1, ... before `count`; OnnxError for a count that only a hostile model has."""
    if not 0 <= count <= _MOST_POSITIONS:
        raise OnnxError(f"a table of {count} positions", hint=f"up to {_MOST_POSITIONS} are made")
    return np.arange(count, dtype=np.int64)


def cast(x: Any, dtype: DType) -> Any:
    """`x` as `dtype`; no node if it has that dtype."""
    return x if x.dtype is dtype else F.cast(x, dtype=dtype)


def number(value: Any, dtype: DType) -> Any:
    """A 0-d constant."""
    return constant(np.asarray(value).astype(dtype.numpy))


def wide(x: Any) -> Any:
    """`x` in the dtype that sums of its elements need: f32 for f16 and bf16."""
    return cast(x, accumulator(x.dtype))


def permute_axis(x: Any, source: int, destination: int) -> Any:
    """`x` with one axis moved."""
    return x if source == destination else F.movedim(x, source, destination)


def pad(x: Any, low: Sequence[int], high: Sequence[int], value: Any = 0) -> Any:
    """`x` padded or, with negative widths, cut along each axis."""
    starts = [max(-n, 0) for n in low]
    stops = [n - max(-h, 0) for n, h in zip(x.shape, high, strict=True)]
    if any(starts) or tuple(stops) != x.shape:
        if any(a > b for a, b in zip(starts, stops, strict=True)):
            raise OnnxError(f"padding {tuple(low)} {tuple(high)} cuts more than {x.shape} has")
        x = F.slice(x, starts=tuple(starts), stops=tuple(stops))
    low, high = [max(n, 0) for n in low], [max(n, 0) for n in high]
    if not any(low) and not any(high):
        return x
    return F.pad(x, low=tuple(low), high=tuple(high), value=value)


def narrow(x: Any, axis: int, start: int, stop: int, step: int = 1) -> Any:
    """A slice of one axis."""
    starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return F.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def spatial(node: Node, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """An attribute with an int for each spatial axis."""
    values = tuple(node.attr(name, None) or (default,) * rank)
    if len(values) != rank or any(not isinstance(v, int) or v < 1 for v in values):
        raise OnnxError(f"{node.op}: {name} is {values} for {rank} spatial axes")
    return values


def spatial_pads(
    node: Node,
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Padding before and after each spatial axis, by `pads` or `auto_pad`."""
    rank = len(sizes)
    mode = node.attr("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        low, high = [], []
        for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
            total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            less, more = total // 2, total - total // 2
            low.append(less if mode == "SAME_UPPER" else more)
            high.append(more if mode == "SAME_UPPER" else less)
        return low, high
    if mode == "VALID":
        return [0] * rank, [0] * rank
    if mode != "NOTSET":
        raise OnnxError(f"{node.op}: auto_pad is {mode!r}")
    pads = list(node.attr("pads", None) or [0] * (2 * rank))
    if len(pads) != 2 * rank:
        raise OnnxError(f"{node.op}: pads is {pads} for {rank} spatial axes")
    return pads[:rank], pads[rank:]
