"""Attention: the rows, those with dropout and of packed sequences, and the function over them."""

from nova.ops.attention import dropout, function, rows, segments
from nova.ops.table import register


def register_rows() -> None:
    for family in (rows, dropout, segments, function):
        register(*family.ROWS)
