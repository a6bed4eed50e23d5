"""A contender of a workload: a call to time, and how to read its result.

Workloads build `Case`s; `harness.worker` checks and times them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from timeit import Timer
from typing import Any

import numpy as np

THREADS = int(os.environ.get("BENCH_THREADS", "1"))
"""How many threads the contenders of this process may use."""


def read_all(result: Any) -> list[np.ndarray]:
    """A result, or a nest of tuples and lists of them, as numpy arrays in order."""
    if isinstance(result, (tuple, list)):
        return [array for item in result for array in read_all(item)]
    if hasattr(result, "detach"):
        result = result.detach()
    return [np.asarray(result)]


@dataclass(frozen=True)
class Case:
    """`function(*args, **kwargs)` is what is timed; `read` turns its value into numpy arrays."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Any], list[np.ndarray]] = read_all

    def result(self) -> list[np.ndarray]:
        return self.read(self.function(*self.args, **self.kwargs))

    def timer(self) -> Timer:
        """A loop over the plain call: no wrapper, no unpacking of arguments in it."""
        names = {f"a{i}": value for i, value in enumerate(self.args)}
        text = ", ".join([*names, *(f"{key}=k_{key}" for key in self.kwargs)])
        names |= {f"k_{key}": value for key, value in self.kwargs.items()}
        return Timer(f"f({text})", globals={"f": self.function, **names})


class WrongResult(Exception):
    """A contender does not compute what the workload says."""


def worst_error(
    results: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float
) -> float:
    """The largest error relative to an array's largest value; WrongResult over `tolerance`."""
    if len(results) != len(expected):
        raise WrongResult(f"{len(results)} results, {len(expected)} wanted")
    worst = 0.0
    for i, (result, reference) in enumerate(zip(results, map(np.asarray, expected), strict=True)):
        if result.size != reference.size:
            raise WrongResult(f"result {i} has shape {result.shape}, not {reference.shape}")
        error = _largest_difference(result.reshape(-1), reference.reshape(-1)) / max(
            float(np.abs(reference).max(initial=0)), 1e-30
        )
        if not error <= tolerance:
            raise WrongResult(f"result {i} is off by {error:.1e} of its largest value")
        worst = max(worst, error)
    return worst


def _largest_difference(result: np.ndarray, reference: np.ndarray) -> float:
    """By blocks: whole arrays in between would take far longer than the comparison. NaN if any."""
    blocks = range(0, reference.size, 1 << 18)
    differences = [
        np.abs(
            result[at : at + (1 << 18)].astype(np.float64) - reference[at : at + (1 << 18)]
        ).max()
        for at in blocks
    ]
    return float(np.max(differences, initial=0))
