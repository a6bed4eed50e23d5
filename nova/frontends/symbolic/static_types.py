"""Types with representatives in place of dynamic sizes.

In: a function with `?` sizes, and what `Inference` has found. Out: the same ops with static types.
Both rewriters begin with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.frontends.symbolic.infer import Inference
from nova.ir.bindings import ir
from nova.ir.symbolic.size_table import SizeTable


def set_static_types(ops: Sequence[Any], inference: Inference, table: SizeTable) -> None:
    """Give the results and block arguments of ops the representatives of their sizes."""
    for op in ops:
        arguments = (a for region in op.regions for block in region.blocks for a in block.arguments)
        for value in (*op.results, *arguments):
            type_ = value.type
            if isinstance(type_, ir.RankedTensorType) and not type_.has_static_shape:
                shape = [table.representative(size) for size in inference.shape(value)]
                value.set_type(ir.RankedTensorType.get(shape, type_.element_type))
