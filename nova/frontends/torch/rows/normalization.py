"""Normalizations and softmax, with the statistics that their backward passes read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nova.core.dtypes import accumulator, bf16
from nova.frontends.torch.rows.table import axis_of, cast, row


@row("_softmax.default")
def _softmax(F: Any, x: Any, dim: int, half_to_float: bool) -> Any:
    x = cast(F, x, accumulator(x.dtype)) if half_to_float else x
    return F.softmax(x, axis=axis_of(dim, len(x.shape))) if x.shape else F.ones_like(x)


@row("_log_softmax.default")
def _log_softmax(F: Any, x: Any, dim: int, half_to_float: bool) -> Any:
    x = cast(F, x, accumulator(x.dtype)) if half_to_float else x
    return F.log_softmax(x, axis=axis_of(dim, len(x.shape))) if x.shape else F.zeros_like(x)


@row("_softmax_backward_data.default")
def _softmax_backward(F: Any, g: Any, out: Any, dim: int, dtype: Any) -> Any:
    wide = accumulator(out.dtype)
    g, y = cast(F, g, wide), cast(F, out, wide)
    if not out.shape:
        return F.zeros_like(y)
    total = F.sum(g * y, axis=axis_of(dim, len(out.shape)), keepdims=True)
    return (g - total) * y


@row("_log_softmax_backward_data.default")
def _log_softmax_backward(F: Any, g: Any, out: Any, dim: int, dtype: Any) -> Any:
    wide = accumulator(out.dtype)
    g, y = cast(F, g, wide), cast(F, out, wide)
    if not out.shape:
        return F.zeros_like(y)
    total = F.sum(g, axis=axis_of(dim, len(out.shape)), keepdims=True)
    return g - F.exp(y) * total


def _moments(F: Any, x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """Mean, biased variance and reciprocal standard deviation, all with `keepdims`."""
    mean = F.mean(x, axis=axes, keepdims=True)
    variance = F.var(x, axis=axes, correction=0, keepdims=True)
    return mean, variance, F.rsqrt(variance + eps)


@row("native_layer_norm.default")
def _layer_norm(
    F: Any, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Any, Any, Any]:
    wide = cast(F, x, accumulator(x.dtype))
    ndim = len(shape)
    rank = len(x.shape)
    mean, _, rstd = _moments(F, wide, tuple(range(rank - ndim, rank)), eps)
    weight = None if weight is None else cast(F, weight, wide.dtype)
    bias = None if bias is None else cast(F, bias, wide.dtype)
    if weight is None and bias is not None:
        out = F.layer_norm(wide, None, None, ndim=ndim, eps=eps) + bias
    else:
        out = F.layer_norm(wide, weight, bias, ndim=ndim, eps=eps)
    return cast(F, out, x.dtype), mean, rstd


@row("native_group_norm.default")
def _group_norm(
    F: Any, x: Any, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    wide = cast(F, x, accumulator(x.dtype))
    rows = F.reshape(wide, (n, groups, c // groups * hw))
    mean, _, rstd = _moments(F, rows, (2,), eps)
    out = F.reshape((rows - mean) * rstd, x.shape)
    out = _affine(F, out, weight, bias)
    return cast(F, out, x.dtype), F.reshape(mean, (n, groups)), F.reshape(rstd, (n, groups))


def _per_channel(F: Any, vector: Any, x: Any) -> Any:
    wide = cast(F, vector, x.dtype)
    return F.reshape(wide, (1, vector.shape[0], *(1,) * (len(x.shape) - 2)))


def _affine(F: Any, x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * _per_channel(F, weight, x)
    return x if bias is None else x + _per_channel(F, bias, x)


@row("_native_batch_norm_legit_no_training.default", by_device=True)
def _batch_norm_inference(
    F: Any,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    momentum: float,
    eps: float,
    *,
    device: str,
) -> tuple[Any, Any, Any]:
    """torch returns the statistics as well, but on CPUs empty tensors instead of them."""
    wide = cast(F, x, accumulator(x.dtype))
    scale = F.rsqrt(cast(F, var, wide.dtype) + eps)
    centered = wide - _per_channel(F, mean, wide)
    out = _affine(F, centered * _per_channel(F, scale, wide), weight, bias)
    if device != "cpu":
        return cast(F, out, x.dtype), cast(F, mean, wide.dtype), scale
    empty = F.full(shape=(0,), value=0.0, dtype=wide.dtype)
    return cast(F, out, x.dtype), empty, empty


def _plain_moments(F: Any, x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """Like `_moments`, of bf16 in f32: the sums of elements and squares, in one pass over x.

    The difference of both loses the square of mean / deviation in 24 bits. bf16 has 8 bits: where
    the loss is larger than its rounding, its elements hardly differ.
    """
    mean = F.mean(x, axis=axes, keepdims=True)
    variance = F.mean(F.square(x), axis=axes, keepdims=True) - F.square(mean)
    # NaN stays NaN.
    variance = F.maximum(variance, 0.0)
    return mean, variance, F.rsqrt(variance + eps)


def _batch_norm(F: Any, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    """The result; the mean, the biased variance and the reciprocal deviation of each channel."""
    wide = cast(F, x, accumulator(x.dtype))
    axes = (0, *range(2, len(x.shape)))
    moments = _plain_moments if x.dtype is bf16 else _moments
    mean, variance, rstd = moments(F, wide, axes, eps)
    out = _affine(F, (wide - mean) * rstd, weight, bias)
    channels = (x.shape[1],)
    flat = [F.reshape(v, channels) for v in (mean, variance, rstd)]
    return cast(F, out, x.dtype), flat[0], flat[1], flat[2]


@row("_native_batch_norm_legit_functional.default")
def _batch_norm_functional(
    F: Any,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    if not training:
        args = (weight, bias, running_mean, running_var, momentum, eps)
        return (*_batch_norm_inference(F, x, *args), running_mean, running_var)
    out, mean, variance, rstd = _batch_norm(F, x, weight, bias, eps)
    count = prod(x.shape) // x.shape[1]
    # The running variance is that of the population: n / (n - 1) times the batch's.
    unbiased = variance * (count / (count - 1) if count > 1 else float("nan"))
    new_mean = cast(F, mean, running_mean.dtype) * momentum + running_mean * (1 - momentum)
    new_var = cast(F, unbiased, running_var.dtype) * momentum + running_var * (1 - momentum)
    return out, mean, rstd, new_mean, new_var


@row("_native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(
    F: Any, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    out, mean, _, rstd = _batch_norm(F, x, weight, bias, eps)
    return out, mean, rstd


@row("native_batch_norm_backward.default")
def _batch_norm_backward(
    F: Any,
    g: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_rstd: Any,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    wide = accumulator(x.dtype)
    g, x_wide = cast(F, g, wide), cast(F, x, wide)
    axes = (0, *range(2, len(x.shape)))
    count = prod(x.shape) // x.shape[1]
    if train:
        mean, rstd = cast(F, save_mean, wide), cast(F, save_rstd, wide)
    else:
        mean, rstd = cast(F, running_mean, wide), F.rsqrt(cast(F, running_var, wide) + eps)
    mean, rstd = _per_channel(F, mean, x_wide), _per_channel(F, rstd, x_wide)
    scale = rstd if weight is None else rstd * _per_channel(F, weight, x_wide)
    normal = (x_wide - mean) * rstd
    by_bias = F.sum(g, axis=axes, keepdims=True)
    by_weight = F.sum(g * normal, axis=axes, keepdims=True)
    by_x = g * scale
    if train:
        by_x = (g - by_bias / count - normal * (by_weight / count)) * scale
    channels = (x.shape[1],)
    results = (by_x, F.reshape(by_weight, channels), F.reshape(by_bias, channels))
    return tuple(r if is_needed else None for r, is_needed in zip(results, mask, strict=True))
