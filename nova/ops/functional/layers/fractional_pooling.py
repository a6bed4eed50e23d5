"""Fractional max pooling (Graham, 2014): windows whose starts are drawn, with torch's sequences.

Each plane of each sample has a random number for each axis. Window i starts at
floor((i + u) a) - floor(u a), where a = (size - kernel) / (count - 1), the last one at the end.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import f64, i64
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import as_floats, as_tensor, function, number, to_dtype
from nova.ops.functional.convolution import Sizes, spatial_sizes, with_batch
from nova.ops.rules import static_axis
from nova.ops.table import Op, register


def _counts(name: str, sizes: Sizes, output_size: Any, output_ratio: Any) -> Sizes:
    rank = len(sizes)
    if (output_size is None) == (output_ratio is None):
        raise AttributeValueError(f"{name}: needs output_size or output_ratio, not both")
    if output_size is not None:
        return spatial_sizes(name, "output_size", output_size, rank)
    items = output_ratio if isinstance(output_ratio, tuple | list) else (output_ratio,) * rank
    ratios = [number(name, "output_ratio", r) for r in items]
    if len(ratios) != rank or not all(0 < r < 1 for r in ratios):
        raise AttributeValueError(f"{name}: output_ratio {output_ratio!r}: {rank} numbers in 0..1")
    counts = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
    return spatial_sizes(name, "output_size", counts, rank)


def _samples(F: Any, name: str, x: Any, seed: Any, given: Any, rank: int) -> Any:
    shape = (*x.shape[:2], rank)
    if given is not None:
        samples = as_tensor(F, given)
        if tuple(samples.shape) != tuple(shape):
            raise ShapeError(f"{name}: random samples {samples.shape}, they should be {shape}")
        return samples
    if seed is None:
        raise AttributeValueError(
            f"{name}: needs a seed for its windows", hint="write seed=0, or another number"
        )
    return F.uniform(seed, shape=shape)


def _window_elements(F: Any, sample: Any, n: int, kernel: int, count: int) -> Any:
    """The positions (batch, channels, count * kernel) that the windows of an axis read."""
    if count > 1:
        step = (n - kernel) / (count - 1)
        place = F.arange(count - 1, dtype=sample.dtype) + F.unsqueeze(sample, -1)
        starts = F.trunc(place * step) - F.unsqueeze(F.trunc(sample * step), -1)
        last = F.full((*sample.shape, 1), n - kernel, i64)
        starts = F.concat([F.cast(starts, dtype=i64), last], axis=-1)
    else:
        starts = F.full((*sample.shape, 1), n - kernel, i64)
    elements = F.unsqueeze(starts, -1) + F.arange(kernel)
    return F.reshape(elements, (*sample.shape, count * kernel))


def _fractional_pool(rank: int) -> Any:
    name = f"fractional_max_pool{rank}d"

    def build(
        F: Any,
        x: Any,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
        seed: Any = None,
    ) -> Any:
        (x,) = as_floats(F, x)
        x, added = with_batch(F, name, x, rank)
        sizes = tuple(static_axis(x.type, 2 + i, f"{name} along") for i in range(rank))
        kernel = spatial_sizes(name, "kernel_size", kernel_size, rank)
        counts = _counts(name, sizes, output_size, output_ratio)
        for n, k, c in zip(sizes, kernel, counts, strict=True):
            if c + k - 1 > n:
                raise ShapeError(f"{name}: {c} windows of {k} in an axis of {n}")
        samples = F.detach(_samples(F, name, x, seed, _random_samples, rank))
        samples = to_dtype(F, samples, f64) if x.dtype is f64 else samples
        # torch's order of the random numbers: two axes have that of the last one first.
        order = (1, 0) if rank == 2 else range(rank)
        places = [
            _window_elements(F, samples[:, :, i], n, k, c)
            for i, n, k, c in zip(order, sizes, kernel, counts, strict=True)
        ]
        windows = x
        for axis, at in enumerate(places, 2):
            windows = F.gather(windows, _spread(F, at, windows.shape, axis), axis=axis)
        best, at = _best_of(F, windows, kernel, counts)
        results = [best]
        if return_indices:
            results.append(_positions(F, at, places, kernel, counts, sizes))
        results = [F.squeeze(out, 0) if added else out for out in results]
        return tuple(results) if return_indices else results[0]

    return build


def _spread(F: Any, at: Any, shape: Any, axis: int) -> Any:
    """Positions along an axis for every element of the other spatial axes."""
    lead = list(at.shape[:2])
    narrow = [at.shape[2] if i == axis else 1 for i in range(2, len(shape))]
    full = [at.shape[2] if i == axis else n for i, n in enumerate(shape)][2:]
    return F.expand(F.reshape(at, [*lead, *narrow]), [*lead, *full])


def _best_of(F: Any, windows: Any, kernel: Sizes, counts: Sizes) -> tuple[Any, Any]:
    """The largest element of each window, and its place in the flattened window."""
    rank, lead = len(kernel), tuple(windows.shape[:2])
    split = F.reshape(windows, (*lead, *(n for p in zip(counts, kernel, strict=True) for n in p)))
    order = (0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2))
    flat = F.reshape(F.permute(split, order), (*lead, *counts, prod(kernel)))
    at = F.argmax(flat, axis=-1, keepdims=True)
    return F.squeeze(F.gather(flat, at, axis=-1), -1), F.squeeze(at, -1)


def _positions(
    F: Any, at: Any, places: list[Any], kernel: Sizes, counts: Sizes, sizes: Sizes
) -> Any:
    """The flat positions in the input of the chosen elements of windows."""
    rank, lead = len(kernel), tuple(at.shape[:2])
    at, total = F.cast(at, dtype=i64), None
    for axis, elements in enumerate(places):
        within = F.mod(F.floor_div(at, prod(kernel[axis + 1 :])), kernel[axis])
        shape = [counts[axis] if i == axis else 1 for i in range(rank)]
        place = F.reshape(F.arange(counts[axis]) * kernel[axis], shape) + within
        found = F.gather(elements, F.reshape(place, (*lead, prod(counts))), axis=2)
        term = F.reshape(found, at.shape) * prod(sizes[axis + 1 :])
        total = term if total is None else total + term
    return total


ROWS: tuple[Op, ...] = tuple(
    function(
        f"fractional_max_pool{rank}d",
        f"The largest element of windows of {rank} spatial axes whose starts are drawn by a seed.",
        _fractional_pool(rank),
    )
    for rank in (2, 3)
)


def register_rows() -> None:
    register(*ROWS)
