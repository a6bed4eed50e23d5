"""Functions of torch and numpy that are written with the rows of the op table.

Each family has its own file of sugar rows: plain functions over tensors, so gradients and code for
every target follow from the rows that they use. `nova.ops` registers them.
"""

from nova.ops.functional import (
    activations,
    algebra,
    aliases,
    convolution,
    erfinv,
    gamma,
    losses,
    matrices,
    normalization,
    ordering,
    pooling,
    random,
    sampling,
    selection,
    shapes,
    unpooling,
    values,
)

FAMILIES = (
    activations,
    values,
    gamma,
    erfinv,
    shapes,
    algebra,
    matrices,
    normalization,
    convolution,
    pooling,
    unpooling,
    sampling,
    losses,
    ordering,
    selection,
    random,
    aliases,  # after all other rows
)


def register_rows() -> None:
    for family in FAMILIES:
        family.register_rows()
