"""Initial values of parameters: numpy arrays from the distributions of torch's initializers.

`generator` is a numpy Generator; the default is that of `manual_seed`. f16 and bf16 values are
drawn in f32 and rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from nova.core.dtypes import dtype as dtype_of
from nova.core.dtypes import f64
from nova.core.user_facing import user_facing
from nova.errors import DTypeError, ShapeError
from nova.nn.seeds import default_generator

Shape = Sequence[int]


@user_facing
def uniform(
    shape: Shape,
    low: float,
    high: float,
    *,
    dtype: Any = "f32",
    generator: np.random.Generator | None = None,
) -> np.ndarray:
    """Uniform in [low, high)."""
    drawn = source(generator).random(tuple(shape), dtype=drawn_type(dtype))
    drawn *= high - low
    drawn += low
    return drawn.astype(dtype_of(dtype).numpy, copy=False)


@user_facing
def normal(
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: Any = "f32",
    generator: np.random.Generator | None = None,
) -> np.ndarray:
    """Normally distributed."""
    drawn = source(generator).standard_normal(tuple(shape), dtype=drawn_type(dtype))
    drawn *= std
    drawn += mean
    return drawn.astype(dtype_of(dtype).numpy, copy=False)


@user_facing
def kaiming_uniform(
    shape: Shape,
    a: float = sqrt(5),
    *,
    dtype: Any = "f32",
    generator: np.random.Generator | None = None,
) -> np.ndarray:
    """For a leaky relu of slope `a` (He et al., 2015); the default is torch's: ±1/sqrt(fan_in)."""
    fan_in, _ = fans(shape)
    bound = sqrt(6.0 / ((1.0 + a * a) * fan_in)) if fan_in else 0.0
    return uniform(shape, -bound, bound, dtype=dtype, generator=generator)


@user_facing
def xavier_uniform(
    shape: Shape,
    gain: float = 1.0,
    *,
    dtype: Any = "f32",
    generator: np.random.Generator | None = None,
) -> np.ndarray:
    """Glorot initialization: ±gain * sqrt(6 / (fan_in + fan_out)) keeps the variance both ways."""
    total = sum(fans(shape))
    bound = gain * sqrt(6.0 / total) if total else 0.0
    return uniform(shape, -bound, bound, dtype=dtype, generator=generator)


@user_facing
def fans(shape: Shape) -> tuple[int, int]:
    """fan_in and fan_out of a (out, in, ...) weight."""
    if len(shape) < 2:
        raise ShapeError(f"a weight of shape {tuple(shape)} has no fan", hint="it needs two axes")
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


def source(generator: np.random.Generator | None) -> np.random.Generator:
    """The generator, by default that of `manual_seed`."""
    return default_generator() if generator is None else generator


def drawn_type(dtype: Any) -> Any:
    """The numpy type that values of a float type are drawn in."""
    element_type = dtype_of(dtype)
    if not element_type.is_float:
        raise DTypeError(f"random values of {element_type}", hint="initializers draw float types")
    return np.float64 if element_type is f64 else np.float32
