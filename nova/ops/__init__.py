"""The op table: `nova.ops.OPS` has one row per op. See `table.py` for the columns of a row.

Each family of rows has its own file; importing this package fills the table.
"""

from nova.ops import (
    activations,
    arithmetic,
    attention,
    bits,
    complex,
    contraction,
    elementwise,
    functional,
    indexing,
    kernels,
    loops,
    losses,
    low_precision,
    moments,
    movement,
    nn,
    randomness,
    reductions,
    structural,
    transcendental,
)
from nova.ops.table import OPS, REQUIRED, F, Op, op

for _family in (
    arithmetic,
    elementwise,
    transcendental,
    activations,
    reductions,
    moments,
    contraction,
    movement,
    indexing,
    randomness,
    nn,
    attention,
    losses,
    bits,
    loops,
    low_precision,
    complex,
    functional,
    structural,
    kernels,
):
    _family.register_rows()

__all__ = ["OPS", "REQUIRED", "F", "Op", "op"]
