"""The algebra of symbolic sizes: polynomials over symbols in canonical form.

A `SizeExpr` is a polynomial with integer coefficients over atoms: a symbol (`Dim`), a floor
division, a maximum or a minimum. Equal polynomials have equal terms, and one that folds to a
constant becomes an `int`. Use it through `nova/core/sizes`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import gcd, prod
from typing import Any, NoReturn, TypeAlias, Union

import numpy as np

from nova.core.location import user_location
from nova.core.records import record
from nova.errors import SymbolicSizeError

Size: TypeAlias = Union[int, "SizeExpr"]
Shape: TypeAlias = tuple[Size, ...]
Bounds: TypeAlias = tuple[int, int]

MAX_SIZE = 2**31 - 1
"""The upper bound of a symbol that was declared without one."""


_MOST_QUOTIENTS = 3
_MOST_CORNER_ATOMS = 6


@record
class Dim:
    """A symbol: the size of an axis, between `min` and `max` inclusive. Its name identifies it."""

    name: str
    min: int = 0
    max: int = MAX_SIZE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("nova.dim", self.name))

    def __str__(self) -> str:
        return self.name

    def bounds(self) -> Bounds:
        return self.min, self.max

    def evaluate(self, values: Mapping[str, int]) -> int:
        try:
            return values[self.name]
        except KeyError:
            raise SymbolicSizeError(f"the size {self.name} has no value") from None

    def parts(self) -> tuple[Size, ...]:
        return ()

    def rebuild(self, parts: Sequence[Size]) -> Size:
        return size_of(self)


@record
class Compound:
    """An atom over two sizes: their floor quotient, maximum or minimum."""

    function: str  # "floordiv", "max" or "min"
    first: Size
    second: Size

    def __eq__(self, other: object) -> bool:  # by form: whether sizes are equal may be undecidable
        return isinstance(other, Compound) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(("nova.compound", self.function, self.first, self.second))

    def __str__(self) -> str:
        if self.function == "floordiv":
            return f"{_wrapped(self.first)} // {_wrapped(self.second)}"
        return f"{self.function}({self.first}, {self.second})"

    def bounds(self) -> Bounds:
        first, second = bounds(self.first), bounds(self.second)
        if self.function == "floordiv":
            low = max(second[0], 1)
            corners = [a // b for a in first for b in (low, max(second[1], low))]
            return min(corners), max(corners)
        choose = max if self.function == "max" else min
        return choose(first[0], second[0]), choose(first[1], second[1])

    def evaluate(self, values: Mapping[str, int]) -> int:
        first, second = evaluate(self.first, values), evaluate(self.second, values)
        if self.function == "floordiv":
            if second == 0:
                raise SymbolicSizeError(f"the size {self} divides by zero")
            return first // second
        return max(first, second) if self.function == "max" else min(first, second)

    def parts(self) -> tuple[Size, ...]:
        return self.first, self.second

    def rebuild(self, parts: Sequence[Size]) -> Size:
        return _REBUILD[self.function](*parts)


Atom: TypeAlias = Dim | Compound
# A product of atoms, each with its power, sorted by text; the empty product is 1.
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]


class SizeExpr:
    """A size that depends on symbols. Immutable; made by arithmetic, `size_of` and `parse_size`."""

    __array_ufunc__ = None  # numpy's integers leave arithmetic with a size to it
    __slots__ = ("_bounds", "_hash", "_terms", "_text")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]):
        self._terms = terms
        self._hash = hash(("size", terms))
        self._text = ""
        self._bounds: Bounds | None = None

    # --- the parts ------------------------------------------------------------------------------

    @property
    def terms(self) -> tuple[tuple[Monomial, int], ...]:
        """The monomials and their coefficients, in the order they are printed."""
        return self._terms

    @property
    def symbols(self) -> tuple[Dim, ...]:
        """The symbols in the expression, sorted by name."""
        names: dict[str, Dim] = {}
        for monomial, _ in self._terms:
            for atom, _ in monomial:
                dims = (atom,) if isinstance(atom, Dim) else symbols_of(atom.parts())
                names.update((dim.name, dim) for dim in dims)
        return tuple(names[name] for name in sorted(names))

    @property
    def symbol(self) -> Dim | None:
        """The symbol that the expression consists of, if it is nothing else."""
        if len(self._terms) == 1:
            monomial, coefficient = self._terms[0]
            if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                atom = monomial[0][0]
                return atom if isinstance(atom, Dim) else None
        return None

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number for these values of the symbols."""
        total = 0
        for monomial, coefficient in self._terms:
            for atom, power in monomial:
                coefficient *= atom.evaluate(values) ** power
            total += coefficient
        return total

    def bounds(self) -> Bounds:
        """The least and the greatest value: may be wider than exact.

        A polynomial that is linear in each atom has its extrema at corners of the bounds of the
        atoms; for the others, interval arithmetic. A floor quotient next to other terms is also
        compared with its dividend: `n // 2 - n` is never positive.
        """
        if self._bounds is None:
            low, high = self._corner_bounds() or self._interval_bounds()
            for least, greatest in self._quotient_bounds():
                low, high = max(low, least), min(high, greatest)
            self._bounds = low, high
        return self._bounds

    def _quotient_bounds(self) -> Iterator[Bounds]:
        """Bounds by `a - d + 1 <= (a // d) * d <= a`, for each term that is such a quotient.

        By a dim as divisor, `0 <= a // d <= a` for an a that is not negative.
        """
        quotients = [
            (atom, n)
            for monomial, n in self._terms
            for atom, power in monomial
            if len(monomial) == 1 and power == 1 and isinstance(atom, Compound)
        ]
        if len(self._terms) == 1 or len(quotients) > _MOST_QUOTIENTS:
            return
        for part, n in self._terms:  # d is a dim: n * (a // d) * d is about n * a
            first, second = _quotient_times_divisor(part)
            if first is not None:
                rest = self - SizeExpr(((part, n),))
                ends = (n * first, n * (first - second + 1))
                least, greatest = ends if n < 0 else ends[::-1]
                yield bounds(rest + least)[0], bounds(rest + greatest)[1]
        for atom, n in quotients:
            is_number = isinstance(atom.second, int)
            divisor = atom.second if is_number else 1
            if atom.function != "floordiv" or divisor < 1:
                continue
            if not is_number and (bounds(atom.second)[0] < 1 or bounds(atom.first)[0] < 0):
                continue
            rest = (self - n * SizeExpr((((((atom, 1),), 1)),))) * divisor
            ends = (n * atom.first, n * (atom.first - divisor + 1) if is_number else 0)
            least, greatest = ends if n < 0 else ends[::-1]
            yield -(-bounds(rest + least)[0] // divisor), bounds(rest + greatest)[1] // divisor

    def _corner_bounds(self) -> Bounds | None:
        powers: dict[Atom, int] = {}
        for monomial, _ in self._terms:
            powers.update((atom, max(power, powers.get(atom, 0))) for atom, power in monomial)
        if len(powers) > _MOST_CORNER_ATOMS or any(power > 1 for power in powers.values()):
            return None
        values = []
        for corner in product(*(atom.bounds() for atom in powers)):
            numbers = dict(zip(powers, corner, strict=True))
            values.append(
                sum(n * prod(numbers[atom] for atom, _ in term) for term, n in self._terms)
            )
        return min(values), max(values)

    def _interval_bounds(self) -> Bounds:
        low = high = 0
        for monomial, coefficient in self._terms:
            span = (coefficient, coefficient)
            for atom, power in monomial:
                for _ in range(power):
                    corners = [a * b for a in span for b in atom.bounds()]
                    span = min(corners), max(corners)
            low, high = low + span[0], high + span[1]
        return low, high

    # --- text -----------------------------------------------------------------------------------

    def __str__(self) -> str:
        if not self._text:
            text = ""
            for monomial, coefficient in self._terms:
                sign = "-" if coefficient < 0 else "+"
                term = _term_text(monomial, coefficient)
                text += f" {sign} {term}" if text else f"-{term}" if sign == "-" else term
            self._text = text
        return self._text

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SizeExpr, (self._terms,))

    # --- arithmetic -----------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        size = _operand(other)
        return NotImplemented if size is None else _make(_added(_terms(self), _terms(size), 1))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        size = _operand(other)
        return NotImplemented if size is None else _make(_added(_terms(self), _terms(size), -1))

    def __rsub__(self, other: Any) -> Any:
        size = _operand(other)
        return NotImplemented if size is None else _make(_added(_terms(size), _terms(self), -1))

    def __neg__(self) -> Size:
        return _make(_added({}, _terms(self), -1))

    def __mul__(self, other: Any) -> Any:
        size = _operand(other)
        return NotImplemented if size is None else _make(_multiplied(_terms(self), _terms(size)))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        size = _operand(other)
        return NotImplemented if size is None else _floor_divide(self, size)

    def __rfloordiv__(self, other: Any) -> Any:
        size = _operand(other)
        return NotImplemented if size is None else _floor_divide(size, self)

    def __mod__(self, other: Any) -> Any:
        size = _operand(other)
        return NotImplemented if size is None else self - _floor_divide(self, size) * size

    def __rmod__(self, other: Any) -> Any:
        size = _operand(other)
        return NotImplemented if size is None else size - _floor_divide(size, self) * self

    def __truediv__(self, other: Any) -> Any:
        """A quotient is not a size; numpy and Python code that needs one needs a number."""
        return NotImplemented if _operand(other) is None else self._raise_no_number()

    __rtruediv__ = __truediv__

    # --- comparisons ----------------------------------------------------------------------------

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        size = _operand(other)
        return NotImplemented if size is None else self._decide(size, "==", is_equal)

    def __ne__(self, other: object) -> bool:
        size = _operand(other)
        return NotImplemented if size is None else not self._decide(size, "!=", is_equal)

    def __lt__(self, other: Any) -> bool:
        size = _operand(other)
        return NotImplemented if size is None else self._decide(size, "<", is_less)

    def __ge__(self, other: Any) -> bool:
        size = _operand(other)
        return NotImplemented if size is None else not self._decide(size, ">=", is_less)

    def __le__(self, other: Any) -> bool:
        size = _operand(other)
        return NotImplemented if size is None else self._decide(size, "<=", is_at_most)

    def __gt__(self, other: Any) -> bool:
        size = _operand(other)
        return NotImplemented if size is None else not self._decide(size, ">", is_at_most)

    def _decide(
        self, other: Size, sign: str, relation: Callable[[Size, Size], bool | None]
    ) -> bool:
        answer = relation(self, other)
        if answer is None:
            raise SymbolicSizeError(
                f"whether {self} {sign} {other} depends on sizes that are known at run time: "
                + ", ".join(
                    f"{d.name} is in [{d.min}, {d.max}]" for d in symbols_of((self, other))
                ),
                where=str(user_location()),
                hint="narrow the bounds of nova.dim until they decide it, or keep the size static; "
                "nova.minimum and nova.maximum of sizes are run-time values",
            )
        return answer

    # --- numbers --------------------------------------------------------------------------------

    def _raise_no_number(self) -> NoReturn:
        raise self._no_number()

    def _no_number(self) -> SymbolicSizeError:
        return SymbolicSizeError(
            f"the size {self} is known at run time, not while the program is built",
            where=str(user_location()),
            hint="compute with the size itself (+ - * //), write a loop over it as "
            f"nova.fori_loop(0, {self}, body, initial), or keep the axis static",
        )

    def __index__(self) -> int:
        raise self._no_number()

    def __int__(self) -> int:
        raise self._no_number()

    def __float__(self) -> float:
        raise self._no_number()

    def __bool__(self) -> bool:
        return self != 0


def size_of(dim: Dim) -> SizeExpr:
    """The size that is just a symbol."""
    return SizeExpr(((((dim, 1),), 1),))


# --- helpers over int | SizeExpr ------------------------------------------------------------------


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The number that a size is for these values of the symbols."""
    return size.evaluate(values) if isinstance(size, SizeExpr) else size


def bounds(size: Size) -> Bounds:
    """The least and the greatest value of a size."""
    return size.bounds() if isinstance(size, SizeExpr) else (size, size)


def symbols_of(sizes: Iterable[Size]) -> tuple[Dim, ...]:
    """The symbols in all these sizes, sorted by name."""
    dims = {d.name: d for size in sizes if isinstance(size, SizeExpr) for d in size.symbols}
    return tuple(dims[name] for name in sorted(dims))


def size_max(first: Size, second: Size) -> Size:
    """The greater of two sizes."""
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    if surely_at_most(second, first):
        return first
    return second if surely_at_most(first, second) else _compound("max", *_sorted(first, second))


def size_min(first: Size, second: Size) -> Size:
    """The smaller of two sizes."""
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    if surely_at_most(second, first):
        return second
    return first if surely_at_most(first, second) else _compound("min", *_sorted(first, second))


def surely_at_most(first: Size, second: Size) -> bool:
    """Whether `first <= second` follows from bounds, or from the parts of a minimum or maximum."""
    if bounds(first - second)[1] <= 0:
        return True
    match first:
        case SizeExpr(terms=((((Compound("min", a, b), 1),), 1),)):
            if surely_at_most(a, second) or surely_at_most(b, second):
                return True
        case SizeExpr(terms=((((Compound("max", a, b), 1),), 1),)):
            if surely_at_most(a, second) and surely_at_most(b, second):
                return True
    match second:
        case SizeExpr(terms=((((Compound("max", a, b), 1),), 1),)):
            return surely_at_most(first, a) or surely_at_most(first, b)
        case SizeExpr(terms=((((Compound("min", a, b), 1),), 1),)):
            return surely_at_most(first, a) and surely_at_most(first, b)
    return False


# --- text -----------------------------------------------------------------------------------------


def _wrapped(size: Size) -> str:
    plain = size.symbol is not None if isinstance(size, SizeExpr) else size >= 0
    return str(size) if plain else f"({size})"


def _term_text(monomial: Monomial, coefficient: int) -> str:
    """A term without its sign."""
    single = coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1
    factors = [
        f"({atom})" if isinstance(atom, Compound) and not single else str(atom)
        for atom, power in monomial
        for _ in range(power)
    ]
    if abs(coefficient) != 1 or not factors:
        factors.append(str(abs(coefficient)))
    return "*".join(factors)


# --- the canonical form ---------------------------------------------------------------------------


def _operand(value: object) -> Size | None:
    """A value as a size; None unless it is an integer or a size."""
    if isinstance(value, (SizeExpr, int)):
        return None if isinstance(value, bool) else value
    return int(value) if isinstance(value, np.integer) else None


def _terms(size: Size) -> dict[Monomial, int]:
    return dict(size.terms) if isinstance(size, SizeExpr) else {(): size} if size else {}


def _make(terms: dict[Monomial, int]) -> Size:
    terms = {monomial: n for monomial, n in terms.items() if n}
    if not terms.keys() - {()}:
        return terms.get((), 0)
    return SizeExpr(tuple(sorted(terms.items(), key=lambda term: _rank(term[0]))))


def _rank(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """The order of terms: by descending degree, then by text; the constant is last."""
    names = tuple(str(atom) for atom, power in monomial for _ in range(power))
    return -len(names), names


def _added(
    first: dict[Monomial, int], second: dict[Monomial, int], sign: int
) -> dict[Monomial, int]:
    total = dict(first)
    for monomial, coefficient in second.items():
        total[monomial] = total.get(monomial, 0) + sign * coefficient
    return total


def _multiplied(first: dict[Monomial, int], second: dict[Monomial, int]) -> dict[Monomial, int]:
    total: dict[Monomial, int] = {}
    for a, m in first.items():
        for b, n in second.items():
            powers = dict(a)
            for atom, power in b:
                powers[atom] = powers.get(atom, 0) + power
            monomial = tuple(sorted(powers.items(), key=lambda factor: str(factor[0])))
            total[monomial] = total.get(monomial, 0) + m * n
    return total


def _floor_divide(first: Size, second: Size) -> Size:
    exact = _exact_quotient(first, second)
    if exact is not None:
        return exact
    if bounds(second)[0] < 1:
        raise SymbolicSizeError(
            f"{first} // {second} divides by a size that may be {bounds(second)[0]}",
            hint="raise the min of nova.dim",
        )
    if isinstance(second, SizeExpr):
        return _compound("floordiv", first, second)
    return _divide_by_constant(first, second)


def _divide_by_constant(dividend: Size, divisor: int) -> Size:
    """Multiples of the divisor leave the division; its remainder is in lowest terms."""
    if divisor == 1 or isinstance(dividend, int):
        return dividend // divisor
    terms = _terms(dividend)
    outside = _make({monomial: n // divisor for monomial, n in terms.items()})
    rest = {monomial: n % divisor for monomial, n in terms.items()}
    common = gcd(divisor, *(n for monomial, n in rest.items() if monomial))
    inside = _make({monomial: n // common for monomial, n in rest.items()})
    divisor //= common
    low, high = bounds(inside)
    if low // divisor == high // divisor:
        return outside + low // divisor
    match inside:
        case SizeExpr(terms=((((Compound("floordiv", first, int(second)), 1),), 1),)):
            return outside + _divide_by_constant(first, second * divisor)
    return outside + _compound("floordiv", inside, divisor)


def _exact_quotient(first: Size, second: Size) -> Size | None:
    """`first / second` as a polynomial, if there is no remainder: long division of polynomials."""
    divisor = _terms(second)
    if not divisor:
        return None
    lead = min(divisor, key=_rank)
    rest, quotient = _terms(first), dict[Monomial, int]()
    while rest:
        monomial = min(rest, key=_rank)
        powers = dict(monomial)
        for atom, power in lead:
            powers[atom] = powers.get(atom, 0) - power
        if any(power < 0 for power in powers.values()) or rest[monomial] % divisor[lead]:
            return None
        factor = tuple((atom, power) for atom, power in powers.items() if power)
        coefficient = rest[monomial] // divisor[lead]
        quotient[factor] = quotient.get(factor, 0) + coefficient
        rest = _added(rest, _multiplied({factor: coefficient}, divisor), -1)
        rest = {m: n for m, n in rest.items() if n}
    return _make(quotient)


def _quotient_times_divisor(monomial: Monomial) -> tuple[Any, Any]:
    """`a` and `d` of a product `(a // d) * d`, where d is a dim; else None."""
    for quotient, divisor in (monomial, monomial[::-1]) if len(monomial) == 2 else ():
        atom, dim = quotient[0], divisor[0]
        if isinstance(atom, Compound) and isinstance(dim, Dim) and quotient[1] == divisor[1] == 1:
            second = size_of(dim)
            if atom.function == "floordiv" and str(atom.second) == str(second):
                return atom.first, second
    return None, None


def _compound(function: str, first: Size, second: Size) -> SizeExpr:
    return SizeExpr(((((Compound(function, first, second), 1),), 1),))


def _sorted(first: Size, second: Size) -> tuple[Size, Size]:
    """Expressions first, numbers last."""
    first, second = sorted((first, second), key=lambda size: (isinstance(size, int), str(size)))
    return first, second


def is_equal(first: Size, second: Size) -> bool | None:
    """Whether two sizes are equal; None if the bounds of the symbols do not decide it."""
    if first is second:
        return True
    low, high = bounds(first - second)
    return True if low == high == 0 else False if low > 0 or high < 0 else None


def is_less(first: Size, second: Size) -> bool | None:
    """Whether `first < second`; None if the bounds do not decide it."""
    low, high = bounds(first - second)
    return True if high < 0 else False if low >= 0 else None


def is_at_most(first: Size, second: Size) -> bool | None:
    """Whether `first <= second`; None if the bounds do not decide it."""
    low, high = bounds(first - second)
    return True if high <= 0 else False if low > 0 else None


_REBUILD: dict[str, Callable[[Any, Any], Size]] = {
    "floordiv": operator.floordiv,
    "max": size_max,
    "min": size_min,
}
