"""Dynamic loss scaling for f16 training, as torch's GradScaler, inside the program.

The loss is multiplied by `scale` before the backward pass, so that small gradients do not underflow
in f16. When a gradient overflows, the update is skipped and the scale shrinks; after
`growth_interval` updates without overflow it grows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nova.core.records import record
from nova.core.user_facing import user_facing_class
from nova.errors import AttributeValueError
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.ops import F


@user_facing_class
@record
class LossScaler:
    """Options of the scaler; torch's defaults."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def __post_init__(self) -> None:
        if not self.init_scale > 0:
            raise AttributeValueError(f"init_scale is {self.init_scale!r}, not positive")
        if not self.growth_factor > 1:
            raise AttributeValueError(f"growth_factor is {self.growth_factor!r}, not over 1")
        if not 0 < self.backoff_factor < 1:
            raise AttributeValueError(f"backoff_factor is {self.backoff_factor!r}, not in 0..1")
        if self.growth_interval < 1:
            raise AttributeValueError(f"growth_interval is {self.growth_interval!r}, below 1")

    def init_state(self) -> dict[str, np.ndarray]:
        """`scale`, and `growth_tracker`: updates since it changed or a gradient overflowed."""
        return {
            "scale": np.array(self.init_scale, np.float32),
            "growth_tracker": np.array(0, np.int64),
        }

    def scaled(self, loss: Tensor, state: dict[str, Tensor]) -> Tensor:
        """The loss that the backward pass starts from."""
        return loss * cast(state["scale"], loss.dtype)

    def unscaled(self, grads: Sequence[Tensor], state: dict[str, Tensor]) -> list[Tensor]:
        """The unscaled gradients."""
        inverse = 1.0 / state["scale"]
        return [g * cast(inverse, g.dtype) for g in grads]

    def update(self, finite: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The state after an update whose gradients were all finite, or were not."""
        scale, tracker = state["scale"], state["growth_tracker"]
        counted = tracker + 1
        grows = counted >= self.growth_interval
        larger = scale * self.growth_factor
        larger = F.where(F.isfinite(larger), larger, scale)
        grown = F.where(grows, larger, scale)
        return {
            "scale": F.where(finite, grown, scale * self.backoff_factor),
            "growth_tracker": F.where(finite, F.where(grows, 0, counted), 0),
        }


def all_finite(grads: Sequence[Tensor]) -> Tensor:
    """Whether all gradients are finite, as a 0-d bool."""
    result = F.all(F.isfinite(grads[0]))
    for grad in grads[1:]:
        result = F.logical_and(result, F.all(F.isfinite(grad)))
    return result
