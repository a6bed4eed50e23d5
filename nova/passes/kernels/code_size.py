"""Estimates the code size of a linalg op, which bounds the size of fused ops and of kernels.

LLVM's compile time, register spills and instruction cache misses all grow faster than a kernel
without a bound. `fuse-elementwise` and `form-kernels` stop at the same measure.
"""

from __future__ import annotations

from typing import Any

from nova.ir.mathlib import EXPANSIONS
from nova.ir.walk import nested_names

_EXPANDED = 32
"""Instructions of a math function that `expand-math` inlines; most have between 15 and 60."""

_OPERAND = 4
"""Instructions per operand: its address, and a load or a store."""


def code_size(op: Any) -> int:
    """The approximate number of instructions per element of a linalg op."""
    names = nested_names(op)
    return _OPERAND * len(op.operands) + sum(_EXPANDED if n in EXPANSIONS else 1 for n in names)
