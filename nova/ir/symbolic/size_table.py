"""Symbolic sizes in IR: types have representative sizes, and code generation reads expressions.

Every dim of a symbolic program has a representative: a prime that divides no static number of the
program. A dimension of size `B*64` is written `64576` where B has the representative 1009. Passes
on tensors, kernel formation, bufferization and the workspace plan see plain numbers; two sizes are
the same number only if they are the same expression, because a polynomial that is zero at such a
point is zero everywhere with near certainty (Schwartz-Zippel). `main` lists the dims
(`nova.dims`) and the expressions that are not products of dims (`nova.sizes`).

`SizeTable.size` maps a number back to its expression; a number that is not the value of one is a
LoweringError, so no size is baked into code. Inside of `SizeTable.active()` the function
`shape_of` of nova/ir/linalg/generic.py returns expressions, and code generation is symbolic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from math import isqrt, log2
from typing import Any, TypeAlias

from nova.core.records import record
from nova.core.sizes import (
    MAX_SIZE,
    Dim,
    Size,
    SizeExpr,
    bounds,
    evaluate,
    parse_size,
    size_of,
    substitute,
)
from nova.errors import LoweringError
from nova.ir.attributes import DIMS, SIZES
from nova.ir.bindings import ir

Extent: TypeAlias = Any
"""A size in code generation: an int, or a `SizeExpr` while a symbolic program is lowered. Not a
union: a schedule that needs a number raises SymbolicSizeError when it uses an expression as one."""

_FIRST, _FEW_DIMS = 4096, 4
"""Representatives are larger than this, or a quarter of it if a program has many dims, whose
products must fit into 64 bits: code is generated for large sizes, with tails."""

_LEAST_MARKER = 67
"""Smallest prime that marks the value of an expression: it divides no static number."""

_MOST_ELEMENTS = 1 << 40
"""Elements of a tensor of representative sizes, roughly."""

_ATTEMPTS = 64
"""Primes that are tried before larger ones."""

_MOST_ATTEMPTS = 28 * _ATTEMPTS
"""A size that does not grow with its dims, such as a remainder, has no representative."""

_DIM = re.compile(r"(\w+)=(\d+) (\d+) (\d+)")

_ACTIVE: ContextVar[SizeTable | None] = ContextVar("size_table", default=None)


@record
class SizeTable:
    """The dims of a program with their representatives, and its expressions over them."""

    dims: tuple[Dim, ...]
    representatives: Mapping[str, int]
    sizes: tuple[SizeExpr, ...]
    typical_dims: tuple[tuple[str, int], ...] = ()
    """Dims that decisions take for other numbers, see `with_typical`."""

    # --- text -----------------------------------------------------------------------------------

    @staticmethod
    def of(main: Any) -> SizeTable | None:
        """The table of a program; None for a program with static sizes."""
        rows = DIMS.find(main)
        if rows is None:
            return None
        matches = [_DIM.fullmatch(row) for row in rows]
        fields = [match.groups() for match in matches if match is not None]
        if len(fields) != len(rows):
            raise LoweringError(
                f"{DIMS.name} is {list(rows)}", hint='a dim is written "B=1009 1 4096"'
            )
        dims = tuple(Dim(name, int(low), int(high)) for name, _, low, high in fields)
        named = {dim.name: dim for dim in dims}
        sizes = [parse_size(text, named) for text in SIZES.find(main) or ()]
        values = {name: int(value) for name, value, _, _ in fields}
        return SizeTable(dims, values, tuple(s for s in sizes if isinstance(s, SizeExpr)))

    def write(self, main: Any) -> None:
        """Store the table on `main`."""
        rows = [f"{d.name}={self.representatives[d.name]} {d.min} {d.max}" for d in self.dims]
        DIMS.set(main, tuple(rows))
        SIZES.set(main, tuple(str(size) for size in self.sizes))

    # --- numbers --------------------------------------------------------------------------------

    def representative(self, size: Size) -> int:
        """The number that stands for a size in IR."""
        return evaluate(size, self.representatives)

    def typical(self, size: Size) -> int:
        """The number that decisions about performance use for a size.

        Dims are the powers of two next to their representatives: tiles have even sizes, and the
        code does not depend on which primes were chosen.
        """
        return evaluate(size, self._powers)

    @cached_property
    def _powers(self) -> dict[str, int]:
        powers = {name: 1 << round(log2(n)) for name, n in self.representatives.items()}
        return {**powers, **dict(self.typical_dims)}

    def with_typical(self, size: SizeExpr, number: int) -> SizeTable:
        """The same table, with decisions for sizes where `size` is about `number`."""
        unit = evaluate(size, {dim.name: 1 for dim in self.dims})
        each = max(1, round((number / max(1, unit)) ** (1 / len(size.symbols))))
        return replace(self, typical_dims=tuple((dim.name, each) for dim in size.symbols))

    def size(self, number: int) -> Size:
        """The expression that a number of the IR stands for; static numbers unchanged."""
        if number < 0:
            return -self.size(-number)
        if number not in self._decoded:
            self._decoded[number] = self._factored(number)
        return self._decoded[number]

    def position(self, number: int) -> Size:
        """The size, or a size plus or minus one, that an integer constant stands for.

        Positions such as the last index of an axis are next to a size.
        """
        if number < 0:
            return -self.position(-number)
        for step in (0, 1, -1):
            if number + step > _LEAST_MARKER and self.is_symbolic(number + step):
                return self.size(number + step) - step
        return number

    def is_symbolic(self, number: int) -> bool:
        """Whether a number is the value of an expression over the dims, and not static."""
        return any(number % prime == 0 for prime in self._markers)

    @cached_property
    def _markers(self) -> set[int]:
        return {p for size in self._generic for p in _markers(self.representative(size))}

    @cached_property
    def _decoded(self) -> dict[int, Size]:
        exact = {self.representative(size): size for size in self._generic}
        return {0: 0, 1: 1, **exact}

    @cached_property
    def generic_dims(self) -> dict[str, Dim]:
        """The dims by name, 2 or more each and without upper bounds that are not theirs.

        Decisions of code generation are those for large sizes: a size is then known to be neither 0
        nor 1. The code is correct for both because loops with dynamic bounds are. The bounds hold
        for the representatives, too: nothing is folded that is not true for them.
        """
        return {d.name: Dim(d.name, max(2, d.min), self._greatest(d)) for d in self.dims}

    def _greatest(self, dim: Dim) -> int:
        """The upper bound of a dim, if it holds for its representative."""
        return dim.max if self.representatives[dim.name] <= dim.max else MAX_SIZE

    @cached_property
    def _generic(self) -> list[SizeExpr]:
        """Dims and expressions over the generic dims."""
        generic = {name: size_of(dim) for name, dim in self.generic_dims.items()}
        sizes = [*map(size_of, self.dims), *self.sizes]
        return [s for s in (substitute(s, generic) for s in sizes) if isinstance(s, SizeExpr)]

    def _factored(self, number: int) -> Size:
        factors = [(self.representative(size), size) for size in self._generic]
        product = _factor(number, sorted(factors, key=lambda f: -f[0]), self._markers)
        if product is None:
            raise LoweringError(
                f"the size {number} of a tensor is not an expression over the dims of the program",
                hint=f"list the expression in {SIZES.name} of @main",
            )
        return product

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make `shape_of` return expressions."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)


def _factor(number: int, factors: Sequence[tuple[int, SizeExpr]], markers: set[int]) -> Size | None:
    """`number` as a static factor times expressions; None if a marker prime remains."""
    if not any(number % prime == 0 for prime in markers):
        return number
    for i, (value, size) in enumerate(factors):
        if value > 1 and number % value == 0:
            inner = _factor(number // value, factors[i:], markers)
            if inner is not None:
                return size * inner
    return None


def _markers(number: int) -> list[int]:
    return [prime for prime in _prime_factors(number) if prime >= _LEAST_MARKER]


def _prime_factors(number: int) -> list[int]:
    factors, divisor = [], 2
    while divisor <= isqrt(number):
        if number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        else:
            divisor += 1
    return [*factors, number] if number > 1 else factors


# --- the active table -----------------------------------------------------------------------------


def active_table() -> SizeTable | None:
    """The table of the program that is lowered; None for a static program."""
    return _ACTIVE.get()


@contextmanager
def sizes_of(main: Any) -> Iterator[SizeTable | None]:
    """Make the table of `main` active, if it has one."""
    table = SizeTable.of(main)
    if table is None:
        yield None
        return
    with table.active():
        yield table


def copy_sizes(main: Any, region: Any) -> None:
    """Give the `main` of a region the table of the program that contains it."""
    if (table := SizeTable.of(main)) is not None:
        table.write(region)


def decoded(shape: Sequence[int]) -> tuple[Any, ...]:
    """A shape of the IR with expressions where it is symbolic."""
    table = _ACTIVE.get()
    return tuple(shape) if table is None else tuple(map(table.size, shape))


def representative(size: Size) -> int:
    """The number that stands for a size in IR."""
    if isinstance(size, int):
        return size
    table = _ACTIVE.get()
    if table is None:
        raise LoweringError(f"the size {size} in a program with static sizes")
    return table.representative(size)


def typical(size: Size) -> int:
    """The number that decisions about performance use for a size, see `SizeTable.typical`."""
    if isinstance(size, int):
        return size
    table = _ACTIVE.get()
    if table is None:
        raise LoweringError(f"the size {size} in a program with static sizes")
    return table.typical(size)


def bounds_of(size: Size) -> tuple[int, int]:
    """The least and the greatest value of a size, by the bounds of the dims."""
    table = _ACTIVE.get()
    if isinstance(size, int) or table is None:
        return bounds(size)
    return bounds(substitute(size, {d.name: size_of(d) for d in table.dims}))


def least_size(size: Size) -> int:
    """The least value of a size, by the lower bounds of the dims.

    Bounds checks depend on it: the generic dims are 2 or more, a dim of a call may be 0 or 1.
    """
    return bounds_of(size)[0]


def longest_size(size: Size) -> int:
    """The greatest value of a size, by the upper bounds of the dims."""
    return bounds_of(size)[1]


def is_number(size: Size, *numbers: int) -> bool:
    """Whether a size is static and one of `numbers`."""
    return isinstance(size, int) and size in numbers


def static_size(number: int, construct: str) -> int:
    """`number`, a size that decides the code of `construct`; LoweringError if it is symbolic.

    Called where ops are written, with an insertion point inside of `main`.
    """
    op = ir.InsertionPoint.current.block.owner.operation
    while op.name != "func.func":
        op = op.parent.operation
    table = SizeTable.of(op)
    if table is not None and table.is_symbolic(number):
        raise LoweringError(
            f"{construct} along an axis of the symbolic size {table.size(number)}",
            hint="keep the size of this axis static",
        )
    return number


# --- choosing representatives ---------------------------------------------------------------------


def choose_representatives(
    dims: Sequence[Dim],
    sizes: Iterable[Size],
    numbers: Iterable[int],
    degree: int = 1,
    bounded: Collection[str] = (),
) -> SizeTable:
    """Representatives for `dims`: `sizes` are the expressions, `numbers` the static numbers.

    `degree` is that of the number of elements of the largest tensor, which must be in memory.
    `bounded` are the names of the dims whose upper bounds hold for their representatives.
    Every expression has large prime factors, none divides a static number, and all differ.
    """
    every = dict.fromkeys(s for s in sizes if isinstance(s, SizeExpr))
    expressions = tuple(e for e in every if e.symbol is None)
    static = {abs(n) + k for n in numbers if abs(n) >= _LEAST_MARKER for k in (-1, 0, 1)}
    values: dict[str, int] = {}
    first = _FIRST if len(dims) <= _FEW_DIMS else _FIRST // 4
    first = min(first, max(_LEAST_MARKER, int(_MOST_ELEMENTS ** (1 / degree))))
    for dim in dims:
        for candidate in _candidates(
            dim, max(first, *values.values(), 0), expressions, dim.name in bounded
        ):
            values[dim.name] = candidate
            ready = [e for e in expressions if all(d.name in values for d in e.symbols)]
            chosen = [*values.values(), *(e.evaluate(values) for e in ready)]
            distinct = len(set(chosen)) == len(chosen)
            if distinct and all(_is_marked(number, static) for number in chosen):
                break
        else:
            shown = ", ".join(map(str, expressions[:8])) + (", ..." if expressions[8:] else "")
            raise LoweringError(
                f"no number stands for {dim}" + (f" in the sizes {shown}" if shown else ""),
                hint=f"keep one of the sizes static, or let its max be larger: {_LEAST_MARKER} is "
                "enough for a slice, 256 for most programs",
            )
    return SizeTable(tuple(dims), values, expressions)


def _candidates(dim: Dim, first: int, sizes: Sequence[SizeExpr], bounded: bool) -> Iterator[int]:
    """Primes to try for a dim: large ones, or those that its upper bound allows.

    A size such as `128 - n` is positive for an n of at most 128 only, and so is `table[:n]` inside
    of a table of 128 rows.
    """
    falling = any(dim in s.symbols and s.evaluate(_Large()) <= 0 for s in sizes)
    least = max(_LEAST_MARKER, dim.min) - 1
    if falling:
        yield from _primes(least, dim.max)
    elif bounded:
        middle = max(least, min(first, dim.max // 2))
        yield from _primes(middle, dim.max)
        yield from _primes(least, middle)
    else:
        yield from _primes(max(first, dim.min), None)


def _primes(candidate: int, last: int | None) -> Iterator[int]:
    """Primes after `candidate`, up to `last`; without it, they soon grow faster."""
    for attempt in range(1, _MOST_ATTEMPTS):
        candidate = _next_prime(candidate)
        if attempt % _ATTEMPTS == 0 and last is None:
            candidate = _next_prime(2 * candidate)  # the quotient by a large number is small
        if last is not None and candidate > last:
            return
        yield candidate


class _Large(dict[str, int]):
    """Large values of all dims."""

    def __missing__(self, name: str) -> int:
        return 1 << 30


def degree_of(size: Size) -> int:
    """The degree of a size as a polynomial of the dims; a quotient counts as its dividend."""
    if isinstance(size, int):
        return 0
    return max(
        sum(
            power * (1 if isinstance(atom, Dim) else degree_of(atom.parts()[0]))
            for atom, power in m
        )
        for m, _ in size.terms
    )


def is_product(size: Size) -> bool:
    """Whether a size is a number, or a product of dims and a positive number."""
    if isinstance(size, int) or len(size.terms) != 1:
        return isinstance(size, int)
    monomial, coefficient = size.terms[0]
    return coefficient > 0 and all(isinstance(atom, Dim) for atom, _ in monomial)


def _is_marked(number: int, static: set[int]) -> bool:
    primes = _markers(number) if number > 0 else []
    return bool(primes) and all(n % prime for prime in primes for n in static)


def _next_prime(number: int) -> int:
    number += 1
    while len(_prime_factors(number)) != 1:
        number += 1
    return number
