"""torch's initializers: functions that set the values of a parameter and return it.

`generator` is a numpy Generator; the default is that of `nn.manual_seed`.
"""

from __future__ import annotations

from math import erf, prod, sqrt
from typing import Any

import numpy as np

from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, ShapeError
from nova.nn.initializers.arrays import fans, normal, source, uniform
from nova.nn.parameter import Parameter
from nova.ops import F

Generator = np.random.Generator | None
_GAINS = {"tanh": 5.0 / 3, "relu": sqrt(2.0), "selu": 3.0 / 4}
_LINEAR = ("linear", "sigmoid", *(f"conv{n}d" for n in "123"))
_TRANSPOSED = tuple(f"conv_transpose{n}d" for n in "123")


@user_facing
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which an activation changes the spread of its argument, as torch has it."""
    if nonlinearity in (*_LINEAR, *_TRANSPOSED):
        return 1.0
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return sqrt(2.0 / (1.0 + slope**2))
    raise AttributeValueError(
        f"calculate_gain: nonlinearity {nonlinearity!r}",
        where=str(user_location()),
        hint=f"it is one of {', '.join((*_GAINS, 'leaky_relu', *_LINEAR))}",
    )


def _set(parameter: Parameter, values: Any) -> Parameter:
    parameter.data[...] = values
    return parameter


def _drawn(parameter: Parameter, low: float, high: float, generator: Generator) -> Parameter:
    drawn = uniform(parameter.shape, low, high, dtype=parameter.dtype, generator=generator)
    return _set(parameter, drawn)


@user_facing
def uniform_(
    tensor: Parameter, a: float = 0.0, b: float = 1.0, generator: Generator = None
) -> Parameter:
    """Uniform in [a, b)."""
    return _drawn(tensor, a, b, generator)


@user_facing
def normal_(
    tensor: Parameter, mean: float = 0.0, std: float = 1.0, generator: Generator = None
) -> Parameter:
    """Normally distributed."""
    options: Any = {"dtype": tensor.dtype, "generator": generator}
    return _set(tensor, normal(tensor.shape, mean, std, **options))


@user_facing
def trunc_normal_(
    tensor: Parameter,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator = None,
) -> Parameter:
    """Normally distributed between a and b: by the inverse of the distribution."""
    low, high = ((1.0 + erf((x - mean) / std / sqrt(2.0))) / 2.0 for x in (a, b))
    drawn = source(generator).random(tensor.shape)
    places = F.erfinv(F.detach(2.0 * (low + drawn * (high - low)) - 1.0)).numpy()
    return _set(tensor, np.clip(places * std * sqrt(2.0) + mean, a, b))


@user_facing
def constant_(tensor: Parameter, val: float) -> Parameter:
    """All elements `val`."""
    return _set(tensor, val)


@user_facing
def ones_(tensor: Parameter) -> Parameter:
    """All elements 1."""
    return _set(tensor, 1.0)


@user_facing
def zeros_(tensor: Parameter) -> Parameter:
    """All elements 0."""
    return _set(tensor, 0.0)


@user_facing
def eye_(tensor: Parameter) -> Parameter:
    """The identity matrix."""
    if len(tensor.shape) != 2:
        raise ShapeError(f"eye_: {tensor.shape} is not a matrix")
    return _set(tensor, np.eye(*tensor.shape))


@user_facing
def dirac_(tensor: Parameter, groups: int = 1) -> Parameter:
    """A convolution that copies its input channels, in each group."""
    shape = tensor.shape
    if len(shape) not in (3, 4, 5) or shape[0] % groups:
        raise ShapeError(
            f"dirac_: a weight of {shape} in {groups} groups",
            hint="it is that of a convolution, and the groups divide its output channels",
        )
    values = np.zeros(shape)
    each = shape[0] // groups
    center = tuple(n // 2 for n in shape[2:])
    for group in range(groups):
        for i in range(min(each, shape[1])):
            values[(group * each + i, i, *center)] = 1.0
    return _set(tensor, values)


@user_facing
def xavier_uniform_(tensor: Parameter, gain: float = 1.0, generator: Generator = None) -> Parameter:
    """Glorot initialization, uniform: gain * sqrt(6 / (fan_in + fan_out)) either way."""
    bound = gain * sqrt(6.0 / sum(fans(tensor.shape)))
    return _drawn(tensor, -bound, bound, generator)


@user_facing
def xavier_normal_(tensor: Parameter, gain: float = 1.0, generator: Generator = None) -> Parameter:
    """Glorot initialization, normal: the spread is gain * sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * sqrt(2.0 / sum(fans(tensor.shape))), generator)


def _spread(name: str, tensor: Parameter, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise AttributeValueError(
            f"{name}: mode {mode!r}", where=str(user_location()), hint="it is fan_in or fan_out"
        )
    fan = fans(tensor.shape)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(fan) if fan else 0.0


@user_facing
def kaiming_uniform_(
    tensor: Parameter,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator = None,
) -> Parameter:
    """He initialization, uniform, for an activation."""
    bound = sqrt(3.0) * _spread("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return _drawn(tensor, -bound, bound, generator)


@user_facing
def kaiming_normal_(
    tensor: Parameter,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator = None,
) -> Parameter:
    """He initialization, normal, for an activation."""
    spread = _spread("kaiming_normal_", tensor, a, mode, nonlinearity)
    return normal_(tensor, 0.0, spread, generator)


@user_facing
def orthogonal_(tensor: Parameter, gain: float = 1.0, generator: Generator = None) -> Parameter:
    """Orthonormal rows or columns (Saxe et al., 2013), times gain; further axes are columns."""
    if len(tensor.shape) < 2:
        raise ShapeError(f"orthogonal_: {tensor.shape} is not a matrix")
    rows, columns = tensor.shape[0], prod(tensor.shape[1:])
    drawn = source(generator).standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(drawn)
    q = q * np.sign(np.diagonal(r))
    return _set(tensor, gain * (q if rows >= columns else q.T).reshape(tensor.shape))


@user_facing
def sparse_(
    tensor: Parameter, sparsity: float, std: float = 0.01, generator: Generator = None
) -> Parameter:
    """Normally distributed, with a share `sparsity` of each column 0 (Martens, 2010)."""
    if len(tensor.shape) != 2:
        raise ShapeError(f"sparse_: {tensor.shape} is not a matrix")
    normal_(tensor, 0.0, std, generator)
    rows, columns = tensor.shape
    for column in range(columns):
        zeros = source(generator).permutation(rows)[: int(np.ceil(sparsity * rows))]
        tensor.data[zeros, column] = 0
    return tensor
