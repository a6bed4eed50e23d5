"""Samples of windows, scans, sorts and searches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from op_cases import Draw, Sample, case, index
from unpacked_blocks import unpacked

from nova.core.dtypes import bf16, bool_, f16, f32, i32, i64, u8
from nova.ops.loops.block_formats import FORMATS


def _each(value: Any, count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value)


def _windows(x: Any, kernel: Any, stride: Any = 1, dilation: Any = 1) -> Any:
    """By an index of (taps, positions) for each axis."""
    count = len(kernel)
    steps, widths = _each(stride, count), _each(dilation, count)
    lead = x.ndim - count
    for i in range(count):
        axis = lead + 2 * i
        positions = (x.shape[axis] - widths[i] * (kernel[i] - 1) - 1) // steps[i] + 1
        index = torch.arange(kernel[i])[:, None] * widths[i] + torch.arange(positions) * steps[i]
        chosen = torch.index_select(x, axis, index.flatten())
        x = (
            chosen.unflatten(axis, index.shape)
            if chosen.numel()
            else chosen.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        )
    order = [*range(lead), *range(lead, x.ndim, 2), *range(lead + 1, x.ndim, 2)]
    return x.permute(order)


def _overlap_add(x: Any, size: Any, stride: Any = 1, dilation: Any = 1) -> Any:
    """Each tap added at its positions."""
    count = len(size)
    steps, widths = _each(stride, count), _each(dilation, count)
    lead = x.shape[: x.ndim - 2 * count]
    kernel, positions = x.shape[-2 * count : -count], x.shape[-count:]
    flat = x.flatten(len(lead))
    index = torch.zeros((*kernel, *positions), dtype=torch.int64)
    for i in range(count):
        taps = torch.arange(kernel[i]).reshape([-1 if j == i else 1 for j in range(2 * count)])
        at = torch.arange(positions[i]).reshape(
            [-1 if j == count + i else 1 for j in range(2 * count)]
        )
        index = index * size[i] + taps * widths[i] + at * steps[i]
    total = torch.zeros((*lead, int(torch.tensor(size).prod())), dtype=x.dtype)
    return total.index_add(-1, index.flatten(), flat).reshape(*lead, *size)


def _conv(x: Any, weight: Any, stride: Any = 1, dilation: Any = 1) -> Any:
    """By torch, with the channels first."""
    conv = (torch.conv1d, torch.conv2d, torch.conv3d)[x.ndim - 3]
    rank = x.ndim - 2
    steps = {"stride": _each(stride, rank), "dilation": _each(dilation, rank)}
    if not x.numel():
        return x.new_zeros(
            conv(x.new_zeros((1, *x.shape[1:])).movedim(-1, 1), weight.movedim(-1, 1), **steps)
            .movedim(1, -1)
            .shape
        )[:0]
    return conv(x.movedim(-1, 1), weight.movedim(-1, 1), **steps).movedim(1, -1)


def _weight_gradient(x: Any, g: Any, kernel: Any, stride: Any = 1, dilation: Any = 1) -> Any:
    """A sum over positions for each tap."""
    rank = x.ndim - 2
    steps, widths = _each(stride, rank), _each(dilation, rank)
    taps = _each(kernel, rank)
    windows = _windows(x.movedim(-1, 1), taps, steps, widths)
    flat = windows.flatten(2, 1 + rank).flatten(3) if x.numel() else None
    if flat is None:
        return x.new_zeros((g.shape[-1], *taps, x.shape[-1]))
    total = torch.einsum("ncts,nso->otc", flat, g.flatten(1, -2))
    return total.reshape(g.shape[-1], *taps, x.shape[-1])


def _recurrence(factor: Any, term: Any, axis: int) -> Any:
    if not term.shape[axis]:
        return term * factor
    factors, terms = factor.unbind(axis), term.unbind(axis)
    states = [terms[0]]
    for a, b in zip(factors[1:], terms[1:], strict=True):
        states.append(a * states[-1] + b)
    return torch.stack(states, axis)


SCANNED = (
    case((3, 7), axis=1),
    case((2, 5, 4), axis=1),
    case((4, 1), axis=-1),
    case((3, 0), axis=0),
)
SCANNED_LARGE = (case((37, 131), axis=1),)
# The types that make the code differ; `test_op_loops.py` has the others.
TYPES = (f32, bf16, i64, u8)
PAIRS = tuple(case(c.operands[0].shape, c.operands[0].shape, **c.attrs) for c in SCANNED)


def _places(index: Any, size: int) -> Any:
    return torch.where(index < 0, index + size, index)


def _scatter(x: Any, index: Any, updates: Any, axis: int) -> Any:
    """One update after the other: the last of a position stays."""
    at = _places(index, x.shape[axis])
    for i in range(index.shape[axis]):
        row = torch.tensor([i])
        x = x.scatter(axis, at.index_select(axis, row), updates.index_select(axis, row))
    return x


def _extreme(kind: Any) -> Any:
    return lambda x, index, updates, axis: x.scatter_reduce(
        axis, _places(index, x.shape[axis]), updates, kind
    )


SAMPLES = {
    "windows": Sample(
        (
            case((2, 3, 9), kernel=(3,), stride=2),
            case((2, 5, 6), kernel=(2, 3), stride=(1, 2), dilation=(2, 1)),
            case((7,), kernel=(1,), stride=2),
            case((1, 4, 4, 5), kernel=(2, 2, 2)),
            case((2, 4), kernel=(1,)),
            case((0, 3, 5), kernel=(2,)),
        ),
        _windows,
        typed=2,
        dtypes=TYPES,
        large=(case((3, 40, 40), kernel=(3, 3)),),
    ),
    "overlap_add": Sample(
        (
            case((2, 3, 4), size=(9,), stride=2),
            case((2, 2, 3, 3, 2), size=(5, 6), stride=(1, 2), dilation=(2, 1)),
            case((1, 3), size=(8,), stride=3),
            case((0, 2, 4), size=(5,)),
        ),
        _overlap_add,
        typed=2,
        dtypes=TYPES,
        large=(case((3, 3, 3, 38, 38), size=(40, 40)),),
    ),
    "conv_channels_last": Sample(
        (
            case((2, 9, 3), (4, 3, 3), stride=2),
            case((2, 6, 5, 3), (4, 2, 3, 3), stride=(1, 2), dilation=(2, 1)),
            case((1, 3, 5, 2), (3, 3, 2, 2)),
            case((2, 7, 4, 3), (2, 1, 1, 3), stride=(3, 1)),
            case((1, 3, 4, 3, 2), (2, 2, 2, 2, 2)),
            case((0, 4, 3), (2, 2, 3)),
        ),
        _conv,
        typed=2,
        dtypes=TYPES,
    ),
    "conv_channels_last_weight_gradient": Sample(
        (
            case((2, 9, 3), (2, 4, 4), kernel=3, stride=2),
            case((2, 6, 5, 3), (2, 4, 2, 4), kernel=(2, 3), stride=(1, 2), dilation=(2, 1)),
            case((1, 3, 5, 2), (1, 1, 4, 3), kernel=(3, 2)),
            case((0, 4, 3), (0, 3, 2), kernel=2),
        ),
        _weight_gradient,
        typed=2,
        dtypes=TYPES,
    ),
    "cumsum": Sample(SCANNED, torch.cumsum, typed=2, dtypes=TYPES, large=SCANNED_LARGE),
    "linear_recurrence": Sample(PAIRS, _recurrence, typed=2, dtypes=TYPES),
    "logcumsumexp": Sample(SCANNED, torch.logcumsumexp, typed=2, dtypes=TYPES, large=SCANNED_LARGE),
    "argcummax": Sample(
        SCANNED,
        lambda x, axis: torch.cummax(x, axis).indices,
        typed=2,
        dtypes=TYPES,
        large=SCANNED_LARGE,
    ),
    "argcummin": Sample(
        SCANNED, lambda x, axis: torch.cummin(x, axis).indices, typed=2, dtypes=TYPES
    ),
    "argsort": Sample(
        (
            case((3, 7)),
            case((5, 3), axis=0, descending=True),
            case((2, 9, 2), axis=1),
            case((1,)),
            case((0, 3), axis=1),
        ),
        lambda x, axis=-1, descending=False: torch.argsort(
            x, dim=axis, descending=descending, stable=True
        ),
        typed=2,
        dtypes=TYPES,
        large=(case((11, 130)),),
    ),
    "argtopk": Sample(
        (
            case((3, 17), k=4),
            case((9, 3), k=2, axis=0, largest=False),
            case((2, 9, 2), k=5, axis=1),
            case((1,), k=1),
            case((0, 3), k=1, axis=1),
            case((2, 3), k=0),
        ),
        lambda x, k, axis=-1, largest=True: torch.argsort(
            x, dim=axis, descending=largest, stable=True
        ).narrow(axis, 0, k),
        typed=2,
        dtypes=TYPES,
        large=(case((11, 130), k=7), case((2, 900), k=100)),
    ),
    "dequantize": Sample(
        (
            *(case((3, 2 * FORMATS[name].nbytes), format=name) for name in FORMATS),
            case((0, 34), format="q8_0"),
            case((2, 0), format="q8_0"),
        ),
        numpy=unpacked,
        typed=0,
        dtypes=(f32,),
        grad=False,
    ),
    "quantized_matmul": Sample(
        (
            case((512,), (3, 288), format="q4_k"),
            case((2, 64), (5, 68), format="q8_0"),
            case((3, 4, 64), (5, 36), format="q4_0"),
            case((9, 256), (3, 210), format="q6_k"),
            case((0, 32), (3, 34), format="q8_0"),
            case((2, 0), (3, 0), format="q8_0"),
        ),
        numpy=lambda x, blocks, format: x @ unpacked(blocks, format).T,
        typed=2,
        dtypes=(f32, f16, bf16),
        grad=False,
        large=(case((2, 1024), (130, 1088), format="q8_0"),),
    ),
    "searchsorted": Sample(
        (
            case((7,), (3, 4)),
            case((2, 9), (2, 5), right=True),
            case((1,), ()),
            case((5,), (0,)),
        ),
        lambda edges, values, right=False: torch.searchsorted(edges, values, right=right),
        typed=2,
        dtypes=TYPES,
        large=(case((130,), (67, 31)),),
    ),
    **{
        f"bitwise_{name}": Sample(
            (case((3, 7), (7,)), case((), (2,)), case((0, 2), (2,))),
            getattr(torch, f"bitwise_{name}"),
            dtypes=(i64, u8, bool_),
        )
        for name in ("and", "or", "xor")
    },
    "bitwise_not": Sample(
        (case((3, 7)), case(()), case((0, 2))),
        numpy=np.invert,
        dtypes=(i64, i32),
    ),
    **{
        f"bitwise_{name}_shift": Sample(
            (
                case((3, 7), Draw((7,), "positive")),
                case((0, 2), Draw((2,), "positive")),
            ),
            getattr(torch, f"bitwise_{name}_shift"),
            dtypes=(i64, i32),
        )
        for name in ("left", "right")
    },
    **{
        name: Sample(
            (
                case((5, 3), index((2, 3), 5), (2, 3), axis=0),
                case((2, 6), index((2, 3), 6), (2, 3), axis=1),
                case((5, 3), index((0, 3), 5), (0, 3), axis=0),
            ),
            reference,
            typed=1,
            dtypes=TYPES,
        )
        for name, reference in (
            ("scatter", _scatter),
            ("scatter_max", _extreme("amax")),
            ("scatter_min", _extreme("amin")),
        )
    },
}
