"""Rows of ONNX ops, a module per family. `load_rows` fills the table."""

from __future__ import annotations

from functools import cache
from importlib import import_module

FAMILIES = (
    "math",
    "activations",
    "shapes",
    "indexing",
    "scatter",
    "reductions",
    "convolution",
    "pooling",
    "attention",
    "normalization",
    "quantized",
    "narrow",
    "recurrent",
    "resize",
    "sampling",
    "signal",
    "control",
    "sequences",
)


@cache
def load_rows() -> None:
    """Import every family once, which registers its rows."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
    for family in ("random", "losses", "training", "classical", "trees", "ngrams", "refused"):
        import_module(f"nova.frontends.onnx.domains.{family}")
