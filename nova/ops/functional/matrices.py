"""Matmuls with an addend, distances within one set, and statistics of variables: torch's names."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from nova.core.dtypes import bool_, f64
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.algebra import vector_norm
from nova.ops.functional.common import (
    as_common,
    as_floats,
    as_tensor,
    function,
    require_rank,
    to_dtype,
)
from nova.ops.rules import is_unit, static_axis
from nova.ops.table import Op, register

_OPERANDS = ("x", "a", "b")


def _added(F: Any, x: Any, product: Any, beta: float, alpha: float) -> Any:
    if not product.dtype.is_float and not product.dtype.is_complex:
        factors = {"beta": beta, "alpha": alpha}
        for name, factor in factors.items():
            if factor != 1 and (product.dtype is bool_ or factor != int(factor)):
                raise AttributeValueError(
                    f"{name}={factor} does not fit {product.dtype}", hint="cast the operands first"
                )
    product = product if alpha == 1 else product * alpha
    return F.add(as_tensor(F, x) if beta == 1 else F.mul(x, beta), product)


def _addmv(F: Any, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    require_rank("addmv", as_tensor(F, a), 2, 2)
    require_rank("addmv", as_tensor(F, b), 1, 1)
    return _added(F, x, F.matmul(a, b), beta, alpha)


def _addr(F: Any, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    require_rank("addr", as_tensor(F, a), 1, 1)
    require_rank("addr", as_tensor(F, b), 1, 1)
    return _added(F, x, F.outer(a, b), beta, alpha)


def _baddbmm(F: Any, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    for operand in (a, b):
        require_rank("baddbmm", as_tensor(F, operand), 3, 3)
    return _added(F, x, F.matmul(a, b), beta, alpha)


def _addbmm(F: Any, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    for operand in (a, b):
        require_rank("addbmm", as_tensor(F, operand), 3, 3)
    return _added(F, x, F.sum(F.matmul(a, b), axis=0), beta, alpha)


def _bilinear(F: Any, x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    x, y, weight = as_common(F, x, y, weight)
    require_rank("bilinear", weight, 3, 3)
    if x.shape[-1:] != weight.shape[1:2] or y.shape[-1:] != weight.shape[2:]:
        raise ShapeError(f"bilinear: weight {weight.shape} for x {x.shape} and y {y.shape}")
    result = F.einsum("...i,oij,...j->...o", x, weight, y)
    return result if bias is None else F.add(result, bias)


def _dist(F: Any, x: Any, y: Any, p: float = 2.0) -> Any:
    x, y = as_floats(F, x, y)
    return vector_norm(F, F.flatten(F.sub(x, y)), p, 0)


def _pdist(F: Any, x: Any, p: float = 2.0) -> Any:
    (x,) = as_floats(F, x)
    require_rank("pdist", x, 2, 2)
    first, second = np.triu_indices(static_axis(x.type, 0, "pdist pairs the rows of"), 1)
    return vector_norm(F, F.take(x, first, axis=0) - F.take(x, second, axis=0), p, -1)


def _cov(F: Any, x: Any, correction: float = 1, fweights: Any = None, aweights: Any = None) -> Any:
    (x,) = as_floats(F, x)
    require_rank("cov", x, 0, 2)
    rows = F.reshape(x, (1, x.size)) if len(x.shape) < 2 else x
    if fweights is not None or aweights is not None:
        # In f64: gradients of weights are small differences.
        wide = to_dtype(F, rows, f64)
        result = to_dtype(F, _weighted_cov(F, wide, correction, fweights, aweights), x.dtype)
        return F.reshape(result, ()) if is_unit(rows.shape[0]) else result
    centered = rows - F.mean(rows, axis=1, keepdims=True)
    result = F.matmul(centered, F.swapaxes(centered, 0, 1)) / (rows.shape[1] - correction)
    return F.reshape(result, ()) if is_unit(rows.shape[0]) else result


def _weighted_cov(F: Any, rows: Any, correction: float, counts: Any, shares: Any) -> Any:
    """The covariances of columns that occur `counts` times and have weights `shares`."""
    weights = []
    for name, value in (("fweights", counts), ("aweights", shares)):
        value = F.ones(rows.shape[1:], dtype=rows.dtype) if value is None else as_tensor(F, value)
        if tuple(value.shape) != tuple(rows.shape[1:]):
            raise ShapeError(f"cov: {name} {value.shape} for {rows.shape[1]} columns")
        weights.append(to_dtype(F, value, rows.dtype))
    product = weights[0] * weights[1]
    total = F.sum(product)
    centered = rows - F.sum(rows * product, axis=1, keepdims=True) / total
    lost = 1.0 if shares is None else F.sum(product * weights[1]) / total
    divisor = F.maximum(total - lost * float(correction), 0.0)
    return F.matmul(centered * product, F.swapaxes(centered, 0, 1)) / divisor


def _corrcoef(F: Any, x: Any) -> Any:
    table = _cov(F, x)
    if not table.shape:
        return table / table
    scale = F.sqrt(F.diagonal(table))
    return F.clamp(table / F.unsqueeze(scale, 1) / scale, -1.0, 1.0)


def _std_mean(
    F: Any, x: Any, axis: Any = None, correction: float = 1, keepdims: bool = False
) -> tuple[Any, Any]:
    spread = F.std(x, axis=axis, correction=correction, keepdims=keepdims)
    return spread, F.mean(x, axis=axis, keepdims=keepdims)


def _softmin(F: Any, x: Any, axis: int = -1) -> Any:
    return F.softmax(F.neg(x), axis=axis)


def _logaddexp2(F: Any, x: Any, y: Any) -> Any:
    x, y = as_floats(F, x, y)
    return F.logaddexp(x * log(2), y * log(2)) / log(2)


def _signbit(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    return F.lt(F.copysign(1.0, x), 0) if x.dtype.is_float else F.lt(x, 0)


def _index_select(F: Any, x: Any, axis: int, index: Any) -> Any:
    require_rank("index_select", as_tensor(F, index), 0, 1)
    return F.take(x, F.reshape(as_tensor(F, index), (-1,)), axis=axis)


ROWS: tuple[Op, ...] = (
    function("addmv", "beta * x + alpha * (a @ b), b a vector.", _addmv, operands=_OPERANDS),
    function("addr", "beta * x + alpha * outer(a, b).", _addr, operands=_OPERANDS),
    function("baddbmm", "beta * x + alpha * (a @ b) of stacks.", _baddbmm, operands=_OPERANDS),
    function("addbmm", "beta * x + alpha * the sum of a[i] @ b[i].", _addbmm, operands=_OPERANDS),
    function(
        "bilinear",
        "x[i] * weight[o, i, j] * y[j] summed over i and j, plus bias[o].",
        _bilinear,
        operands=("x", "y", "weight"),
    ),
    function("dist", "The p-norm of x - y.", _dist, operands=("x", "y")),
    function("pdist", "The p-norm distances of all pairs of rows of x.", _pdist),
    function("cov", "The covariances of the rows of x.", _cov),
    function("corrcoef", "The correlations of the rows of x.", _corrcoef),
    function("std_mean", "Standard deviation and mean along axes.", _std_mean),
    function("softmin", "softmax(-x) along an axis.", _softmin),
    function("logaddexp2", "log2(2**x + 2**y) without overflow.", _logaddexp2, operands=("x", "y")),
    function(
        "signbit",
        "Whether the sign bit is set: below 0, or -0.",
        _signbit,
        method=True,
        tags=frozenset({"nograd"}),
    ),
    function("index_select", "The slices of x at the positions of index.", _index_select),
)


def register_rows() -> None:
    register(*ROWS)
