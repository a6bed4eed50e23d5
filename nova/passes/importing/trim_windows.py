"""`trim-windows`: input that the only window along an axis does not read is cut off."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.bindings import ir
from nova.ir.linalg.generic import Access, GenericOp, shape_of
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass
from nova.passes.importing.convert_tensor_to_linalg import slice_front

WINDOWED = ("window", "convolution", "select_and_scatter", "tosa.", "linalg.", "affine_map")
"""Texts of programs whose ops may read windows; see `Pass.only_with`."""


@record
class TrimWindows(Pass):
    """Slice the inputs of windowed ops whose access becomes the identity without unit loops.

    A max pool 4/4 of 7 elements reads `x[4 * i + k]` with one `i`. linalg-fold-unit-extent-dims
    drops `i`, and `x[k]` would make all 7 elements the extent of `k`, which is 4. Named ops must
    have been generalized.
    """

    name: ClassVar[str] = "trim-windows"
    only_with: ClassVar[tuple[str, ...]] = WINDOWED

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            generic = GenericOp(op)
            try:
                if all(None not in access.row_dims for access in generic.accesses):
                    continue  # no window: each index is a loop, whose extent is that of the input
                sizes, accesses = generic.sizes, generic.accesses
            except LoweringError:  # refused, with its location, after all passes
                continue
            for number in range(generic.num_inputs):
                source = op.operands[number]
                shape = _read_shape(shape_of(source), accesses[number], sizes)
                if shape != list(shape_of(source)):
                    with ir.InsertionPoint(op), op.location:
                        op.operands[number] = slice_front(source, shape)


def _read_shape(shape: tuple[int, ...], access: Access, sizes: tuple[int, ...]) -> list[int]:
    return [
        _identity_extent(row, constant, sizes) or extent
        for extent, row, constant in zip(shape, access.coefficients, access.constants, strict=True)
    ]


def _identity_extent(row: tuple[int, ...], constant: int, sizes: tuple[int, ...]) -> int | None:
    """The extent of the loop that an index equals once unit loops are dropped, or None."""
    loops: list[Any] = [d for d, factor in enumerate(row) if factor and sizes[d] != 1]
    if constant != 0 or len(loops) != 1 or row[loops[0]] != 1:
        return None
    return sizes[loops[0]]
