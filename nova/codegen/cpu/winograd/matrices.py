"""The matrices of Winograd convolutions, and code that multiplies vectors by one of them.

A tile of `m` by `m` outputs y of a 3x3 convolution reads `m + 2` by `m + 2` inputs d. With the
weights g (Lavin & Gray 2016):

    y = A^T ((G g G^T) * (B^T d B)) A

where `*` multiplies elements: `(m + 2)^2` multiplications instead of `9 m^2`. The matrices follow
from `m + 1` points at which polynomials are evaluated (Toom-Cook), and infinity. Points of
reciprocal pairs with both signs keep the rounding errors of F(4x4, 3x3) small, as Barabasz et al.
(2020) found: those of (0, 1, -1, 2, -2) are more than twice as large.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from math import prod

from nova.codegen.common.builder import splat
from nova.codegen.cpu.multiply_add import multiply_add
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir

TAPS = 3
"""Of a side of the kernel."""

_POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(2, 3), Fraction(-2, 3), Fraction(3, 2), Fraction(-3, 2)),
}

SIZES = tuple(_POINTS)
"""The outputs of a side of a tile that there are matrices for."""

Matrix = tuple[tuple[Fraction, ...], ...]


@record
class Matrices:
    """A^T (m x n), G (n x 3) and B^T (n x n), for n = m + 2."""

    outputs: Matrix
    weights: Matrix
    inputs: Matrix


@functools.cache
def matrices(m: int) -> Matrices:
    """The matrices of tiles with m outputs a side."""
    points = _POINTS[m]
    n = m + TAPS - 1
    last = [Fraction(0)] * (n - 1) + [Fraction(1)]
    outputs = [[*(p**i for p in points), Fraction(1 if i == m - 1 else 0)] for i in range(m)]
    weights = [[p**i / prod(p - q for q in points if q != p) for i in range(TAPS)] for p in points]
    inputs = [[*_polynomial([q for q in points if q != p]), Fraction(0)] for p in points]
    return Matrices(
        _frozen(outputs), _frozen([*weights, last[-TAPS:]]), _frozen([*inputs, _polynomial(points)])
    )


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the polynomial with these roots, that of the power 0 first."""
    terms = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *terms]
        terms = [a - root * b for a, b in zip(shifted, [*terms, Fraction(0)], strict=True)]
    return terms


def _frozen(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(row) for row in rows)


def emit_product(target: Target, matrix: Matrix, values: Sequence[ir.Value]) -> list[ir.Value]:
    """The product of a matrix with a column of vectors.

    Rows of points p and -p have equal elements up to the sign: the sum of the terms with equal
    signs, and that of the others, are computed once for both.
    """
    results: list[ir.Value | None] = [None] * len(matrix)
    for i, row in enumerate(matrix):
        if results[i] is not None:
            continue
        twin = _find_twin(matrix, i)
        if twin is None:
            results[i] = _emit_sum(target, row, values)
            continue
        equal = [a if a == b else Fraction(0) for a, b in zip(row, matrix[twin], strict=True)]
        other = [a if a != b else Fraction(0) for a, b in zip(row, matrix[twin], strict=True)]
        same, opposite = (_emit_sum(target, part, values) for part in (equal, other))
        results[i] = arith.addf(same, opposite)
        results[twin] = arith.subf(same, opposite)
    return [value for value in results if value is not None]


def _find_twin(matrix: Matrix, i: int) -> int | None:
    """A later row whose elements are those of row i, some of them with the other sign."""
    row = matrix[i]
    for j in range(i + 1, len(matrix)):
        pairs = [(a, b) for a, b in zip(row, matrix[j], strict=True) if a or b]
        signs = {a == b for a, b in pairs}
        if len(signs) == 2 and all(abs(a) == abs(b) for a, b in pairs):
            return j
    return None


def _emit_sum(target: Target, factors: Sequence[Fraction], values: Sequence[ir.Value]) -> ir.Value:
    """The sum of the values times their factors; those with factor 1 first."""
    terms = [(f, v) for f, v in zip(factors, values, strict=True) if f]
    terms.sort(key=lambda term: term[0] != 1)
    (factor, first), *rest = terms
    type_ = first.type
    total = first if factor == 1 else arith.mulf(splat(type_, float(factor)), first)
    for f, value in rest:
        if abs(f) == 1:
            total = (arith.addf if f == 1 else arith.subf)(total, value)
        else:
            total = multiply_add(target, splat(type_, float(f)), value, total)
    return total
