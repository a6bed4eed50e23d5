"""Tensor maps: how the copy engine of a device (TMA) sees a buffer, as rows of integers.

A strategy of code generation describes its maps by `TensorMap`s, the attribute `nova.tensor_maps`
of a kernel has them as rows, and the tables of a file as records. The runtime encodes them with
the addresses of a run, and passes each as a parameter after the pointers of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from nova.core.sizes import is_multiple, known_less
from nova.ir.symbolic.size_table import Extent, representative

# The driver's numbers of element types (CUtensorMapDataType).
ELEMENTS = {
    **dict.fromkeys(("i8", "f8E4M3FN", "f8E5M2"), 0),
    "f16": 6,
    "f32": 7,
    "bf16": 9,
    "tf32": 11,
}
_BYTES = {0: 1, 6: 2, 7: 4, 9: 2, 11: 4}

MOST_RANK = 5
MOST_BOX = 256
ALIGNMENT = 16
"""Of addresses and strides, in bytes."""


@dataclass(frozen=True)
class TensorMap:
    """Boxes of a tensor in a buffer: dimensions from the innermost, which is contiguous, to the
    outermost.

    `argument` is the number of the buffer among the arguments of the kernel, `offset` that of the
    first element in bytes, `strides` those of all dimensions but the innermost, in bytes.
    """

    argument: int
    offset: int
    element: str
    dims: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    box: tuple[int, ...]

    @property
    def box_bytes(self) -> int:
        return prod(self.box) * _BYTES[ELEMENTS[self.element]]

    def row(self) -> tuple[int, ...]:
        """The map as integers: symbolic sizes are their representatives."""
        code, rank = ELEMENTS[self.element], len(self.dims)
        sizes = map(representative, (*self.dims, *self.strides))
        return self.argument, self.offset, code, rank, *sizes, *self.box


@dataclass(frozen=True)
class TensorMapRow:
    """A row of the attribute, by field; `element` is the driver's number."""

    argument: int
    offset: int
    element: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


def parse_row(row: tuple[int, ...]) -> TensorMapRow:
    """The fields of a row; ValueError if it is not one."""
    if len(row) < 4 or not 1 <= row[3] <= MOST_RANK or len(row) != 3 + 3 * row[3]:
        raise ValueError(f"{row} is not a tensor map")
    argument, offset, element, rank, *numbers = row
    strides, box = numbers[rank : 2 * rank - 1], numbers[2 * rank - 1 :]
    return TensorMapRow(
        argument, offset, element, tuple(numbers[:rank]), tuple(strides), tuple(box)
    )


def can_map(size: int, offset: Extent, strides: tuple[Extent, ...]) -> bool:
    """Whether a map can describe a tensor with these offset and strides, in elements of `size`."""
    if not isinstance(offset, int) or not all(known_less(0, stride) for stride in strides):
        return False
    return all(is_multiple(value * size, ALIGNMENT) for value in (offset, *strides))
