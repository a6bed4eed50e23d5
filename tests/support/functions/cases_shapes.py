"""Cases of functions that arrange elements, of products, norms and normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as tf
from function_cases import Case, case

import nova

X = (3, 5)


def einsum(equation: str, *operands: Any) -> Case:
    return case(
        "einsum", *operands, call=lambda f, *tensors: f(equation, *tensors), torch=torch.einsum
    )


def _rope(x: Any, cos: Any, sin: Any, interleaved: bool = False) -> Any:
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


SHAPES = (
    case("repeat", X, args=(2, 1, 3), torch=torch.Tensor.repeat),
    case("tile", X, args=((2,),), torch=torch.tile),
    case("repeat_interleave", X, args=(3,), axis=1),
    case("repeat_interleave", X, args=(2,)),
    case("chunk", (7, 2), args=(3,)),
    case("chunk", X, args=(2,), axis=1),
    case("narrow", X, args=(1, 1, 3), torch=torch.narrow),
    case("select", X, args=(1, -1), torch=torch.select),
    case("unbind", X, axis=1),
    case("movedim", (2, 3, 4, 5), args=((0, 1), (-1, 0))),
    case("rot90", (3, 4, 2), args=(1, (0, 2)), torch=torch.rot90),
    case("rot90", (3, 4), args=(3, (0, 1)), torch=torch.rot90),
    case("fliplr", X),
    case("flipud", X),
    case("atleast_1d", ()),
    case("atleast_2d", (3,)),
    case("atleast_3d", (3,)),
    case("atleast_3d", X),
    case("vstack", (3,), (3,), call=lambda f, *t: f(list(t)), torch=torch.vstack),
    case("hstack", (3,), (2,), call=lambda f, *t: f(list(t)), torch=torch.hstack),
    case("hstack", (2, 3), (2, 1), call=lambda f, *t: f(list(t)), torch=torch.hstack),
    case("dstack", (2, 3), (2, 3), call=lambda f, *t: f(list(t)), torch=torch.dstack),
    case("unflatten", (3, 12), args=(1, (2, -1)), torch=torch.unflatten),
    case("pixel_shuffle", (2, 8, 3, 2), args=(2,)),
    case("pixel_unshuffle", (2, 3, 4, 6), args=(2,)),
    case(
        "channel_shuffle",
        (2, 6, 3),
        args=(3,),
        torch=lambda x, g: x.unflatten(1, (g, -1)).transpose(1, 2).flatten(1, 2),
    ),
    case("pad_edges", (2, 3, 4), args=((1, 2, 0, 1),), value=1.5, torch=tf.pad),
    case("pad_edges", (2, 3, 4), args=((-1, 2),), torch=tf.pad),
    *(
        case("pad_edges", (2, 3, 4, 5), args=((1, 2, 2, 1),), mode=mode, torch=tf.pad)
        for mode in ("reflect", "replicate", "circular")
    ),
)

PRODUCTS = (
    einsum("ij,jk->ik", (3, 4), (4, 5)),
    einsum("bij,bjk", (2, 3, 4), (2, 4, 5)),
    einsum("ii->i", (4, 4)),
    einsum("ij->", X),
    einsum("i,j", (3,), (4,)),
    einsum("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
    einsum("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    einsum("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    einsum("ijk,k->ji", (2, 3, 4), (4,)),
    einsum("ij,ij->j", X, X),
    case("tensordot", (2, 3, 4), (3, 4, 5), torch=torch.tensordot),
    case(
        "tensordot",
        (2, 3, 4),
        (4, 3),
        axes=((1, 2), (1, 0)),
        torch=lambda x, y, axes: torch.tensordot(x, y, axes),
    ),
    case("mm", (3, 4), (4, 2)),
    case("bmm", (2, 3, 4), (2, 4, 2)),
    case("mv", (3, 4), (4,)),
    case("addmm", (2,), (3, 4), (4, 2), beta=0.5, alpha=2.0),
    case("addmv", (3,), (3, 4), (4,), beta=0.5, alpha=2.0),
    case("addr", (3, 4), (3,), (4,), beta=0.5, alpha=2.0),
    case("baddbmm", (2, 3, 5), (2, 3, 4), (2, 4, 5), beta=0.5, alpha=2.0),
    case("addbmm", (3, 5), (2, 3, 4), (2, 4, 5), beta=0.5, alpha=2.0),
    case("bilinear", (2, 3), (2, 4), (5, 3, 4)),
    case("dist", (3, 4), (3, 4)),
    case("dist", (3, 4), (4,), args=(1.0,)),
    case("pdist", (5, 3)),
    case("cov", (3, 7)),
    case("cov", (7,), correction=0),
    case(
        "cov",
        (3, 7),
        ((7,), "positive"),
        call=lambda f, x, w: f(x, aweights=w, correction=0),
    ),
    case("corrcoef", (3, 7)),
    case("std_mean", (3, 7), axis=0),
    case("softmin", (3, 7), axis=1),
    case("logaddexp2", (3, 7), (3, 7)),
    case("signbit", (3, 7), grad=False),
    case("index_select", (3, 7), ((4,), "index:7"), call=lambda f, x, index: f(x, 1, index)),
    case("inner", (2, 4), (3, 4)),
    case("vecdot", (2, 4), (4,)),
    case("kron", (2, 3), (3, 2)),
    case(
        "cross",
        (4, 3),
        (4, 3),
        axis=-1,
        torch=lambda x, y, axis: torch.linalg.cross(x, y, dim=axis),
    ),
    case("matrix_trace", (3, 4), torch=torch.trace),
    case("diag", (4,), args=(1,), torch=torch.diag),
    case("diag", (3, 4), args=(-1,), torch=torch.diag),
    case("diag_embed", (2, 3), args=(-1,)),
    *(case("norm", X, p=p, axis=1) for p in (2, 1, 3.5, float("inf"))),
    case("norm", X),
    case("normalize", X),
    case("normalize", X, p=1.0, axis=0),
    case("cosine_similarity", (3, 5, 2), (3, 5, 2)),
    case("pairwise_distance", X, X, keepdims=True),
    case("cdist", (2, 3, 4), (2, 5, 4)),
    case("cdist", (3, 4), (5, 4), p=1.0),
)

IMAGE = (2, 6, 3, 4)
RUNNING_MEAN = np.linspace(-1, 1, 6)
RUNNING_VARIANCE = np.linspace(0.5, 2, 6)


def _like(tensor: Any, values: np.ndarray) -> Any:
    """`values` for the library and in the type of `tensor`."""
    if isinstance(tensor, torch.Tensor):
        return torch.tensor(values)
    return nova.tensor(values.astype(tensor.dtype.numpy))


NORMALIZATION = (
    case(
        "batch_norm",
        IMAGE,
        (6,),
        (6,),
        call=lambda f, x, w, b: f(
            x, _like(w, RUNNING_MEAN), _like(w, RUNNING_VARIANCE), w, b, training=False
        ),
    ),
    case(
        "batch_norm",
        IMAGE,
        (6,),
        (6,),
        training=True,
        call=lambda f, x, w, b: f(x, None, None, w, b, training=True),
    ),
    case("group_norm", IMAGE, args=(3,)),
    case("group_norm", IMAGE, (6,), (6,), call=lambda f, x, w, b: f(x, 2, w, b)),
    case("instance_norm", IMAGE),
    case("local_response_norm", IMAGE, args=(3,), alpha=0.1),
    case("rope", (2, 5, 8), (5, 4), (5, 4), torch=_rope),
    case("rope", (2, 5, 8), (5, 4), (5, 4), interleaved=True, torch=_rope),
)


def _indexed(method: str, **options: Any) -> Any:
    """A method of torch's tensors as a function of either library, along axis 1."""

    def call(f: Any, x: Any, index: Any, source: Any) -> Any:
        return f(x, 1, index, source, **options)

    return {"torch": getattr(torch.Tensor, method), "call": call}


_REDUCED = [(how, own) for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)]
WRITES = (
    case(
        "index_copy",
        (2, 5, 3),
        (2, 2, 3),
        torch=lambda x, s: x.index_copy(1, torch.tensor([4, 1]), s),
        call=lambda f, x, s: (
            f(x, s) if isinstance(x, torch.Tensor) else f(x, 1, np.array([4, 1]), s)
        ),
    ),
    case(
        "index_fill",
        (2, 5, 3),
        torch=lambda x: x.index_fill(1, torch.tensor([4, 1]), 2.5),
        call=lambda f, x: f(x) if isinstance(x, torch.Tensor) else f(x, 1, np.array([4, -4]), 2.5),
    ),
    *(
        case(
            "index_put",
            (4, 5, 3),
            (2, 1),
            torch=lambda x, v, a=add: x.index_put(
                (torch.tensor([1, -1]), torch.tensor([2, 0])), v, accumulate=a
            ),
            call=lambda f, x, v, a=add: (
                f(x, v)
                if isinstance(x, torch.Tensor)
                else f(x, (np.array([1, -1]), np.array([2, 0])), v, accumulate=a)
            ),
        )
        for add in (False, True)
    ),
    *(
        case(
            "scatter_reduce",
            (2, 5),
            ((2, 4), "index:5"),
            (2, 4),
            **_indexed("scatter_reduce", reduce=how, include_self=own),
        )
        for how, own in _REDUCED
    ),
)

CASES = (*WRITES, *SHAPES, *PRODUCTS, *NORMALIZATION)
