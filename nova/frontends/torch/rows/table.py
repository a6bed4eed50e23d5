"""The table of ATen ops, and the promotion of their operands.

A row is a function `(F, *args, **kwargs)` with the arguments of the ATen op: tensors are Nova's,
dtypes are Nova's, sizes are ints. It returns a tensor, or a tuple where the op has several results.
The importer casts results to the dtype that torch says and checks their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ml_dtypes import finfo

from nova.core.dtypes import (
    FLOATS_8,
    DType,
    bf16,
    bool_,
    complex64,
    complex_of,
    f16,
    f32,
    i64,
    promote,
    promote_all,
)
from nova.errors import UnsupportedOpError
from nova.frontends.torch.dtypes import saturates
from nova.graph.tensor import Tensor

Row = Callable[..., Any]

ROWS: dict[str, Row] = {}
BY_DEVICE: set[str] = set()
"""Rows that take `device`, the type of the device of their first operand: results depend on it."""
_NAMESPACES = ("prims.", "quantized_decomposed.")
"""Of ops that are not ATen's."""


def row(*names: str, by_device: bool = False) -> Callable[[Row], Row]:
    """Register a function as the row of ATen ops: `row("add.Tensor")`, `row("prims.iota")`."""

    def register(function: Row) -> Row:
        for name in names:
            full = name if name.startswith(_NAMESPACES) else f"aten.{name}"
            if full in ROWS:
                raise ValueError(f"{full} has two rows")
            ROWS[full] = function
            if by_device:
                BY_DEVICE.add(full)
        return function

    return register


def unsupported(reason: str) -> UnsupportedOpError:
    """The error of a row for arguments that it does not cover."""
    return UnsupportedOpError(reason)


def cast(F: Any, x: Any, dtype: DType) -> Any:
    """`x` as `dtype`; `x` itself if it has that dtype. 8-bit floats saturate as in torch."""
    if x.dtype is dtype:
        return x
    if dtype in FLOATS_8 and saturates(dtype):
        largest = float(finfo(dtype.numpy).max)
        x = F.clamp(x if x.dtype.is_float else F.cast(x, dtype=f32), min=-largest, max=largest)
    return F.cast(x, dtype=dtype)


def converted(F: Any, x: Any, dtype: DType) -> Any:
    """torch's conversion to `dtype`, which drops the imaginary part."""
    drops_imaginary = x.dtype.is_complex and not dtype.is_complex and dtype is not bool_
    return cast(F, F.real(x) if drops_imaginary else x, dtype)


def squared_size(F: Any, x: Any) -> Any:
    """|x| * |x|, which is real."""
    return F.square(F.real(x)) + F.square(F.imag(x)) if x.dtype.is_complex else F.square(x)


def _category(dtype: DType) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_float else 1 if dtype.is_integer else 0


def number_dtype(value: Any) -> DType:
    """The dtype of a Python number as an operand of torch."""
    if isinstance(value, complex):
        return complex64
    return bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f32


def common_dtype(operands: Sequence[Any]) -> DType:
    """torch's `result_type`: 0-d tensors and numbers count only if their category is higher."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    groups = (
        [x.dtype for x in tensors if x.shape],
        [x.dtype for x in tensors if not x.shape],
        [number_dtype(x) for x in operands if not isinstance(x, Tensor)],
    )
    result: DType | None = None
    for dtypes in groups:
        if not dtypes:
            continue
        dtype = promote_all(dtypes)
        if result is None or _category(dtype) > _category(result):
            result = dtype if result is None else _raised(result, dtype)
    assert result is not None
    return result


def _raised(lower: DType, higher: DType) -> DType:
    """The dtype of operands of two categories; a float keeps its width in a complex one."""
    return complex_of(lower) if lower.is_float and higher.is_complex else promote(lower, higher)


def promoted(F: Any, *operands: Any, opmath: bool = False) -> list[Any]:
    """The tensors in their common dtype, numbers unchanged.

    With `opmath`, f16 and bf16 become f32: torch rounds such results once, and numbers never.
    """
    dtype = common_dtype(operands)
    if opmath and dtype in (f16, bf16):
        dtype = f32
    return [cast(F, x, dtype) if isinstance(x, Tensor) else x for x in operands]


def axes_of(dim: Any, rank: int) -> tuple[int, ...]:
    """The axes of a `dim` argument: None and an empty list mean all."""
    if dim is None or dim == [] or dim == ():
        return tuple(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return tuple(d % rank if rank else 0 for d in dims) if rank else ()


def axis_of(dim: int, rank: int) -> int:
    """A non-negative axis."""
    return dim % rank if rank else 0
