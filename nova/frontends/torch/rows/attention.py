"""Attention: the fused ops that torch dispatches to, with the statistics that they return.

torch's own decomposition of the CPU's flash attention returns the attention weights where the op
returns the logsumexp of each row: a backward pass that reads it computes wrong gradients. Here
both passes are rows, and the statistic is `attention_logsumexp`.
"""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import accumulator
from nova.frontends.torch.rows.table import cast, row, unsupported


def _grouped(F: Any, q: Any, *keys: Any) -> list[Any]:
    """Keys and values of grouped-query attention, repeated for the heads of q."""
    result = []
    for x in keys:
        heads, shared = q.shape[-3], x.shape[-3]
        if heads != shared:
            batch, (rows, features) = x.shape[:-3], x.shape[-2:]
            wide = F.expand(
                F.unsqueeze(x, len(x.shape) - 2),
                shape=(*batch, shared, heads // shared, rows, features),
            )
            x = F.reshape(wide, (*batch, heads, rows, features))
        result.append(x)
    return result


@row("_scaled_dot_product_flash_attention_for_cpu.default")
def _flash(
    F: Any,
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, Any]:
    if dropout_p:
        raise unsupported("flash attention with dropout")
    k, v = _grouped(F, q, k, v)
    options = {"causal": is_causal, "scale": scale}
    out = F.scaled_dot_product_attention(q, k, v, attn_mask, **options)
    return out, F.attention_logsumexp(q, k, attn_mask, **options)


@row("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def _flash_backward(
    F: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, ...]:
    if dropout_p:
        raise unsupported("flash attention with dropout")
    wide = accumulator(q.dtype)
    delta = F.sum(cast(F, g, wide) * cast(F, out, wide), axis=-1)
    wide_k, wide_v = _grouped(F, q, k, v)
    pieces = [
        F.attention_gradient(
            g, q, wide_k, wide_v, logsumexp, delta, attn_mask, of=of, causal=is_causal, scale=scale
        )
        for of in ("q", "k", "v")
    ]
    return pieces[0], _ungrouped(F, k, pieces[1]), _ungrouped(F, v, pieces[2])


def _ungrouped(F: Any, x: Any, gradient: Any) -> Any:
    """The gradient of a key or value that several heads share: the sum of theirs."""
    if gradient.shape == x.shape:
        return gradient
    *batch, shared, rows, features = x.shape
    heads = gradient.shape[-3]
    split = F.reshape(gradient, (*batch, shared, heads // shared, rows, features))
    return cast(F, F.sum(cast(F, split, accumulator(x.dtype)), axis=-3), x.dtype)
