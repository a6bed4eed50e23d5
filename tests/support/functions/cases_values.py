"""Cases of activations, elementwise functions, creation and losses."""

from __future__ import annotations

from typing import Any

import torch
from function_cases import case

X = (3, 17)

ACTIVATIONS = (
    *(
        case(name, X)
        for name in (
            *("relu6", "hardtanh", "logsigmoid", "softsign"),
            *("tanhshrink", "softshrink", "hardshrink", "celu", "selu"),
        )
    ),
    # torch computes 1 / 6 in f32.
    case("hardsigmoid", X, torch=lambda x: (x / 6 + 0.5).clamp(0, 1)),
    case("hardswish", X, torch=lambda x: x * (x / 6 + 0.5).clamp(0, 1)),
    case("hardtanh", X, min_val=-0.5, max_val=0.25),
    case("celu", X, alpha=0.5),
    case("softshrink", X, lambd=0.1),
    case("threshold", X, args=(0.3, -2.0)),
    case("squareplus", X, torch=lambda x: (x + (x * x + 4.0).sqrt()) / 2),
    case(
        "sparse_plus",
        X,
        torch=lambda x: torch.where(x > 1, x, torch.where(x < -1, 0 * x, (x + 1) ** 2 / 4)),
    ),
    case("sparse_sigmoid", X, torch=lambda x: ((x + 1) / 2).clamp(0, 1)),
    case("standardize", X, torch=lambda x: torch.layer_norm(x, x.shape[-1:])),
    case("prelu", (2, 3, 4), (3,)),
    case("prelu", X, (1,)),
    case("glu", (3, 8)),
    case("glu", (4, 3), axis=0),
)

VALUES = (
    case("nan_to_num", X, grad=False),
    case("isclose", X, X, rtol=0.3, atol=0.2),
    case("allclose", X, X, torch=lambda x, y: torch.tensor(torch.allclose(x, y))),
    case("lerp", X, X, (17,)),
    case("addcmul", X, X, X, value=0.5),
    case("addcdiv", X, X, (X, "positive"), value=0.5),
    case("logaddexp", X, X),
    case("logit", (X, "probability")),
    case("logit", (X, "probability"), eps=0.2),
    case("hypot", X, X),
    case("sinc", X),
    case("frac", X),
    case("around", X, torch=torch.round, decimals=1, grad=False),
    case("around", X, torch=torch.round, decimals=-1, grad=False),
    case("copysign", X, X),
    case("heaviside", X, X, grad=False),
    case("xlogy", X, (X, "positive")),
    case("deg2rad", X),
    case("rad2deg", X),
    case("count_nonzero", X),
    case("count_nonzero", X, axis=1),
    case("aminmax", X, axis=1),
    case("ptp", X, axis=1, torch=lambda x, axis: x.amax(axis) - x.amin(axis)),
    case("var_mean", X, axis=0),
    case("lgamma", X),
    case("lgamma", (X, "positive")),
    # torch's trigamma is less accurate: `test_functions.py` compares it.
    case("digamma", X, grad=False),
    case("digamma", (X, "positive"), grad=False),
    case("erfinv", (X, "probability")),
    case("masked_fill", X, (X, "bool"), args=(-1.5,), torch=torch.masked_fill),
    case("linspace", args=(-1.0, 3.0, 7)),
    case("logspace", args=(-1.0, 1.0, 5)),
    case("meshgrid", (3,), (4,), indexing="ij"),
    case("meshgrid", (3,), (4,), (2,), indexing="xy"),
)


def _bce_terms(x: Any, target: Any, pos_weight: Any) -> Any:
    """torch's formula: its function has no gradient for weights."""
    log = torch.nn.functional.logsigmoid
    return -(pos_weight * target * log(x) + (1 - target) * log(-x))


SIGNS = ((4,), "sign")
LOSSES = (
    case("binary_cross_entropy", (X, "probability"), (X, "probability")),
    case(
        "binary_cross_entropy",
        (X, "probability"),
        (X, "probability"),
        (17,),
        torch=lambda x, t, weight, reduction: (
            weight * torch.nn.functional.binary_cross_entropy(x, t, reduction="none")
        ).sum(),
        call=lambda f, x, t, w: f(x, t, weight=w, reduction="sum"),
    ),
    case(
        "binary_cross_entropy_with_logits",
        X,
        (X, "probability"),
        (X, "positive"),
        ((17,), "positive"),
        torch=lambda x, t, weight, pos_weight: (weight * _bce_terms(x, t, pos_weight)).mean(),
        call=lambda f, x, t, w, p: f(x, t, weight=w, pos_weight=p),
    ),
    case(
        "binary_cross_entropy_with_logits",
        X,
        (X, "probability"),
        ((1, 17), "positive"),
        torch=lambda x, t, pos_weight, reduction: _bce_terms(x, t, pos_weight),
        call=lambda f, x, t, p: f(x, t, pos_weight=p, reduction="none"),
    ),
    case(
        "multi_margin_loss",
        (4, 3),
        ((4,), "index:3"),
        call=lambda f, x, t: f(x, t, weight=abs(x.detach()[0])),
    ),
    case("huber_loss", X, X, delta=0.8),
    case("huber_loss", X, X, reduction="none"),
    case("soft_margin_loss", X, (X, "sign")),
    case("hinge_embedding_loss", X, (X, "sign"), margin=0.5),
    case("margin_ranking_loss", (4,), (4,), SIGNS, margin=0.2, reduction="sum"),
    case("cosine_embedding_loss", (4, 5), (4, 5), SIGNS, margin=0.1),
    case("triplet_margin_loss", (4, 5), (4, 5), (4, 5)),
    case("triplet_margin_loss", (4, 5), (4, 5), (4, 5), swap=True, p=3.0),
    case("poisson_nll_loss", X, (X, "positive")),
    case(
        "poisson_nll_loss", (X, "positive"), (X, "positive"), log_input=False, full=True, grad=False
    ),
    case("gaussian_nll_loss", X, X, (X, "positive"), full=True),
    case("multilabel_soft_margin_loss", X, (X, "probability")),
    case("multi_margin_loss", (4, 3), ((4,), "index:3"), margin=0.5),
    case("multi_margin_loss", (4, 3), ((4,), "index:3"), p=2, reduction="none"),
    case("multilabel_margin_loss", (4, 3), ((4, 3), "index:3")),
    case("multilabel_margin_loss", (5,), ((5,), "index:2"), reduction="none"),
    case("triplet_margin_with_distance_loss", X, X, X, swap=True),
    case("triplet_margin_with_distance_loss", X, X, X, margin=0.5, reduction="none"),
)

CASES = (*ACTIVATIONS, *VALUES, *LOSSES)
