"""Strided tensors of torch as contiguous arrays of Nova.

A program of Nova reads and writes contiguous arrays. A dense tensor of torch with permuted strides
(a transpose, channels_last) is a contiguous array with its axes in another order, and an expanded
one (stride 0) has an axis of size 1; both are used in place, and the program moves the axes. Only
tensors with gaps between their elements are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova.core.sizes import Shape


@dataclass(frozen=True)
class Layout:
    """The contiguous array of a strided tensor.

    shape    of the array in memory.
    axes     axis i of the tensor is axis `axes[i]` of the array; None if the order is the same.
    size     of the tensor, if axes of stride 0 expand the array to it; else None.
    strides  that a tensor must have to be used in place; a tensor with others is copied first.
    """

    shape: Shape
    axes: tuple[int, ...] | None
    size: Shape | None
    strides: tuple[int, ...]

    def read(self, F: Any, array: Any) -> Any:
        """The tensor, from its array."""
        value = array if self.axes is None else F.permute(array, axes=self.axes)
        return value if self.size is None else F.expand(value, shape=self.size)

    def write(self, F: Any, value: Any) -> Any:
        """The array to store for a tensor."""
        if self.size is not None:
            zeros = [0] * len(self.size)
            stops = [1 if s == 0 else n for n, s in zip(self.size, self.strides, strict=True)]
            value = F.slice(value, zeros, stops)
        if self.axes is None:
            return value
        inverse = sorted(range(len(self.axes)), key=self.axes.__getitem__)
        return F.permute(value, axes=tuple(inverse))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The row-major strides of a shape."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def layout_of(size: Sequence[int], strides: Sequence[int]) -> Layout:
    """The layout of a tensor; of one with gaps, that of its contiguous copy."""
    shape = tuple(int(n) for n in size)
    steps = tuple(int(s) for s in strides)
    row_major = contiguous_strides(shape)
    if 0 in shape:
        return Layout(shape, None, None, row_major)
    # The stride of an axis of size 1 is never used.
    if all(n == 1 or s == r for n, s, r in zip(shape, steps, row_major, strict=True)):
        return Layout(shape, None, None, row_major)
    expanded = any(s == 0 and n > 1 for n, s in zip(shape, steps, strict=True))
    base = tuple(1 if s == 0 else n for n, s in zip(shape, steps, strict=True))
    order = sorted(range(len(base)), key=lambda i: (base[i] == 1, -steps[i], i))
    order = _with_unit_axes(base, order)
    packed = contiguous_strides([base[i] for i in order])
    if any(base[i] > 1 and steps[i] != p for i, p in zip(order, packed, strict=True)):
        return Layout(shape, None, None, row_major)
    position = {axis: place for place, axis in enumerate(order)}
    axes = tuple(position[i] for i in range(len(base)))
    return Layout(
        tuple(base[i] for i in order),
        None if axes == tuple(range(len(axes))) else axes,
        shape if expanded else None,
        steps,
    )


def _with_unit_axes(base: Sequence[int], order: Sequence[int]) -> list[int]:
    """The order of the axes with those of size 1 last moved to their own positions."""
    long_axes = iter([i for i in order if base[i] != 1])
    return [i if n == 1 else next(long_axes) for i, n in enumerate(base)]
