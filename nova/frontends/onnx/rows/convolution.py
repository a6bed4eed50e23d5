"""Rows of convolutions."""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import i64
from nova.errors import OnnxError
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, pad, spatial, spatial_pads, wide
from nova.frontends.onnx.table import row
from nova.ops import F

_MOST_AXES = 3


def convolve(node: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    """A convolution of float tensors by the attributes of a node."""
    rank = x.ndim - 2
    if weight.ndim != x.ndim or rank < 1:
        raise OnnxError(f"{node.op}: weight {weight.shape} for {x.shape}")
    if rank > _MOST_AXES:
        raise node.refused(f"{rank} spatial axes", "Nova has convolutions of one to three")
    padded, stride, dilation = _padded(node, x, tuple(weight.shape[2:]))
    function = getattr(F, f"conv{rank}d")
    groups = node.attr("group", 1)
    return function(padded, weight, bias, stride=stride, dilation=dilation, groups=groups)


def find_windows(node: Node, x: Any, kernel: tuple[int, ...]) -> Any:
    """The windows of a padded tensor: (batch, channels, *kernel, *places)."""
    padded, stride, dilation = _padded(node, x, kernel)
    return F.windows(padded, kernel=kernel, stride=stride, dilation=dilation)


def _padded(
    node: Node, x: Any, kernel: tuple[int, ...]
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """x padded by the attributes of a node, the stride and the dilation."""
    rank = x.ndim - 2
    stride, dilation = spatial(node, "strides", rank), spatial(node, "dilations", rank)
    low, high = spatial_pads(node, x.shape[2:], kernel, stride, dilation)
    return pad(x, [0, 0, *low], [0, 0, *high]), stride, dilation


@row("Conv")
def _conv(node: Node) -> Any:
    return convolve(node, node.tensor(0), node.tensor(1), node.optional(2))


@row("ConvTranspose")
def _conv_transpose(node: Node) -> Any:
    x, weight, bias = node.tensor(0), node.tensor(1), node.optional(2)
    rank = x.ndim - 2
    if not 1 <= rank <= _MOST_AXES:
        raise node.refused(f"{rank} spatial axes", "Nova has convolutions of one to three")
    kernel = tuple(weight.shape[2:])
    stride, dilation = spatial(node, "strides", rank), spatial(node, "dilations", rank)
    extra = list(node.attr("output_padding", None) or [0] * rank)
    full = [
        (n - 1) * s + d * (k - 1) + 1
        for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    mode = node.attr("auto_pad", "NOTSET")
    sizes = node.attr("output_shape", None)
    if sizes is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
    if sizes is not None:
        sizes = list(sizes)[-rank:]
        total = [f + e - n for f, e, n in zip(full, extra, sizes, strict=True)]
        low = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        high = [t - a for t, a in zip(total, low, strict=True)]
    elif mode == "VALID":
        low = high = [0] * rank
    else:
        pads = list(node.attr("pads", None) or [0] * (2 * rank))
        low, high = pads[:rank], pads[rank:]
    function = getattr(F, f"conv_transpose{rank}d")
    out = function(x, weight, None, stride=stride, dilation=dilation, groups=node.attr("group", 1))
    edges = [e - h for e, h in zip(extra, high, strict=True)]
    out = pad(out, [0, 0, *(-a for a in low)], [0, 0, *edges])
    return out if bias is None else out + F.reshape(bias, (-1, *(1,) * rank))


@row("DeformConv", since=19)
def _deform_conv(node: Node) -> Any:
    """Deformable convolution (Dai et al., 2017): taps at fractional offsets, bilinear."""
    x, weight, offset = (node.tensor(i) for i in range(3))
    bias, mask = node.optional(3), node.optional(4)
    if x.ndim != 4:
        raise node.refused(f"{x.ndim - 2} spatial axes", "Nova has two")
    batch, channels, height, width = x.shape
    outputs, depth, rows, columns = weight.shape
    stride, dilation = spatial(node, "strides", 2), spatial(node, "dilations", 2)
    pads = list(node.attr("pads", None) or [0] * 4)
    groups, parts = node.attr("group", 1), node.attr("offset_group", 1)
    coordinates = offset.shape[2:]
    taps = rows * columns
    offset = F.reshape(wide(offset), (batch, parts, taps, 2, *coordinates))
    grids = []
    for axis, (n, count) in enumerate(zip(coordinates, (rows, columns), strict=True)):
        base = F.reshape(
            F.arange(n) * stride[axis] - pads[axis], tuple(-1 if i == axis else 1 for i in range(2))
        )
        tap = F.arange(count) * dilation[axis]
        tap = F.reshape(tap, (count, 1) if axis == 0 else (1, count))
        tap = F.reshape(F.expand(tap, (rows, columns)), (taps, 1, 1))
        grids.append(offset[:, :, :, axis] + cast(base + tap, offset.dtype))
    image = F.reshape(wide(x), (batch, parts, channels // parts, height * width))
    samples = bilinear(image, grids[0], grids[1], height, width)
    if mask is not None:
        samples = samples * F.reshape(wide(mask), (batch, parts, 1, taps, *coordinates))
    gathered = F.reshape(samples, (batch, groups, depth * taps, prod(coordinates)))
    matrix = F.reshape(wide(weight), (groups, outputs // groups, depth * taps))
    out = F.reshape(F.matmul(matrix, gathered), (batch, outputs, *coordinates))
    out = out if bias is None else out + F.reshape(wide(bias), (-1, 1, 1))
    return cast(out, x.dtype)


def bilinear(image: Any, y: Any, x: Any, height: int, width: int) -> Any:
    """Samples of flat images (n, g, c, h * w) at (n, g, ...), zero outside."""
    top, left = F.floor(y), F.floor(x)
    total = None
    for dy in (0, 1):
        for dx in (0, 1):
            at_y, at_x = top + dy, left + dx
            weight = (1 - F.abs(y - at_y)) * (1 - F.abs(x - at_x))
            inside = F.ge(at_y, 0) & F.lt(at_y, height) & F.ge(at_x, 0) & F.lt(at_x, width)
            rows = cast(F.clamp(at_y, min=0, max=height - 1), i64)
            columns = cast(F.clamp(at_x, min=0, max=width - 1), i64)
            at = rows * width + columns
            flat = F.reshape(at, (*at.shape[:2], 1, prod(at.shape[2:])))
            shape = (*flat.shape[:2], image.shape[2], flat.shape[3])
            gathered = F.gather(image, F.expand(flat, shape), axis=3)
            gathered = F.reshape(gathered, (*at.shape[:2], image.shape[2], *at.shape[2:]))
            part = gathered * F.unsqueeze(F.where(inside, weight, 0.0), 2)
            total = part if total is None else total + part
    return total
