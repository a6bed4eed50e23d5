"""Sizes that are known only at run time.

A size is an `int` or a `SizeExpr`, an expression over symbols (`nova.dim`): see
`nova/core/sizes/algebra.py`. Static programs have plain ints everywhere and never create an
expression. Comparisons that the bounds of the symbols do not decide raise `SymbolicSizeError`
instead of guessing; `known_equal` and `known_less` ask without raising. `parse_size(str(size))` is
the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd

from nova.core.sizes.algebra import (
    MAX_SIZE,
    Compound,
    Dim,
    Shape,
    Size,
    SizeExpr,
    bounds,
    evaluate,
    is_equal,
    is_less,
    size_max,
    size_min,
    size_of,
    surely_at_most,
    symbols_of,
)
from nova.core.sizes.text import parse_size
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError

__all__ = [
    "MAX_SIZE",
    "Dim",
    "Shape",
    "Size",
    "SizeExpr",
    "at_most",
    "bounds",
    "ceildiv",
    "common_factor",
    "dim",
    "evaluate",
    "find_choices",
    "grows",
    "is_multiple",
    "is_static",
    "is_static_shape",
    "known_equal",
    "known_less",
    "parse_size",
    "same_shape",
    "size_max",
    "size_min",
    "size_of",
    "substitute",
    "symbols_of",
]

_LARGE = 1 << 30


@user_facing
def dim(name: str, min: int = 1, max: int | None = None) -> SizeExpr:
    """A size known at run time, between `min` and `max`: `nova.dim("B", min=1, max=4096)`.

    `max` is 2**31 - 1 where it is not given. An axis may be empty at run time if `min` is 0.
    """
    if not isinstance(name, str) or not name.isidentifier() or name in ("max", "min"):
        raise AttributeValueError(
            f"a dim needs an identifier as its name, not {name!r}", hint='as in nova.dim("B")'
        )
    high = MAX_SIZE if max is None else max
    for title, bound in (("min", min), ("max", high)):
        if type(bound) is not int or not 0 <= bound <= MAX_SIZE:
            raise AttributeValueError(
                f"{title} of dim {name!r} is {bound!r}, not an int of 0..{MAX_SIZE}"
            )
    if min > high:
        raise AttributeValueError(f"dim {name!r} has min={min} above max={high}")
    return size_of(Dim(name, min, high))


def is_static(size: Size) -> bool:
    """Whether a size is a plain number."""
    return not isinstance(size, SizeExpr)


def is_static_shape(shape: Iterable[Size]) -> bool:
    """Whether all sizes of a shape are plain numbers."""
    return not any(isinstance(size, SizeExpr) for size in shape)


def known_equal(first: Size, second: Size) -> bool:
    """Whether two sizes are equal for all values of the symbols."""
    if isinstance(first, int) and isinstance(second, int):
        return first == second
    return is_equal(first, second) is True


def known_less(first: Size, second: Size) -> bool:
    """Whether `first < second` for all values of the symbols."""
    return is_less(first, second) is True


def at_most(first: Size, second: Size) -> bool:
    """Whether `first <= second` for all values of the symbols."""
    return surely_at_most(first, second)


def same_shape(first: Sequence[Size], second: Sequence[Size]) -> bool:
    """Whether two shapes are equal for all values of the symbols."""
    return len(first) == len(second) and all(map(known_equal, first, second))


def common_factor(size: Size) -> int:
    """The largest number known to divide a size for all values of the symbols."""
    if isinstance(size, int):
        return abs(size)
    return gcd(*(coefficient for _, coefficient in size.terms))


def is_multiple(size: Size, divisor: int) -> bool:
    """Whether a number divides a size for all values of the symbols."""
    remainder = size % divisor
    return isinstance(remainder, int) and remainder == 0


def grows(size: Size) -> bool:
    """Whether a size is a number, or takes large values for large symbols; a remainder does not."""
    return is_static(size) or abs(evaluate(size, {d.name: _LARGE for d in symbols_of([size])})) > 64


def ceildiv(size: Size, divisor: Size) -> Size:
    """The quotient, rounded up. The divisor is positive."""
    return (size + divisor - 1) // divisor


def find_choices(size: Size) -> Iterator[Compound]:
    """The maxima and minima in a size."""
    for monomial, _ in size.terms if isinstance(size, SizeExpr) else ():
        for atom, _ in monomial:
            if isinstance(atom, Compound) and atom.function != "floordiv":
                yield atom
            for part in atom.parts():
                yield from find_choices(part)


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """The size with some symbols replaced by other sizes."""
    if not isinstance(size, SizeExpr):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        term: Size = coefficient
        for atom, power in monomial:
            if isinstance(atom, Dim):
                factor = values.get(atom.name, size_of(atom))
            else:
                factor = atom.rebuild([substitute(part, values) for part in atom.parts()])
            for _ in range(power):
                term = term * factor
        total = total + term
    return total
