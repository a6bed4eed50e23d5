"""The row of Attention: the plain form is Nova's fused op, others are expanded by ONNX's body.

Plain is: 4-D queries, keys and values with as many heads each, no cache, no soft cap, no scores as
a result, and no bool mask (whose fully masked rows ONNX leaves open).
"""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import bool_, f32
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.table import row
from nova.ops import F


@row("Attention", since=23)
def _attention(node: Node) -> Any:
    q, k, v = (node.tensor(i) for i in range(3))
    mask = node.optional(3)
    has_cache = any(node.has(i) for i in (4, 5, 6))
    if node.outputs > 1 or has_cache or node.attr("softcap", 0.0) or q.dtype is not f32:
        return NotImplemented
    if q.ndim != 4 or k.ndim != 4 or not q.shape[1] == k.shape[1] == v.shape[1]:
        return NotImplemented
    causal = bool(node.attr("is_causal", 0))
    if mask is not None and (mask.dtype is bool_ or causal or mask.shape[-1] != k.shape[2]):
        return NotImplemented
    scale = node.attr("scale", None)
    return F.scaled_dot_product_attention(q, k, v, mask, causal=causal, scale=scale)
