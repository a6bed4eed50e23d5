"""Arrays that end where readable memory ends: a read or a write past them is a crash."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_AREAS: list[mmap.mmap] = []


def guarded(values: np.ndarray) -> np.ndarray:
    """A copy that ends where readable memory ends."""
    size = -(-max(values.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(-1, size + mmap.PAGESIZE)
    _AREAS.append(area)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(start + size), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    flat = np.frombuffer(area, values.dtype, values.size, offset=size - values.nbytes)
    array = flat.reshape(values.shape)
    array[...] = values
    return array
