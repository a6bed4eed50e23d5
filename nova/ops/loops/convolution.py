"""Convolutions of tensors with the channels last, and the gradient of their weights.

Each is one contraction that reads the windows of x where they are (implicit GEMM), without a copy
of all windows. `convolve-channels-last` writes convolutions for devices with them; nothing is
padded, and there is one group.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType
from nova.core.sizes import is_static_shape, known_equal, same_shape
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.loops.windows import window_counts
from nova.ops.rules import Types, int_tuple, widen
from nova.ops.table import REQUIRED, Attrs, Op, register

Sizes = tuple[int, ...]


def _options(count: int, attrs: Attrs, names: tuple[str, ...]) -> Attrs:
    """Tuples of `count` positive ints; an int stands for every axis."""
    result = {}
    for name in names:
        values = int_tuple(attrs[name], name)
        values = values * count if len(values) == 1 else values
        if len(values) != count or any(v < 1 for v in values):
            raise AttributeValueError(f"{name} {attrs[name]}: not {count} positive sizes")
        result[name] = values
    return result


def _check(ins: Types, names: tuple[str, str]) -> None:
    x, y = ins
    if x.rank < 3 or y.rank != x.rank:
        raise ShapeError(
            f"{names[0]} {x.shape} and {names[1]} {y.shape}: not both (.., positions, channels)"
        )
    if x.dtype != y.dtype or not x.dtype.is_float:
        raise DTypeError(f"{names[0]} is {x.dtype}, {names[1]} is {y.dtype}: not one float type")
    if not is_static_shape((*x.shape, *y.shape)):
        raise ShapeError(f"{names[0]} {x.shape}, {names[1]} {y.shape}: sizes must be static")


def _counts(x: TensorType, kernel: Sizes, attrs: Attrs) -> Sizes:
    sizes = x.shape[1:-1]
    counts = window_counts(sizes, kernel, attrs["stride"], attrs["dilation"])
    if any(n < 1 for n in (*counts, *kernel)):
        raise ShapeError(f"windows of {kernel} do not fit in {sizes}", hint="pad the tensor first")
    return counts


def _at(tap: Sizes, counts: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Any, ...]:
    """The elements of x (N, ..., C) that one tap of all windows reads."""
    axes = zip(tap, counts, stride, dilation, strict=True)
    return (slice(None), *(slice(t * d, t * d + (n - 1) * s + 1, s) for t, n, s, d in axes))


def _read_exactly(b: Any, x: Any, spans: Sizes) -> Any:
    """x without what no window reads along axes with one window.

    linalg takes the loop bounds from an identity access, which such an axis has after its unit
    dimension is folded.
    """
    sizes = x.shape[1:-1]
    if all(map(known_equal, spans, sizes)):
        return x
    out = x.type.with_shape((x.shape[0], *spans, x.shape[-1]))
    indices = range(out.rank)
    narrow = b.generic(out, [], lambda s: s.load(x.value, [s.index(i) for i in indices], x.dtype))
    return b.operand(narrow, out)


def _spans(x: Any, kernel: Sizes, counts: Sizes, dilation: Sizes) -> Sizes:
    """The sizes of x as `_read_exactly` leaves them."""
    axes = zip(x.shape[1:-1], kernel, counts, dilation, strict=True)
    return tuple(d * (k - 1) + 1 if c == 1 else n for n, k, c, d in axes)


# --- the convolution ------------------------------------------------------------------------------


def _conv_canon(ins: Types, attrs: Attrs) -> Attrs:
    _check(ins, ("x", "weight"))
    return _options(ins[0].rank - 2, attrs, ("stride", "dilation"))


def _conv_type(ins: Types, attrs: Attrs) -> TensorType:
    x, weight = ins
    if x.shape[-1] != weight.shape[-1]:
        raise ShapeError(f"x has {x.shape[-1]} channels, the weight {weight.shape[-1]}")
    counts = _counts(x, weight.shape[1:-1], attrs)
    return x.with_shape((x.shape[0], *counts, weight.shape[0]))


def _conv_numpy(x: np.ndarray, weight: np.ndarray, *, stride: Sizes, dilation: Sizes) -> np.ndarray:
    kernel = weight.shape[1:-1]
    counts = window_counts(x.shape[1:-1], kernel, stride, dilation)
    total = np.zeros((x.shape[0], *counts, weight.shape[0]), widen(x).dtype)
    for tap in product(*map(range, kernel)):
        at: Any = (slice(None), *tap)
        total += widen(x)[_at(tap, counts, stride, dilation)] @ widen(weight)[at].T
    return total.astype(x.dtype)


def _conv_lower(
    b: Any, out: TensorType, x: Any, weight: Any, *, stride: Sizes, dilation: Sizes
) -> Any:
    if x.type.is_empty or weight.type.is_empty:
        return b.fill(out, 0)
    kernel, counts = weight.shape[1:-1], out.shape[1:-1]
    rank = len(kernel)
    x = _read_exactly(b, x, _spans(x, kernel, counts, dilation))
    places, taps = range(1, 1 + rank), range(2 + rank, 2 + 2 * rank)
    channel = 2 + 2 * rank
    return b.contract_at(
        out,
        (x, lambda d: [d[0], *_moved(d, places, taps, stride, dilation), d[channel]]),
        (weight, lambda d: [d[1 + rank], *(d[i] for i in taps), d[channel]]),
        (*kernel, x.shape[-1]),
    )


def _moved(d: Any, places: Any, taps: Any, stride: Sizes, dilation: Sizes) -> list[Any]:
    axes = zip(places, taps, stride, dilation, strict=True)
    return [d[place] * s + d[tap] * w for place, tap, s, w in axes]


def _conv_vjp(
    F: Any, g: Any, out: Any, x: Any, weight: Any, *, stride: Any, dilation: Any
) -> tuple[Any, Any]:
    kernel = tuple(weight.shape[1:-1])
    options = {"stride": stride, "dilation": dilation}
    dw = F.conv_channels_last_weight_gradient(x, g, kernel=kernel, **options)
    return _overlapped(F, g, weight, x, options), dw


def _overlapped(F: Any, g: Any, weight: Any, x: Any, options: Attrs) -> Any:
    """The gradient of x: each tap of g @ weight, added where it was read."""
    kernel, counts = tuple(weight.shape[1:-1]), tuple(g.shape[1:-1])
    rank, batch, channels = len(kernel), x.shape[0], x.shape[-1]
    taps = F.matmul(
        F.reshape(g, (batch * prod(counts), g.shape[-1])),
        F.reshape(weight, (g.shape[-1], prod(kernel) * channels)),
    )
    taps = F.reshape(taps, (batch, *counts, *kernel, channels))
    places, at = range(1, 1 + rank), range(1 + rank, 1 + 2 * rank)
    taps = F.permute(taps, (0, 1 + 2 * rank, *at, *places))
    total = F.overlap_add(taps, size=tuple(x.shape[1:-1]), **options)
    return F.permute(total, (0, *range(2, 2 + rank), 1))


# --- the gradient of the weight -------------------------------------------------------------------


def _gradient_canon(ins: Types, attrs: Attrs) -> Attrs:
    _check(ins, ("x", "g"))
    return _options(ins[0].rank - 2, attrs, ("kernel", "stride", "dilation"))


def _gradient_type(ins: Types, attrs: Attrs) -> TensorType:
    x, g = ins
    kernel = attrs["kernel"]
    counts = _counts(x, kernel, attrs)
    if not same_shape(g.shape[:-1], (x.shape[0], *counts)):
        raise ShapeError(f"g {g.shape}: there are {(x.shape[0], *counts)} windows")
    return x.with_shape((g.shape[-1], *kernel, x.shape[-1]))


def _gradient_numpy(
    x: np.ndarray, g: np.ndarray, *, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> np.ndarray:
    counts = g.shape[1:-1]
    total = np.zeros((g.shape[-1], *kernel, x.shape[-1]), widen(x).dtype)
    columns = widen(g).reshape(-1, g.shape[-1]).T
    for tap in product(*map(range, kernel)):
        rows = widen(x)[_at(tap, counts, stride, dilation)].reshape(-1, x.shape[-1])
        at: Any = (slice(None), *tap)
        total[at] = columns @ rows
    return total.astype(x.dtype)


def _gradient_lower(
    b: Any, out: TensorType, x: Any, g: Any, *, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> Any:
    if x.type.is_empty or g.type.is_empty:
        return b.fill(out, 0)
    counts, rank = g.shape[1:-1], len(kernel)
    x = _read_exactly(b, x, _spans(x, kernel, counts, dilation))
    taps, image = range(1, 1 + rank), 2 + rank
    places = range(3 + rank, 3 + 2 * rank)
    return b.contract_at(
        out,
        (g, lambda d: [d[image], *(d[i] for i in places), d[0]]),
        (x, lambda d: [d[image], *_moved(d, places, taps, stride, dilation), d[1 + rank]]),
        (x.shape[0], *counts),
    )


def _gradient_vjp(
    F: Any, h: Any, out: Any, x: Any, g: Any, *, kernel: Any, stride: Any, dilation: Any
) -> tuple[Any, Any]:
    options = {"stride": stride, "dilation": dilation}
    return _overlapped(F, g, h, x, options), F.conv_channels_last(x, h, **options)


ROWS: tuple[Op, ...] = (
    Op(
        "conv_channels_last",
        "Convolution of x (batch, ..., in) with a weight (out, taps, in), without padding: "
        "(batch, ..., out).",
        operands=("x", "weight"),
        attrs={"stride": 1, "dilation": 1},
        cast="float",
        canon=_conv_canon,
        infer=_conv_type,
        numpy=_conv_numpy,
        vjp=_conv_vjp,
        lower=_conv_lower,
        tags=frozenset({"contraction", "smooth"}),
    ),
    Op(
        "conv_channels_last_weight_gradient",
        "The gradient of the weight of `conv_channels_last`, (out, taps, in), from x and the "
        "gradient g (batch, ..., out) of its result.",
        operands=("x", "g"),
        attrs={"kernel": REQUIRED, "stride": 1, "dilation": 1},
        cast="float",
        canon=_gradient_canon,
        infer=_gradient_type,
        numpy=_gradient_numpy,
        vjp=_gradient_vjp,
        lower=_gradient_lower,
        tags=frozenset({"contraction", "smooth"}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
