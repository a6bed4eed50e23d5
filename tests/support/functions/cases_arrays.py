"""Cases of joins, splits, writes, statistics that skip NaN, bags and fractional pools."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import torch
from function_cases import case

X = (4, 6)
WEIGHT = (7, 3)
OFFSETS = np.array([0, 2, 2, 5])


def _splits(name: str, shape: Any, *where: Any) -> Any:
    return tuple(
        case(name, shape, call=lambda f, x, sections=sections: f(x, sections)) for sections in where
    )


PIECES = (
    case("vdot", (2, 3), (6,), torch=lambda x, y: (x.flatten() * y).sum()),
    case("matvec", (2, 3, 4), (2, 4), torch=lambda x, y: (x @ y[..., None])[..., 0]),
    case("vecmat", (2, 3), (2, 3, 4), torch=lambda x, y: (x[:, None] @ y)[:, 0]),
    case("tri", args=(3, 4, 1), torch=lambda n, m, k: torch.ones(n, m).tril(k)),
    case("partition", (3, 5), torch=lambda x, kth, axis: x.sort(axis)[0], args=(2, 1)),
    case("block_diag", (2, 3), (1, 2), (4,)),
    case("cartesian_prod", (2,), (3,), (2,)),
    case("combinations", (5,), r=3),
    case("combinations", (3,), with_replacement=True),
    case("column_stack", (4,), (4, 2), call=lambda f, x, y: f((x, y))),
    case("append", (2, 3), (1, 3), axis=0, torch=lambda x, y, axis: torch.cat([x, y], axis)),
    *_splits("tensor_split", (7, 2), 3, (1, -2)),
    *_splits("hsplit", (2, 6), 3, (1, 4)),
    *_splits("vsplit", (6, 2), 2),
    *_splits("dsplit", (2, 2, 4), 2, (1,)),
    case("split_with_sizes", (6, 2), args=((1, 3, 2),), torch=torch.split_with_sizes),
    case("ravel", X),
    case("diagflat", (2, 2), call=lambda f, x: f(x, 1)),
    case("broadcast_tensors", (4, 1), (6,)),
    case("matrix_transpose", (2, 3, 4), torch=lambda x: x.mT),
    case("adjoint", (2, 3, 4)),
    case("rollaxis", (2, 3, 4), args=(2, 1), torch=lambda x, a, b: x.movedim(a, b)),
    case("tril_indices", args=(4, 3, 1)),
    case("triu_indices", args=(3, 5, -1)),
    case(
        "vander",
        (5,),
        torch=lambda x, n, increasing: torch.stack([x**i for i in range(n)], -1),
        call=lambda f, x: f(x, 4, True),
    ),
    case("sum_to_size", (2, 3, 4), args=((3, 1),), torch=torch.Tensor.sum_to_size),
    case(
        "ravel_multi_index",
        ((5,), "index:3"),
        ((5,), "index:4"),
        torch=lambda pair, shape: pair[0] * shape[1] + pair[1],
        call=lambda f, i, j: f((i, j), (3, 4)),
    ),
)


def _index_reduce(x: Any, axis: int, index: Any, source: Any, how: str, include_self: bool) -> Any:
    full = index[:, None].expand(*source.shape)
    return x.scatter_reduce(axis, full, source, how, include_self=include_self)


WRITES = (
    case("select_scatter", X, (4,), args=(1, -2), torch=torch.select_scatter),
    case("slice_scatter", X, (4, 2), call=lambda f, x, y: f(x, y, 1, 1, 6, 3)),
    case("diagonal_scatter", X, (4,), call=lambda f, x, y: f(x, y, 1)),
    case("diagonal_scatter", (3, 2, 4), (2, 3), call=lambda f, x, y: f(x, y, 0, 0, 2)),
    case("masked_scatter", X, (X, "bool"), X),
    *(
        case(
            "index_reduce",
            X,
            ((5,), "index:4"),
            (5, 6),
            torch=_index_reduce,
            call=lambda f, x, i, s, how=how: f(x, 0, i, s, how, include_self=how == "prod"),
        )
        for how in ("mean", "prod", "amax")
    ),
    case(
        "put",
        X,
        ((5,), "index:24"),
        (5,),
        torch=torch.Tensor.put,
        call=lambda f, x, i, s: f(x, i, s, True),
    ),
    case(
        "take_along_dim",
        X,
        ((4, 2), "index:6"),
        torch=torch.take_along_dim,
        call=lambda f, x, i: f(x, i, 1),
    ),
    case(
        "take_along_dim",
        X,
        ((1, 2), "index:6"),
        torch=torch.take_along_dim,
        call=lambda f, x, i: f(x, i, 1),
    ),
    case(
        "put_along_axis",
        X,
        ((4, 1), "index:6"),
        (4, 1),
        torch=lambda x, i, v, axis: x.scatter(axis, i, v),
        axis=1,
    ),
    case("fill_diagonal", X, torch=lambda x, v: x.clone().fill_diagonal_(v), args=(2.5,)),
)


def _holes(x: Any) -> Any:
    """x with NaN in some places; rows keep numbers."""
    mask = np.arange(24).reshape(4, 6) % 5 == 1
    if isinstance(x, torch.Tensor):
        return x.masked_fill(torch.tensor(mask), nan)
    return x.masked_fill(mask, nan)


def _reduced(name: str, reduce: Any, value: float) -> Any:
    return case(
        name,
        X,
        call=lambda f, x: f(_holes(x), 1),
        torch=lambda x, axis: reduce(torch.nan_to_num(x, value), axis),
    )


def _nanvar(x: Any, axis: int) -> Any:
    return torch.stack([row[~row.isnan()].var(correction=0) for row in x.unbind(axis - 1)])


NAN = (
    case("nansum", X, call=lambda f, x: f(_holes(x), 1)),
    case("nanmean", X, call=lambda f, x: f(_holes(x), 1)),
    _reduced("nanprod", torch.prod, 1.0),
    _reduced("nanmax", torch.amax, -1e9),
    _reduced("nanmin", torch.amin, 1e9),
    _reduced("nanargmax", torch.argmax, -1e9),
    _reduced("nanargmin", torch.argmin, 1e9),
    _reduced("nancumsum", torch.cumsum, 0.0),
    _reduced("nancumprod", torch.cumprod, 1.0),
    case("nanvar", X, call=lambda f, x: f(_holes(x), 1), torch=_nanvar),
    case("nanstd", X, call=lambda f, x: f(_holes(x), 1), torch=lambda x, a: _nanvar(x, a).sqrt()),
    case("nanmedian", X, call=lambda f, x: f(_holes(x), 1)),
    case("nanmedian", X, call=lambda f, x: f(_holes(x))),
    case("nanquantile", X, call=lambda f, x: f(_holes(x), 0.3, 1)),
    case("nanquantile", X, call=lambda f, x: f(_holes(x), 0.6)),
    case("percentile", X, torch=lambda x, q, axis: x.quantile(q / 100, axis), args=(30.0, 1)),
    case(
        "nanpercentile",
        X,
        torch=lambda x, q, axis: x.nanquantile(q / 100, axis),
        call=lambda f, x: f(_holes(x), 70.0, 1),
    ),
    case("mode", ((4, 9), "index:3")),
    case("mode", (4, 5)),
    case(
        "average",
        X,
        (X, "positive"),
        torch=lambda x, w, axis: (x * w).sum(axis) / w.sum(axis),
        call=lambda f, x, w: (
            f(x, weights=w, axis=1) if f.__name__ == "average" else f(x, w, axis=1)
        ),
    ),
    case(
        "unique_consecutive",
        ((9,), "index:2"),
        torch=lambda x, size: torch.nn.functional.pad(torch.unique_consecutive(x), (0, size))[
            :size
        ],
        args=(9,),
    ),
)

BAGS = tuple(
    case(
        "embedding_bag",
        ((8,), "index:7"),
        WEIGHT,
        call=lambda f, i, w, options=options: f(i, w, _like(i, OFFSETS), **options),
    )
    for options in (
        {"mode": "mean"},
        {"mode": "sum"},
        {"mode": "max"},
        {"mode": "mean", "padding_idx": 2},
        {"mode": "sum", "include_last_offset": True},
    )
)


def _like(x: Any, array: np.ndarray) -> Any:
    return torch.tensor(array) if isinstance(x, torch.Tensor) else array


LAYERS = (
    *BAGS,
    case("embedding_bag", ((3, 4), "index:7"), WEIGHT, mode="max"),
    case(
        "embedding_bag",
        ((3, 4), "index:7"),
        WEIGHT,
        (3, 4),
        call=lambda f, i, w, s: f(i, w, mode="sum", per_sample_weights=s),
    ),
    *(
        case(
            f"fractional_max_pool{rank}d",
            shape,
            call=lambda f, x, rank=rank: f(
                x, 2, output_size=3, _random_samples=_like(x, SAMPLES[:, :, :rank])
            ),
        )
        for rank, shape in ((2, (2, 3, 8, 7)), (3, (2, 3, 5, 7, 6)))
    ),
)
SAMPLES = np.random.default_rng(4).random((2, 3, 3))

CASES = (*PIECES, *WRITES, *NAN, *LAYERS)
