"""What each row computes for complex operands, as real ops on their parts.

`RULES` maps the name of a row to a function (F, *operands, **attrs) -> tensor. Operands are
tensors and Python numbers, complex or real. `nova/graph/build.py` applies the rule of a row if an
operand or a `dtype=` is complex; a row without one refuses them. Rows that are written with others,
such as einsum or conv2d, need no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import bool_, dtype, real_of
from nova.errors import DTypeError
from nova.ops.complex import elementary
from nova.ops.complex.parts import (
    add,
    common_shape,
    divide,
    is_complex,
    magnitude,
    multiply,
    negate,
    pack,
    scale_of,
    split,
    split_all,
    subtract,
)
from nova.ops.complex.rows import FROM_PARTS, PAIR
from nova.ops.table import OPS

Rule = Callable[..., Any]

# --- rows that treat both parts alike -------------------------------------------------------------

LINEAR = (
    *("neg", "sum", "mean", "cumsum", "detach"),
    *("reshape", "permute", "expand", "flip", "slice", "unslice", "join", "tril", "triu"),
    *("gather", "take", "scatter", "scatter_add", "index_add", "embedding"),
    *("dynamic_slice", "dynamic_update_slice", "windows", "overlap_add", "barrier"),
)
"""Applied to the real and to the imaginary part; operands that hold integers are shared."""


def _by_parts(name: str) -> Rule:
    def rule(F: Any, *operands: Any, **attrs: Any) -> Any:
        row, function = OPS[name], getattr(F, name)
        for i, x in enumerate(operands):
            if not row.variadic and row.is_index(i) and is_complex(x):
                operand = row.operands[i].rstrip("?")
                raise DTypeError(
                    f"{operand} must hold integers, not complex numbers",
                    hint=f"convert it: nova.cast(nova.real({operand}), dtype='i64')",
                )
        pairs = [
            (x, x) if x is None or (not row.variadic and row.is_index(i)) else split_all(F, x)
            for i, x in enumerate(operands)
        ]
        re, im = (function(*(p[part] for p in pairs), **attrs) for part in (0, 1))
        return F.complex(re, im)

    return rule


def _pad(F: Any, x: Any, low: Any, high: Any, value: Any) -> Any:
    values = split_all(F, value)
    parts = zip(split(F, x), values, strict=True)
    return F.complex(*(F.pad(part, low, high, value=v) for part, v in parts))


def _where(F: Any, cond: Any, x: Any, y: Any) -> Any:
    if is_complex(cond):
        raise DTypeError(
            "where: the condition is complex, not bool",
            hint="compare it first: nova.where(cond != 0, x, y)",
        )
    pairs = zip(split_all(F, x), split_all(F, y), strict=True)
    return F.complex(*(F.where(cond, a, b) for a, b in pairs))


# --- pairs ----------------------------------------------------------------------------------------


def _pair(F: Any, re: Any, im: Any) -> Any:
    """`complex` itself: parts of one shape are a node of the row."""
    shapes = [getattr(part, "shape", ()) for part in (re, im)]
    if any(map(is_complex, (re, im))) or shapes[0] == shapes[1]:
        return NotImplemented
    return F.complex(*common_shape(F, (re, im)))


def _part(position: int) -> Rule:
    def rule(F: Any, x: Any) -> Any:
        if isinstance(x, int | float | complex):
            return F.detach(split_all(F, x)[position])
        if not x.dtype.is_complex:
            return x if position == 0 else F.zeros_like(x)
        if x.op is OPS[PAIR]:
            return x.inputs[position]
        if x.op is OPS[FROM_PARTS]:
            return x.inputs[0][..., position]
        if x.is_leaf and x.fixed and x.data is not None:
            return F.detach((x.data.real, x.data.imag)[position].copy())
        return NotImplemented

    return rule


def _as_parts(F: Any, x: Any) -> Any:
    if x.op is OPS[PAIR]:
        return F.stack(list(x.inputs), axis=-1)
    return x.inputs[0] if x.op is OPS[FROM_PARTS] else NotImplemented


def _cast(F: Any, x: Any, dtype: Any) -> Any:
    target = _element(dtype)
    if target is bool_:
        return _nonzero(F, x)
    if not target.is_complex:
        raise DTypeError(
            f"a cast from {x.dtype} to {target} would drop the imaginary part",
            hint="take nova.real(x) or nova.abs(x)",
        )
    if is_complex(x) and x.dtype is target:
        return x
    part = real_of(target)
    return F.complex(*(F.cast(p, dtype=part) for p in split_all(F, x)))


def _full(F: Any, shape: Any, value: Any, dtype: Any) -> Any:
    part = None if dtype is None else real_of(_element(dtype))
    return F.complex(*(F.full(shape, float(v), dtype=part) for v in split_all(F, value)))


def _element(spec: Any) -> Any:
    return dtype(spec)


# --- arithmetic -----------------------------------------------------------------------------------


def _binary(function: Callable[..., Any]) -> Rule:
    def rule(F: Any, x: Any, y: Any) -> Any:
        return pack(F, function(F, split(F, x), split(F, y)))

    return rule


def _unary(function: Callable[..., Any]) -> Rule:
    def rule(F: Any, x: Any) -> Any:
        return pack(F, function(F, split_all(F, x)))

    return rule


def _matmul(F: Any, x: Any, y: Any) -> Any:
    return pack(F, multiply(F, split(F, x), split(F, y), F.matmul))


def _linear(F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    product = F.matmul(x, F.swapaxes(weight, 0, 1))
    return product if bias is None else F.add(product, bias)


def _sign(F: Any, x: Any) -> Any:
    # Scaled: the magnitude of a denormal number has too few digits.
    pair = split_all(F, x)
    scale = scale_of(F, pair)
    pair = F.div(pair[0], scale), F.div(pair[1], scale)
    size = magnitude(F, pair)
    is_zero = F.eq(size, 0)
    safe = F.where(is_zero, 1.0, size)
    return F.complex(*(F.where(is_zero, 0.0, F.div(part, safe)) for part in pair))


def _prod(F: Any, x: Any, axis: Any, keepdims: Any) -> Any:
    """Halves multiplied with each other, in log2(n) rounds."""
    rank = len(x.shape)
    axes = tuple(range(rank)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(sorted(a % rank for a in axes)) if rank else ()
    outer = tuple(i for i in range(rank) if i not in axes)
    moved = F.permute(x, (*outer, *axes)) if rank else x
    rows = tuple(x.shape[i] for i in outer)
    count = prod(x.shape[i] for i in axes)
    flat = F.reshape(moved, (*rows, count)) if axes else F.reshape(x, (*x.shape, 1))
    while (n := flat.shape[-1]) > 1:
        half = F.mul(flat[..., : n // 2], flat[..., n // 2 : n // 2 * 2])
        flat = half if n % 2 == 0 else F.concat([half, flat[..., -1:]], axis=-1)
    if n == 0:
        flat = F.full((*rows, 1), 1.0, dtype=x.dtype)
    sizes = tuple(1 if i in axes else s for i, s in enumerate(x.shape)) if keepdims else rows
    return F.reshape(flat, sizes if axes else x.shape)


def _var(F: Any, x: Any, axis: Any, keepdims: Any, correction: Any) -> Any:
    options = {"axis": axis, "keepdims": keepdims, "correction": correction}
    return F.add(*(F.var(part, **options) for part in split(F, x)))


def _std(F: Any, x: Any, axis: Any, keepdims: Any, correction: Any) -> Any:
    return F.sqrt(_var(F, x, axis, keepdims, correction))


def _logsumexp(F: Any, x: Any, axis: Any, keepdims: Any) -> Any:
    if not x.size:
        parts = [F.logsumexp(part, axis=axis, keepdims=keepdims) for part in split(F, x)]
        return F.complex(parts[0], F.zeros_like(parts[1]))
    top = F.detach(F.max(F.real(x), axis=axis, keepdims=True))
    shift = F.where(F.isfinite(top), top, 0.0)
    total = F.log(F.sum(F.exp(F.sub(x, shift)), axis=axis, keepdims=keepdims))
    return F.add(total, shift if keepdims else F.reshape(shift, total.shape))


def _rms_norm(F: Any, x: Any, weight: Any = None, *, ndim: Any, eps: Any) -> Any:
    """torch's: the mean of the complex squares, not of the squared magnitudes."""
    small = float(np.finfo(x.dtype.numpy).eps) if eps is None else float(eps)
    axes = tuple(range(-int(ndim), 0))
    power = F.mean(F.square(x), axis=axes, keepdims=True)
    result = F.mul(x, F.rsqrt(F.add(power, small)))
    return result if weight is None else F.mul(result, weight)


def _mae_loss(F: Any, x: Any, target: Any, reduction: str) -> Any:
    size = F.abs(F.sub(x, target))
    return F.mae_loss(size, F.zeros_like(size), reduction=reduction)


# --- tests ----------------------------------------------------------------------------------------


def _nonzero(F: Any, x: Any) -> Any:
    re, im = split(F, x)
    return re if im is None else F.logical_or(F.ne(re, 0), F.ne(im, 0))


def _equal(F: Any, x: Any, y: Any) -> Any:
    (a, b), (c, d) = split_all(F, x), split_all(F, y)
    return F.logical_and(F.eq(a, c), F.eq(b, d))


def _both(name: str, combine: str) -> Rule:
    """A test of each part, combined."""

    def rule(F: Any, x: Any) -> Any:
        re, im = (getattr(F, name)(part) for part in split(F, x))
        return getattr(F, combine)(re, im)

    return rule


def _of_truth(name: str) -> Rule:
    """A row that reads only whether elements are zero."""

    def rule(F: Any, *operands: Any, **attrs: Any) -> Any:
        return getattr(F, name)(*(_nonzero(F, x) for x in operands), **attrs)

    return rule


RULES: dict[str, Rule] = {
    **{name: _by_parts(name) for name in LINEAR},
    "complex": _pair,
    "real": _part(0),
    "imag": _part(1),
    "as_parts": _as_parts,
    "cast": _cast,
    "full": _full,
    "pad": _pad,
    "where": _where,
    "neg": _unary(negate),
    "add": _binary(add),
    "sub": _binary(subtract),
    "mul": _binary(multiply),
    "div": _binary(divide),
    "matmul": _matmul,
    "linear": _linear,
    "dot": lambda F, x, y: F.matmul(x, y),
    "outer": lambda F, x, y: F.mul(F.unsqueeze(x, 1), y),
    "prod": _prod,
    "var": _var,
    "std": _std,
    "abs": lambda F, x: magnitude(F, split(F, x)),
    "sign": _sign,
    **{name: _unary(function) for name, function in elementary.UNARY.items()},
    "pow": elementary.power,
    "silu": lambda F, x: F.mul(x, F.sigmoid(x)),
    "logsumexp": _logsumexp,
    "rms_norm": _rms_norm,
    "mae_loss": _mae_loss,
    "eq": _equal,
    "ne": lambda F, x, y: F.logical_not(_equal(F, x, y)),
    "isnan": _both("isnan", "logical_or"),
    "isinf": _both("isinf", "logical_or"),
    "isfinite": _both("isfinite", "logical_and"),
    **{name: _of_truth(name) for name in ("any", "all", "logical_not")},
    **{name: _of_truth(name) for name in ("logical_and", "logical_or", "logical_xor")},
}

ALWAYS = frozenset({"complex", "real", "imag"})
"""Rows whose rule is applied to real operands as well."""
