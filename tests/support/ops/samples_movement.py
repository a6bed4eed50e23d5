"""Samples of the rows that move elements, read and write at indices, or make tensors.

A movement is checked by the positions it reads: numpy moves the numbers 0, 1, 2, ... and torch
reads there, which has a gradient for free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as tf
from op_cases import Sample, case, index

from nova.core.dtypes import bf16 as bf16_
from nova.core.dtypes import bool_ as bool_type
from nova.core.dtypes import f16, f32, f64, i8, i32, i64, u8

LARGE = (67, 331)


def moved(numpy_function: Any) -> Any:
    """The torch function that reads where `numpy_function` would move elements from."""

    def function(x: Any, **attrs: Any) -> Any:
        positions = np.arange(x.numel()).reshape(tuple(x.shape))
        result = numpy_function(positions, **attrs)
        if isinstance(result, tuple | list):
            return [_read(x, r) for r in result]
        return _read(x, result)

    return function


def _read(x: Any, positions: np.ndarray) -> Any:
    return x.reshape(-1)[torch.from_numpy(np.array(positions))]


def _slice(a: np.ndarray, starts: Any, stops: Any, steps: Any = None) -> np.ndarray:
    steps = steps or (1,) * len(starts)
    return a[tuple(slice(*b) for b in zip(starts, stops, steps, strict=True))]


def _unslice(x: Any, shape: Any, starts: Any, steps: Any) -> Any:
    positions = np.arange(int(np.prod(shape))).reshape(shape)
    written = positions[
        tuple(
            np.ix_(*(b + np.arange(m) * s for b, s, m in zip(starts, steps, x.shape, strict=True)))
        )
    ]
    flat = torch.zeros(positions.size, dtype=x.dtype)
    return flat.index_put((torch.from_numpy(written.reshape(-1)),), x.reshape(-1)).reshape(shape)


def _pad(x: Any, low: Any, high: Any = None, value: float = 0) -> Any:
    pairs = list(zip(low, high, strict=True)) if high is not None else list(low)
    return tf.pad(x, [w for pair in reversed(pairs) for w in pair], value=value)


def _roll(a: np.ndarray, shift: int, axis: int) -> np.ndarray:
    return np.roll(a, shift, axis)


def _flatten(a: np.ndarray, start_axis: int = 0, end_axis: int = -1) -> np.ndarray:
    return np.asarray(torch.flatten(torch.from_numpy(a), start_axis, end_axis))


def _split(a: np.ndarray, sections: Any, axis: int = 0) -> list[np.ndarray]:
    ends = np.cumsum(sections)[:-1] if isinstance(sections, list) else sections
    return np.split(a, ends, axis)


def _triangle(function: Any) -> Any:
    return lambda x, k=0: function(x, k)


MOVEMENT = {
    "reshape": Sample(
        (
            case((5, 13), shape=(13, 5)),
            case((2, 3, 7), shape=(-1, 14)),
            case((), shape=(1, 1)),
            case((1,), shape=()),
            case((0, 3), shape=(3, 0, 5)),
            case((6,), shape=6),
        ),
        moved(lambda a, shape: a.reshape(shape)),
        large=(case(LARGE, shape=(331, 67)),),
    ),
    "permute": Sample(
        (
            case((5, 13), axes=(1, 0)),
            case((2, 3, 7), axes=(2, 0, -2)),
            case((), axes=()),
            case((33,), axes=(0,)),
            case((3, 0, 2), axes=(2, 1, 0)),
            case((2, 3, 4, 5), axes=(0, 2, 1, 3)),
        ),
        moved(lambda a, axes: a.transpose(axes)),
        large=(case(LARGE, axes=(1, 0)),),
    ),
    "expand": Sample(
        (
            case((13,), shape=(5, 13)),
            case((3, 1), shape=(2, -1, 7)),
            case((), shape=(3, 5)),
            case((1,), shape=(0,)),
            case((), shape=()),
            case((0, 1), shape=(2, 0, 3)),
        ),
        moved(lambda a, shape: np.broadcast_to(a, _kept(a, shape))),
        large=(case((1, 331), shape=LARGE),),
    ),
    "flip": Sample(
        (
            case((5, 13)),
            case((2, 3, 7), axes=(0, -1)),
            case((), axes=()),
            case((33,), axes=0),
            case((0, 3)),
        ),
        moved(lambda a, axes=None: np.flip(a, axes)),
        large=(case(LARGE, axes=1),),
    ),
    "slice": Sample(
        (
            case((5, 13), starts=(1, 2), stops=(4, 11)),
            case((33,), starts=(31,), stops=(-34,), steps=(-3,)),
            case((2, 7, 5), starts=(0, -1, 0), stops=(2, -8, 5), steps=(1, -1, 2)),
            case((7,), starts=(0,), stops=(5,)),
            case((7,), starts=(5,), stops=(2,)),
            case((7,), starts=(-100,), stops=(100,), steps=(4,)),
            case((), starts=(), stops=()),
            case((3, 0), starts=(1, 0), stops=(3, 0)),
        ),
        moved(_slice),
        large=(case(LARGE, starts=(66, 3), stops=(-68, 330), steps=(-1, 1)),),
    ),
    "unslice": Sample(
        (
            case((3, 4), shape=(7, 9), starts=(1, 2), steps=(2, 1)),
            case((11,), shape=(33,), starts=(32,), steps=(-3,)),
            case((), shape=(), starts=(), steps=()),
            case((0,), shape=(5,), starts=(0,), steps=(1,)),
        ),
        _unslice,
        large=(case((60, 165), shape=LARGE, starts=(2, 330), steps=(1, -2)),),
    ),
    "pad": Sample(
        (
            case((5, 13), low=(1, 0), high=(2, 3)),
            case((7,), low=((2, 3),), value=1),
            case((2, 3, 4), low=((0, 1), (2, 0), (0, 0))),
            case((0, 2), low=(1, 1), high=(1, 0)),
            case((1,), low=(0,), high=(0,)),
        ),
        _pad,
        large=(case((60, 330), low=(3, 0), high=(4, 1)),),
    ),
    "join": Sample(
        (
            case((3, 4), (2, 4)),
            case((7,), (1,), (33,), axis=-1),
            case((2, 3, 1), (2, 3, 4), (2, 3, 0), (2, 3, 2), axis=2),
            case((5,)),
            case((0, 2), (3, 2), axis=0),
            case((0,), (0,)),
        ),
        lambda *parts, axis=0: torch.cat(parts, axis),
        large=(case((40, 331), (27, 331)),),
    ),
    "tril": Sample(
        (case((5, 7)), case((2, 7, 5), k=1), case((5, 5), k=-2), case((0, 3)), case((3, 3), k=9)),
        _triangle(torch.tril),
        large=(case(LARGE, k=3),),
    ),
    "triu": Sample(
        (case((5, 7)), case((2, 7, 5), k=1), case((5, 5), k=-2), case((0, 3)), case((3, 3), k=9)),
        _triangle(torch.triu),
        large=(case(LARGE, k=3),),
    ),
}

VIEWS = {
    "transpose": Sample(
        (case((5, 13)), case((2, 3, 7), axes=(1, 2, 0)), case(()), case((0, 3))),
        moved(lambda a, axes=None: a.transpose(axes)),
    ),
    "swapaxes": Sample(
        (
            case((2, 3, 7), axis1=0, axis2=-1),
            case((5, 13), axis1=1, axis2=1),
            case((0, 3), axis1=0, axis2=1),
        ),
        moved(lambda a, axis1, axis2: a.swapaxes(axis1, axis2)),
    ),
    "squeeze": Sample(
        (
            case((1, 5, 1)),
            case((1, 5, 1), axis=0),
            case((1, 1), axis=(0, -1)),
            case(()),
            case((1, 0)),
        ),
        moved(lambda a, axis=None: a.squeeze(axis)),
    ),
    "unsqueeze": Sample(
        (case((5, 13), axis=1), case((), axis=0), case((7,), axis=(0, -1)), case((0,), axis=0)),
        moved(lambda a, axis: np.expand_dims(a, axis)),
    ),
    "flatten": Sample(
        (case((2, 3, 7)), case((2, 3, 7), start_axis=1), case(()), case((2, 0, 3), end_axis=1)),
        moved(_flatten),
    ),
    "concat": Sample(
        (case((3, 4), (2, 4)), case((7,), (1,)), case((0, 2), (3, 2)), case(*[(2, 3)] * 11)),
        lambda *parts: torch.cat(parts),
    ),
    "stack": Sample(
        (case((3, 4), (3, 4)), case((), (), ()), case((0,), (0,)), case(*[(2, 3)] * 6)),
        lambda *parts: torch.stack(parts),
    ),
    "split": Sample(
        (
            case((6, 5), sections=3),
            case((5, 13), sections=[2, 0, 11], axis=1),
            case((4,), sections=1),
            case((0, 4), sections=[1, 3], axis=1),
        ),
        moved(_split),
    ),
    "roll": Sample(
        (case((5, 13), shift=3, axis=1), case((7,), shift=-9, axis=0), case((0,), shift=1, axis=0)),
        moved(_roll),
    ),
    "diagonal": Sample(
        (
            case((5, 7)),
            case((2, 7, 5), offset=2),
            case((5, 5), offset=-3),
            case((3, 3), offset=3),
            case((3, 3), offset=-5),
            case((0, 3)),
        ),
        moved(lambda a, offset=0: np.diagonal(a, offset, -2, -1)),
    ),
    "getitem": Sample(
        (
            case((5, 13), key=(slice(None, None, -2), 3)),
            case((2, 3, 7), key=(Ellipsis, None, slice(5, 1, -1))),
            case((5, 13), key=(np.array([[0, -1], [3, 3]]), slice(1, None, 4))),
            case((5, 13), key=-1),
            case((), key=()),
            case((), key=None),
            case((0, 3), key=(slice(None), 1)),
            case((7, 5), key=(slice(2, 2),)),
            case((3, 5), key=(slice(-5, None, -1),)),
            case((2, 3, 7), key=(1, [2, 0, -3])),
        ),
        moved(lambda a, key: a[key]),
    ),
}


def _kept(a: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...]:
    lead = len(shape) - a.ndim
    return tuple(a.shape[i - lead] if n == -1 else n for i, n in enumerate(shape))


# --- indices --------------------------------------------------------------------------------------


def _gather(x: Any, i: Any, axis: int) -> Any:
    return torch.gather(x, axis, i % max(x.shape[axis], 1))


def _take(x: Any, i: Any, axis: int = 0) -> Any:
    axis %= x.ndim
    rows = x.index_select(axis, i.reshape(-1) % max(x.shape[axis], 1))
    return rows.reshape((*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]))


def _scatter_add(x: Any, i: Any, updates: Any, axis: int) -> Any:
    return x.scatter_add(axis, i % max(x.shape[axis], 1), updates)


def _index_add(x: Any, i: Any, updates: Any, axis: int = 0) -> Any:
    return x.index_add(axis, i % max(x.shape[axis], 1), updates)


def _starts(x: Any, i: Any, sizes: Any) -> list[int]:
    positions = [int(p) + n if p < 0 else int(p) for p, n in zip(i, x.shape, strict=True)]
    return [min(max(p, 0), n - w) for p, n, w in zip(positions, x.shape, sizes, strict=True)]


def _slice_at(x: Any, i: Any, slice_sizes: Any) -> Any:
    sizes = slice_sizes
    for axis, (start, size) in enumerate(zip(_starts(x, i, sizes), sizes, strict=True)):
        x = x.narrow(axis, start, size)
    return x


def _update_at(x: Any, update: Any, i: Any) -> Any:
    window = [
        slice(start, start + size)
        for start, size in zip(_starts(x, i, update.shape), update.shape, strict=True)
    ]
    out = x.clone()
    out[tuple(window)] = update
    return out


INDEXING = {
    "dynamic_slice": Sample(
        (
            case((5, 7), index((2,), 5), slice_sizes=(2, 3)),
            case((4, 3, 6), index((3,), 6), slice_sizes=(4, 1, 5)),
            case((7,), index((1,), 9), slice_sizes=(7,)),
            case((), index((0,), 1), slice_sizes=()),
            case((5, 7), index((2,), 5), slice_sizes=(0, 3)),
        ),
        _slice_at,
        large=(case((80, 340), index((2,), 80), slice_sizes=LARGE),),
    ),
    "dynamic_update_slice": Sample(
        (
            case((5, 7), (2, 3), index((2,), 5)),
            case((4, 3, 6), (4, 1, 5), index((3,), 6)),
            case((7,), (7,), index((1,), 9)),
            case((5, 7), (0, 3), index((2,), 5)),
        ),
        _update_at,
        large=(case(LARGE, (20, 30), index((2,), 50)),),
    ),
    "gather": Sample(
        (
            case((5, 7), index((5, 3), 7), axis=1),
            case((5, 7), index((9, 7), 5), axis=0),
            case((4, 3, 6), index((2, 3, 11), 6), axis=-1),
            case((7,), index((13,), 7), axis=0),
            case((5, 7), index((0, 7), 5), axis=0),
        ),
        _gather,
        large=(case((67, 40), index(LARGE, 40), axis=1),),
    ),
    "take": Sample(
        (
            case((5, 7), index((11,), 5)),
            case((3, 5, 2), index((2, 3), 5), axis=1),
            case((7,), index((), 7), axis=-1),
            case((5, 7), index((0,), 5)),
            case((0, 7), index((0,), 0)),
        ),
        _take,
        large=(case((50, 331), index((67,), 50)),),
    ),
    "embedding": Sample(
        (
            case((5, 7), index((3, 4), 5)),
            case((11, 1), index((33,), 11)),
            case((3, 4), index((), 3)),
            case((3, 4), index((0,), 3)),
        ),
        lambda w, i: tf.embedding(i % w.shape[0], w),
        large=(case((50, 331), index((67,), 50)),),
    ),
    "scatter_add": Sample(
        (
            case((5, 7), index((5, 9), 7), (5, 9), axis=1),
            case((3, 4), index((8, 2), 3), (8, 2), axis=0),
            case((5,), index((33,), 5), (33,), axis=-1),
            case((5,), index((0,), 5), (0,), axis=0),
        ),
        _scatter_add,
        large=(case((67, 40), index((67, 331), 40), (67, 331), axis=1),),
    ),
    "index_add": Sample(
        (
            case((5, 7), index((9,), 5), (9, 7)),
            case((3, 5, 2), index((4,), 5), (3, 4, 2), axis=1),
            case((5,), index((33,), 5), (33,)),
            case((5, 2), index((0,), 5), (0, 2)),
        ),
        _index_add,
        large=(case((50, 331), index((67,), 50), (67, 331)),),
    ),
    "clamp_index": Sample(
        (
            case(index((3, 4), 5), axis_size=4),
            case(index((7,), 9), axis_size=5),
            case(index((0,), 2), axis_size=2),
        ),
        lambda i, axis_size: torch.clamp(torch.where(i < 0, i + axis_size, i), 0, axis_size - 1),
        grad=False,
    ),
    "one_hot": Sample(
        (
            case(index((3, 4), 5), num_classes=5),
            case(index((33,), 7), num_classes=7, dtype=f32),
            case(index((), 3), num_classes=3, dtype=bf16_),
            case(index((5,), 2), num_classes=2, dtype=bool_type),
            case(index((0,), 2), num_classes=2, dtype=u8),
        ),
        lambda i, num_classes, dtype=None: tf.one_hot(i % num_classes, num_classes),
        grad=False,
    ),
}


# --- made from nothing ----------------------------------------------------------------------------


def _shaped(value: float) -> Any:
    return lambda shape, dtype=None: np.full(shape, value)


def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> np.ndarray:
    return np.arange(start, stop, step) if stop is not None else np.arange(start)


def _creation_shapes() -> list[Any]:
    return [case(shape=(3, 5)), case(shape=()), case(shape=(0, 2), dtype=f16)]


CREATION = {
    "arange": Sample(
        (
            case(start=7),
            case(start=3, stop=-20, step=-4),
            case(start=0.5, stop=4.0, step=0.25),
            case(start=0, stop=33, dtype=f16),
            case(start=0, stop=70, step=3, dtype=i8),
            case(start=5, stop=5),
            case(start=-3, stop=9, step=2, dtype=f64),
        ),
        numpy=_arange,
        grad=False,
    ),
    "extent": Sample(
        (case(value=7), case(value=0, dtype=f32), case(value=300, dtype=bf16_)),
        numpy=lambda value, dtype=None: np.asarray(value),
        grad=False,
    ),
    "full": Sample(
        (
            case(shape=(3, 5), value=2.5),
            case(shape=(), value=7),
            case(shape=(4,), value=True),
            case(shape=(2, 0), value=1, dtype=i32),
            case(shape=(33,), value=-3, dtype=bf16_),
            case(shape=(5,), value=200, dtype=u8),
        ),
        numpy=lambda shape, value, dtype=None: np.full(shape, value),
        grad=False,
    ),
    "zeros": Sample(tuple(_creation_shapes()), numpy=_shaped(0), grad=False),
    "ones": Sample(
        (*_creation_shapes(), case(shape=(7,), dtype=i64)), numpy=_shaped(1), grad=False
    ),
    "zeros_like": Sample((case((5, 13)), case(()), case((0, 2))), torch.zeros_like, grad=False),
    "ones_like": Sample((case((5, 13)), case(()), case((0, 2))), torch.ones_like, grad=False),
    "full_like": Sample(
        (case((5, 13), value=1), case((), value=0), case((7,), value=1.0), case((0, 2), value=1)),
        lambda x, value: torch.full_like(x, value),
        grad=False,
    ),
    "eye": Sample(
        (
            case(n=5),
            case(n=3, m=7, k=2),
            case(n=4, m=2, k=-1, dtype=i8),
            case(n=0),
            case(n=1, dtype=bool_type),
        ),
        numpy=lambda n, m=None, k=0, dtype=None: np.eye(n, m, k),
        grad=False,
    ),
}

SAMPLES = MOVEMENT | VIEWS | INDEXING | CREATION
