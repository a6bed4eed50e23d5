"""Functions of torch and numpy that are written with the rows of the op table.

Each family has its own file of sugar rows: plain functions over tensors, so gradients and code for
every target follow from the rows that they use. `nova.ops` registers them.
"""

from nova.ops.functional import (
    activations,
    algebra,
    aliases,
    convolution,
    losses,
    matrices,
    normalization,
    numbers,
    ordering,
    pooling,
    random,
    sampling,
    selection,
    shapes,
    unpooling,
    values,
)
from nova.ops.functional.arrays import (
    calculus,
    pieces,
    signal_windows,
    statistics,
    writes,
)
from nova.ops.functional.layers import bags, fractional_pooling, stochastic
from nova.ops.functional.special import bessel, erfinv, gamma, normal, zeta

FAMILIES = (
    activations,
    values,
    gamma,
    erfinv,
    bessel,
    normal,
    zeta,
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
    numbers,
    pieces,
    writes,
    statistics,
    calculus,
    signal_windows,
    bags,
    fractional_pooling,
    stochastic,
    aliases,  # after all other rows
)


def register_rows() -> None:
    for family in FAMILIES:
        family.register_rows()
