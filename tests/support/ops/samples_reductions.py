"""Samples of the rows that fold axes, and of the contractions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as tf
from op_cases import Case, Sample, case

from nova.core.dtypes import FLOATS

FOLDED = (
    case((5, 13)),
    case((2, 3, 65), axis=1),
    case((2, 3, 7), axis=(0, -1), keepdims=True),
    case(()),
    case((), keepdims=True),
    case((7,), axis=-1),
    case((33, 65), axis=0),
    case((33, 65), axis=1, keepdims=True),
    case((4, 1, 5), axis=1),
    case((3, 0, 2), axis=0),
)
OF_NOTHING = (case((0,)), case((3, 0, 2), axis=1), case((3, 0, 2), axis=(1, 2), keepdims=True))
LARGE = (case((67, 331), axis=1), case((67, 331), axis=0), case((67, 331)))
ONE_AXIS = (
    case((5, 13), axis=1),
    case((2, 3, 65), axis=-1, keepdims=True),
    case((2, 3, 7), axis=0),
    case((5, 13)),
    case((2, 3), keepdims=True),
    case(()),
    case((1,), axis=0),
    case((33, 65), axis=0),
    case((3, 0, 2), axis=2),
)


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    inputs = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(sorted(a % x.ndim for a in inputs))


def folded(single: Any) -> Any:
    """A torch function of (x, dims, keepdim) over any axes; 0-d tensors fold one element."""

    def function(x: Any, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:
        if x.ndim == 0:
            return single(x.reshape(1), (0,), False, **more)
        return single(x, _axes(x, axis), keepdims, **more)

    return function


def one_by_one(single: Any) -> Any:
    """From a torch function that takes one axis at a time."""

    def function(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
        for axis in reversed(axes):
            x = single(x, axis, keepdim=keepdims)
        return x

    return folded(function)


def _spread(x: Any, axes: tuple[int, ...], keepdims: bool, correction: float = 1) -> Any:
    """The variance by its definition: torch.var warns where a count is below its correction."""
    centred = x - x.mean(axes, keepdim=True)
    count = np.prod([x.shape[a] for a in axes])
    return (centred * centred).sum(axes, keepdim=keepdims) / max(float(count - correction), 0.0)


def _deviation(x: Any, axes: tuple[int, ...], keepdims: bool, correction: float = 1) -> Any:
    return torch.sqrt(_spread(x, axes, keepdims, correction))


def _position(numpy_function: Any) -> Any:
    def function(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        result = numpy_function(x, axis=axis)
        if keepdims:
            items = [1] * x.ndim
            result = result.reshape(items) if axis is None else np.expand_dims(result, axis)
        return np.asarray(result)

    return function


def _variance_cases() -> tuple[Case, ...]:
    at_least_two = [
        case((5, 13)),
        case((2, 3, 65), axis=1, correction=0),
        case((2, 3, 7), axis=(0, -1), keepdims=True),
        case((7,), axis=-1),
        case((33, 65), axis=0),
        case((33, 65), axis=1, keepdims=True, correction=0.5),
        case((3, 0, 2), axis=2),
    ]
    return tuple(at_least_two)


SPREAD_LARGE = (case((67, 331), axis=1), case((67, 331), axis=0))

REDUCTIONS = {
    "sum": Sample((*FOLDED, *OF_NOTHING), folded(lambda x, d, k: x.sum(d, k)), large=LARGE),
    "prod": Sample(
        (*FOLDED, *OF_NOTHING),
        one_by_one(torch.prod),
        large=(case((2003, 13), axis=1), case((13, 2003), axis=0)),
    ),
    "max": Sample(FOLDED, folded(torch.amax), large=LARGE),
    "min": Sample(FOLDED, folded(torch.amin), large=LARGE),
    "any": Sample((*FOLDED, *OF_NOTHING), one_by_one(torch.any), large=LARGE),
    "all": Sample((*FOLDED, *OF_NOTHING), one_by_one(torch.all), large=LARGE),
    "argmax": Sample(ONE_AXIS, numpy=_position(np.argmax), large=LARGE),
    "argmin": Sample(ONE_AXIS, numpy=_position(np.argmin), large=LARGE),
    "mean": Sample((*FOLDED, *OF_NOTHING), folded(lambda x, d, k: x.mean(d, k)), large=LARGE),
    "var": Sample(_variance_cases(), folded(_spread), large=SPREAD_LARGE),
    "std": Sample(_variance_cases(), folded(_deviation), large=SPREAD_LARGE),
    "logsumexp": Sample(
        (*FOLDED, *OF_NOTHING), folded(lambda x, d, k: torch.logsumexp(x, d, k)), large=LARGE
    ),
    "sum_to": Sample(
        (
            case((5, 13), shape=(13,)),
            case((2, 3, 7), shape=(3, 1)),
            case((4, 5), shape=()),
            case((4, 5), shape=(4, 5)),
            case((4, 5), shape=(1, 1)),
            case((3, 0), shape=(3, 1)),
        ),
        lambda x, shape: x.sum_to_size(shape) if x.shape != shape else x,
        large=(case((67, 331), shape=(331,)),),
    ),
}

PRODUCTS = (
    ((3, 7), (7, 5)),
    ((7,), (7,)),
    ((2, 1, 3, 7), (4, 7, 5)),
    ((3, 7), (7,)),
    ((7,), (7, 5)),
    ((2, 3, 7), (7, 5)),
    ((2, 3, 7), (2, 7, 5)),
    ((2, 3, 7), (7,)),
    ((7,), (2, 7, 3)),
    ((1, 1), (1, 1)),
    ((5, 0), (0, 3)),
    ((0, 4), (4, 3)),
    ((33, 65), (65, 17)),
)

CONTRACTIONS = {
    "matmul": Sample(
        tuple(case(*p) for p in PRODUCTS),
        torch.matmul,
        large=(case((67, 130), (130, 71)), case((3, 33, 65), (3, 65, 40))),
    ),
    "wide_matmul": Sample(
        (case((3, 7), (7, 5)), case((7,), (7, 5)), case((2, 3, 7), (7, 5)), case((0, 7), (7, 5))),
        lambda x, y: torch.matmul(*(v.float() if v.dtype.itemsize < 4 else v for v in (x, y))),
        large=(case((67, 130), (130, 71)),),
        dtypes=FLOATS,
    ),
    "linear": Sample(
        (
            case((3, 7), (5, 7), (5,)),
            case((7,), (5, 7)),
            case((2, 3, 7), (5, 7), (5,)),
            case((0, 7), (5, 7)),
            case((33, 65), (17, 65), (17,)),
        ),
        tf.linear,
        large=(case((67, 130), (71, 130), (71,)),),
        rounds=2,
    ),
    "dot": Sample(
        (case((7,), (7,)), case((1,), (1,)), case((65,), (65,)), case((0,), (0,))),
        torch.dot,
        large=(case((30_001,), (30_001,)),),
    ),
    "outer": Sample(
        (case((7,), (5,)), case((1,), (65,)), case((33,), (1,)), case((0,), (3,))),
        torch.outer,
        large=(case((67,), (331,)),),
    ),
}

SAMPLES = REDUCTIONS | CONTRACTIONS
