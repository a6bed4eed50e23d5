"""Rows of ATen ops: importing this package fills the table."""

from nova.frontends.torch.rows import (
    attention,
    convolution,
    creation,
    indexing,
    matmul,
    normalization,
    ordering,
    pointwise,
    pooling,
    randomness,
    reductions,
    scatter,
    strided,
    views,
)
from nova.frontends.torch.rows.table import ROWS, Row

__all__ = [
    "ROWS",
    "Row",
    "attention",
    "convolution",
    "creation",
    "indexing",
    "matmul",
    "normalization",
    "ordering",
    "pointwise",
    "pooling",
    "randomness",
    "reductions",
    "scatter",
    "strided",
    "views",
]
