"""Global memory of the simulated GPU: allocations for kernels, with inaccessible gaps between them.

Each allocation is separate host memory, with a state byte for each of its bytes: a read of
uninitialized memory is an error, as in `compute-sanitizer --tool initcheck`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nova.errors import SimulationError
from nova.gpusim.records import RANGE

ALIGNMENT = 256
"""Alignment of every allocation; also the minimum gap before and after it."""


@dataclass(frozen=True)
class _Block:
    data: np.ndarray[Any, Any]
    state: np.ndarray[Any, Any] | None
    read_only: bool

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)


def _address(array: np.ndarray[Any, Any] | None) -> int:
    return 0 if array is None else int(array.ctypes.data)


class SimMemory:
    """Allocations by address. Not thread-safe."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._ranges: np.ndarray[Any, Any] | None = None

    def alloc(self, nbytes: int) -> int:
        """The address of `nbytes` of uninitialized memory."""
        padded = np.full(nbytes + 3 * ALIGNMENT, 0xA5, np.uint8)
        start = ALIGNMENT + -padded.ctypes.data % ALIGNMENT
        return self._add(_Block(padded[start : start + nbytes], np.zeros(nbytes, np.uint8), False))

    def put(self, array: np.ndarray[Any, Any]) -> int:
        """The address of a copy of an array."""
        address = self.alloc(array.nbytes)
        self.write(address, np.ascontiguousarray(array).tobytes())
        return address

    def share(self, array: np.ndarray[Any, Any], *, read_only: bool = False) -> int:
        """The address of an array itself: kernels read and write it in place."""
        if not array.flags.c_contiguous or not (read_only or array.flags.writeable):
            raise SimulationError("only a contiguous array that can be written can be shared")
        return self._add(_Block(array.reshape(-1).view(np.uint8), None, read_only))

    def free(self, address: int) -> None:
        if self._blocks.pop(address, None) is None:
            raise SimulationError(f"there is no allocation at {address:#x}")
        self._ranges = None

    def write(self, address: int, data: bytes) -> None:
        block, offset = self._find(address, len(data))
        block.data[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        if block.state is not None:
            block.state[offset : offset + len(data)] = 1

    def read(self, address: int, nbytes: int) -> bytes:
        block, offset = self._find(address, nbytes)
        return block.data[offset : offset + nbytes].tobytes()

    def array(self, address: int, shape: tuple[int, ...] | int, dtype: Any) -> Any:
        """A copy of the data at an address."""
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(self.read(address, nbytes), dtype).reshape(shape).copy()

    @property
    def ranges(self) -> np.ndarray[Any, Any]:
        """Records for the simulator, sorted by address."""
        if self._ranges is None:
            rows = [
                (b.address, b.data.size, _address(b.state), b.read_only, 0, 0, 0)
                for b in sorted(self._blocks.values(), key=lambda b: b.address)
            ]
            self._ranges = np.array(rows, RANGE)
        return self._ranges

    def describe(self, address: int) -> str:
        """The location of an address relative to the nearest allocation."""
        nearest, away = None, 0
        for block in self._blocks.values():
            start, end = block.address, block.address + block.data.size
            distance = max(start - address, address - end + 1, 0)
            if nearest is None or distance < away:
                nearest, away = block, distance
        if nearest is None:
            return "nothing is allocated"
        size = f"an allocation of {nearest.data.size} bytes"
        offset = address - nearest.address
        if offset < 0:
            return f"{-offset} bytes in front of {size}"
        if offset >= nearest.data.size:
            return f"{offset - nearest.data.size} bytes after the end of {size}"
        return f"byte {offset} of {size}"

    def _add(self, block: _Block) -> int:
        self._blocks[block.address] = block
        self._ranges = None
        return block.address

    def _find(self, address: int, nbytes: int) -> tuple[_Block, int]:
        for start, block in self._blocks.items():
            if start <= address and address + nbytes <= start + block.data.size:
                return block, address - start
        raise SimulationError(f"{nbytes} bytes at {address:#x}: {self.describe(address)}")
