"""Arrays of any library as numpy arrays over the same memory.

Called for the data of `nova.tensor` and for the arguments of compiled programs. A value that is
not an array, or is not in host memory, raises an error that names the value.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

from nova.errors import ArgumentTypeError, DeviceError

_CPU_DEVICES = (1, 3, 11, 13)  # DLPack: CPU, CUDA host, ROCm host, CUDA managed
_BITS_OF = {
    "torch.bfloat16": np.dtype(bfloat16),
    "torch.float8_e4m3fn": np.dtype(float8_e4m3fn),
    "torch.float8_e5m2": np.dtype(float8_e5m2),
}
_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi"}


def is_array(value: Any) -> bool:
    """Whether `as_numpy` accepts it."""
    return isinstance(value, np.ndarray | np.generic) or hasattr(value, "__dlpack__")


def as_numpy(value: Any, title: str) -> np.ndarray:
    """`value` as a plain numpy array, without a copy. `title` names it in errors."""
    if isinstance(value, np.ndarray | np.generic):
        if isinstance(value, np.ma.MaskedArray):
            raise masked_array(title)
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, title)
    hint = "pass a numpy array, a torch tensor, or anything with __dlpack__"
    if type(value).__module__.startswith("nova.graph"):
        hint = "a compiled program takes data: pass its .numpy()"
    raise ArgumentTypeError(f"{title} is a {type(value).__name__}, not an array", hint=hint)


def masked_array(title: str) -> ArgumentTypeError:
    """The error for a numpy array with a mask."""
    return ArgumentTypeError(
        f"{title} is a numpy masked array, and its mask would be lost",
        hint="pass x.filled(value), or x.data and x.mask as two arrays with nova.where",
    )


def _from_dlpack(value: Any, title: str) -> np.ndarray:
    _check_device(value, title)
    if getattr(value, "requires_grad", False):
        value = value.detach()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.resolve_conj().resolve_neg()  # views that DLPack refuses
    try:
        narrow = _BITS_OF.get(str(getattr(value, "dtype", None)))
        if torch is not None and narrow is not None and isinstance(value, torch.Tensor):
            # numpy's DLPack has no such floats; the bits are passed as integers.
            bits = getattr(torch, f"int{8 * narrow.itemsize}")
            return np.from_dlpack(value.view(bits)).view(narrow)
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        array = _from_array_protocol(value)
        if array is not None:
            return array
        raise ArgumentTypeError(
            f"{title} is a {type(value).__name__} that does not give its data: {error}",
            hint="pass a dense array of numbers",
        ) from error


def _check_device(value: Any, title: str) -> None:
    name = str(getattr(value, "device", ""))
    try:
        device_type, number = value.__dlpack_device__()
    except (AttributeError, TypeError):
        raise ArgumentTypeError(
            f"{title} is a {type(value).__name__} with __dlpack__ but no __dlpack_device__",
            hint="pass a numpy array or a torch tensor",
        ) from None
    except (BufferError, RuntimeError, ValueError) as error:
        raise DeviceError(
            f"{title} is on {name or 'a device'} that cannot be read: {error}",
            hint="move it to the CPU first",
        ) from None
    if int(device_type) not in _CPU_DEVICES:
        name = name or f"{_NAMES.get(int(device_type), f'device type {int(device_type)}')}:{number}"
        raise DeviceError(
            f"{title} is on {name}, the program runs on the CPU",
            hint="move it to the CPU first; all arguments must be on one device",
        )


def _from_array_protocol(value: Any) -> np.ndarray | None:
    """The array of an object whose dtype DLPack cannot express (a bfloat16 of jax); else None."""
    try:
        array = np.asarray(value)
    except Exception:
        # Any exception of the other library: the DLPack error above is the one that is reported.
        return None
    return None if array.dtype == object else array
