"""Attention: the rows, those with dropout and of packed sequences, and the function over them."""

from nova.ops.attention import dropout, function, kept_weights, rows, segments
from nova.ops.table import register


def register_rows() -> None:
    for family in (rows, kept_weights, dropout, segments, function):
        register(*family.ROWS)
