"""Losses as modules, with torch's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

from nova.core.dtypes import accumulator
from nova.core.sizes import Size, bounds, ceildiv
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.graph.autodiff import gradients
from nova.graph.custom_gradient import CustomVJP
from nova.nn.module import Module
from nova.ops import F
from nova.ops.functional.common import as_tensor

_MOST_CHUNKS = 16
"""Chunks of a symbolic number of rows: the program has code for each."""


class MSELoss(Module):
    """The squared error."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.mse_loss(x, target, reduction=self.reduction)


class L1Loss(Module):
    """The absolute error."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.l1_loss(x, target, reduction=self.reduction)


class SmoothL1Loss(Module):
    """Squared below beta, absolute above."""

    def __init__(self, beta: float = 1.0, reduction: str = "mean"):
        self.beta, self.reduction = beta, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.smooth_l1_loss(x, target, beta=self.beta, reduction=self.reduction)


class HuberLoss(Module):
    """Squared below delta, delta times the absolute error above."""

    def __init__(self, delta: float = 1.0, reduction: str = "mean"):
        self.delta, self.reduction = delta, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.huber_loss(x, target, delta=self.delta, reduction=self.reduction)


class BCELoss(Module):
    """The binary cross entropy of probabilities."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.bce_loss(x, target, reduction=self.reduction)


class BCEWithLogitsLoss(Module):
    """The binary cross entropy of logits."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.bce_with_logits_loss(x, target, reduction=self.reduction)


class KLDivLoss(Module):
    """The divergence of log probabilities from the target."""

    def __init__(self, log_target: bool = False, reduction: str = "mean"):
        self.log_target, self.reduction = log_target, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.kl_div(x, target, log_target=self.log_target, reduction=self.reduction)


class NLLLoss(Module):
    """The negative log probability of the target class."""

    def __init__(self, ignore_index: int = -100, reduction: str = "mean"):
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.nll_loss(x, target, ignore_index=self.ignore_index, reduction=self.reduction)


@user_facing
def linear_cross_entropy(
    x: Any,
    weight: Any,
    target: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    chunk_bytes: int = 256 << 20,
) -> Tensor:
    """The cross entropy of the scores x @ weight.T, of which only a part is stored at a time.

    `x` is (..., features), `weight` (classes, features), `target` (...) has class indices. The rows
    of x are divided into chunks whose scores take at most `chunk_bytes` each. The backward pass
    computes the scores of a chunk again, and adds its gradients to those of the chunks before, so
    that neither the scores nor their gradient exist as a whole. If the number of rows is symbolic,
    its upper bound decides the number of chunks, which is at most 16.
    """
    if reduction not in ("mean", "sum"):
        raise AttributeValueError(
            f"reduction {reduction!r} of linear_cross_entropy", hint="it is 'mean' or 'sum'"
        )
    x, weight, target = (as_tensor(F, operand) for operand in (x, weight, target))
    rows, features, wide = prod(x.shape[:-1]), x.shape[-1], accumulator(x.dtype)
    x, target = F.reshape(x, (rows, features)), F.reshape(target, (rows,))
    score_bytes = max(1, weight.shape[0] * x.dtype.bits // 8)
    parts = _chunks_of(rows, score_bytes, max(chunk_bytes, score_bytes))

    def chunk_loss(scores: Any, target: Any) -> Tensor:
        loss = F.cross_entropy(
            scores,
            target,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction="sum",
        )
        return F.cast(loss, dtype=wide)

    if len(parts) == 1:
        total = chunk_loss(F.linear(x, weight), target)
    else:
        total = _in_chunks(chunk_loss, parts)(x, weight, target)
    if reduction == "mean":
        total = total / F.sum(F.cast(F.ne(target, ignore_index), dtype=wide))
    return F.cast(total, dtype=x.dtype)


def _chunks_of(rows: Size, score_bytes: int, chunk_bytes: int) -> list[slice]:
    """Rows in chunks whose scores have at most `chunk_bytes`."""
    chunks = max(1, ceildiv(bounds(rows)[1] * score_bytes, chunk_bytes))
    if isinstance(rows, int):
        size = max(1, ceildiv(rows, chunks))
        return [slice(start, min(start + size, rows)) for start in range(0, max(rows, 1), size)]
    count = min(chunks, _MOST_CHUNKS)
    ends = [*(rows // count * k for k in range(count)), rows]
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _in_chunks(chunk_loss: Callable[[Any, Any], Tensor], parts: list[slice]) -> CustomVJP:
    """The sum of the losses of chunks of rows; each chunk waits for the one before."""

    def loss_of(x: Any, weight: Any, target: Any) -> Tensor:
        total: Tensor | None = None
        for part in parts:
            rows = x[part] if total is None else F.barrier(x[part], total, region=0)
            loss = chunk_loss(F.linear(rows, weight), target[part])
            total = loss if total is None else total + loss
        assert total is not None
        return total

    def backward(residuals: Any, g: Any) -> tuple[Tensor, Tensor, None]:
        x, weight, target = residuals
        row_gradients = []
        total: Tensor | None = None
        for part in parts:
            rows = F.barrier(x[part], g if total is None else total, region=0)
            scores = F.linear(rows, weight)
            (gradient,) = gradients(chunk_loss(scores, target[part]), [scores], g, partial=True)
            row_gradients.append(F.matmul(gradient, weight))
            piece = F.matmul(F.swapaxes(gradient, 0, 1), rows)
            piece = F.cast(piece, dtype=accumulator(piece.dtype))
            total = piece if total is None else total + piece
        assert total is not None
        return F.concat(*row_gradients, axis=0), F.cast(total, dtype=weight.dtype), None

    function = CustomVJP(loss_of)
    function.defvjp(lambda *args: (loss_of(*args), args), backward)
    return function


class CrossEntropyLoss(Module):
    """The cross entropy of logits and classes."""

    def __init__(
        self, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
    ):
        self.ignore_index, self.label_smoothing, self.reduction = (
            ignore_index,
            label_smoothing,
            reduction,
        )

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.cross_entropy(
            x,
            target,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )


class SoftMarginLoss(Module):
    """log(1 + exp(-target * x))."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.soft_margin_loss(x, target, reduction=self.reduction)


class HingeEmbeddingLoss(Module):
    """x where the target is 1, else max(0, margin - x)."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean"):
        self.margin, self.reduction = margin, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.hinge_embedding_loss(x, target, margin=self.margin, reduction=self.reduction)


class MultiLabelSoftMarginLoss(Module):
    """The mean binary cross entropy of classes."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.multilabel_soft_margin_loss(x, target, reduction=self.reduction)


class MarginRankingLoss(Module):
    """max(0, -target * (x - y) + margin)."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        self.margin, self.reduction = margin, reduction

    def forward(self, x: Any, y: Any, target: Any) -> Tensor:
        return F.margin_ranking_loss(x, y, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(Module):
    """1 - cos where the target is 1, else max(0, cos - margin)."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        self.margin, self.reduction = margin, reduction

    def forward(self, x: Any, y: Any, target: Any) -> Tensor:
        return F.cosine_embedding_loss(x, y, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(Module):
    """max(0, |anchor - positive| - |anchor - negative| + margin)."""

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ):
        self.margin, self.p, self.eps, self.swap, self.reduction = margin, p, eps, swap, reduction

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class PoissonNLLLoss(Module):
    """The negative log likelihood of counts."""

    def __init__(
        self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
    ):
        self.log_input, self.full, self.eps, self.reduction = log_input, full, eps, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.poisson_nll_loss(
            x,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(Module):
    """The negative log likelihood under normal distributions."""

    def __init__(self, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        self.full, self.eps, self.reduction = full, eps, reduction

    def forward(self, x: Any, target: Any, var: Any) -> Tensor:
        return F.gaussian_nll_loss(
            x, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class MultiMarginLoss(Module):
    """The mean over other classes of max(0, margin - x[target] + x[class]) ** p."""

    def __init__(self, p: int = 1, margin: float = 1.0, reduction: str = "mean"):
        self.power, self.margin, self.reduction = p, margin, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.multi_margin_loss(
            x, target, p=self.power, margin=self.margin, reduction=self.reduction
        )


class TripletMarginWithDistanceLoss(Module):
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin)."""

    def __init__(
        self,
        distance_function: Any = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ):
        self.distance_function, self.margin = distance_function, margin
        self.swap, self.reduction = swap, reduction

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
