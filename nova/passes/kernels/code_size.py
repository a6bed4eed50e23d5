"""How much code an op of linalg becomes: what bounds the size of fused ops and of kernels.

LLVM's time, the registers that values are spilled from and the instruction cache all grow faster
than a kernel that has no bound. `fuse-elementwise` and `form-kernels` stop at the same measure.
"""

from __future__ import annotations

from typing import Any

from nova.ir.mathlib import EXPANSIONS

_EXPANDED = 32
"""Instructions of a math function that `expand-math` writes out; most have between 15 and 60."""

_OPERAND = 4
"""What each operand adds: its address, and a load or a store."""


def code_size(op: Any) -> int:
    """About how many instructions one element of a linalg op takes."""
    return _OPERAND * len(op.operands) + sum(
        _block_size(block) for region in op.regions for block in region.blocks
    )


def _block_size(block: Any) -> int:
    size = 0
    for inner in block.operations:
        inner = inner.operation
        size += _EXPANDED if inner.name in EXPANSIONS else 1
        size += sum(_block_size(nested) for region in inner.regions for nested in region.blocks)
    return size
