"""Cases of sorts, quantiles, running products and extremes, counts and segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from function_cases import case

X = (3, 7)
IDS = ((5,), "index:3")


def _segment_mean(x: Any, ids: Any, count: int) -> Any:
    total = torch.zeros(count, *x.shape[1:], dtype=x.dtype).index_add(0, ids, x)
    return total / torch.bincount(ids, minlength=count).clamp(min=1)[:, None]


CASES = (
    case("sort", X),
    case("sort", X, axis=0, descending=True),
    case("msort", X),
    case("topk", X, args=(3,)),
    case("topk", X, args=(2,), axis=0, largest=False),
    case("kthvalue", X, args=(3,), axis=1),
    case("kthvalue", X, args=(1,), axis=0, keepdims=True),
    case("median", X),
    case("median", (3, 6), axis=1),
    case("quantile", X, args=(0.3,)),
    case(
        "quantile",
        X,
        args=([0.1, 0.5, 1.0],),
        axis=1,
        keepdims=True,
        torch=lambda x, q, axis, keepdims: torch.quantile(
            x, torch.tensor(q, dtype=x.dtype), dim=axis, keepdim=keepdims
        ),
    ),
    *(
        case("quantile", X, args=(0.37,), axis=0, interpolation=how)
        for how in ("lower", "higher", "nearest", "midpoint")
    ),
    case("cumprod", X, axis=1),
    case("cumprod", X, axis=0),
    case("cummax", X, axis=1),
    case("cummin", X, axis=0),
    case("diff", X),
    case("diff", X, n=2, axis=0),
    case("trapezoid", X, dx=0.5),
    case(
        "bincount", ((9,), "index:4"), args=(5,), torch=lambda x, n: torch.bincount(x, minlength=n)
    ),
    case(
        "bincount",
        ((9,), "index:4"),
        (9,),
        grad=False,
        call=lambda f, x, w: f(x, 5, w) if f is not torch.bincount else f(x, w, 5),
        torch=torch.bincount,
    ),
    case("histc", X, bins=5, min=-2.0, max=2.0, grad=False),
    case(
        "segment_sum",
        (5, 2),
        IDS,
        args=(4,),
        torch=lambda x, ids, n: torch.zeros(n, 2, dtype=x.dtype).index_add(0, ids, x),
    ),
    case("segment_mean", (5, 2), IDS, args=(4,), torch=_segment_mean),
    case(
        "bucketize",
        X,
        torch=lambda x, edges: torch.bucketize(x, torch.tensor(edges, dtype=x.dtype)),
        args=(np.array([-1.0, 0.0, 0.5]),),
        call=None,
    ),
    case("isin", (X, "index:9"), ((4,), "index:9")),
    case("unravel_index", ((5,), "index:12"), args=((3, 4),)),
)
