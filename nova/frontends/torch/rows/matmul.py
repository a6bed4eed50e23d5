"""Matmuls."""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import f32
from nova.frontends.torch.rows.table import cast, row


@row("mm.default", "bmm.default", "mv.default", "matmul.default", "dot.default")
def _matmul(F: Any, x: Any, y: Any) -> Any:
    return F.matmul(x, y)


@row("vdot.default")
def _vdot(F: Any, x: Any, y: Any) -> Any:
    return F.matmul(F.conj(x), y)


def _scaled_sum(F: Any, x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if alpha == 1 and beta == 1:
        return F.add(x, product)
    dtype = product.dtype
    if not dtype.is_differentiable:
        alpha, beta = int(alpha), int(beta)  # torch truncates them for integers
    wide = f32 if dtype.is_float and dtype.bits == 16 else dtype
    scaled = cast(F, product, wide) * alpha
    # With beta 0 the operand is not read: NaN in it does not count.
    return scaled if beta == 0 else cast(F, x, wide) * beta + scaled


@row("addmm.default", "addmv.default", "baddbmm.default")
def _addmm(F: Any, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = F.matmul(a, b)
    return F.expand(_scaled_sum(F, x, product, beta, alpha), shape=product.shape)


@row("addbmm.default")
def _addbmm(F: Any, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    batch, rows, inner = a.shape
    # The sum over the batch is part of one contraction, which accumulates wide.
    left = F.reshape(F.permute(a, axes=(1, 0, 2)), (rows, batch * inner))
    product = F.matmul(left, F.reshape(b, (batch * inner, b.shape[2])))
    return F.expand(_scaled_sum(F, x, product, beta, alpha), shape=product.shape)


@row("addr.default")
def _addr(F: Any, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = F.mul(F.unsqueeze(a, 1), b)
    return F.expand(_scaled_sum(F, x, product, beta, alpha), shape=product.shape)


@row("linear.default")
def _linear(F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return F.linear(x, weight, bias)
