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


def _padded(values: Any, size: int, fill_value: Any = 0) -> Any:
    values = values[:size]
    return torch.nn.functional.pad(values, (0, size - len(values)), value=fill_value)


def _nonzero(x: Any, size: int, fill_value: int = 0) -> Any:
    return [_padded(at, size, fill_value) for at in x.nonzero(as_tuple=True)]


def _masked_select(x: Any, mask: Any, size: int, fill_value: float = 0.0) -> Any:
    return _padded(torch.masked_select(x, mask), size, fill_value)


def _unique(x: Any, size: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    results = [_padded(values, size)]
    results += [inverse] * return_inverse + [_padded(counts, size)] * return_counts
    return results


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
    case("trapezoid", (4, 5), (5,), call=lambda f, y, x: f(y, x=x)),
    case("trapezoid", (4, 5), (4, 1), call=lambda f, y, x: f(y, x, dim=0)),
    case("quantile", X, ((3,), "probability"), call=lambda f, x, q: f(x, q, dim=1)),
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
        "histogram",
        X,
        bins=5,
        range=(-2.0, 2.0),
        grad=False,
        torch=lambda x, bins, range: (
            torch.histc(x, bins, *range).long(),
            torch.linspace(*range, bins + 1, dtype=x.dtype),
        ),
    ),
    case("nonzero", ((3, 4), "index:3"), size=12, torch=_nonzero),
    case("nonzero", ((3, 4), "index:3"), size=5, fill_value=-1, torch=_nonzero),
    case("masked_select", (3, 4), ((3, 4), "bool"), size=9, torch=_masked_select),
    case("masked_select", (3, 4), ((4,), "bool"), size=2, fill_value=7.0, torch=_masked_select),
    case("unique", ((3, 5), "index:6"), size=8, torch=_unique),
    case(
        "unique",
        ((3, 5), "index:6"),
        size=4,
        return_inverse=True,
        return_counts=True,
        torch=_unique,
    ),
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
