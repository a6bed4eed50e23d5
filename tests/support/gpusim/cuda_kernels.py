"""PTX on a real GPU, with the same calls as the simulator's: `CudaModule` and `CudaMemory`.

For `pytest tests/gpusim --on-gpu`, which asks the device whether the tests of the simulator are
right. Over the driver alone, by ctypes.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np

from nova.gpusim.tensor_map import TENSOR_DTYPES

_BUFFER_POINTER, _BUFFER_SIZE, _END = c_void_p(1), c_void_p(2), c_void_p(0)
_MAX_DYNAMIC_SHARED = 8
_ERROR_LOG, _ERROR_LOG_BYTES, _LOG_BYTES = 5, 6, 1 << 12
"""Options of the driver's JIT compiler: a buffer for its errors, and the bytes of it."""


_STICKY = range(700, 720)
"""Faults of kernels, after which a process cannot use the device."""


@cache
def _driver() -> ctypes.CDLL:
    """The driver, with a context of the first device that is current in this thread."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = c_int(), c_void_p()
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(byref(device), 0),
        cuda.cuDevicePrimaryCtxRetain(byref(context), device),
        cuda.cuCtxSetCurrent(context),
    ):
        assert status == 0, f"the driver says {status}"
    return cuda


def _check(status: int) -> None:
    if status:
        text = c_char_p()
        _driver().cuGetErrorString(c_int(status), byref(text))
        message = f"{status}: {(text.value or b'?').decode()}"
        if status in _STICKY and "PYTEST_XDIST_WORKER" in os.environ:
            # The test fails as that of a crashed worker; the others run in a new one.
            os.write(2, f"{message}\n".encode())
            os._exit(1)
        raise RuntimeError(message)


class CudaMemory:
    """Memory of the device; freed with the object."""

    def __init__(self) -> None:
        self._blocks: list[int] = []

    def alloc(self, nbytes: int) -> int:
        address = c_uint64()
        _check(_driver().cuMemAlloc_v2(byref(address), c_size_t(max(nbytes, 1))))
        self._blocks.append(address.value)
        return address.value

    def put(self, array: np.ndarray[Any, Any]) -> int:
        data = np.ascontiguousarray(array)
        address = self.alloc(data.nbytes)
        self.write(address, data.tobytes())
        return address

    def write(self, address: int, data: bytes) -> None:
        if data:
            _check(_driver().cuMemcpyHtoD_v2(c_uint64(address), data, c_size_t(len(data))))

    def read(self, address: int, nbytes: int) -> bytes:
        data = ctypes.create_string_buffer(max(nbytes, 1))
        _check(_driver().cuMemcpyDtoH_v2(data, c_uint64(address), c_size_t(nbytes)))
        return data.raw[:nbytes]

    def array(self, address: int, shape: tuple[int, ...] | int, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(self.read(address, nbytes), dtype).reshape(shape).copy()

    def __del__(self) -> None:
        for address in self._blocks:
            _driver().cuMemFree_v2(c_uint64(address))


def cuda_tensor_map(
    address: int,
    dtype: str,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    element_strides: Sequence[int] | None = None,
    swizzle: int = 0,
    fill_nan: bool = False,
) -> bytes:
    """The driver's `nova.gpusim.tensor_map`."""
    rank = len(dims)
    steps = element_strides or [1] * rank
    room = ctypes.create_string_buffer(192)
    start = -ctypes.addressof(room) % 64
    _check(
        _driver().cuTensorMapEncodeTiled(
            c_void_p(ctypes.addressof(room) + start),
            c_int(TENSOR_DTYPES.index(dtype)),
            c_uint(rank),
            c_void_p(address),
            (c_uint64 * rank)(*dims),
            (c_uint64 * rank)(*strides, 0),
            (c_uint * rank)(*box),
            (c_uint * rank)(*steps),
            c_int(0),
            c_int((0, 32, 64, 128).index(swizzle)),
            c_int(0),
            c_int(int(fill_nan)),
        )
    )
    return room.raw[start : start + 128]


def _map_offsets(text: str, name: str) -> list[int]:
    """The offsets of all parameters of a kernel that takes tensor maps; empty for another."""
    entry = re.search(rf"\.entry {re.escape(name)}\s*\(([^)]*)\)", text)
    parameters = entry.group(1).split(",") if entry else []
    if not any(".align 64" in parameter for parameter in parameters):
        return []
    offsets, end = [], 0
    for parameter in parameters:
        is_map = ".align 64" in parameter
        start = end + (-end % 64 if is_map else 0)
        offsets.append(start)
        end = start + (128 if is_map else 8)
    return offsets


class CudaModule:
    """The kernels of a PTX text, compiled by the driver."""

    def __init__(self, text: str):
        self._module = c_void_p()
        self._text = text
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        status = _driver().cuModuleLoadDataEx(
            byref(self._module), c_char_p(text.encode()), c_uint(2), options, values
        )
        if status:
            raise RuntimeError(f"the driver refuses the PTX ({status}): {log.value.decode()}")

    def launch(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: bytes,
        memory: CudaMemory,
        cooperative: bool = False,
        **unused: Any,
    ) -> int:
        cuda, function = _driver(), c_void_p()
        _check(cuda.cuModuleGetFunction(byref(function), self._module, c_char_p(name.encode())))
        if shared_bytes:
            _check(cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, c_int(shared_bytes)))
        data, size = (
            ctypes.create_string_buffer(arguments, len(arguments)),
            c_size_t(len(arguments)),
        )
        each = extra = None
        start = ctypes.addressof(data)
        if offsets := _map_offsets(self._text, name):
            # The driver refuses a buffer with tensor maps in it (error 701), and takes pointers.
            each = (c_void_p * len(offsets))(*(start + offset for offset in offsets))
        else:
            extra = (c_void_p * 5)(
                _BUFFER_POINTER, start, _BUFFER_SIZE, ctypes.addressof(size), _END
            )
        sizes = [c_uint(n) for n in ((*grid, 1, 1)[:3] + (*block, 1, 1)[:3])]
        launch = (function, *sizes, c_uint(shared_bytes), None)
        if cooperative:  # the parameters are pointers
            each = (c_void_p * (len(arguments) // 8))(*range(start, start + len(arguments), 8))
            _check(cuda.cuLaunchCooperativeKernel(*launch, each))
        else:
            _check(cuda.cuLaunchKernel(*launch, each, extra))
        _check(cuda.cuCtxSynchronize())
        return 0

    def __del__(self) -> None:
        if self._module:
            _driver().cuModuleUnload(self._module)
