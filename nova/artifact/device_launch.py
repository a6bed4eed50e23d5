"""The launches of kernels of a device: their shape, tensor maps and flags, and their encoding.

`tables.py` packs and unpacks them as parts of a block of tables; docs/nova-format.md documents the
fields.
"""

from __future__ import annotations

from struct import Struct

from nova.artifact.check import fail
from nova.core.records import record

DEVICE = Struct("<8I")
TENSOR_MAP = Struct("<4IQ5Q4Q5I4x")
MATRIX_CORES = 0x800
"""Flag in the core number of a kernel of a device: its code has matrix instructions."""
DEPENDENT = 0x1000
"""Flag in the core number of a kernel of a device: it waits by itself for the launches before it
(programmatic dependent launch)."""


@record
class TensorMapSpec:
    """A tensor in an operand of a launch, which the kernel gets as an encoded tensor map.

    `operand` is the number of the operand, `offset` and `strides` are in bytes, `element` is the
    driver's number of the element type. Dimensions are from the innermost to the outermost, and
    `strides` those of all but the innermost.
    """

    operand: int
    offset: int
    element: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


@record
class DeviceLaunch:
    """The launch of a kernel of core `device`; `shared` is dynamic shared memory, in bytes.

    `core` is `matrix` where the code has matrix instructions. With `dependent`, the kernel waits by
    itself for the launches before it: it may start before they end.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    tensor_maps: tuple[TensorMapSpec, ...] = ()
    core: str = "vector"
    dependent: bool = False

    @property
    def flags(self) -> int:
        """The flags of the core number."""
        return (MATRIX_CORES if self.core == "matrix" else 0) | (DEPENDENT if self.dependent else 0)


def pack_device(device: DeviceLaunch | None) -> bytes:
    """The row of a kernel; zeros for one that is not code of a device."""
    if device is None:
        return bytes(DEVICE.size)
    blocks, *grid = device.grid
    if blocks >= 1 << 32:  # a placeholder: it takes the place of the next number, which is 1
        blocks, grid[0] = blocks % (1 << 32), blocks >> 32
    return DEVICE.pack(blocks, *grid, *device.block, device.shared, len(device.tensor_maps))


def pack_tensor_maps(device: DeviceLaunch | None) -> bytes:
    """The tensor maps of a kernel, which follow the rows of all kernels."""
    return b"".join(
        TENSOR_MAP.pack(
            tensor.operand,
            tensor.element,
            len(tensor.dims),
            0,
            tensor.offset,
            *_padded(tensor.dims, 5),
            *_padded(tensor.strides, 4),
            *_padded(tensor.box, 5),
        )
        for tensor in (() if device is None else device.tensor_maps)
    )


def _padded(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    return numbers + (0,) * (count - len(numbers))


def read_tensor_map(row: tuple[int, ...]) -> TensorMapSpec:
    """Decode one tensor map."""
    operand, element, rank, _, offset, *numbers = row
    if not 1 <= rank <= 5:
        fail("tables-tensor-map", f"a tensor map of {rank} dimensions")
    dims, strides, box = numbers[:5], numbers[5:9], numbers[9:]
    return TensorMapSpec(
        operand,
        offset,
        element,
        tuple(dims[:rank]),
        tuple(strides[: rank - 1]),
        tuple(box[:rank]),
    )
