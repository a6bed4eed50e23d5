"""Connectionist temporal classification (Graves et al., 2006): the loss of unaligned labels.

The forward variables of all alignments are one loop over time (`nova.scan`), in log space; their
gradient is that of the loop. An impossible alignment has probability 0, that is a loss of infinity:
inside of the loop its logarithm is a large negative number, so that gradients stay finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import accumulator, i64
from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.graph import Tensor, scan
from nova.nn.module import Module
from nova.ops import F
from nova.ops.functional.common import REDUCTIONS, as_tensor, choice

_IMPOSSIBLE = -1e30
"""The logarithm of probability 0; f16 is computed in f32."""


@user_facing
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The CTC loss of log probabilities (time, batch, classes), as torch's.

    `targets` are (batch, labels), or all labels one after the other; their lengths are then known
    when the graph is built. Without a batch axis in `log_probs` all are of one example. "mean"
    divides each loss by its target length. With `zero_infinity`, losses of targets that do not fit
    are 0, and so are their gradients. The gradient is that of the loss with respect to `log_probs`;
    torch's is the same after `log_softmax`.
    """
    choice("ctc_loss", "reduction", reduction, REDUCTIONS)
    probs = as_tensor(F, log_probs)
    is_single = len(probs.shape) == 2
    probs = F.unsqueeze(probs, 1) if is_single else probs
    if len(probs.shape) != 3 or not probs.dtype.is_float:
        raise ShapeError(
            f"ctc_loss: log_probs {probs.type} is not (time, batch, classes) of floats",
            where=str(user_location()),
        )
    _, batch, classes = probs.shape
    if type(blank) is not int or not 0 <= blank < classes:
        raise AttributeValueError(
            f"ctc_loss: blank {blank!r} is not one of {classes} classes", where=str(user_location())
        )
    frames = _lengths("input_lengths", input_lengths, batch)
    counts = _lengths("target_lengths", target_lengths, batch)
    labels = _label_rows(targets, target_lengths, batch, is_single)
    labels = F.clamp(labels, min=0, max=classes - 1)
    likelihood = _log_likelihood(_cast(probs), labels, frames, counts, blank)
    loss = F.where(likelihood < _IMPOSSIBLE / 2, 0.0 if zero_infinity else np.inf, -likelihood)
    loss = F.cast(loss, dtype=probs.dtype)
    if reduction == "none":
        return F.squeeze(loss, 0) if is_single else loss
    if reduction == "sum":
        return F.sum(loss)
    return F.mean(loss / F.cast(F.maximum(counts, 1), dtype=probs.dtype))


def _cast(x: Tensor) -> Tensor:
    wide = accumulator(x.dtype)
    return x if x.dtype is wide else F.cast(x, dtype=wide)


def _lengths(name: str, lengths: Any, batch: int) -> Tensor:
    value = as_tensor(F, np.asarray(lengths) if isinstance(lengths, tuple | list) else lengths)
    if not value.dtype.is_integer:
        raise DTypeError(
            f"ctc_loss: {name} is {value.dtype}, not integers", where=str(user_location())
        )
    value = F.reshape(value, (1,)) if not value.shape else value
    if tuple(value.shape) != (batch,):
        raise ShapeError(
            f"ctc_loss: {name} {value.shape} for a batch of {batch}", where=str(user_location())
        )
    return F.cast(value, dtype=i64)


def _label_rows(targets: Any, lengths: Any, batch: int, is_single: bool) -> Tensor:
    """The labels as (batch, most labels) of i64."""
    labels = as_tensor(F, targets)
    if not labels.dtype.is_integer:
        raise DTypeError(
            f"ctc_loss: targets are {labels.dtype}, not integers", where=str(user_location())
        )
    labels = F.cast(labels, dtype=i64)
    if is_single and len(labels.shape) == 1:
        return F.unsqueeze(labels, 0)
    if len(labels.shape) == 1:
        return _split_rows(labels, lengths, batch)
    if len(labels.shape) != 2 or labels.shape[0] != batch:
        raise ShapeError(
            f"ctc_loss: targets {labels.shape} for a batch of {batch}", where=str(user_location())
        )
    return labels


def _split_rows(labels: Tensor, lengths: Any, batch: int) -> Tensor:
    """Labels one after the other, as rows."""
    if isinstance(lengths, Tensor) and lengths.data is None:
        raise ShapeError(
            "ctc_loss: targets are one after the other, and their lengths are not known yet",
            where=str(user_location()),
            hint="pass target_lengths as numbers, or targets as (batch, labels)",
        )
    numbers = np.asarray(lengths.data if isinstance(lengths, Tensor) else lengths).reshape(batch)
    if numbers.sum() != labels.shape[0]:
        raise ShapeError(
            f"ctc_loss: {labels.shape[0]} targets for lengths that sum to {numbers.sum()}",
            where=str(user_location()),
        )
    starts = np.cumsum(numbers) - numbers
    index = starts[:, None] + np.arange(max(int(numbers.max(initial=0)), 1))
    if not labels.shape[0]:
        return F.zeros(index.shape, dtype=i64)
    return F.take(labels, np.minimum(index, labels.shape[0] - 1), axis=0)


def _log_likelihood(
    probs: Tensor, labels: Tensor, frames: Tensor, counts: Tensor, blank: int
) -> Tensor:
    """The logarithm of the probability of all alignments, per example."""
    steps, batch, _ = probs.shape
    # Blanks before, between and after the labels.
    blanks = F.full(shape=labels.shape, value=blank, dtype=i64)
    states = F.reshape(F.stack([blanks, labels], axis=2), (batch, 2 * labels.shape[1]))
    states = F.concat([states, F.full(shape=(batch, 1), value=blank, dtype=i64)], axis=1)
    width = states.shape[1]
    emitted = F.gather(probs, F.expand(F.unsqueeze(states, 0), (steps, batch, width)), axis=2)
    # A label may follow the label before it without a blank, unless they are equal.
    before = _shifted(F.cast(states, dtype=probs.dtype), 2, -1.0)
    skips = F.ne(states, blank) & F.ne(F.cast(states, dtype=probs.dtype), before)
    position = np.arange(width)
    begins = (position == 0) | ((position == 1) & F.reshape(counts > 0, (batch, 1)))
    first = F.where(begins, emitted[0], _IMPOSSIBLE)

    def advance(alpha: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        time, step = inputs
        skipped = F.where(skips, _shifted(alpha, 2, _IMPOSSIBLE), _IMPOSSIBLE)
        reached = _log_sum([alpha, _shifted(alpha, 1, _IMPOSSIBLE), skipped]) + step
        reached = F.maximum(reached, _IMPOSSIBLE)
        return F.where(F.reshape(time < frames, (batch, 1)), reached, alpha), None

    if steps > 1:
        times = np.arange(1, steps)
        first, _ = scan(advance, first, (F.detach(times), emitted[1:]))
    ends = F.where(position == F.reshape(2 * counts, (batch, 1)), first, _IMPOSSIBLE)
    is_last = (position == F.reshape(2 * counts - 1, (batch, 1))) & F.reshape(
        counts > 0, (batch, 1)
    )
    ends = F.where(is_last, first, ends)
    total = F.logsumexp(ends, axis=1)
    # Without frames, only the empty target is possible.
    return F.where(frames > 0, total, F.where(F.eq(counts, 0), 0.0, _IMPOSSIBLE))


def _shifted(x: Tensor, by: int, value: float) -> Tensor:
    """x moved to later states, with `value` coming in."""
    count = min(by, x.shape[1])
    filled = F.full(shape=(x.shape[0], count), value=value, dtype=x.dtype)
    return F.concat([filled, x[:, : x.shape[1] - count]], axis=1)


def _log_sum(terms: list[Tensor]) -> Tensor:
    top = F.detach(F.maximum(F.maximum(terms[0], terms[1]), terms[2]))
    total = F.exp(terms[0] - top) + F.exp(terms[1] - top) + F.exp(terms[2] - top)
    return top + F.log(total)


class CTCLoss(Module):
    """The loss of labels without alignment (`nova.ctc_loss`)."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(
        self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
