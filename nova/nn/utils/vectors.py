"""Parameters as one vector, and convolutions with the batch norm after them."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import numpy as np

from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import ModuleError, ShapeError
from nova.graph import Tensor
from nova.graph.transforms import as_tensor
from nova.nn.parameter import Parameter
from nova.ops import F


@user_facing
def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other."""
    result: Tensor = F.concat([F.reshape(p, (-1,)) for p in parameters], axis=0)
    return result


@user_facing
def vector_to_parameters(vec: Any, parameters: Iterable[Parameter]) -> None:
    """Set the parameters to the elements of a vector, in order."""
    values = as_tensor(vec).numpy()
    parts = list(parameters)
    total = sum(p.data.size for p in parts)
    if values.shape != (total,):
        raise ShapeError(
            f"vector_to_parameters: a vector of {values.shape} for {total} elements",
            where=str(user_location()),
        )
    start = 0
    for part in parts:
        part.data[...] = values[start : start + part.data.size].reshape(part.shape)
        start += part.data.size


@user_facing
def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution that computes the batch norm after it as well, in evaluation mode."""
    return _fused("fuse_conv_bn_eval", conv, bn, 1 if transpose else 0)


@user_facing
def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of a linear layer that computes the batch norm after it as well."""
    return _fused("fuse_linear_bn_eval", linear, bn, 0)


def _fused(name: str, layer: Any, bn: Any, axis: int) -> Any:
    if layer.training or bn.training:
        raise ModuleError(
            f"{name}: the modules are in training mode",
            where=str(user_location()),
            hint="call eval() of both first",
        )
    result = deepcopy(layer)
    mean, variance = (b.data.astype(np.float64) for b in (bn.running_mean, bn.running_var))
    scale = 1.0 / np.sqrt(variance + bn.eps)
    shift = -mean * scale
    if bn.weight is not None:
        scale, shift = scale * bn.weight.data, shift * bn.weight.data
    if bn.bias is not None:
        shift = shift + bn.bias.data
    weight = layer.weight.data
    shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
    bias = shift if layer.bias is None else shift + layer.bias.data * scale
    trained = layer.weight.requires_grad
    result.weight = Parameter((weight * scale.reshape(shape)).astype(weight.dtype), trained)
    result.bias = Parameter(bias.astype(weight.dtype), trained)
    return result
