"""The sizes of matrices whose product with a vector is a GEMV of a device."""

from __future__ import annotations

_FEWEST_ROWS, _SHORTEST = 128, 128
"""Smaller matrices are read as fast by one block."""


def is_gemv_size(rows: int, length: int) -> bool:
    """Whether a matrix has so many rows of such a length that many warps should read it."""
    return rows >= _FEWEST_ROWS and length >= _SHORTEST
