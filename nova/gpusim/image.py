"""PTX in the format of the simulator's driver: decoded once, when a program is loaded for `sim`.

In: the text of a device image. Out: the bytes of the structs `image_header` and `image_row` of
native/src/gpusim/driver/driver_code.c, and the data that they point to. `fault_of` describes
errors of the driver.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from nova.errors import PtxError, SimulationError
from nova.gpusim.decode import Decoded
from nova.gpusim.faults import fault_error, read_fault
from nova.gpusim.memory import SimMemory
from nova.gpusim.module import SimModule

_MAGIC = b"NOVASIM2"
_HEADER = Struct("<8sQQQQ")
_ROW = Struct("<7Q12I")


def decode_image(text: str, schedule: int = 0) -> bytes:
    """The code of a PTX text for launches with a `schedule`; PtxError for unknown constructs."""
    module = SimModule(text)
    if module.addresses:
        raise PtxError(
            f"the PTX has global variables ({', '.join(sorted(module.addresses))}), and programs "
            "of Nova have all of their memory in buffers"
        )
    body = _Body(_HEADER.size + _ROW.size * len(module.kernels))
    rows = [_row(kernel, body) for kernel in module.kernels.values()]
    source = text.encode()
    header = _HEADER.pack(_MAGIC, len(rows), body.add(source), len(source), schedule)
    return b"".join([header, *rows, *body.pieces])


def _row(kernel: Decoded, body: _Body) -> bytes:
    return _ROW.pack(
        body.add(kernel.name.encode() + b"\0"),
        body.add(kernel.code.tobytes()),
        len(kernel.code),
        body.add(kernel.operands.tobytes()),
        len(kernel.operands),
        body.add(kernel.constants.tobytes()),
        len(kernel.constants),
        kernel.register_words,
        kernel.shared_bytes,
        kernel.local_bytes,
        kernel.param_bytes,
        kernel.most_threads or 0,
        *(kernel.required or (0, 0, 0)),
        kernel.thread_registers,
        *(kernel.cluster or (0, 0, 0)),
    )


class _Body:
    """Data after the rows, each piece aligned to 8 bytes."""

    def __init__(self, start: int):
        self.pieces: list[bytes] = [bytes(-start % 8)]
        self._end = start + -start % 8

    def add(self, data: bytes) -> int:
        offset = self._end
        padded = data + bytes(-len(data) % 8)
        self.pieces.append(padded)
        self._end += len(padded)
        return offset


class _Operand(SimMemory):
    """The operand that is nearest to the faulting address of a kernel."""

    def __init__(self, start: int, size: int):
        super().__init__()
        self._start, self._size = start, size

    def describe(self, address: int) -> str:
        """The location of an address relative to the operand."""
        if not self._size:
            return "the kernel has no buffers"
        offset = address - self._start
        buffer = f"a buffer of {self._size} bytes"
        if offset < 0:
            return f"{-offset} bytes in front of {buffer}"
        if offset >= self._size:
            return f"{offset - self._size} bytes after the end of {buffer}"
        return f"byte {offset} of {buffer}"


def fault_of(fault: tuple[str, str, tuple[int, int], tuple[Any, ...]]) -> SimulationError:
    """The error for the result of `Driver.last_fault`."""
    kernel, line, nearest, record = fault
    lines = [""] * (record[1] - 1) + [line]
    return fault_error(read_fault(record, kernel, lines), _Operand(*nearest))
