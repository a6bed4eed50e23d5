"""Arguments and outputs that are not plain numpy arrays of the right kind.

The native call path takes exact numpy arrays by itself; everything else comes here. Arrays of other
libraries are taken through DLPack without a copy; strided ones are copied to contiguous memory.
What cannot be used raises an error that names the argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from nova.artifact.format import TensorSpec
from nova.dtypes import dtype
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    ArgumentTypeError,
    DeviceError,
    DonationError,
    OutputError,
)

_CPU_DEVICES = (1, 3, 11, 13)  # DLPack: CPU, CUDA host, ROCm host, CUDA managed
_WRONG_COUNT, _OVERLAP = -1, -2


def make_converter(
    args: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Callable[[int, Any, bool], np.ndarray]:
    """The slow path of a program's arguments; the contract is the extension module's."""

    def convert(index: int, value: Any, is_output: bool) -> np.ndarray:
        if index == _WRONG_COUNT:
            wants = len(outputs) if is_output else len(args)
            what = "out= arrays" if is_output else "arguments"
            names = ", ".join(s.name for s in (outputs if is_output else args))
            raise ArgumentCountError(f"{value} {what} given, {wants} wanted: {names}")
        if index == _OVERLAP:
            raise DonationError(
                f"{_title(args[value])} is updated in place and shares memory with another argument",
                hint="pass separate arrays",
            )
        if is_output:
            raise _output_error(outputs[index], value)
        return _argument(args[index], value)

    return convert


def as_numpy(value: Any, title: str) -> np.ndarray:
    """`value` as a numpy array over the same memory."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic | bool | int | float):
        return np.asarray(value)
    if hasattr(value, "numpy") and type(value).__module__.startswith("nova."):
        return value.numpy()
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, title)
    raise ArgumentTypeError(
        f"{title} is a {type(value).__name__}, not an array",
        hint="pass a numpy array, a torch tensor, or anything with __dlpack__",
    )


def _from_dlpack(value: Any, title: str) -> np.ndarray:
    kind, number = value.__dlpack_device__()
    if int(kind) not in _CPU_DEVICES:
        raise DeviceError(
            f"{title} is on device type {int(kind)}:{number}, the program runs on the CPU",
            hint="move it to the CPU first; all arguments must be on one device",
        )
    if getattr(value, "requires_grad", False):
        value = value.detach()
    torch = sys.modules.get("torch")
    if torch is not None and getattr(value, "dtype", None) is torch.bfloat16:
        return np.from_dlpack(value.view(torch.int16)).view(bfloat16)
    return np.from_dlpack(value)


def _argument(spec: TensorSpec, value: Any) -> np.ndarray:
    title = _title(spec)
    array = as_numpy(value, title)
    wanted = dtype(spec.dtype)
    if isinstance(value, bool | int | float) and not spec.shape and not spec.donated:
        array = array.astype(wanted.numpy)
    if array.dtype != wanted.numpy:
        raise ArgumentDTypeError(
            f"{title} has type {array.dtype}, the program was compiled for {spec.dtype}",
            hint=f"cast it, or compile for {array.dtype}",
        )
    if array.shape != tuple(spec.shape):
        raise ArgumentShapeError(
            f"{title} has shape {array.shape}, the program was compiled for {tuple(spec.shape)}",
            hint="compile again for this shape, or use nova.jit, which does it by itself",
        )
    if spec.donated:
        _check_donated(array, title)
        return array
    return np.require(array, requirements=["C", "A"])


def _check_donated(array: np.ndarray, title: str) -> None:
    if not array.flags.writeable:
        raise DonationError(f"{title} is updated in place but read-only", hint="pass a copy")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise DonationError(
            f"{title} is updated in place but not contiguous",
            hint="pass numpy.ascontiguousarray(...) and keep that array",
        )


def _output_error(spec: TensorSpec, value: Any) -> OutputError:
    title = f"out array for {spec.name!r}"
    if not isinstance(value, np.ndarray):
        return OutputError(f"{title} is a {type(value).__name__}, not a numpy array")
    if value.dtype != dtype(spec.dtype).numpy or value.shape != tuple(spec.shape):
        return OutputError(
            f"{title} is {value.dtype}{list(value.shape)}, the result is "
            f"{spec.dtype}{list(spec.shape)}"
        )
    if not value.flags.writeable:
        return OutputError(f"{title} is read-only", hint="pass an array that may be written")
    if not (value.flags.c_contiguous and value.flags.aligned):
        return OutputError(f"{title} is not contiguous", hint="pass a contiguous array")
    return OutputError(
        f"{title} shares memory with an argument or another output", hint="pass separate arrays"
    )


def _title(spec: TensorSpec) -> str:
    return f"{spec.role} {spec.name!r}"
