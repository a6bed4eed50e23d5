"""The table of ATen ops, and the promotion of their operands.

A row is a function `(F, *args, **kwargs)` with the arguments of the ATen op: tensors are Nova's,
dtypes are Nova's, sizes are ints. It returns a tensor, or a tuple where the op has several results.
The importer casts results to the dtype that torch says and checks their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.core.dtypes import DType, bf16, bool_, f16, f32, i64, promote, promote_all
from nova.errors import UnsupportedOpError
from nova.graph.tensor import Tensor

Row = Callable[..., Any]

ROWS: dict[str, Row] = {}


def row(*names: str) -> Callable[[Row], Row]:
    """Register a function as the row of ATen ops: `row("add.Tensor")`, `row("prims.iota")`."""

    def register(function: Row) -> Row:
        for name in names:
            full = name if name.startswith("prims.") else f"aten.{name}"
            if full in ROWS:
                raise ValueError(f"{full} has two rows")
            ROWS[full] = function
        return function

    return register


def unsupported(reason: str) -> UnsupportedOpError:
    """The error of a row for arguments that it does not cover."""
    return UnsupportedOpError(reason)


def cast(F: Any, x: Any, dtype: DType) -> Any:
    """`x` as `dtype`; `x` itself if it has that dtype."""
    return x if x.dtype is dtype else F.cast(x, dtype=dtype)


def _category(dtype: DType) -> int:
    return 2 if dtype.is_float else 1 if dtype.is_integer else 0


def _number_dtype(value: Any) -> DType:
    return bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f32


def common_dtype(operands: Sequence[Any]) -> DType:
    """torch's `result_type`: 0-d tensors and numbers count only if their category is higher."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    groups = (
        [x.dtype for x in tensors if x.shape],
        [x.dtype for x in tensors if not x.shape],
        [_number_dtype(x) for x in operands if not isinstance(x, Tensor)],
    )
    result: DType | None = None
    for dtypes in groups:
        if not dtypes:
            continue
        dtype = promote_all(dtypes)
        if result is None or _category(dtype) > _category(result):
            result = dtype if result is None else promote(result, dtype)
    assert result is not None
    return result


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
