"""A bundle of cubins: the device image of a large program, which was assembled in parts.

The driver compiles the PTX of one module after another, in whatever thread it is called; `ptxas`
processes compile parts concurrently. Layout, little-endian, all offsets from the start: the magic,
the counts of modules and kernels (u32), a row for each module (u64 offset and size of its cubin), a
row for each kernel (u32 number of its module and offset of its name), the names, each with a NUL at
its end, and the cubins. `native/src/gpu/cuda/cuda_modules.c` loads it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

MAGIC = b"NOVACUB1"
_ALIGNMENT = 16
_COUNTS = struct.Struct("<8sII")
_MODULE = struct.Struct("<QQ")
_KERNEL = struct.Struct("<II")


def pack_cubins(cubins: Sequence[bytes], kernels: Sequence[Sequence[str]]) -> bytes:
    """A bundle of cubins, with the names of the kernels of each."""
    rows = [(number, name) for number, names in enumerate(kernels) for name in names]
    names_at = _COUNTS.size + _MODULE.size * len(cubins) + _KERNEL.size * len(rows)
    names = bytearray()
    kernel_rows = []
    for number, name in rows:
        kernel_rows.append(_KERNEL.pack(number, names_at + len(names)))
        names += name.encode() + b"\0"
    offset = _align(names_at + len(names))
    names += bytes(offset - names_at - len(names))
    module_rows, body = [], bytearray()
    for cubin in cubins:
        module_rows.append(_MODULE.pack(offset + len(body), len(cubin)))
        body += cubin + bytes(_align(len(cubin)) - len(cubin))
    counts = _COUNTS.pack(MAGIC, len(cubins), len(rows))
    return b"".join((counts, *module_rows, *kernel_rows, names, body))


def _align(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
