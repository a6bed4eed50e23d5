"""Softmax and normalization: composites with torch's semantics.

`nova.ops` registers them. f16 and bf16 operands are widened first, so statistics and sums are f32,
and the result is rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, accumulator
from nova.core.sizes import same_shape
from nova.errors import AttributeValueError, ShapeError
from nova.ops.rules import Types, int_value, is_real, resolve_axis
from nova.ops.table import Op, register

Attrs = dict[str, Any]


def as_type(F: Any, x: Any, dtype: DType) -> Any:
    """x cast to `dtype`; x itself if it has that dtype."""
    return x if x is None or x.dtype is dtype else F.cast(x, dtype=dtype)


def widened(F: Any, *tensors: Any) -> list[Any]:
    """The tensors in the dtype of the statistics; None stays None."""
    return [None if t is None else as_type(F, t, accumulator(t.dtype)) for t in tensors]


# --- softmax --------------------------------------------------------------------------------------


def _softmax_canon(ins: Types, attrs: Attrs) -> Attrs:
    # torch treats a 0-d tensor as a tensor of one element.
    return {"axis": resolve_axis(attrs["axis"], max(ins[0].rank, 1))}


def _shifted(F: Any, x: Any, axis: int) -> Any:
    return x - F.detach(F.max(x, axis=axis, keepdims=True))


def _softmax(F: Any, x: Any, *, axis: int) -> Any:
    if x.type.is_empty:
        return x
    (wide,) = widened(F, x if x.shape else F.reshape(x, (1,)))
    e = F.exp(_shifted(F, wide, axis))
    return as_type(F, F.reshape(e / F.sum(e, axis=axis, keepdims=True), x.shape), x.dtype)


def _softmax_vjp(F: Any, g: Any, out: Any, x: Any, *, axis: int) -> Any:
    if not x.shape:
        return F.zeros_like(x)
    wide_g, y = widened(F, g, out)
    gy = wide_g * y
    return as_type(F, gy - y * F.sum(gy, axis=axis, keepdims=True), x.dtype)


def _log_softmax(F: Any, x: Any, *, axis: int) -> Any:
    if x.type.is_empty:
        return x
    (wide,) = widened(F, x if x.shape else F.reshape(x, (1,)))
    low = _shifted(F, wide, axis)
    result = low - F.log(F.sum(F.exp(low), axis=axis, keepdims=True))
    return as_type(F, F.reshape(result, x.shape), x.dtype)


def _log_softmax_vjp(F: Any, g: Any, out: Any, x: Any, *, axis: int) -> Any:
    if not x.shape:
        return F.zeros_like(x)
    wide_g, y = widened(F, g, out)
    return as_type(F, wide_g - F.exp(y) * F.sum(wide_g, axis=axis, keepdims=True), x.dtype)


# --- normalization --------------------------------------------------------------------------------


def _norm_canon(ins: Types, attrs: Attrs) -> Attrs:
    ndim = int_value(attrs["ndim"], "ndim")
    if not 1 <= ndim <= ins[0].rank:
        raise ShapeError(f"ndim {ndim} of x {ins[0].shape}", hint="x has at least ndim axes")
    eps = attrs["eps"]
    if eps is None:
        # torch's default for rms_norm: the machine epsilon of the dtype that it computes in.
        eps = float(np.finfo(accumulator(ins[0].dtype).numpy).eps)
    if not is_real(eps) or eps < 0:
        raise AttributeValueError(f"eps must be a number that is not negative, not {eps!r}")
    return {"ndim": ndim, "eps": float(eps)}


def _norm_type(ins: Types, attrs: Attrs) -> TensorType:
    expected = ins[0].shape[ins[0].rank - attrs["ndim"] :]
    for t in ins[1:]:
        if not same_shape(t.shape, expected):
            raise ShapeError(
                f"weight or bias {t.shape}: the normalized axes are {expected}",
                hint="the last ndim axes are normalized; there is no normalized_shape",
            )
    return ins[0]


def _last_axes(x: Any, ndim: int) -> tuple[int, ...]:
    return tuple(range(len(x.shape) - ndim, len(x.shape)))


def _layer_norm(
    F: Any, x: Any, weight: Any = None, bias: Any = None, *, ndim: int, eps: float
) -> Any:
    wide, w, b = widened(F, x, weight, bias)
    axes = _last_axes(x, ndim)
    result, _ = _normalized(F, wide - F.mean(wide, axis=axes, keepdims=True), axes, eps)
    result = result if w is None else result * w
    return as_type(F, result if b is None else result + b, x.dtype)


def _layer_norm_vjp(
    F: Any, g: Any, out: Any, x: Any, weight: Any = None, bias: Any = None, *, ndim: int, eps: float
) -> list[Any]:
    wide_g, wide, w = widened(F, g, x, weight)
    axes = _last_axes(x, ndim)
    centred = wide - F.mean(wide, axis=axes, keepdims=True)
    pieces = _norm_gradients(F, wide_g, centred, w, axes, eps, centre=True)
    if bias is not None:
        pieces.append(F.sum_to(wide_g, bias.shape))
    operands = [t for t in (x, weight, bias) if t is not None]
    return [as_type(F, p, t.dtype) for p, t in zip(pieces, operands, strict=True)]


def _rms_norm(F: Any, x: Any, weight: Any = None, *, ndim: int, eps: float) -> Any:
    wide, w = widened(F, x, weight)
    result, _ = _normalized(F, wide, _last_axes(x, ndim), eps)
    return as_type(F, result if w is None else result * w, x.dtype)


def _rms_norm_vjp(
    F: Any, g: Any, out: Any, x: Any, weight: Any = None, *, ndim: int, eps: float
) -> list[Any]:
    wide_g, wide, w = widened(F, g, x, weight)
    pieces = _norm_gradients(F, wide_g, wide, w, _last_axes(x, ndim), eps, centre=False)
    operands = [t for t in (x, weight) if t is not None]
    return [as_type(F, p, t.dtype) for p, t in zip(pieces, operands, strict=True)]


def _normalized(F: Any, x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    """x divided by its root mean square, and the factor of that division."""
    scale = F.rsqrt(F.mean(x * x, axis=axes, keepdims=True) + eps)
    return x * scale, scale


def _norm_gradients(
    F: Any, g: Any, x: Any, weight: Any, axes: tuple[int, ...], eps: float, *, centre: bool
) -> list[Any]:
    """Gradients of the normalized input, centred before or not, and of the weight if there is one.

    Expressed with the normalized x, which the gradient of the weight needs too: a backward pass
    then keeps only that and one number per row.
    """
    normal, scale = _normalized(F, x, axes, eps)
    inner = g if weight is None else g * weight
    if centre:
        inner = inner - F.mean(inner, axis=axes, keepdims=True)
    # The mean of a centred `normal` is 0, so centring `inner` first does not change this.
    projection = F.mean(inner * normal, axis=axes, keepdims=True)
    pieces = [(inner - normal * projection) * scale]
    if weight is not None:
        pieces.append(F.sum_to(g * normal, weight.shape))
    return pieces


SMOOTH = frozenset({"smooth"})

ROWS: tuple[Op, ...] = (
    Op(
        "softmax",
        "exp(x) / sum(exp(x)) along an axis, without overflow.",
        attrs={"axis": -1},
        cast="float",
        canon=_softmax_canon,
        infer=lambda ins, attrs: ins[0],
        vjp=_softmax_vjp,
        compose=_softmax,
        methods=("softmax",),
        tags=SMOOTH,
    ),
    Op(
        "log_softmax",
        "The logarithm of softmax along an axis, without overflow or underflow.",
        attrs={"axis": -1},
        cast="float",
        canon=_softmax_canon,
        infer=lambda ins, attrs: ins[0],
        vjp=_log_softmax_vjp,
        compose=_log_softmax,
        methods=("log_softmax",),
        tags=SMOOTH,
    ),
    Op(
        "layer_norm",
        "x with mean 0 and variance 1 over its last ndim axes, then times weight plus bias.",
        operands=("x", "weight?", "bias?"),
        attrs={"ndim": 1, "eps": 1e-5},
        cast="float",
        canon=_norm_canon,
        infer=_norm_type,
        vjp=_layer_norm_vjp,
        compose=_layer_norm,
        tags=SMOOTH,
    ),
    Op(
        "rms_norm",
        "x divided by its root mean square over the last ndim axes, then times weight.",
        operands=("x", "weight?"),
        attrs={"ndim": 1, "eps": None},
        cast="float",
        canon=_norm_canon,
        infer=_norm_type,
        vjp=_rms_norm_vjp,
        compose=_rms_norm,
        tags=SMOOTH,
    ),
)


def register_rows() -> None:
    register(*ROWS)
