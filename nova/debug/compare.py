"""Comparison of two computations of one value: tolerances by dtype, op and conditioning.

In: the compiled value, the oracle's value, and the oracle's sensitivity to noise. Out:
a `Difference` with the worst element, or None. Called by the checked runs.

Integers and bools must be equal. A float of an elementwise primitive may differ by a few units in
the last place. If sums or several roundings are involved, an element may also differ by a
multiple of its change under noise in the last place of the operands (and of every value inside a
composite); this allows for cancellation, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

from nova.core.dtypes import dtype
from nova.debug.oracle import Noise, epsilon, step_value
from nova.ops import OPS
from nova.plan import Step

_SAMPLES = 5
_UNITS = 32.0
_SPREADS = 8.0
# Functions whose tails are small differences of larger numbers.
_CANCELLING = frozenset({"gelu", "mish", "silu", "softplus", "elu"})


@dataclass(frozen=True)
class Difference:
    """The worst element of a wrong value."""

    index: tuple[int, ...]
    actual: Any
    expected: Any
    wrong: int
    size: int

    def __str__(self) -> str:
        at = f" at {list(self.index)}" if self.index else ""
        text = f"compiled {self.actual!s}, oracle {self.expected!s}{at}"
        return text + (f"; {self.wrong} of {self.size} elements differ" if self.size > 1 else "")


@dataclass(frozen=True)
class Spread:
    """How far a value moved under noise, and where its class changed (NaN, infinity, integer)."""

    distance: np.ndarray
    unsure: np.ndarray


def find_difference(
    actual: np.ndarray,
    expected: np.ndarray,
    *,
    relative: float,
    absolute: np.ndarray | float = 0.0,
    spread: Spread | None = None,
    factor: float = _SPREADS,
) -> Difference | None:
    """The worst element, or None if all agree.

    An element may differ by `relative` epsilons of its dtype, `absolute`, and `factor` spreads.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return Difference(
            (), f"{actual.dtype}{actual.shape}", f"{expected.dtype}{expected.shape}", 1, 1
        )
    type_ = dtype(expected.dtype)
    unsure = np.zeros(expected.shape, bool) if spread is None else spread.unsure
    if not type_.is_float:
        bad = (actual != expected) & ~unsure
        excess = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        return _worst(bad, excess, actual, expected)
    wide_actual, wide_expected = actual.astype(np.float64), expected.astype(np.float64)
    allowed = relative * epsilon(type_) * np.abs(wide_expected) + _smallest(expected.dtype)
    allowed = allowed + absolute
    if spread is not None:
        allowed = allowed + factor * spread.distance
    with np.errstate(all="ignore"):
        distance = np.abs(wide_actual - wide_expected)
        bad = ~(distance <= allowed)
    equal = (wide_actual == wide_expected) | (np.isnan(wide_actual) & np.isnan(wide_expected))
    bad &= ~equal & ~unsure & ~_overflowing(wide_actual, wide_expected, expected.dtype)
    excess = np.where(np.isfinite(distance), distance, np.inf)
    return _worst(bad, excess, actual, expected)


def find_result_difference(
    step: Step,
    index: int,
    arrays: Sequence[np.ndarray],
    actual: np.ndarray,
    rng: np.random.Generator,
) -> Difference | None:
    """The difference of one result of a loop, branch or call from the oracle's."""
    expected = step_value(step, arrays)[index]
    first = find_difference(actual, expected, relative=_UNITS)
    if first is None:
        return None
    spread = measure_spread(expected, lambda noise: _noisy(step, arrays, noise)[index], rng)
    factor = _SPREADS + 2 * sqrt(_terms(arrays, expected))
    return find_difference(actual, expected, relative=_UNITS, spread=spread, factor=factor)


def find_step_difference(
    step: Step, arrays: Sequence[np.ndarray], actual: np.ndarray, rng: np.random.Generator
) -> Difference | None:
    """The difference of a step's compiled value from the oracle's, for the same arguments."""
    expected = step_value(step, arrays)
    row = OPS[step.op]
    terms = sqrt(_terms(arrays, expected))
    is_simple = row.kind == "primitive" and "elementwise" in row.tags
    relative = _UNITS if is_simple else _UNITS + 4 * terms
    first = find_difference(actual, expected, relative=relative, absolute=_cancelled(step, arrays))
    if first is None or is_simple:
        return first
    spread = measure_spread(expected, lambda noise: _noisy(step, arrays, noise), rng)
    if row.kind == "primitive" and not step.out_type.dtype.is_float:
        return first  # indices and bools are exact functions of the operands
    return find_difference(
        actual, expected, relative=relative, spread=spread, factor=_SPREADS + 2 * terms
    )


def measure_spread(
    expected: np.ndarray, run: Callable[[Noise], np.ndarray], rng: np.random.Generator
) -> Spread:
    """The distance of `run` under noise from `expected`, over a few samples."""
    return collect_spread(expected, [run(Noise(rng)) for _ in range(_SAMPLES)])


def collect_spread(expected: np.ndarray, samples: Sequence[np.ndarray]) -> Spread:
    """The elementwise maximum distance of samples from `expected`."""
    distance = np.zeros(expected.shape)
    unsure = np.zeros(expected.shape, bool)
    wide = expected.astype(np.float64)
    is_float = dtype(expected.dtype).is_float
    for sample in samples:
        moved = sample.astype(np.float64)
        with np.errstate(all="ignore"):
            error = np.abs(moved - wide)
        unsure |= (np.isfinite(moved) != np.isfinite(wide)) if is_float else moved != wide
        distance = np.maximum(distance, np.where(np.isfinite(error), error, 0.0))
    return Spread(distance, unsure)


def _noisy(step: Step, arrays: Sequence[np.ndarray], noise: Noise) -> Any:
    moved = [noise.move(a, dtype(a.dtype)) for a in arrays]
    return step_value(step, moved, noise)


def _cancelled(step: Step, arrays: Sequence[np.ndarray]) -> np.ndarray | float:
    """The possible cancellation of 1 - erf(x) and the like inside an activation."""
    if step.op not in _CANCELLING:
        return 0.0
    x = np.abs(arrays[0].astype(np.float64))
    return 8 * epsilon(dtype(arrays[0].dtype)) * np.where(np.isfinite(x), x, 0.0)


def _terms(arrays: Sequence[np.ndarray], out: np.ndarray) -> int:
    """Approximate number of terms that are summed in one element of the result."""
    longest = max((max(a.shape, default=1) for a in arrays), default=1)
    return max([longest, *(a.size // max(1, out.size) for a in arrays)])


def _smallest(type_: np.dtype) -> float:
    """The loss by underflow: subnormal numbers have few digits."""
    info = ml_dtypes.finfo(type_)
    return float(info.smallest_normal if info.bits > 16 else 4 * info.smallest_subnormal)


def _overflowing(actual: np.ndarray, expected: np.ndarray, type_: np.dtype) -> np.ndarray:
    """Where one value is infinite and the other nearly so."""
    largest = 0.99 * float(ml_dtypes.finfo(type_).max)
    near = (np.abs(actual) >= largest) & (np.abs(expected) >= largest)
    return near & (np.sign(actual) == np.sign(expected))


def _worst(
    bad: np.ndarray, excess: np.ndarray, actual: np.ndarray, expected: np.ndarray
) -> Difference | None:
    if not bad.any():
        return None
    flat = int(np.argmax(np.where(bad, excess, -1.0)))
    index = tuple(int(i) for i in np.unravel_index(flat, bad.shape)) if bad.shape else ()
    return Difference(index, actual[index], expected[index], int(bad.sum()), bad.size)
