"""Python's rules for slices of an axis, for sizes that may be symbolic."""

from __future__ import annotations

from typing import Any

from nova.core.sizes import ceildiv, is_static, known_equal, size_max, size_min


def slice_indices(item: slice, n: Any) -> tuple[Any, Any, int]:
    """`item.indices(n)`: start, stop and step clipped to an axis of size `n`.

    SymbolicSizeError if a bound may count from either end of the axis.
    """
    if all(is_static(v) for v in (item.start, item.stop, n)):
        return item.indices(n)
    step = 1 if item.step is None else int(item.step)
    low, high = (0, n) if step > 0 else (-1, n - 1)
    first, last = (low, high) if step > 0 else (high, low)
    start = first if item.start is None else _clip(item.start, n, low, high)
    stop = last if item.stop is None else _clip(item.stop, n, low, high)
    return start, stop, step


def slice_count(start: Any, stop: Any, step: int) -> Any:
    """The number of elements of a slice with these clipped bounds."""
    if is_static(start) and is_static(stop):
        return len(range(start, stop, step))
    span = stop - start if step > 0 else start - stop
    return ceildiv(size_max(span, 0), abs(step))


def _clip(bound: Any, n: Any, low: Any, high: Any) -> Any:
    if known_equal(bound, n):
        return size_min(bound, high)
    if bound < 0:
        bound = bound + n
    return size_max(low, size_min(bound, high))
