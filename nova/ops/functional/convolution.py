"""Convolutions of one to three spatial axes and their transposes, with torch's arguments.

A convolution is one matmul of the weight with the windows of the padded input (im2col); groups are
a batch axis, and depthwise convolutions multiply and sum without a matmul. The transpose is a
matmul, then the sum of overlapping windows (col2im).
"""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import accumulator
from nova.core.sizes import known_equal, same_shape
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import as_inexact, as_tensor, function, to_dtype
from nova.ops.rules import int_tuple, int_value
from nova.ops.table import Op, register

Sizes = tuple[int, ...]


def spatial_sizes(name: str, option: str, value: Any, rank: int, low: int = 1) -> Sizes:
    """An int for every spatial axis, or one for each."""
    values = int_tuple(value, f"{name}: {option}")
    values = values * rank if len(values) == 1 else values
    if len(values) != rank or any(v < low for v in values):
        raise AttributeValueError(f"{name}: {option} {value!r}: not {rank} sizes of at least {low}")
    return values


def with_batch(F: Any, name: str, x: Any, rank: int) -> tuple[Any, bool]:
    """x as (batch, channels, ...), and whether the batch axis was added."""
    if len(x.shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: {x.shape} is not (batch, channels{', size' * rank})",
            hint="the batch axis may be left out",
        )
    added = len(x.shape) == rank + 1
    return (F.unsqueeze(x, 0) if added else x), added


def pad_spatial(F: Any, x: Any, low: Sizes, high: Sizes, value: float = 0.0) -> Any:
    """x with its last axes padded; x itself if all widths are 0."""
    if not any(low) and not any(high):
        return x
    lead = (0,) * (len(x.shape) - len(low))
    return F.pad(x, (*lead, *low), (*lead, *high), value=value)


def _groups(name: str, groups: Any, x: Any, weight: Any, transposed: bool) -> int:
    count = int_value(groups, f"{name}: groups")
    channels = x.shape[1]
    expected = weight.shape[0] if transposed else weight.shape[1] * count
    other = channels if transposed else weight.shape[0]
    layout = "(in, out / groups, ...)" if transposed else "(out, in / groups, ...)"
    if count < 1 or other % count:
        raise ShapeError(
            f"{name}: {count} groups of {other} channels, with a weight {weight.shape}",
            hint=f"the number of groups divides the channels; the weight is {layout}",
        )
    if expected != channels:
        in_groups = "" if count == 1 else f" in {count} groups"
        raise ShapeError(
            f"{name}: x {tuple(x.shape)} has {channels} channels, and the weight {weight.shape} is "
            f"one for {expected}{in_groups}",
            hint=f"x is (batch, channels, ...): move the channels there, or make a layer of "
            f"{channels} input channels; the weight is {layout}",
        )
    return count


def _same_padding(name: str, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Sizes, Sizes]:
    if any(s != 1 for s in stride):
        raise AttributeValueError(f"{name}: padding 'same' needs a stride of 1, not {stride}")
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def _add_bias(F: Any, name: str, out: Any, bias: Any, channels: int) -> Any:
    if bias is None:
        return out
    (bias,) = as_inexact(F, bias)
    if not same_shape(bias.shape, (channels,)):
        raise ShapeError(f"{name}: bias {bias.shape} for {channels} output channels")
    return out + F.reshape(bias, (channels, *(1,) * (len(out.shape) - 2)))


def _convolution(rank: int) -> Any:
    name = f"conv{rank}d"

    def build(
        F: Any,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        x, weight = as_inexact(F, x, weight)
        if len(weight.shape) != rank + 2:
            raise ShapeError(f"{name}: weight {weight.shape} is not (out, in{', size' * rank})")
        x, added = with_batch(F, name, x, rank)
        count = _groups(name, groups, x, weight, transposed=False)
        kernel = tuple(weight.shape[2:])
        stride = spatial_sizes(name, "stride", stride, rank)
        dilation = spatial_sizes(name, "dilation", dilation, rank)
        if padding == "same":
            low, high = _same_padding(name, kernel, stride, dilation)
        elif padding == "valid":
            low = high = (0,) * rank
        else:
            low = high = spatial_sizes(name, "padding", padding, rank, 0)
        padded = pad_spatial(F, x, low, high)
        for n, k, d in zip(padded.shape[2:], kernel, dilation, strict=True):
            if n < d * (k - 1) + 1:
                dilated = f" with dilation {dilation}" if any(s != 1 for s in dilation) else ""
                raise ShapeError(
                    f"{name}: a kernel of {kernel}{dilated} is larger than the padded input, "
                    f"{padded.shape[2:]}",
                    hint="use a smaller kernel, more padding or a larger input",
                )
        out = _windows_product(F, padded, weight, stride, dilation, count)
        out = _add_bias(F, name, out, bias, weight.shape[0])
        return F.squeeze(out, 0) if added else out

    return build


def _windows_product(
    F: Any, x: Any, weight: Any, stride: Sizes, dilation: Sizes, groups: int
) -> Any:
    batch, channels, *_ = x.shape
    outputs, depth, *kernel = weight.shape
    windows = F.windows(x, kernel=tuple(kernel), stride=stride, dilation=dilation)
    places = tuple(windows.shape[2 + len(kernel) :])
    if depth == 1 and known_equal(channels, groups) and groups == outputs:
        # Depthwise: each channel has its own kernel, a matmul would have one row.
        wide = accumulator(x.dtype)
        taps = to_dtype(F, F.reshape(weight, (channels, *kernel, *(1,) * len(kernel))), wide)
        terms = to_dtype(F, windows, wide) * taps
        return to_dtype(F, F.sum(terms, axis=tuple(range(2, 2 + len(kernel)))), x.dtype)
    taps = depth * prod(kernel)
    columns = F.reshape(windows, (batch, groups, taps, prod(places)))
    matrix = F.reshape(weight, (groups, outputs // groups, taps))
    if groups == 1:
        columns, matrix = F.squeeze(columns, 1), F.squeeze(matrix, 0)
    return F.reshape(F.matmul(matrix, columns), (batch, outputs, *places))


def _transposed(rank: int) -> Any:
    name = f"conv_transpose{rank}d"

    def build(
        F: Any,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        x, weight = as_inexact(F, x, weight)
        if len(weight.shape) != rank + 2:
            raise ShapeError(f"{name}: weight {weight.shape} is not (in, out{', size' * rank})")
        x, added = with_batch(F, name, x, rank)
        count = _groups(name, groups, x, weight, transposed=True)
        kernel = tuple(weight.shape[2:])
        stride = spatial_sizes(name, "stride", stride, rank)
        dilation = spatial_sizes(name, "dilation", dilation, rank)
        padding = spatial_sizes(name, "padding", padding, rank, 0)
        extra = spatial_sizes(name, "output_padding", output_padding, rank, 0)
        if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
            raise AttributeValueError(
                f"{name}: output_padding {extra} is not below {stride} or {dilation}",
                hint="it is smaller than the stride or the dilation",
            )
        batch, channels, *places = x.shape
        outputs = weight.shape[1] * count
        matrix = F.reshape(weight, (count, channels // count, weight.shape[1] * prod(kernel)))
        columns = F.reshape(x, (batch, count, channels // count, prod(places)))
        taps = F.matmul(F.swapaxes(matrix, 1, 2), columns)
        windows = F.reshape(taps, (batch, outputs, *kernel, *places))
        axes = list(zip(places, kernel, stride, dilation, extra, strict=True))
        full = tuple((n - 1) * s + d * (k - 1) + 1 + e for n, k, s, d, e in axes)
        out = F.overlap_add(windows, size=full, stride=stride, dilation=dilation)
        if any(padding):
            stops = [n - p for n, p in zip(full, padding, strict=True)]
            if any(b <= p for b, p in zip(stops, padding, strict=True)):
                raise ShapeError(f"{name}: padding {padding} leaves nothing of {full}")
            out = F.slice(out, (0, 0, *padding), (batch, outputs, *stops))
        out = _add_bias(F, name, out, bias, outputs)
        return F.squeeze(out, 0) if added else out

    return build


def _unfold(
    F: Any, x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    x, added = with_batch(F, "unfold", as_tensor(F, x), 2)
    kernel = spatial_sizes("unfold", "kernel_size", kernel_size, 2)
    low = spatial_sizes("unfold", "padding", padding, 2, 0)
    windows = F.windows(
        pad_spatial(F, x, low, low),
        kernel=kernel,
        stride=spatial_sizes("unfold", "stride", stride, 2),
        dilation=spatial_sizes("unfold", "dilation", dilation, 2),
    )
    shape = (x.shape[0], x.shape[1] * prod(kernel), prod(windows.shape[4:]))
    out = F.reshape(windows, shape)
    return F.squeeze(out, 0) if added else out


def _fold(
    F: Any,
    x: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    x = as_tensor(F, x)
    if len(x.shape) not in (2, 3):
        raise ShapeError(f"fold: {x.shape} is not (batch, channels * taps, positions)")
    added = len(x.shape) == 2
    x = F.unsqueeze(x, 0) if added else x
    size = spatial_sizes("fold", "output_size", output_size, 2)
    kernel = spatial_sizes("fold", "kernel_size", kernel_size, 2)
    dilation = spatial_sizes("fold", "dilation", dilation, 2)
    padding = spatial_sizes("fold", "padding", padding, 2, 0)
    stride = spatial_sizes("fold", "stride", stride, 2)
    full = tuple(n + 2 * p for n, p in zip(size, padding, strict=True))
    counts = tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(full, kernel, stride, dilation, strict=True)
    )
    if x.shape[1] % prod(kernel) or x.shape[2] != prod(counts) or min(counts) < 1:
        raise ShapeError(f"fold: {x.shape} for {counts} positions of a {kernel} kernel")
    channels = x.shape[1] // prod(kernel)
    windows = F.reshape(x, (x.shape[0], channels, *kernel, *counts))
    out = F.overlap_add(windows, size=full, stride=stride, dilation=dilation)
    if any(padding):
        stops = [n + p for n, p in zip(size, padding, strict=True)]
        out = F.slice(out, (0, 0, *padding), (x.shape[0], channels, *stops))
    return F.squeeze(out, 0) if added else out


OPERANDS = ("x", "weight", "bias")
ROWS: tuple[Op, ...] = (
    *(
        function(
            f"conv{rank}d",
            f"Convolution over {rank} spatial axes: x (batch, in, ...) with a weight (out, in / "
            "groups, ...); padding is a size, one per axis, 'same' or 'valid'. Padding is zeros, "
            "which are multiplied like other elements: an infinite or NaN weight gives NaN there.",
            _convolution(rank),
            operands=OPERANDS,
        )
        for rank in (1, 2, 3)
    ),
    *(
        function(
            f"conv_transpose{rank}d",
            f"Transposed convolution over {rank} spatial axes, weight (in, out / groups, ...).",
            _transposed(rank),
            operands=OPERANDS,
        )
        for rank in (1, 2, 3)
    ),
    function("unfold", "Windows of an image as columns (torch's unfold, im2col).", _unfold),
    function("fold", "Columns added at their windows (torch's fold, col2im).", _fold),
)


def register_rows() -> None:
    register(*ROWS)
