"""The decompositions of ATen ops that come before the rows.

torch's core ATen decompositions, without those of ops that have a row: the row keeps the op whole,
which is faster, and for the CPU's flash attention the decomposition returns another statistic than
the op (see `rows/attention.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from nova.frontends.torch.rows import ROWS
from nova.frontends.torch.source import op_name

aten = torch.ops.aten

# Ops outside of the core decompositions that torch can decompose.
_MORE = (
    *(aten.native_batch_norm, aten._native_batch_norm_legit, aten.native_group_norm_backward),
    *(aten.upsample_bilinear2d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest2d),
    *(aten.upsample_bicubic2d, aten.grid_sampler_2d, aten.nll_loss2d_forward),
    *(aten.nll_loss2d_backward, aten._embedding_bag, aten.reflection_pad1d, aten.reflection_pad2d),
    *(
        aten.native_layer_norm_backward,
        aten.index_copy,
        aten.log_sigmoid_forward,
    ),
)

# Ops with a row that torch decomposes nevertheless: tracing needs it, or has a normal form.
_DECOMPOSED = {
    f"aten.{name}" for name in ("detach.default", "t.default", "transpose.int", "squeeze.default")
}


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's decompositions of ops that have no row."""
    table = {**core_aten_decompositions(), **get_decompositions(_MORE)}
    kept = ROWS.keys() - _DECOMPOSED
    return {op: function for op, function in table.items() if op_name(op) not in kept}
