"""Devices by name: `cuda`, `cuda:1` are GPUs of this machine; `sim`, `sim:1` are simulated.

`open_device` is called when a program is loaded for a device and returns the native device, one per
name for the life of the process: its context, memory pool and streams are shared. Driver errors
become Nova errors here. Needs neither MLIR nor LLVM.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from nova import _native
from nova.core.dlpack import as_numpy
from nova.core.dtypes import array_dtype
from nova.core.user_facing import user_facing
from nova.errors import (
    DeviceArchitectureError,
    DeviceCallError,
    DeviceError,
    DeviceFaultError,
    DeviceMemoryError,
    DriverMissingError,
    NovaError,
    PtxError,
    TaskError,
)

DeviceArray = _native.DeviceArray
_NAME = re.compile(r"(cuda|sim)(?::([0-9]{1,4}))?")
_NAMES = "devices are cpu, cuda, cuda:1, ... and sim, sim:1, ..."

_drivers: dict[str, _native.Driver] = {}
_opened: dict[str, _native.Device] = {}
_lock = threading.Lock()


def open_device(name: str) -> _native.Device:
    """Open the device called `name`; a Nova error if it does not exist."""
    name = _canonical(name)
    if name == "cpu":
        raise DeviceError(
            "the CPU has no memory of its own to move arrays to",
            hint="arrays of the host are used as they are; others are cuda, cuda:1, ... and sim",
        )
    with _lock:
        if name not in _opened:
            driver_name, _, number = name.partition(":")
            if driver_name not in _drivers:
                _drivers[driver_name] = (
                    _native.Driver.sim() if driver_name == "sim" else open_cuda()
                )
            try:
                _opened[name] = make_device(_drivers[driver_name], int(number or 0))
            except DriverMissingError as error:
                if driver_name != "sim":
                    raise
                hint = "simulated devices are sim, sim:1, sim:2 and sim:3"
                raise DriverMissingError(error.what, hint=hint) from None
        return _opened[name]


def explain_absent(error: NovaError) -> NovaError:
    """The error about a missing device, for a compile that names none."""
    if not isinstance(error, DriverMissingError):
        return error
    return DriverMissingError(error.what, where=error.where, hint=_WITHOUT_DEVICE)


def make_device(driver: _native.Driver, ordinal: int) -> _native.Device:
    """A device of a driver, with its own pool; `open_device` keeps one for each name."""

    def report(status: int, text: str) -> NovaError:
        fault = driver.last_fault(ordinal) if status == _native.SIMULATED_FAULT else None
        if fault is None:
            return device_error(status, text)
        from nova.gpusim.image import fault_of  # only for errors

        return fault_of(fault)

    return _native.Device(driver, ordinal, report)


@user_facing
def to_device(array: Any, device: str = "cuda") -> DeviceArray:
    """Copy an array to the memory of a device, for runs without further copies.

    Results of such runs are on the device, too; `.numpy()` copies them back, and other libraries
    take them through DLPack or `__cuda_array_interface__`.
    """
    dense = np.asarray(as_numpy(array, "the array"), order="C")
    element_type = array_dtype(dense.dtype.newbyteorder("=")).numpy
    return DeviceArray.of(open_device(device), dense.astype(element_type, copy=False))


def open_cuda(path: str | None = None) -> _native.Driver:
    """The CUDA driver of this machine, or the library at `path`; DriverMissingError without one."""
    try:
        return _native.Driver.cuda(path)
    except OSError as error:
        raise device_error(*error.args) from None


def local_architecture(device: str = "cuda") -> str:
    """The architecture of a device of this machine, such as "sm_90a"."""
    major, minor = open_device(device).capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def check_device_name(name: str | None) -> None:
    """DeviceError if the name is not a device; None stands for one that is chosen later."""
    if name is None or name == "cpu":
        return
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeviceError(f"device {name!r} is not known", hint=_NAMES)


def _canonical(name: str) -> str:
    check_device_name(name)
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    driver_name, number = match[1], int(match[2] or 0)
    return driver_name if driver_name == "sim" and not number else f"{driver_name}:{number}"


def is_simulated(device: _native.Device) -> bool:
    """Whether a device is not hardware."""
    return device.driver.name == "sim"


_USE_CPU = "compile for the CPU, or run the device code there with device='sim'"
# The same for a compile that names no device.
_WITHOUT_DEVICE = (
    "compile for the CPU; or run code for GPUs on it, with target='cuda:sm_80', run_mode='sim', "
    "or as a file: nova.load(path, device='sim')"
)
_ERRORS: dict[int, tuple[Callable[..., NovaError], str]] = {
    _native.NO_DRIVER: (DriverMissingError, f"install NVIDIA's driver; or {_USE_CPU}"),
    _native.WRONG_DEVICE: (DriverMissingError, f"name a GPU that is there; or {_USE_CPU}"),
    _native.DEVICE_MEMORY: (
        DeviceMemoryError,
        "drop arrays, use smaller batches, or compile with max_workspace=",
    ),
    _native.DEVICE_CODE: (PtxError, "update the driver, or compile for an older architecture"),
    _native.UNSUPPORTED: (DeviceArchitectureError, "compile it for the GPU that is there"),
    _native.DEVICE_FAULT: (
        DeviceFaultError,
        "this process cannot use the GPU any more; device='sim' finds the kernel and its line",
    ),
    _native.TASK_REPORTED: (TaskError, "arrays that the run writes are part old, part new"),
}


def device_error(status: int, text: str) -> NovaError:
    """The error for a status of the native runtime."""
    if status in _ERRORS:
        error_class, hint = _ERRORS[status]
        return error_class(text, hint=hint)
    return DeviceCallError(text)
