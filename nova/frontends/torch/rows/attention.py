"""Attention: the fused ops that torch dispatches to, with the statistics that they return.

torch's own decomposition of the CPU's flash attention returns the attention weights where the op
returns the logsumexp of each row: a backward pass that reads it computes wrong gradients. Here
both passes are rows, and the statistic is `attention_logsumexp`.
"""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import accumulator, i64
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


def _attend(
    F: Any, q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, scale: float | None
) -> tuple[Any, Any]:
    """The result, and the logsumexp of each row."""
    if dropout:
        raise unsupported("fused attention with dropout")
    k, v = _grouped(F, q, k, v)
    options = {"causal": causal, "scale": scale}
    out = F.scaled_dot_product_attention(q, k, v, mask, **options)
    return out, F.attention_logsumexp(q, k, mask, **options)


def _gradients(
    F: Any,
    g: Any,
    operands: tuple[Any, Any, Any],
    out: Any,
    logsumexp: Any,
    mask: Any,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> tuple[Any, Any, Any]:
    """The gradients of queries, keys and values."""
    if dropout:
        raise unsupported("fused attention with dropout")
    q, k, v = operands
    wide = accumulator(q.dtype)
    delta = F.sum(cast(F, g, wide) * cast(F, out, wide), axis=-1)
    wide_k, wide_v = _grouped(F, q, k, v)
    pieces = [
        F.attention_gradient(
            g, q, wide_k, wide_v, logsumexp, delta, mask, of=of, causal=causal, scale=scale
        )
        for of in ("q", "k", "v")
    ]
    return pieces[0], _ungrouped(F, k, pieces[1]), _ungrouped(F, v, pieces[2])


@row("_scaled_dot_product_flash_attention_for_cpu.default")
def _flash_on_cpu(
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
    return _attend(F, q, k, v, attn_mask, dropout_p, is_causal, scale)


@row("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def _flash_on_cpu_backward(
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
    operands = (q, k, v)
    return _gradients(F, g, operands, out, logsumexp, attn_mask, dropout_p, is_causal, scale)


# --- the fused ops of CUDA ------------------------------------------------------------------------
# They also return the state of their random numbers, which is 0 without dropout, and sizes.

_EFFICIENT_ROWS = 32
"""The memory-efficient op pads its logsumexp to a multiple of this number of rows."""


def _no_state(F: Any, *shape: int) -> Any:
    return F.full(shape=shape, value=0, dtype=i64)


@row("_scaled_dot_product_flash_attention.default")
def _flash(
    F: Any,
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out, logsumexp = _attend(F, q, k, v, None, dropout_p, is_causal, scale)
    debug = F.full(shape=(0,), value=0, dtype=q.dtype)
    return out, logsumexp, None, None, None, None, _no_state(F, 2), _no_state(F), debug


@row("_scaled_dot_product_flash_attention_backward.default")
def _flash_backward(
    F: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    logsumexp: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    *state: Any,
    scale: float | None = None,
) -> tuple[Any, ...]:
    return _gradients(F, g, (q, k, v), out, logsumexp, None, dropout_p, is_causal, scale)


@row("_scaled_dot_product_efficient_attention.default")
def _efficient(
    F: Any,
    q: Any,
    k: Any,
    v: Any,
    attn_bias: Any,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out, logsumexp = _attend(F, q, k, v, attn_bias, dropout_p, is_causal, scale)
    *batch, rows = logsumexp.shape
    padding = -rows % _EFFICIENT_ROWS
    if not compute_log_sumexp:
        logsumexp = F.full(shape=(*batch, 0), value=0, dtype=logsumexp.dtype)
    elif padding:
        zeros = F.full(shape=(*batch, padding), value=0, dtype=logsumexp.dtype)
        logsumexp = F.concatenate([logsumexp, zeros], axis=-1)
    return out, logsumexp, _no_state(F), _no_state(F)


@row("_scaled_dot_product_efficient_attention_backward.default")
def _efficient_backward(
    F: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    attn_bias: Any,
    out: Any,
    logsumexp: Any,
    philox_seed: Any,
    philox_offset: Any,
    dropout_p: float,
    grad_input_mask: Any,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    if grad_input_mask[3]:
        raise unsupported("the gradient of the bias of fused attention")
    rows = F.narrow(logsumexp, -1, 0, q.shape[-2])
    operands = (q, k, v)
    return (*_gradients(F, g, operands, out, rows, attn_bias, dropout_p, is_causal, scale), None)


@row("_scaled_dot_product_cudnn_attention.default")
def _cudnn(
    F: Any,
    q: Any,
    k: Any,
    v: Any,
    attn_bias: Any,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out, logsumexp = _attend(F, q, k, v, attn_bias, dropout_p, is_causal, scale)
    state = (_no_state(F), _no_state(F))
    return out, F.unsqueeze(logsumexp, -1), None, None, None, None, *state, None


@row("_scaled_dot_product_cudnn_attention_backward.default")
def _cudnn_backward(
    F: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    logsumexp: Any,
    philox_seed: Any,
    philox_offset: Any,
    attn_bias: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    rows = F.squeeze(logsumexp, -1)
    return _gradients(F, g, (q, k, v), out, rows, attn_bias, dropout_p, is_causal, scale)


def _ungrouped(F: Any, x: Any, gradient: Any) -> Any:
    """The gradient of a key or value that several heads share: the sum of theirs."""
    if gradient.shape == x.shape:
        return gradient
    *batch, shared, rows, features = x.shape
    heads = gradient.shape[-3]
    split = F.reshape(gradient, (*batch, shared, heads // shared, rows, features))
    return cast(F, F.sum(cast(F, split, accumulator(x.dtype)), axis=-3), x.dtype)
