"""Losses as modules, with torch's names and defaults."""

from __future__ import annotations

from typing import Any

from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.nn.layers import flags
from nova.nn.module import Module
from nova.ops import F


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


def _register_weights(module: Module, **weights: Any) -> None:
    """Weights of a loss are buffers, as in torch."""
    for name, value in vars(module).items():
        if isinstance(value, tuple | list) or (hasattr(value, "shape") and len(value.shape)):
            raise AttributeValueError(
                f"{type(module).__name__}: {name} is a {type(value).__name__}",
                where=str(user_location()),
                hint=f"write {' or '.join(f'{each}=' for each in weights)} for a tensor of weights",
            )
    for name, value in weights.items():
        if value is None:
            setattr(module, name, None)
        else:
            module.register_buffer(name, value)


class BCELoss(Module):
    """The binary cross entropy of probabilities, with a weight for each term."""

    weight: Any

    def __init__(self, reduction: str = "mean", weight: Any = None):
        self.reduction = reduction
        _register_weights(self, weight=weight)

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.binary_cross_entropy(x, target, reduction=self.reduction, weight=self.weight)


class BCEWithLogitsLoss(Module):
    """The binary cross entropy of logits, with weights of terms and of positive targets."""

    weight: Any
    pos_weight: Any

    def __init__(self, reduction: str = "mean", weight: Any = None, pos_weight: Any = None):
        self.reduction = reduction
        _register_weights(self, weight=weight, pos_weight=pos_weight)

    def forward(self, x: Any, target: Any) -> Tensor:
        weights = {"weight": self.weight, "pos_weight": self.pos_weight}
        return F.binary_cross_entropy_with_logits(x, target, reduction=self.reduction, **weights)


class KLDivLoss(Module):
    """The divergence of log probabilities from the target."""

    def __init__(self, log_target: bool = False, reduction: str = "mean"):
        flags("KLDivLoss", log_target=log_target)
        self.log_target, self.reduction = log_target, reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.kl_div(x, target, log_target=self.log_target, reduction=self.reduction)


class NLLLoss(Module):
    """The negative log probability of the target class, with a weight for each class."""

    weight: Any

    def __init__(self, ignore_index: int = -100, reduction: str = "mean", weight: Any = None):
        self.ignore_index, self.reduction = ignore_index, reduction
        _register_weights(self, weight=weight)

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.nll_loss(
            x, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class CrossEntropyLoss(Module):
    """The cross entropy of logits and classes, with a weight for each class."""

    weight: Any

    def __init__(
        self,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        weight: Any = None,
    ):
        self.ignore_index, self.label_smoothing, self.reduction = (
            ignore_index,
            label_smoothing,
            reduction,
        )
        _register_weights(self, weight=weight)

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.cross_entropy(
            x,
            target,
            self.weight,
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

    weight: Any

    def __init__(self, reduction: str = "mean", weight: Any = None):
        self.reduction = reduction
        _register_weights(self, weight=weight)

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.multilabel_soft_margin_loss(x, target, self.weight, reduction=self.reduction)


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

    weight: Any

    def __init__(
        self, p: int = 1, margin: float = 1.0, reduction: str = "mean", weight: Any = None
    ):
        self.power, self.margin, self.reduction = p, margin, reduction
        _register_weights(self, weight=weight)

    def forward(self, x: Any, target: Any) -> Tensor:
        options = {"p": self.power, "margin": self.margin, "reduction": self.reduction}
        return F.multi_margin_loss(x, target, weight=self.weight, **options)


class MultiLabelMarginLoss(Module):
    """The margins between the classes of the target, which end at -1, and all others."""

    def __init__(self, reduction: str = "mean"):
        self.reduction = reduction

    def forward(self, x: Any, target: Any) -> Tensor:
        return F.multilabel_margin_loss(x, target, reduction=self.reduction)


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
