"""Arguments and results of jitted functions: arrays, their types and devices.

In: the leaves of a call's arguments, and those of the value that a traced function returns. Out:
arrays and tensors, or an error that names the argument. Called by `jit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from inspect import Signature, signature
from typing import Any

import numpy as np

from nova.core.dlpack import as_numpy, is_array
from nova.core.dtypes import TensorType, dtype
from nova.core.location import user_location
from nova.errors import (
    ArgumentDTypeError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    GraphError,
    NovaError,
)
from nova.graph.build import settled
from nova.graph.capture import Holder
from nova.graph.tensor import Tensor, tensor
from nova.runtime.device_arrays import place_of, type_on_device

NUMBERS = (bool, int, float)


def common_device(
    names: Sequence[str], arrays: Sequence[Any], numbers: Sequence[bool]
) -> str | None:
    """The device that all arrays are on, None for the host; numbers are accepted on any device."""
    devices = {
        name: place_of(array)
        for name, array, number in zip(names, arrays, numbers, strict=True)
        if not number
    }
    if len(set(devices.values())) > 1:
        listed = ", ".join(
            f"{name!r} on {device or 'the host'}" for name, device in devices.items()
        )
        raise DeviceError(
            f"the arguments are in different places: {listed}",
            where=str(user_location()),
            hint="move them to one with nova.to_device(array, ...) or .numpy()",
        )
    return next(iter(devices.values()), None)


def argument_array(leaf: Any, name: str, function: Callable[..., Any]) -> Any:
    """An argument of `function` as an array; a device array stays on its device."""
    try:
        if type_on_device(leaf) is not None:
            return leaf
        if type(leaf) in NUMBERS:
            # Floats at full precision: they take the dtype of the tensor operand next to them.
            return np.asarray(leaf, {bool: np.bool_, int: np.int64, float: np.float64}[type(leaf)])
        array = as_numpy(leaf, f"argument {name!r}")
        dtype(array.dtype.newbyteorder("="))
        return array
    except OverflowError:
        raise ArgumentDTypeError(
            f"argument {name!r} is {leaf}, which does not fit i64", where=str(user_location())
        ) from None
    except NovaError as error:
        if _could_be_static(leaf, name, function):
            raise ArgumentTypeError(
                error.what,
                where=str(user_location()),
                hint=f"pass an array; a Python value, such as a mode, is static: "
                f'nova.jit(f, static_argnames=["{name}"])',
            ) from None
        raise error.located(
            str(user_location()), f"argument {name!r}: " if isinstance(error, DTypeError) else ""
        ) from None


def _could_be_static(leaf: Any, name: str, function: Callable[..., Any]) -> bool:
    """Whether `static_argnames=[name]` would take the value, which is not an array."""
    if is_array(leaf) or not isinstance(leaf, Hashable):
        return False
    try:
        return name in call_signature(function).parameters
    except (TypeError, ValueError):
        return False


def call_signature(function: Callable[..., Any]) -> Signature:
    """The signature of a function; of a module, that of its `forward`, which a call passes on to.

    Raises what `inspect.signature` raises for a builtin without one.
    """
    forward = getattr(function, "forward", None) if isinstance(function, Holder) else None
    return signature(function if forward is None else forward)


def array_type(array: Any) -> TensorType:
    """The TensorType of an array, on the host or on a device."""
    shape, dtype_name = type_on_device(array) or (array.shape, array.dtype)
    return TensorType(tuple(shape), dtype(dtype_name.newbyteorder("=")))


def result_tensor(value: Any, position: int, function: Callable[..., Any]) -> Tensor:
    if isinstance(value, Tensor):
        return settled(value)
    if type(value) in NUMBERS or isinstance(value, np.ndarray | np.generic):
        return tensor(value)
    code = getattr(function, "__code__", None)
    raise GraphError(
        f"result {position} of the function is a {type(value).__name__}, not a tensor",
        where=f"{code.co_filename}:{code.co_firstlineno}" if code else str(user_location()),
        hint="return tensors, or tuples, lists and dicts of them",
    )
