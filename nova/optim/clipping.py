"""Gradient clipping inside the program: torch's `clip_grad_norm_` and `clip_grad_value_`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from nova.core.dtypes import accumulator, f32, promote_all
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError
from nova.graph.build import cast, constant
from nova.graph.tensor import Tensor
from nova.ops import F


@user_facing
def global_norm(grads: Sequence[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all gradients as one vector, 0-d; f16 and bf16 are summed in f32."""
    if not norm_type > 0:
        raise AttributeValueError(
            f"norm_type is {norm_type!r}", hint="it is a positive number or math.inf"
        )
    if not grads:
        return constant(0.0, f32)
    wide = promote_all([accumulator(g.dtype) for g in grads])
    sizes = [F.abs(cast(g, wide)) for g in grads]
    if norm_type == inf:
        parts = [F.max(size) for size in sizes]
        total = parts[0]
        for part in parts[1:]:
            total = F.maximum(total, part)
        return total
    if norm_type == 1:
        return _total([F.sum(size) for size in sizes])
    if norm_type == 2:
        return F.sqrt(_total([F.sum(F.square(cast(g, wide))) for g in grads]))
    return F.pow(_total([F.sum(F.pow(size, norm_type)) for size in sizes]), 1.0 / norm_type)


@user_facing
def clip_grad_norm(
    grads: Sequence[Tensor], max_norm: float, norm_type: float = 2.0
) -> tuple[list[Tensor], Tensor]:
    """Gradients scaled so that their global norm is at most `max_norm`, and the previous norm."""
    if not max_norm > 0:
        raise AttributeValueError(f"max_norm is {max_norm!r}", hint="it is a positive number")
    total = global_norm(grads, norm_type)
    factor = F.minimum(max_norm / (total + 1e-6), 1.0)
    return [g * cast(factor, g.dtype) for g in grads], total


@user_facing
def clip_grad_value(grads: Sequence[Tensor], clip_value: float) -> list[Tensor]:
    """Every element of every gradient clamped to [-clip_value, clip_value]."""
    if not clip_value > 0:
        raise AttributeValueError(f"clip_value is {clip_value!r}", hint="it is a positive number")
    return [F.clamp(g, -clip_value, clip_value) for g in grads]


def _total(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
