"""`weight_norm` (Salimans and Kingma, 2016) and `spectral_norm` (Miyato et al., 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from nova.nn.module import Module
from nova.nn.parameter import Buffer
from nova.nn.seeds import default_generator
from nova.nn.utils.parametrize import register_parametrization
from nova.ops import F

_FIRST_ITERATIONS = 15


def _lengths(value: Any, axis: int | None) -> Tensor:
    """The 2-norms of the slices of an axis, with the rank of the value; of all of it for None."""
    if axis is None:
        return F.norm(F.reshape(value, (-1,)), p=2)
    others = tuple(i for i in range(len(value.shape)) if i != axis)
    result: Tensor = F.norm(value, p=2, axis=others, keepdims=True) if others else F.abs(value)
    return result


class _WeightNorm(Module):
    def __init__(self, axis: int | None):
        self.axis = axis

    def forward(self, length: Any, direction: Any) -> Tensor:
        result: Tensor = direction * (length / _lengths(direction, self.axis))
        return result

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        """The lengths and the directions: the weight itself."""
        return _lengths(weight, self.axis), weight


@user_facing
def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Let a parameter be its direction times its length, which are trained separately.

    Each slice of axis `dim` has a length; with None the whole parameter has one.
    """
    axis = None if dim is None else _axis_of(module, name, dim)
    return register_parametrization(module, name, _WeightNorm(axis))


def _axis_of(module: Module, name: str, dim: int) -> int:
    rank = len(getattr(module, name).shape)
    if not -rank <= dim < rank:
        raise AttributeValueError(
            f"weight_norm: dim {dim} of {name!r} with {rank} axes", where=str(user_location())
        )
    return dim % rank


class _SpectralNorm(Module):
    """The weight divided by its largest singular value, which power iterations estimate."""

    def __init__(self, weight: Any, iterations: int, axis: int, eps: float):
        self.iterations, self.axis, self.eps = iterations, axis % len(weight.shape), eps
        matrix = self._matrix(weight)
        self.is_vector = len(weight.shape) == 1
        if not self.is_vector:
            rng = default_generator()
            start = [rng.standard_normal(n).astype(weight.data.dtype) for n in matrix.shape]
            u, v = (x / max(np.linalg.norm(x), eps) for x in start)
            self._u, self._v = Buffer(u), Buffer(v)
            u, v = self._iterate(matrix, _FIRST_ITERATIONS)
            self._u.assign(u.numpy())
            self._v.assign(v.numpy())

    def _matrix(self, weight: Any) -> Tensor:
        moved = F.movedim(weight, self.axis, 0) if self.axis else weight
        return F.reshape(moved, (moved.shape[0], -1)) if len(moved.shape) > 1 else moved

    def _iterate(self, matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
        fixed = F.detach(matrix)
        u: Tensor = F.detach(self._u.latest)
        v: Tensor = F.detach(self._v.latest)
        for _ in range(count):
            u = F.normalize(F.matmul(fixed, v), axis=0, eps=self.eps)
            v = F.normalize(F.matmul(F.swapaxes(fixed, 0, 1), u), axis=0, eps=self.eps)
        return u, v

    def forward(self, weight: Any) -> Tensor:
        if self.is_vector:
            return F.normalize(weight, axis=0, eps=self.eps)
        matrix = self._matrix(weight)
        u, v = self._iterate(matrix, self.iterations if self.training else 0)
        if self.training:
            self._u.assign(u)
            self._v.assign(v)
        sigma = F.sum(u * F.matmul(matrix, v))
        result: Tensor = weight / sigma
        return result


@user_facing
def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a parameter by its largest singular value, as a matrix of the slices of axis `dim`.

    In training every access does `n_power_iterations` of the power method. `dim` is 1 for
    transposed convolutions, 0 for other modules.
    """
    if not isinstance(n_power_iterations, int) or n_power_iterations < 1:
        raise AttributeValueError(
            f"spectral_norm: n_power_iterations is {n_power_iterations!r}",
            where=str(user_location()),
            hint="it is 1 or more",
        )
    transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
    axis = (1 if isinstance(module, transposed) else 0) if dim is None else dim
    normalized = _SpectralNorm(getattr(module, name), n_power_iterations, axis, eps)
    return register_parametrization(module, name, normalized)
