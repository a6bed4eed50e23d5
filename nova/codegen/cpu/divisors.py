"""Numbers that divide an index: facts about loop bounds that need no loop for the remainder.

In: an `index` value. Out: a number that divides it in every execution, 1 where nothing is known. It
is read off the ops that compute the value: constants, sums, multiples, bounds and the counters of
`scf.for`. `vector_loops.py` asks whether a range is a whole number of vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from typing import Any

from nova.ir.bindings import ir

_MOST_STEPS = 64
"""Values to look at: index arithmetic of a tile has about twenty."""

_COMBINE: dict[str, Callable[[list[int]], int]] = {
    "arith.addi": lambda numbers: gcd(*numbers),
    "arith.subi": lambda numbers: gcd(*numbers),
    "arith.muli": prod,
    "arith.minsi": lambda numbers: gcd(*numbers),
    "arith.minui": lambda numbers: gcd(*numbers),
    "arith.maxsi": lambda numbers: gcd(*numbers),
    "arith.maxui": lambda numbers: gcd(*numbers),
    "arith.remui": lambda numbers: gcd(*numbers),
    "arith.select": lambda numbers: gcd(*numbers[1:]),
}


def divisor_of(value: Any) -> int:
    """A number that divides `value`: 0 for the constant 0, 1 where none is known."""
    return _divisor(value, {})


def _divisor(value: Any, known: dict[Any, int]) -> int:
    if value not in known:
        known[value] = 1  # also where there are too many ops
        if len(known) < _MOST_STEPS:
            known[value] = _compute(value, known)
    return known[value]


def _compute(value: Any, known: dict[Any, int]) -> int:
    if not isinstance(value, ir.OpResult):
        return _divisor_of_counter(value, known)
    op = value.owner.operation
    if op.name == "arith.constant" and isinstance(op.attributes["value"], ir.IntegerAttr):
        return abs(int(op.attributes["value"].value))
    combine = _COMBINE.get(op.name)
    return 1 if combine is None else combine([_divisor(v, known) for v in op.operands])


def _divisor_of_counter(value: Any, known: dict[Any, int]) -> int:
    """A divisor of the counter of an `scf.for`; it starts at the lower bound."""
    parent = value.owner.owner
    if parent is None or parent.name != "scf.for" or value.arg_number != 0:
        return 1
    low, _, step = list(parent.operation.operands)[:3]
    return gcd(_divisor(low, known), _divisor(step, known))
