"""Views by strides: positions in the memory of a tensor, whatever its axes are.

Rows here take `memory`, the layout that torch gave the operand: its elements in the order of their
addresses are those of a contiguous array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from nova.core.dtypes import i64
from nova.frontends.torch.layout import Layout, contiguous_strides
from nova.frontends.torch.rows.table import Row, cast, row, unsupported

STRIDED: set[str] = set()
"""Names of the rows that take a layout."""


def _strided(*names: str) -> Callable[[Row], Row]:
    STRIDED.update(f"aten.{name}" for name in names)
    return row(*names)


def _flat(F: Any, x: Any, memory: Layout | None) -> Any:
    """The elements of `x` in the order of their addresses."""
    if memory is None or memory.size is not None:
        raise unsupported("strides in the memory of a tensor with gaps or repeated elements")
    return F.reshape(memory.write(F, x), (x.size,))


def _is_contiguous(size: Sequence[int], strides: Sequence[int]) -> bool:
    pairs = zip(size, strides, contiguous_strides(size), strict=True)
    return all(n == 1 or s == c for n, s, c in pairs)


def _positions(F: Any, size: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    """The address of each element of the view."""
    total: Any = F.full(shape=tuple(size), value=offset, dtype=i64)
    for axis, (n, s) in enumerate(zip(size, strides, strict=True)):
        shape = [1] * len(size)
        shape[axis] = n
        total = total + F.reshape(F.arange(start=0, stop=n, step=1, dtype=i64) * s, tuple(shape))
    return total


def _check_inside(x: Any, size: Sequence[int], strides: Sequence[int], offset: int) -> None:
    last = offset + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
    if 0 not in size and last >= x.size:
        raise unsupported("strides beyond the elements of a tensor")


@_strided("as_strided.default", "as_strided_copy.default")
def _as_strided(
    F: Any,
    x: Any,
    size: Sequence[int],
    strides: Sequence[int],
    offset: int | None = None,
    *,
    memory: Layout | None,
) -> Any:
    flat, start = _flat(F, x, memory), offset or 0
    _check_inside(x, size, strides, start)
    if 0 in size:
        return F.full(shape=tuple(size), value=0, dtype=x.dtype)
    if _is_contiguous(size, strides):
        return F.reshape(F.narrow(flat, 0, start, prod(size)), tuple(size))
    return F.take(flat, _positions(F, size, strides, start), axis=0)


@_strided("as_strided_scatter.default")
def _as_strided_scatter(
    F: Any,
    x: Any,
    source: Any,
    size: Sequence[int],
    strides: Sequence[int],
    offset: int | None = None,
    *,
    memory: Layout | None,
) -> Any:
    flat, start = _flat(F, x, memory), offset or 0
    _check_inside(x, size, strides, start)
    updates = F.reshape(cast(F, source, x.dtype), (source.size,))
    if _is_contiguous(size, strides) and prod(size) == x.size:
        out = updates
    else:
        index = F.reshape(_positions(F, size, strides, start), (source.size,))
        out = F.scatter(flat, index, updates, axis=0)
    assert memory is not None
    return memory.read(F, F.reshape(out, memory.shape))
