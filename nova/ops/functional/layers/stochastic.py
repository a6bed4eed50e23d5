"""Layers that draw numbers in training: dropout of channels, rrelu, gumbel_softmax.

Their first argument after x is a seed, as that of `nova.dropout`.
"""

from __future__ import annotations

from typing import Any

from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import as_floats, function, number, to_dtype
from nova.ops.rules import resolve_axis
from nova.ops.table import Op, register

# Streams of their own, so that functions of one seed do not draw the same numbers.
_STREAMS = {"gumbel_softmax": 7, "rrelu": 8}


def _channel_dropout(axes: int) -> Any:
    name = f"dropout{axes}d"

    def build(F: Any, x: Any, seed: Any, p: float = 0.5, training: bool = True) -> Any:
        (x,) = as_floats(F, x)
        rank = len(x.shape)
        if rank not in (axes + 1, axes + 2):
            raise ShapeError(
                f"{name}: {x.shape} is not (batch, channels) or (channels) and {axes} axes"
            )
        batch = F.unsqueeze(x, 0) if rank == axes + 1 else x
        out = F.feature_dropout(batch, seed, p=p, training=training)
        return F.squeeze(out, 0) if rank == axes + 1 else out

    return build


def _rrelu(
    F: Any,
    x: Any,
    seed: Any = None,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
) -> Any:
    (x,) = as_floats(F, x)
    low, high = number("rrelu", "lower", lower, 0), number("rrelu", "upper", upper, 0)
    if not low <= high:
        raise AttributeValueError(f"rrelu: slopes from {low} to {high}")
    if not training:
        return F.leaky_relu(x, negative_slope=(low + high) / 2)
    if seed is None:
        raise AttributeValueError(
            "rrelu: training without a seed", hint="write nova.rrelu(x, seed, training=True)"
        )
    drawn = to_dtype(F, F.uniform(seed, shape=x.shape, stream=_STREAMS["rrelu"]), x.dtype)
    return F.where(x >= 0, x, x * (drawn * (high - low) + low))


def _gumbel_softmax(
    F: Any, logits: Any, seed: Any, tau: float = 1.0, hard: bool = False, axis: int = -1
) -> Any:
    (logits,) = as_floats(F, logits)
    axis = resolve_axis(axis, len(logits.shape))
    temperature = number("gumbel_softmax", "tau", tau)
    if not temperature > 0:
        raise AttributeValueError(f"gumbel_softmax: tau must be above 0, not {tau!r}")
    drawn = F.uniform(seed, shape=logits.shape, stream=_STREAMS["gumbel_softmax"])
    noise = to_dtype(F, -F.log(-F.log(drawn + 2.0**-25)), logits.dtype)
    soft = F.softmax((logits + noise) / temperature, axis=axis)
    if not hard:
        return soft
    best = F.argmax(soft, axis=axis)
    chosen = F.movedim(F.one_hot(best, num_classes=logits.shape[axis]), -1, axis)
    # The value is one-hot, the gradient that of the softmax.
    return to_dtype(F, chosen, soft.dtype) + (soft - F.detach(soft))


RANDOM = frozenset({"random"})
ROWS: tuple[Op, ...] = (
    *(
        function(
            f"dropout{axes}d",
            f"Dropout of whole channels of (batch, channels) and {axes} axes.",
            _channel_dropout(axes),
            operands=("x", "seed"),
            tags=RANDOM,
        )
        for axes in (1, 2, 3)
    ),
    function(
        "rrelu",
        "x above 0; below, x times a slope drawn from lower..upper in training, else their mean.",
        _rrelu,
        operands=("x",),
        tags=RANDOM,
    ),
    function(
        "gumbel_softmax",
        "A softmax of logits plus Gumbel noise; `hard` gives one-hot values with its gradient.",
        _gumbel_softmax,
        operands=("logits", "seed"),
        tags=RANDOM,
    ),
)


def register_rows() -> None:
    register(*ROWS)
