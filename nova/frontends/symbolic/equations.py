"""The unknown sizes of an imported program, and the equations between them.

Every `?` of an argument is a dim. Ops and assertions of the program force sizes to be equal, or
bound them from below: `Equations` solves each of these for a dim, and raises `Solved`, after which
the inference starts again with the smaller set of unknowns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nova.core.sizes import (
    MAX_SIZE,
    Dim,
    Size,
    SizeExpr,
    bounds,
    evaluate,
    known_equal,
    size_of,
    substitute,
)
from nova.core.sizes.algebra import Compound
from nova.errors import SymbolicImportError

_LARGE = 1 << 20
_MOST_STEPS = 64
"""Attempts of a lower bound that an assertion asks for."""


class Solved(Exception):
    """An equation was solved: sizes that were computed before are out of date."""


class Equations:
    """The dims of a program, and the sizes that others of its dims turned out to be."""

    def __init__(self) -> None:
        self.dims: dict[str, Dim] = {}
        self._solutions: dict[str, Size] = {}

    def unknown(self, name: str, size: Size | None = None) -> Size:
        """The size of an axis: `size`, if the caller names one, or a dim of its own."""
        if size is not None:
            for dim in size.symbols if isinstance(size, SizeExpr) else ():
                self.dims.setdefault(dim.name, dim)
            return self.current(size)
        if name not in self.dims and name not in self._solutions:
            self.dims[name] = Dim(name, 0, MAX_SIZE)
        return self.current(size_of(Dim(name)))

    def current(self, size: Size) -> Size:
        """A size in terms of the dims that remain, with their bounds of now."""
        for _ in range(len(self._solutions) + 1):
            values: dict[str, Size] = {name: size_of(dim) for name, dim in self.dims.items()}
            size = substitute(size, {**values, **self._solutions})
        return size

    def rename(self, names: Mapping[str, str]) -> bool:
        """Give dims the names that the program has for them; whether one got another name."""
        renamed = False
        for old, new in names.items():
            is_free = old in self.dims and _GENERATED.search(old) is not None
            if is_free and new not in self.dims and new not in self._solutions:
                self.dims[new] = replace(self.dims.pop(old), name=new)
                self._solutions[old] = size_of(self.dims[new])
                renamed = True
        return renamed

    def equate(self, first: Size, second: Size, subject: str) -> None:
        """Record that two sizes are equal; SymbolicImportError if no dim is a solution."""
        if known_equal(first, second):
            return
        difference = first - second
        if isinstance(difference, int):
            raise SymbolicImportError(f"{subject}: the sizes {first} and {second} differ")
        for dim in _by_preference(difference):
            solution = _solve(difference, dim)
            if solution is not None:
                del self.dims[dim.name]
                self._solutions[dim.name] = solution
                if isinstance(solution, SizeExpr):
                    self._keep_bounds(dim, solution)
                raise Solved
        multiple = _remainder(difference)
        if multiple is not None:
            dim, offset, factor = multiple
            low, high = -(-(dim.min + offset) // factor), (dim.max + offset) // factor
            part = Dim(_free(dim.name, self.dims, f"div{factor}"), low, high)
            self.dims[part.name] = part
            del self.dims[dim.name]
            self._solutions[dim.name] = size_of(part) * factor - offset
            raise Solved
        raise SymbolicImportError(
            f"{subject}: {first} and {second} must be equal, and no dim is a solution of that"
        )

    def at_least(self, size: Size, least: int, subject: str) -> None:
        """Record that a size is `least` or more, as a bound of its dim."""
        if bounds(size)[0] >= least:
            return
        if not isinstance(size, SizeExpr):
            raise SymbolicImportError(f"{subject}: {size} >= {least} is not true")
        dim, *others = size.symbols
        if others:
            self._exceed(size, least, subject)
        for tighter in _tighter(dim, size, least):
            if bounds(substitute(size, {dim.name: size_of(tighter)}))[0] >= least:
                self.dims[dim.name] = tighter
                raise Solved
        raise SymbolicImportError(f"{subject}: {size} >= {least} is not a bound of one dim")

    def exclude_least(self, dim: Dim) -> None:
        """Record that a dim is more than its lower bound."""
        self.dims[dim.name] = replace(self.dims[dim.name], min=dim.min + 1)
        raise Solved

    def _exceed(self, size: SizeExpr, least: int, subject: str) -> None:
        """Let a dim be the sum of other sizes and of a new dim, for `size >= least`."""
        difference: SizeExpr = size - least
        for dim in _by_preference(difference):
            solution = _solve(difference, dim)
            is_added = any(m == ((dim, 1),) and n == 1 for m, n in difference.terms)
            if solution is not None and is_added:
                excess = Dim(_free(dim.name, self.dims, "excess"), 0, MAX_SIZE)
                self.dims[excess.name] = excess
                del self.dims[dim.name]
                self._solutions[dim.name] = solution + size_of(excess)
                raise Solved
        raise SymbolicImportError(f"{subject}: {size} >= {least} is not a bound of a dim")

    def _keep_bounds(self, dim: Dim, solution: SizeExpr) -> None:
        """The bounds of a solved dim hold for its solution; those of one dim can say so."""
        if solution.symbol is not None:
            other = self.dims[solution.symbol.name]
            low, high = max(dim.min, other.min), min(dim.max, other.max)
            if low > high:
                raise SymbolicImportError(f"{dim} and {other} are equal and have no common size")
            self.dims[other.name] = replace(other, min=low, max=high)


def _tighter(dim: Dim, size: SizeExpr, least: int) -> list[Dim]:
    """Bounds of `dim` to try: larger lower bounds, then smaller upper bounds."""
    lows = range(dim.min + 1, min(dim.min + _MOST_STEPS, dim.max) + 1)
    slope = substitute(size, {dim.name: dim.min}), substitute(size, {dim.name: dim.min + 1})
    if isinstance(slope[0], int) and isinstance(slope[1], int) and slope[1] != slope[0]:
        # The bound of a linear size is exact.
        step = slope[1] - slope[0]
        exact = dim.min + (least - slope[0]) // step
        if step < 0:
            return [replace(dim, max=exact)] if dim.min <= exact <= dim.max else []
        exact = dim.min - (slope[0] - least) // step
        if dim.min < exact <= dim.max:
            return [replace(dim, min=exact), *(replace(dim, min=low) for low in lows)]
    return [replace(dim, min=low) for low in lows]


def _by_preference(size: SizeExpr) -> list[Dim]:
    """The dims of an equation: those with generated names first, which no user chose."""
    return sorted(size.symbols, key=lambda dim: (_GENERATED.search(dim.name) is None, dim.name))


_GENERATED = re.compile(r"_\d+$")


def _solve(difference: SizeExpr, dim: Dim) -> Size | None:
    """`dim` from `difference == 0`, where it is linear with the factor 1 or -1; else None."""
    for monomial, factor in difference.terms:
        if monomial == ((dim, 1),) and factor in (1, -1):
            others = difference - factor * size_of(dim)
            if not isinstance(others, SizeExpr) or dim not in others.symbols:
                solution = -factor * others
                # Code is generated for large sizes: a size that falls with others has none.
                large = {other.name: _LARGE for other in difference.symbols}
                return solution if evaluate(solution, large) >= 0 else None
    return None


def _remainder(difference: SizeExpr) -> tuple[Dim, int, int] | None:
    """The dim, the offset and the divisor, if a size is the remainder of `dim + offset`.

    The offset is in (-divisor, 0].
    """
    for monomial, _ in difference.terms:
        for atom, power in monomial:
            if not isinstance(atom, Compound) or atom.function != "floordiv" or power != 1:
                continue
            shifted = _shifted_dim(atom.first)
            if shifted is None or not isinstance(atom.second, int) or atom.second < 1:
                continue
            remainder = atom.first - (atom.first // atom.second) * atom.second
            if not isinstance(remainder, SizeExpr):
                continue
            # Up to a factor: `(n - n // 2 * 2) * m` is zero for an even n.
            quotient, leading = difference.terms[0][1], remainder.terms[0][1]
            factor = quotient // leading if leading and quotient % leading == 0 else 0
            if factor and known_equal(difference, factor * remainder):
                dim, offset = shifted
                return dim, -(-offset % atom.second), atom.second
    return None


def _shifted_dim(size: Size) -> tuple[Dim, int] | None:
    """The dim and the number, if a size is their sum."""
    if not isinstance(size, SizeExpr) or len(size.symbols) != 1:
        return None
    (dim,) = size.symbols
    offset = size - size_of(dim)
    return (dim, offset) if isinstance(offset, int) else None


def _free(name: str, dims: Mapping[str, Dim], part: str) -> str:
    """A name for a part of a dim."""
    base = _GENERATED.sub("", name)
    candidates = (f"{base}_{part}_{i}" for i in range(len(dims) + 1))
    return next(candidate for candidate in candidates if candidate not in dims)
