"""Batch, group, instance and local response normalization, and rotary position embedding.

Statistics of f16 and bf16 are f32, and the result is rounded once.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import accumulator
from nova.core.sizes import known_equal, same_shape
from nova.errors import ShapeError
from nova.ops.functional.common import as_floats, function, number, require_rank, to_dtype
from nova.ops.rules import int_value
from nova.ops.table import Op, register


def _per_channel(F: Any, name: str, x: Any, option: str, given: Any) -> Any:
    """A vector of channels, shaped to broadcast with x of (batch, channels, ...)."""
    if given is None:
        return None
    (vector,) = as_floats(F, given)
    if not same_shape(vector.shape, (x.shape[1],)):
        raise ShapeError(f"{name}: {option} {vector.shape} for {x.shape[1]} channels")
    wide = to_dtype(F, vector, accumulator(x.dtype))
    return F.reshape(wide, (1, x.shape[1], *(1,) * (len(x.shape) - 2)))


def _normalized(F: Any, x: Any, axes: tuple[int, ...], eps: float) -> Any:
    mean = F.mean(x, axis=axes, keepdims=True)
    variance = F.var(x, axis=axes, correction=0, keepdims=True)
    return (x - mean) * F.rsqrt(variance + eps)


def _affine(F: Any, name: str, x: Any, wide: Any, weight: Any, bias: Any) -> Any:
    weight = _per_channel(F, name, x, "weight", weight)
    bias = _per_channel(F, name, x, "bias", bias)
    wide = wide if weight is None else wide * weight
    wide = wide if bias is None else wide + bias
    return to_dtype(F, wide, x.dtype)


def _batch_norm(
    F: Any,
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    eps: float = 1e-5,
) -> Any:
    (x,) = as_floats(F, x)
    require_rank("batch_norm", x, 2)
    small = number("batch_norm", "eps", eps, 0)
    wide = to_dtype(F, x, accumulator(x.dtype))
    if training:
        axes = (0, *range(2, len(x.shape)))
        if known_equal(prod(x.shape[a] for a in axes), 1):
            raise ShapeError(
                f"batch_norm: {x.shape} has one value per channel, and training needs more",
                hint="call eval() to use the running statistics, or use a larger batch",
            )
        return _affine(F, "batch_norm", x, _normalized(F, wide, axes, small), weight, bias)
    mean = _per_channel(F, "batch_norm", x, "running_mean", running_mean)
    variance = _per_channel(F, "batch_norm", x, "running_var", running_var)
    if mean is None or variance is None:
        raise ShapeError("batch_norm: needs running_mean and running_var unless training")
    scaled = (wide - mean) * F.rsqrt(variance + small)
    return _affine(F, "batch_norm", x, scaled, weight, bias)


def _group_norm(
    F: Any, x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    (x,) = as_floats(F, x)
    require_rank("group_norm", x, 2)
    groups = int_value(num_groups, "group_norm: num_groups")
    if groups < 1 or not known_equal(x.shape[1] % groups, 0):
        raise ShapeError(
            f"group_norm: {x.shape[1]} channels are not divisible into {groups} groups",
            hint="the number of groups divides the channels, the second axis of x",
        )
    wide = to_dtype(F, x, accumulator(x.dtype))
    rows = F.reshape(wide, (x.shape[0], groups, prod(x.shape[1:]) // groups))
    scaled = _normalized(F, rows, (2,), number("group_norm", "eps", eps, 0))
    return _affine(F, "group_norm", x, F.reshape(scaled, x.shape), weight, bias)


def _instance_norm(F: Any, x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    (x,) = as_floats(F, x)
    require_rank("instance_norm", x, 3)
    wide = to_dtype(F, x, accumulator(x.dtype))
    axes = tuple(range(2, len(x.shape)))
    scaled = _normalized(F, wide, axes, number("instance_norm", "eps", eps, 0))
    return _affine(F, "instance_norm", x, scaled, weight, bias)


def _local_response_norm(
    F: Any, x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    (x,) = as_floats(F, x)
    require_rank("local_response_norm", x, 3)
    width = int_value(size, "local_response_norm: size")
    if width < 1:
        raise ShapeError(f"local_response_norm: size must be at least 1, not {width}")
    channels, rank = x.shape[1], len(x.shape)
    low = [width // 2 if i == 1 else 0 for i in range(rank)]
    high = [(width - 1) // 2 if i == 1 else 0 for i in range(rank)]
    squares = F.pad(F.square(x), low, high)
    total = F.narrow(squares, 1, 0, channels)
    for i in range(1, width):
        total = total + F.narrow(squares, 1, i, channels)
    return x / F.pow(total * (alpha / width) + k, beta)


def _rope(F: Any, x: Any, cos: Any, sin: Any, interleaved: bool = False) -> Any:
    (x,) = as_floats(F, x)
    require_rank("rope", x, 2)
    half = x.shape[-1] // 2
    cos, sin = as_floats(F, cos, sin)
    is_even = known_equal(x.shape[-1] % 2, 0)
    if not is_even or cos.shape[-1] != half or not same_shape(sin.shape, cos.shape):
        raise ShapeError(
            f"rope: cos {cos.shape} and sin {sin.shape} for x {x.shape}",
            hint="their last axis has half the size of that of x, which is even",
        )
    wide = accumulator(x.dtype)
    cos, sin = to_dtype(F, cos, wide), to_dtype(F, sin, wide)
    values = to_dtype(F, x, wide)
    if interleaved:
        pairs = F.reshape(values, (*x.shape[:-1], half, 2))
        first, second = F.select(pairs, -1, 0), F.select(pairs, -1, 1)
    else:
        first, second = F.split(values, 2, axis=-1)
    rotated = (first * cos - second * sin, second * cos + first * sin)
    if interleaved:
        result = F.reshape(F.stack(list(rotated), axis=-1), x.shape)
    else:
        result = F.concat(list(rotated), axis=-1)
    return to_dtype(F, result, x.dtype)


ROWS: tuple[Op, ...] = (
    function(
        "batch_norm",
        "Each channel (axis 1) with the mean and variance of the batch in training, else with the "
        "running ones; then times weight plus bias.",
        _batch_norm,
    ),
    function(
        "group_norm",
        "Mean 0 and variance 1 over each of `num_groups` groups of channels; then times weight "
        "plus bias per channel.",
        _group_norm,
    ),
    function(
        "instance_norm",
        "Mean 0 and variance 1 over the positions of each channel; then times weight plus bias.",
        _instance_norm,
    ),
    function(
        "local_response_norm",
        "x divided by a power of the mean square of `size` adjacent channels.",
        _local_response_norm,
    ),
    function(
        "rope",
        "Rotary position embedding (Su et al., 2021): pairs of the last axis, its two halves or "
        "neighbours if `interleaved`, rotated by angles with these cosines and sines.",
        _rope,
        operands=("x", "cos", "sin"),
    ),
)


def register_rows() -> None:
    register(*ROWS)
