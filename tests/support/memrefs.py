"""MLIR memref descriptors over numpy arrays, and calls of `_mlir_ciface_main` by ctypes.

A descriptor is built as plain 64-bit words: allocated, aligned, offset, sizes, strides.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

LIBC = ctypes.CDLL(None)
LIBC.free.argtypes = [ctypes.c_void_p]


class Error(ctypes.Structure):
    """nova_error of native/include/nova/error.h."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("check", ctypes.c_char * 40),
        ("text", ctypes.c_char * 472),
    )


class Entry:
    """`_mlir_ciface_main` of a file; each has a copy of the runtime and its state of its own."""

    def __init__(self, path: Path):
        self.library = ctypes.CDLL(str(path))
        self._main = self.library._mlir_ciface_main
        self._main.restype = None

    def __call__(
        self, arrays: Sequence[np.ndarray | None], results: Sequence[tuple[int, np.dtype]]
    ) -> list[np.ndarray]:
        """Call with arrays as they lie in memory; results (rank, dtype) come back as copies.

        RuntimeError, with the text of the file's nova_last_error, when the call failed.
        """
        words = [describe(a) if a is not None else None for a in arrays]
        count = sum(3 + 2 * rank for rank, _ in results)
        # Anything but zero, to see what a failed call leaves.
        location = (ctypes.c_int64 * max(count, 1))(*[-1] * count)
        pointers = [None if w is None else ctypes.byref(w) for w in words]
        self._main(*([ctypes.byref(location)] if results else []), *pointers)
        result, at = [], 0
        for rank, dtype in results:
            result.append((location[at : at + 3 + 2 * rank], dtype))
            at += 3 + 2 * rank
        error = Error()
        if self.library.nova_last_error(ctypes.byref(error)) != 0:
            assert not any(location), "a failed call leaves no result"
            raise RuntimeError(error.text.decode())
        return [take(descriptor, dtype) for descriptor, dtype in result]


def describe(array: np.ndarray) -> ctypes.Array[ctypes.c_int64]:
    """The descriptor of an array that need be neither dense nor aligned."""
    strides = [step // array.itemsize for step in array.strides]
    data = array.ctypes.data
    words = [data, data, 0, *array.shape, *strides]
    return (ctypes.c_int64 * len(words))(*words)


def take(descriptor: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """A copy of a result, whose memory is freed."""
    allocated, aligned, offset, *remaining = descriptor
    shape, strides = remaining[: len(remaining) // 2], remaining[len(remaining) // 2 :]
    assert allocated and aligned % 64 == 0 and offset == 0
    nbytes = int(np.prod(shape)) * dtype.itemsize
    copy = np.frombuffer(ctypes.string_at(aligned, nbytes), dtype).reshape(shape)
    dense = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    assert strides == dense
    LIBC.free(allocated)
    return copy
