"""Arguments of device programs: arrays that are already on the device are used in place.

The native call path calls the function from `make_device_converter` for every value that is neither
a plain numpy array nor a `DeviceArray` of the right dtype and layout. Arrays of other libraries on
the same device become a `DeviceArray` without a copy: those of torch on torch's current stream,
others after their library has ordered its work before Nova's stream. Host arrays are copied.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

from nova import _native
from nova.artifact.format import TensorSpec
from nova.core.dtypes import array_dtype
from nova.core.location import user_location
from nova.errors import (
    ArgumentDTypeError,
    ArgumentShapeError,
    ArgumentTypeError,
    DeviceError,
    DonationError,
    NovaError,
    OutputError,
)
from nova.runtime.arrays import make_converter, title_of
from nova.runtime.devices import is_simulated

DeviceArray = _native.DeviceArray
_CUDA = 2
_CUDA_KINDS = (_CUDA, 13)  # DLPack: CUDA, and CUDA managed memory
# DLPack's (code, bits) of Nova's dtypes.
_TYPES = {
    (2, 64): np.dtype("f8"),
    (2, 32): np.dtype("f4"),
    (2, 16): np.dtype("f2"),
    (4, 16): np.dtype(bfloat16),
    (10, 8): np.dtype(float8_e4m3fn),
    (12, 8): np.dtype(float8_e5m2),
    (5, 128): np.dtype("c16"),
    (5, 64): np.dtype("c8"),
    (0, 64): np.dtype("i8"),
    (0, 32): np.dtype("i4"),
    (0, 16): np.dtype("i2"),
    (0, 8): np.dtype("i1"),
    (1, 64): np.dtype("u8"),
    (1, 32): np.dtype("u4"),
    (1, 16): np.dtype("u2"),
    (1, 8): np.dtype("u1"),
    (6, 8): np.dtype("?"),
}


def make_device_converter(
    args: Sequence[TensorSpec], outputs: Sequence[TensorSpec], device: _native.Device
) -> Callable[[int, Any, bool], Any]:
    """The slow path for the arguments of a program for `device`."""
    on_host = make_converter(args, outputs)

    def convert(index: int, value: Any, is_output: bool) -> Any:
        if index < 0 or not _is_on_device(value):
            return on_host(index, value, is_output)
        spec = (outputs if is_output else args)[index]
        try:
            return _take(spec, value, device, is_output)
        except NovaError as error:
            raise error.located(str(user_location())) from None

    return convert


def type_on_device(value: Any) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and dtype of an array in GPU memory; None for any other value."""
    if isinstance(value, _native.DeviceArray):
        return value.shape, value.dtype
    if not _is_on_device(value):
        return None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        shape = tuple(value.shape)
        element_type = _TYPES.get(_torch_type(str(value.dtype).removeprefix("torch.")))
    elif hasattr(value, "__cuda_array_interface__"):
        with _naming_argument(f"a {type(value).__name__}"):
            interface = value.__cuda_array_interface__
            shape, element_type = tuple(interface["shape"]), np.dtype(interface["typestr"])
    else:
        with _naming_argument(f"a {type(value).__name__}"):
            _, _, shape, code, bits, _ = _native.read_dlpack(value.__dlpack__())
        element_type = _TYPES.get((code, bits))
    if element_type is None or element_type not in _TYPES.values():
        raise ArgumentTypeError(
            f"a {type(value).__name__} on a device is of a type that Nova does not have",
            hint="cast it first",
        )
    return shape, element_type


def place_of(value: Any) -> str | None:
    """The name of the device that holds an array; None for the host."""
    if isinstance(value, DeviceArray):
        return str(value.native_device.name)
    if not _is_on_device(value):
        return None
    try:
        return f"cuda:{int(value.__dlpack_device__()[1])}"
    except (AttributeError, TypeError, ValueError, BufferError, RuntimeError):
        return "cuda:0"  # `__cuda_array_interface__` does not name the device: the run checks it


def copy_to_host(value: Any, device: _native.Device, title: str) -> np.ndarray | None:
    """A host copy of an array on `device`; None for any other value."""
    if isinstance(value, _native.DeviceArray):
        return value.numpy()
    return _view(value, device, title).numpy() if _is_on_device(value) else None


def _is_on_device(value: Any) -> bool:
    """Whether a GPU holds it; without information, the host conversion decides."""
    if isinstance(value, _native.DeviceArray):
        return True
    try:
        device_type, _ = value.__dlpack_device__()
    except (AttributeError, TypeError, ValueError, BufferError, RuntimeError):
        return hasattr(value, "__cuda_array_interface__")
    return int(device_type) in _CUDA_KINDS


def _take(
    spec: TensorSpec, value: Any, device: _native.Device, is_output: bool
) -> _native.DeviceArray:
    """`value` as an array that the program can use, or an error with the reason."""
    title = f"out array for {spec.name!r}" if is_output else title_of(spec)
    array = value if isinstance(value, _native.DeviceArray) else _view(value, device, title)
    if array.native_device is not device:
        raise DeviceError(
            f"{title} is on {array.device}, the program runs on {device.name}",
            hint="all arguments must be on one device: copy it through the host with .numpy()",
        )
    expected = array_dtype(spec.dtype)
    error_class: type[NovaError]
    if array.dtype != expected.numpy:
        error_class = OutputError if is_output else ArgumentDTypeError
        raise error_class(
            f"{title} has type {array.dtype}, the program was compiled for {spec.dtype}",
            hint="cast it, or compile for its type",
        )
    if array.shape != tuple(spec.shape):
        error_class = OutputError if is_output else ArgumentShapeError
        raise error_class(
            f"{title} has shape {array.shape}, the program was compiled for {tuple(spec.shape)}",
            hint="compile again for this shape, or use nova.jit, which does it by itself",
        )
    if is_output and array is value:
        raise OutputError(
            f"{title} shares memory with an argument or another output",
            hint="pass separate arrays",
        )
    return array


def _view(value: Any, device: _native.Device, title: str) -> _native.DeviceArray:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_view(value, torch, device, title)
    if hasattr(value, "__dlpack__"):
        with _naming_argument(title):
            capsule = value.__dlpack__(stream=device.stream)
            address, number, shape, code, bits, dense = _native.read_dlpack(capsule)
        element_type = _TYPES.get((code, bits))
        owner: Any = (value, capsule)
    else:
        with _naming_argument(title):
            address, number, shape, element_type, dense = _read_interface(value, device)
        owner = value
    _check(device, number, element_type, dense, title, type(value).__name__)
    assert element_type is not None
    # Its library may write there as soon as the run has started, so wait for the run.
    return _native.DeviceArray.view(
        device, address, shape, element_type, device.stream, owner, True
    )


@contextmanager
def _naming_argument(title: str) -> Iterator[None]:
    """Metadata of a foreign array; it may be invalid or missing."""
    try:
        yield
    except (AttributeError, BufferError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"{title} does not say where it is on the device: {type(error).__name__}: {error}",
            hint="pass a nova.DeviceArray, a torch tensor, or an array of the host",
        ) from None


def _torch_view(tensor: Any, torch: Any, device: _native.Device, title: str) -> _native.DeviceArray:
    """A tensor, ordered on torch's current stream, like torch's own kernels."""
    if tensor.requires_grad and not tensor.is_leaf:
        tensor = tensor.detach()
    element_type = _TYPES.get(_torch_type(str(tensor.dtype).removeprefix("torch.")))
    _check(device, tensor.get_device(), element_type, tensor.is_contiguous(), title, "torch tensor")
    assert element_type is not None
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    shape = tuple(tensor.shape)
    return _native.DeviceArray.view(
        device, tensor.data_ptr(), shape, element_type, stream, tensor, False
    )


def _torch_type(name: str) -> tuple[int, int]:
    exact = {
        "bool": (6, 8),
        "bfloat16": (4, 16),
        "float8_e4m3fn": (10, 8),
        "float8_e5m2": (12, 8),
    }
    codes = {"complex": 5, "float": 2, "int": 0, "uint": 1}
    prefix = name.rstrip("0123456789")
    bits = name[len(prefix) :]
    return exact.get(name, (codes.get(prefix, -1), int(bits or 0)))


def _read_interface(
    value: Any, device: _native.Device
) -> tuple[int, int, tuple[int, ...], np.dtype[Any] | None, bool]:
    """Parse `__cuda_array_interface__`; Nova's stream waits for the stream in it."""
    interface = value.__cuda_array_interface__
    stream = interface.get("stream")
    if stream is not None:
        handle = 0 if stream == 1 else int(stream)
        _native.DeviceArray.view(
            device, 0, (0,), np.dtype("u1"), handle, value, False
        ).order_before(device.stream)
    element_type = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    dense = strides is None or _dense_strides(shape, element_type.itemsize) == tuple(strides)
    return (
        interface["data"][0],
        -1,
        shape,
        element_type if element_type in _TYPES.values() else None,
        dense,
    )


def _dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = [itemsize]
    for extent in shape[:0:-1]:
        strides.insert(0, strides[0] * extent)
    return tuple(strides[: len(shape)])


def _check(
    device: _native.Device,
    number: int,
    element_type: np.dtype[Any] | None,
    dense: bool,
    title: str,
    library: str,
) -> None:
    ordinal = int(device.name.partition(":")[2] or 0)
    if is_simulated(device) or (number >= 0 and number != ordinal):
        raise DeviceError(
            f"{title} is on cuda:{max(number, 0)}, the program runs on {device.name}",
            hint="all arguments must be on one device",
        )
    if element_type is None:
        raise ArgumentTypeError(
            f"{title} is a {library} of a type that Nova does not have", hint="cast it first"
        )
    if not dense:
        raise DonationError(
            f"{title} is not contiguous, and arrays on a device are used where they are",
            hint="pass a contiguous copy",
        )
