"""Axes of a chart: the range of a curve, its ticks and their labels. For both charts."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np

# A positive curve gets a logarithmic scale if it spans more than this factor and half of
# it would lie in the lowest tenth of a linear one.
_WIDE = 20.0


@dataclass(frozen=True)
class Axis:
    """A range of values, linear or logarithmic."""

    low: float
    high: float
    log: bool = False

    def normalize(self, values: np.ndarray) -> np.ndarray:
        """Positions of values between the ends, 0 to 1."""
        low, high = (log10(self.low), log10(self.high)) if self.log else (self.low, self.high)
        # Halves: the difference of two large numbers may overflow.
        return (np.log10(values) / 2 - low / 2 if self.log else values / 2 - low / 2) / (
            high / 2 - low / 2
        )

    def ticks(self, most: int) -> list[float]:
        """Round numbers in the range, at most `most`."""
        if not self.log:
            return _round_numbers(self.low, self.high, most)
        first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
        ticks = [10.0**e for e in range(first, last + 1)]
        if 3 * len(ticks) <= most:
            ticks = [
                m * 10.0**e
                for e in range(first - 1, last + 1)
                for m in (1.0, 2.0, 5.0)
                if self.low <= m * 10.0**e <= self.high
            ]
        return ticks[:: ceil(len(ticks) / most)] if ticks else []


def value_axis(values: np.ndarray, log: bool | None) -> Axis:
    """The axis for the finite numbers in `values`; `log=None` chooses the scale."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return Axis(0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    if log is None:
        log = low > 0 and high / _WIDE > low and float(np.median(finite)) < high / 10
    if log and low > 0:
        return Axis(low / 1.1, high * 1.1, log=True)
    margin = (high / 2 - low / 2) * 0.1 or abs(high) * 0.1 or 1.0
    # A loss near 0 is shown as such: the axis starts at 0.
    return Axis(0.0 if 0 <= low < high / 4 else low - margin, high + margin)


def label(value: float) -> str:
    """A number in few characters."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    mantissa, exponent = f"{value:.3g}".partition("e")[::2]
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def count_label(count: float) -> str:
    """A number of steps: 1500 is 1.5k."""
    for size, suffix in ((1_000_000, "M"), (1_000, "k")):
        if count >= size and count % (size / 100) == 0:
            return f"{count / size:g}{suffix}"
    return f"{count:g}"


def _round_numbers(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    raw = (high / most - low / most) or 1.0
    power = 10.0 ** floor(log10(raw))
    unit = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * (1 - 1e-9))
    first, last = ceil(low / unit - 1e-9), floor(high / unit + 1e-9)
    # Dividing integers gives 0.3, multiplying gives 0.30000000000000004.
    return [n / round(1 / unit) if unit < 1 else n * unit for n in range(first, last + 1)]
