"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.dtypes import accumulator
from nova.core.sizes import known_equal
from nova.frontends.torch.rows.table import cast, row, unsupported
from nova.graph.autodiff import gradients


@row("convolution.default")
def _convolution(
    F: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    rank = len(weight.shape) - 2
    if not 1 <= rank <= 3:
        raise unsupported(f"a convolution of {rank} spatial axes")
    if not weight.size or any(known_equal(size, 0) for size in x.shape[1:]):
        raise unsupported("a convolution of an empty tensor")
    options = {
        "stride": tuple(stride),
        "padding": tuple(padding),
        "dilation": tuple(dilation),
        "groups": groups,
    }
    if transposed:
        # Overlapping windows are summed: in f32 for f16 and bf16, as torch does.
        x, weight = (cast(F, t, accumulator(t.dtype)) for t in (x, weight))
        function = getattr(F, f"conv_transpose{rank}d")
        return function(x, weight, bias, output_padding=tuple(output_padding), **options)
    return getattr(F, f"conv{rank}d")(x, weight, bias, **options)


@row("convolution_backward.default")
def _convolution_backward(
    F: Any,
    g: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    """The vjp of the convolution; its forward is dropped unless the vjp reads it."""
    g, x, weight = (cast(F, t, accumulator(t.dtype)) for t in (g, x, weight))
    out = _convolution(
        F, x, weight, None, stride, padding, dilation, transposed, output_padding, groups
    )
    sources = [t for t, is_needed in zip((x, weight), mask, strict=False) if is_needed]
    pieces = iter(gradients(out, sources, g, partial=True) if sources else [])
    by_x = next(pieces) if mask[0] else None
    by_weight = next(pieces) if mask[1] else None
    by_bias = None
    if mask[2]:
        axes = tuple(i for i in range(len(g.shape)) if i != len(g.shape) - len(weight.shape) + 1)
        by_bias = F.sum(g, axis=axes)
    return by_x, by_weight, by_bias


@row("im2col.default")
def _im2col(F: Any, x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return F.unfold(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@row("col2im.default")
def _col2im(
    F: Any, x: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    return F.fold(x, tuple(size), tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))
