"""Sums of Chebyshev polynomials, by Clenshaw's recurrence."""

from __future__ import annotations

from typing import Any


def chebyshev(F: Any, t: Any, coefficients: tuple[float, ...]) -> Any:
    """The sum of c[k] * T_k(t), t in -1..1."""
    last, before = F.zeros_like(t) + coefficients[-1], F.zeros_like(t)
    for c in reversed(coefficients[1:-1]):
        last, before = 2.0 * t * last - before + c, last
    return t * last - before + coefficients[0]
