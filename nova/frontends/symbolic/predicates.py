"""Integers and truth values that a program computes from its sizes.

An element is an int, a size (`SizeExpr`), a truth value, a `Predicate` that the bounds of the dims
do not decide by themselves, or None for data. `decide` splits cases: a dim is 0, or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from nova.core.records import record
from nova.core.sizes import (
    Dim,
    Size,
    SizeExpr,
    bounds,
    known_equal,
    size_max,
    size_min,
    size_of,
    substitute,
    symbols_of,
)
from nova.core.sizes.algebra import is_at_most, is_equal, is_less

_MOST_SPLITS = 2
"""Dims whose value 0 is a case of its own."""


@record
class Predicate:
    """A comparison of two sizes, or a connective of two truth values."""

    function: str  # EQ NE LT LE GT GE and or xor
    first: Any
    second: Any


def decide(value: Any) -> bool | None:
    """The truth of a value for all sizes; None if it depends on them, or is data."""
    answer = _decide(value)
    if answer is not None or not isinstance(value, Predicate):
        return answer
    splits = [dim for dim in symbols_of(_sizes(value)) if dim.min == 0][:_MOST_SPLITS]
    return _split(value, splits)


def _split(value: Any, dims: Sequence[Dim]) -> bool | None:
    if not dims:
        return _decide(value)
    dim, *others = dims
    cases = (0, size_of(replace(dim, min=1)))
    answers = {_split(_substituted(value, dim, case), others) for case in cases}
    return answers.pop() if len(answers) == 1 else None


def _decide(value: Any) -> bool | None:
    if not isinstance(value, Predicate):
        return bool(value) if isinstance(value, bool | int) else None
    if value.function in _COMPARISONS:
        return _COMPARISONS[value.function](value.first, value.second)
    first, second = _decide(value.first), _decide(value.second)
    if value.function == "xor":
        return None if first is None or second is None else first != second
    absorbing = value.function == "or"
    if absorbing in (first, second):
        return absorbing
    return None if first is None or second is None else not absorbing


def _negated(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


_COMPARISONS: dict[str, Callable[[Any, Any], bool | None]] = {
    "EQ": is_equal,
    "NE": lambda a, b: _negated(is_equal(a, b)),
    "LT": is_less,
    "GE": lambda a, b: _negated(is_less(a, b)),
    "LE": is_at_most,
    "GT": lambda a, b: _negated(is_at_most(a, b)),
}


def _sizes(value: Any) -> list[Any]:
    if isinstance(value, Predicate):
        return [*_sizes(value.first), *_sizes(value.second)]
    return [value] if isinstance(value, SizeExpr) else []


def _substituted(value: Any, dim: Dim, case: Any) -> Any:
    if isinstance(value, Predicate):
        parts = (_substituted(v, dim, case) for v in (value.first, value.second))
        return Predicate(value.function, *parts)
    return _folded(substitute(value, {dim.name: case})) if isinstance(value, SizeExpr) else value


def _folded(size: Size) -> Size:
    """A size with the quotients that its bounds decide, such as `1 // n` of an n from 2."""
    if not isinstance(size, SizeExpr):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        term: Size = coefficient
        for atom, power in monomial:
            low, high = atom.bounds()
            factor = low if low == high else SizeExpr(((((atom, 1),), 1),))
            for _ in range(power):
                term = term * factor
        total = total + term
    return total


# --- arithmetic of elements -----------------------------------------------------------------------


def is_size(value: Any) -> bool:
    """Whether an element is a number or a size."""
    return isinstance(value, int | SizeExpr) and not isinstance(value, bool)


def compare(direction: str, first: Any, second: Any) -> Any:
    """The comparison of two elements; None if one is data."""
    if isinstance(first, bool | Predicate) and isinstance(second, bool | Predicate):
        differ = connect("xor", first, second)
        return {"NE": differ, "EQ": connect("xor", differ, True)}.get(direction)
    if not (is_size(first) and is_size(second)):
        return None
    predicate = Predicate(direction, first, second)
    answer = decide(predicate)
    return predicate if answer is None else answer


def connect(function: str, first: Any, second: Any) -> Any:
    """`and`, `or` or `xor` of two elements: truth values, or integers that are numbers."""
    if first is None or second is None:
        return None
    if isinstance(first, bool | Predicate) and isinstance(second, bool | Predicate):
        predicate = Predicate(function, first, second)
        answer = decide(predicate)
        return predicate if answer is None else answer
    if type(first) is int and type(second) is int:
        return {"and": first & second, "or": first | second, "xor": first ^ second}[function]
    return None


def select(condition: Any, first: Any, second: Any) -> Any:
    """One of two elements; None if sizes do not decide which."""
    answer = decide(condition)
    if answer is not None:
        return first if answer else second
    if not (is_size(first) and is_size(second)):
        return None
    if known_equal(first, second):
        return first
    return next(filter(is_size, _selected(condition, first, second)), None)


def _selected(condition: Any, first: Any, second: Any) -> Iterator[Any]:
    """The choice for all sizes but the least of a dim, if it is right for that one as well."""
    for dim in symbols_of(_sizes(condition)):
        larger = size_of(replace(dim, min=dim.min + 1))
        values = []
        for case in (dim.min, larger):
            parts = [_substituted(v, dim, case) for v in (condition, first, second)]
            answer = decide(parts[0])
            values.append(None if answer is None else parts[1] if answer else parts[2])
        least, others = values
        if least is None or others is None:
            continue
        if known_equal(substitute(others, {dim.name: dim.min}), least):
            yield substitute(others, {dim.name: size_of(dim)})


def divide(first: Any, second: Any) -> Any:
    """The quotient, rounded to zero, of elements with known signs; None for others."""
    if type(first) is int and type(second) is int:
        return None if second == 0 else abs(first) // abs(second) * _sign(first) * _sign(second)
    if bounds(second)[0] <= 0:
        return None
    if bounds(first)[0] >= 0:
        return first // second
    return -(-first // second) if bounds(first)[1] <= 0 else None


def remainder(first: Any, second: Any) -> Any:
    """The remainder of `divide`."""
    quotient = divide(first, second)
    return None if quotient is None else first - quotient * second


def sign(value: Any) -> Any:
    """The sign of an element that is not negative, or a number; None for others."""
    if type(value) is int:
        return _sign(value)
    return size_min(value, 1) if bounds(value)[0] >= 0 else None


def clamp(low: Any, value: Any, high: Any) -> Any:
    """`value` between two bounds."""
    return size_min(size_max(value, low), high)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
