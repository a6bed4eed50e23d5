"""Rows of quantized weights: matmuls and expansion of packed blocks (GGUF's formats).

`quantized_matmul` reads the packed bytes in its inner loop: a matvec moves as many bytes as the
file has. Many rows of x would decode each block again for every row; the expansion then decodes the
matrix once, into the workspace of the run, for one GEMM.
"""

from __future__ import annotations

from math import prod
from string import ascii_lowercase
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, f32, u8
from nova.core.sizes import is_static_shape
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.loops.block_formats import FORMATS, BlockFormat
from nova.ops.rules import Types
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]

# Up to this many rows of x are multiplied from the packed blocks.
FEW_ROWS = 8


def _canon(ins: Types, attrs: Attrs) -> Attrs:
    name = attrs["format"]
    if name not in FORMATS:
        raise AttributeValueError(f"format {name!r}", hint=f"one of {', '.join(FORMATS)}")
    return {"format": name}


def _columns(blocks: TensorType, layout: BlockFormat) -> int:
    """The elements of a row of packed blocks."""
    if blocks.dtype is not u8:
        raise DTypeError(f"blocks of {blocks.dtype}", hint="packed blocks are bytes: u8")
    if blocks.rank != 2 or not is_static_shape(blocks.shape) or blocks.shape[1] % layout.nbytes:
        raise ShapeError(
            f"blocks {blocks.shape}",
            hint=f"a row of {layout.name} is a number of blocks of {layout.nbytes} bytes",
        )
    return int(blocks.shape[1]) // layout.nbytes * layout.size


def _dequantize_type(ins: Types, attrs: Attrs) -> TensorType:
    columns = _columns(ins[0], FORMATS[attrs["format"]])
    return TensorType((ins[0].shape[0], columns), f32)


def _dequantize_numpy(blocks: np.ndarray, *, format: str) -> np.ndarray:
    layout = FORMATS[format]
    flat = np.ascontiguousarray(blocks).reshape(-1, layout.nbytes)
    count = blocks.shape[1] // layout.nbytes * layout.size
    return layout.decode(flat).reshape(blocks.shape[0], count)


def _dequantize_lower(b: Any, out: TensorType, blocks: Any, *, format: str) -> Any:
    if out.is_empty:
        return b.empty(out)
    return b.reshape(out, b.decode_blocks(blocks, FORMATS[format]))


def _matmul_type(ins: Types, attrs: Attrs) -> TensorType:
    x, blocks = ins
    columns = _columns(blocks, FORMATS[attrs["format"]])
    if not x.rank or x.shape[-1] != columns:
        raise ShapeError(
            f"x {x.shape} with blocks of {columns} elements a row",
            hint="the last axis of x has one number for each element of a row",
        )
    return x.with_shape((*x.shape[:-1], blocks.shape[0]))


def _matmul_cast(types: tuple[DType, ...]) -> tuple[DType, ...]:
    return f32, types[1]


def _matmul_numpy(x: np.ndarray, blocks: np.ndarray, *, format: str) -> np.ndarray:
    return np.asarray(x @ _dequantize_numpy(blocks, format=format).T)


def _matmul_lower(b: Any, out: TensorType, x: Any, blocks: Any, *, format: str) -> Any:
    layout = FORMATS[format]
    rows = prod(x.shape[:-1]) if is_static_shape(x.shape) else None
    if out.is_empty or not x.shape[-1]:
        return b.empty(out) if out.is_empty else b.fill(out, 0)
    if rows is not None and rows <= FEW_ROWS:
        flat = b.reshaped(x, (rows, x.shape[-1]))
        columns = blocks.shape[0]
        product = b.block_matvec(TensorType((rows, columns), f32), flat, blocks, layout)
        return b.reshape(out, b.operand(product, TensorType((rows, columns), f32)))
    weight = b.reshaped(b.decode_blocks(blocks, layout), (blocks.shape[0], x.shape[-1]))
    lead = ascii_lowercase[: len(x.shape) - 1]
    return b.contract(out, x, weight, f"{lead}y,zy->{lead}z")


ROWS: tuple[Op, ...] = (
    Op(
        "dequantize",
        "The numbers of packed blocks (GGUF's q8_0, q4_0, q4_k, q6_k), in f32: (rows, bytes) of u8 "
        "to (rows, elements).",
        operands=("blocks",),
        attrs={"format": REQUIRED},
        canon=_canon,
        infer=_dequantize_type,
        numpy=_dequantize_numpy,
        lower=_dequantize_lower,
        tags=frozenset({"nograd"}),
        domain="blocks",
    ),
    Op(
        "quantized_matmul",
        "x @ dequantize(blocks).T: a linear layer whose weight is packed in blocks. Up to "
        f"{FEW_ROWS} rows of x are computed from the packed blocks.",
        operands=("x", "blocks"),
        attrs={"format": REQUIRED},
        cast=_matmul_cast,
        canon=_canon,
        infer=_matmul_type,
        numpy=_matmul_numpy,
        lower=_matmul_lower,
        tags=frozenset({"nograd"}),
        domain=("real", "blocks"),
    ),
)


def register_rows() -> None:
    register(*ROWS)
