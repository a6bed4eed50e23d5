"""`Adafactor` (Shazeer and Stern), as torch.optim.Adafactor.

The second moment of a matrix is kept as the product of a column and a row: its memory grows with
the sides of the parameter, not with its size.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from nova.core.dtypes import TensorType, f64
from nova.core.records import record
from nova.errors import AttributeValueError
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.optim.optimizer import Optimizer, Options, as_type, not_negative
from nova.optim.schedules import Rate, Schedule, as_schedule


@record
class AdafactorOptions(Options):
    """Options of Adafactor; the first `eps` is that of the dtype if it is None."""

    beta2_decay: float = -0.8
    eps: tuple[float | None, float] = (None, 1e-3)
    d: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "eps", tuple(self.eps))
        for value in self.eps:
            not_negative(0.0 if value is None else value, "eps")
        if not self.beta2_decay <= 0:
            raise AttributeValueError(
                f"beta2_decay is {self.beta2_decay!r}", hint="it is at most 0"
            )
        if not self.d >= 1:
            raise AttributeValueError(f"d is {self.d!r}", hint="it is at least 1")

    def slots(self, param: TensorType) -> tuple[str, ...]:
        return ("row_var", "col_var") if len(param.shape) > 1 else ("variance",)

    def initial(self, slot: str, param: TensorType) -> np.ndarray:
        *lead, rows, columns = param.shape if len(param.shape) > 1 else (1, 1)
        shape = {"row_var": (*lead, rows, 1), "col_var": (*lead, 1, columns)}
        return np.zeros(shape.get(slot, param.shape), param.dtype.numpy)


@record
class _Rates:
    """Scalars of one update, in f64."""

    lr: Rate
    relative: Tensor
    blend: Tensor


class Adafactor(Optimizer):
    """Adam with a factored second moment and steps relative to the size of the parameter."""

    options_class: ClassVar[type[Options]] = AdafactorOptions

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Schedule = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        **common: Any,
    ):
        super().__init__(
            params,
            lr=lr,
            beta2_decay=beta2_decay,
            eps=eps,
            d=d,
            weight_decay=weight_decay,
            **common,
        )

    def rates(self, options: Any, step: Tensor) -> _Rates:
        lr = as_schedule(options.lr)(step)
        count = cast(step + 1, f64)
        return _Rates(lr, F.minimum(1.0 / F.sqrt(count), lr), F.pow(count, options.beta2_decay))

    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: _Rates
    ) -> tuple[Tensor, dict[str, Tensor]]:
        dtype = param.dtype
        eps1 = float(np.finfo(dtype.numpy).eps) if options.eps[0] is None else options.eps[0]
        step_size = F.maximum(_root_mean_square(param), options.eps[1])
        step_size = step_size * as_type(rates.relative, dtype)
        if options.weight_decay:
            param = param * as_type(1.0 - rates.lr * options.weight_decay, dtype)
        blend = as_type(rates.blend, dtype)
        square = grad * grad
        if len(param.shape) > 1:
            row, column = slots["row_var"], slots["col_var"]
            row = row + (F.mean(square, axis=-1, keepdims=True) - row) * blend
            column = column + (F.mean(square, axis=-2, keepdims=True) - column) * blend
            changed = {"row_var": row, "col_var": column}
            total = F.maximum(F.mean(row, axis=-2, keepdims=True), eps1)
            variance = row * column / total
        else:
            variance = slots["variance"] + (square - slots["variance"]) * blend
            changed = {"variance": variance}
        update = grad / F.sqrt(F.maximum(variance, eps1 * eps1))
        clipped = step_size / F.maximum(_root_mean_square(update) / options.d, 1.0)
        return param - update * clipped, changed


def _root_mean_square(x: Tensor) -> Tensor:
    return F.sqrt(F.sum(x * x)) * (1.0 / sqrt(max(1, x.size)))
