"""Structured ops that read packed blocks: one `linalg.generic` whose operands are bytes.

In: an operand of bytes and its format. Every byte that encodes an element is an operand of the
loops with an affine access, so the vectorizer sees loads of stride 1 (the packed numbers) and of
stride 0 (the scales of a block, which are decoded once for all lanes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.dtypes import TensorType, f32, i32
from nova.ir.bindings import ir
from nova.ir.linalg.scalar import Body, Scalar
from nova.ir.types import tensor_type


class BlockBuilder:
    """The part of the linalg builder for quantized weights."""

    def decode_blocks(self, blocks: Any, layout: Any) -> Any:
        """(rows, blocks, *inner axes) f32 numbers; the inner axes are those of the format."""
        rows, count = blocks.shape[0], blocks.shape[1] // layout.nbytes
        shape = (rows, count, *layout.axes)
        dims = [ir.AffineDimExpr.get(i) for i in range(len(shape))]
        maps = [_bytes_map(dims, dims[0], dims[1], layout, o) for o in layout.offsets(dims[2:])]
        maps.append(ir.AffineMap.get_identity(len(shape)))
        out = TensorType(shape, f32)

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            return [_value(s, args[:-1], blocks.dtype, layout, 2).value]

        value = self._generic_op(
            [tensor_type(out)],
            [blocks.value] * (len(maps) - 1),
            [self.empty(out)],
            maps,
            ["parallel"] * len(shape),
            emit,
        )[0]
        # Each inner axis is more significant than the next one, so a reshape joins them.
        return self.operand(value, out)

    def block_matvec(self, out: TensorType, x: Any, blocks: Any, layout: Any) -> Any:
        """out[m, n] = sum of x[m, k] * number[n, k], decoded in the loop."""
        count = blocks.shape[1] // layout.nbytes
        rank = 3 + len(layout.axes)
        dims = [ir.AffineDimExpr.get(i) for i in range(rank)]
        m, n, block, *inner = dims
        extent = self.empty(TensorType((count, *layout.axes), f32))
        maps = [
            ir.AffineMap.get(rank, 0, [block, *inner]),
            ir.AffineMap.get(rank, 0, [m, block * layout.size + layout.element(inner)]),
            *(_bytes_map(dims, n, block, layout, o) for o in layout.offsets(inner)),
            ir.AffineMap.get(rank, 0, [m, n]),
        ]

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            _, element, *packed, total = args
            number = _value(s, packed, blocks.dtype, layout, 3)
            return [(Scalar(total, f32, s) + Scalar(element, f32, s) * number).value]

        return self._generic_op(
            [tensor_type(out)],
            [extent, x.value, *([blocks.value] * (len(maps) - 3))],
            [self.fill(out, 0)],
            maps,
            ["parallel"] * 2 + ["reduction"] * (rank - 2),
            emit,
        )[0]

    def operand(self, value: Any, type_: TensorType) -> Any:
        raise NotImplementedError  # the linalg builder has it

    def empty(self, type_: TensorType) -> Any:
        raise NotImplementedError

    def fill(self, type_: TensorType, value: Any) -> Any:
        raise NotImplementedError

    def _generic_op(self, *args: Any) -> Any:
        raise NotImplementedError


def _bytes_map(dims: list[Any], row: Any, block: Any, layout: Any, offset: Any) -> Any:
    return ir.AffineMap.get(len(dims), 0, [row, block * layout.nbytes + offset])


def _value(s: Body, packed: Sequence[Any], dtype: Any, layout: Any, first: int) -> Scalar:
    """The number that bytes encode; the inner indices of the format begin at loop `first`."""
    numbers = [s.cast(Scalar(byte, dtype, s), i32) for byte in packed]
    at = [s.cast(s.index(first + i), i32) for i in range(len(layout.axes))]
    value: Scalar = layout.value(s, numbers, at)
    return value
