"""What the Jacobi methods for eigenvalues and singular values share: rounds of disjoint rotations.

A sweep rotates every pair of columns once, in n - 1 rounds of n / 2 disjoint pairs (i, i + n / 2);
the columns change places between rounds as the players of a round-robin tournament (Brent and Luk
1985). After a sweep every column is where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nova.graph.control.functions import fori_loop, while_loop
from nova.linalg.batches import adjoint
from nova.ops import F

_MOST_SWEEPS = 30


def tournament(n: int) -> np.ndarray:
    """The column that comes to each place after a round; the first one stays."""
    half = n // 2
    top, bottom = list(range(half)), list(range(half, n))
    if half == 1:
        return np.arange(n)
    next_top = [top[0], bottom[0], *top[1:-1]]
    next_bottom = [*bottom[1:], top[-1]]
    return np.array([*next_top, *next_bottom])


def rotation(first: Any, second: Any, product: Any) -> tuple[Any, Any]:
    """Cosine and sine of the rotations that make `product` zero (Golub and Van Loan, 8.5).

    `first` and `second` are the diagonal elements (squared norms of columns).
    """
    is_zero = F.eq(product, 0.0)
    ratio = (second - first) / (2.0 * F.where(is_zero, 1.0, product))
    sign = F.where(ratio >= 0.0, 1.0, -1.0)
    tangent = sign / (F.abs(ratio) + F.hypot(F.ones_like(ratio), ratio))
    tangent = F.where(is_zero, 0.0, tangent)
    cosine = F.rsqrt(1.0 + tangent * tangent)
    return cosine, tangent * cosine


def phased_rotation(first: Any, second: Any, product: Any) -> tuple[Any, ...]:
    """The rotation of a product that may be complex: a third value is its conjugate phase."""
    if not product.dtype.is_complex:
        return rotation(first, second, product)
    phase = F.where(F.eq(product, 0.0), 1.0, F.conj(F.sign(product)))
    return (*rotation(first, second, F.abs(product)), phase)


def rotate_columns(x: Any, cosine: Any, sine: Any, phase: Any = None) -> Any:
    """The columns i and i + n / 2 of each matrix, rotated by one angle each.

    The second column is multiplied with `phase` first, which makes its product with the first real.
    """
    half = x.shape[2] // 2
    first, second = F.narrow(x, 2, 0, half), F.narrow(x, 2, half, half)
    second = second if phase is None else second * F.unsqueeze(phase, 1)
    c, s = F.unsqueeze(cosine, 1), F.unsqueeze(sine, 1)
    return F.concat([c * first - s * second, s * first + c * second], axis=2)


def sweep_until(
    state: Any,
    rounds: int,
    round_function: Callable[[Any], Any],
    residual: Callable[[Any], Any],
    tolerance: float,
    before: Callable[[Any], Any] = lambda state: state,
) -> Any:
    """Sweeps of rounds until the residual of every matrix is at most the tolerance.

    `before` prepares the state for a sweep.
    """

    def unfinished(value: Any) -> Any:
        count, largest, _ = value
        return (count < _MOST_SWEEPS) & (largest > tolerance)

    def largest_residual(current: Any) -> Any:
        # A matrix with NaN does not converge, and does not stop the others.
        values = residual(current)
        return F.max(F.where(F.isnan(values), 0.0, values))

    def sweep(value: Any) -> Any:
        count, _, current = value
        current = fori_loop(0, rounds, lambda _, s: round_function(s), before(current))
        return count + 1, largest_residual(current), current

    start = (F.full((), 0, dtype="i64"), largest_residual(state), state)
    return while_loop(unfinished, sweep, start)[2]


def scales(x: Any) -> Any:
    """The largest magnitude of each matrix, 1 if it is 0 or not finite: (batch, 1, 1).

    Squares of elements of a scaled matrix neither overflow nor vanish.
    """
    largest = F.max(F.abs(x), axis=(1, 2), keepdims=True)
    return F.where(F.isfinite(largest) & (largest > 0.0), largest, 1.0)


def orthonormal(vectors: Any) -> Any:
    """Nearly orthonormal columns after one Newton-Schulz step: rounding of many rotations goes."""
    gram = F.matmul(adjoint(vectors), vectors)
    return 1.5 * vectors - 0.5 * F.matmul(vectors, gram)
