"""Arguments and outputs that are not plain numpy arrays of the right dtype and layout.

The native call path takes exact numpy arrays directly; all other values come here. Arrays of other
libraries are taken through DLPack without a copy; strided arrays are copied to contiguous memory.
An unusable value raises an error that names the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nova import _native
from nova.artifact.format import TensorSpec
from nova.core.dlpack import as_numpy
from nova.core.dtypes import DType, array_dtype, converted
from nova.core.location import user_location
from nova.core.sizes import Shape
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    ArgumentTypeError,
    ArrayInUseError,
    AttributeValueError,
    DeviceError,
    DonationError,
    NovaError,
    OutputError,
)

_MOST_NAMED = 8
_WRONG_COUNT, _OVERLAP, _NO_SEQUENCE, _IN_USE, _NO_PLACEMENT = -1, -2, -3, -4, -5


def make_converter(
    args: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Callable[[int, Any, bool], np.ndarray]:
    """The slow path for a program's arguments; the extension module defines the contract."""

    def convert(index: int, value: Any, is_output: bool) -> np.ndarray:
        try:
            if index == _WRONG_COUNT:
                raise count_error(outputs if is_output else args, value, is_output)
            if index == _OVERLAP:
                raise DonationError(
                    f"{title_of(args[value])} is updated in place and shares memory with another "
                    "argument",
                    hint="pass separate arrays",
                )
            if index == _NO_SEQUENCE:
                raise ArgumentTypeError(
                    f"run() takes lists or tuples of arrays, not a {type(value).__name__}",
                    hint="run([x, y], [w]), or call the program: compiled(x, y, w)",
                )
            if index == _IN_USE:
                title = title_of((outputs if is_output else args)[value])
                raise ArrayInUseError(
                    f"{title} shares memory with an array of another run that has not ended, and "
                    "one of the two is written",
                    hint="wait for its future, or submit both to one nova.NovaStream; threads "
                    "that update one array take turns, e.g. with a lock",
                )
            if index == _NO_PLACEMENT:
                raise AttributeValueError(
                    "outputs= says where a device leaves its results, and this program runs on the "
                    "CPU",
                    hint="leave outputs= out; out= gives arrays to write results into",
                )
            if is_output:
                return _output(outputs[index], value)
            return take_argument(args[index], value)
        except NovaError as error:
            raise error.located(str(user_location())) from None

    return convert


def count_error(
    specs: Sequence[TensorSpec],
    count: int,
    is_output: bool = False,
    shapes: Sequence[Shape] | None = None,
) -> ArgumentCountError:
    """The error for a call with `count` arrays; `shapes` are symbolic ones."""
    shapes = [s.shape for s in specs] if shapes is None else shapes
    noun = "out= array" if is_output else "argument"
    names = ", ".join(
        f"{spec.name}: {spec.dtype}[{','.join(map(str, shape))}]"
        for spec, shape in zip(specs[:_MOST_NAMED], shapes, strict=False)
    )
    more = f" and {len(specs) - _MOST_NAMED} more" if len(specs) > _MOST_NAMED else ""
    inputs = sum(s.role == "input" for s in specs)
    if is_output:
        hint = "out= takes an array for each result, in order"
    elif count == inputs:
        hint = (
            "the program carries no values of its params: pass them after the inputs, or "
            "nova.load(path, weights=...), or save it with weights='embed'"
        )
    else:
        order = ", ".join(s.name for s in specs[:_MOST_NAMED]) + (", ..." if more else "")
        hint = f"program({order}), or program.run([{order}])"
    return ArgumentCountError(
        f"{count} {noun}{'' if count == 1 else 's'} given, the program takes {len(specs)}"
        f"{': ' if names else ''}{names}{more}",
        hint=hint,
    )


def take_argument(spec: TensorSpec, value: Any) -> np.ndarray:
    """`value` as an array that a run, or a file with weights, can use for this argument."""
    title = title_of(spec)
    expected = array_dtype(spec.dtype)
    if type(value) in (bool, int, float) and not spec.shape and not spec.donated:
        return _number(value, expected, title)
    if isinstance(value, _native.DeviceArray):
        raise DeviceError(
            f"{title} is on {value.device}, the program runs on the CPU",
            hint="pass its .numpy(), or compile for the device with target=",
        )
    array = as_numpy(value, title)
    # Another byte order is the same dtype: the copy below converts it to the native order.
    if array.dtype.newbyteorder("=") != expected.numpy or (
        spec.donated and array.dtype != expected.numpy
    ):
        raise ArgumentDTypeError(
            f"{title} has type {array.dtype}, the program was compiled for {spec.dtype}",
            hint=f"cast it with {_cast(value, expected)}, or compile for its type",
        )
    if array.shape != tuple(spec.shape):
        raise ArgumentShapeError(
            f"{title} has shape {array.shape}, the program was compiled for {tuple(spec.shape)}",
            hint="compile again for this shape, or use nova.jit, which does it by itself",
        )
    if spec.donated:
        _check_donated(array, title)
        return array
    return np.require(array, expected.numpy, ["C", "A"])


def _cast(value: Any, expected: DType) -> str:
    """The syntax of a cast in the library of an array."""
    name = str(expected.numpy)
    if type(value).__module__.partition(".")[0] == "torch":
        return f".to(torch.{name})"
    return f".astype({name!r})"


def _number(value: bool | int | float, expected: DType, title: str) -> np.ndarray:
    """A Python number for a 0-d argument; it must not lose more than a float's precision."""
    fits = expected.is_float or isinstance(value, bool)
    if expected.is_integer and type(value) is int:
        limits = np.iinfo(expected.numpy)
        fits = limits.min <= value <= limits.max
    if not fits:
        raise ArgumentDTypeError(
            f"{title} is {value!r}, which does not fit {expected}",
            hint="pass a number of that type, or compile for another",
        )
    return converted(np.asarray(value), expected)


def _check_donated(array: np.ndarray, title: str) -> None:
    if not array.flags.writeable:
        raise DonationError(f"{title} is updated in place but read-only", hint="pass a copy")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise DonationError(
            f"{title} is updated in place but not contiguous",
            hint="pass numpy.ascontiguousarray(...) and keep that array",
        )


def _output(spec: TensorSpec, value: Any) -> np.ndarray:
    """An output array over the memory of `value`, which the extension did not accept directly."""
    title = f"out array for {spec.name!r}"
    try:
        array = as_numpy(value, title)
    except NovaError as error:
        raise OutputError(error.what, hint=error.hint) from None
    if array.dtype != array_dtype(spec.dtype).numpy or array.shape != tuple(spec.shape):
        raise OutputError(
            f"{title} is {array.dtype}{list(array.shape)}, the result is "
            f"{spec.dtype}{list(spec.shape)}"
        )
    if not array.flags.writeable:
        raise OutputError(f"{title} is read-only", hint="pass an array that may be written")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise OutputError(f"{title} is not contiguous", hint="pass a contiguous array")
    if array is value:
        raise OutputError(
            f"{title} shares memory with an argument or another output",
            hint="pass separate arrays",
        )
    return array


def title_of(spec: TensorSpec) -> str:
    """The name of an argument or a result in errors."""
    return f"{spec.role} {spec.name!r}"
