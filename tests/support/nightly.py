"""Which rows of a sweep every test run goes through, and which `make nightly` alone; its parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest


def part_of(text: str) -> tuple[int, int]:
    """`K/N`, the value of `--part`, as two numbers; ValueError when it is something else."""
    part, parts = map(int, text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError(text)
    return part, parts


def take_part(items: list[Any], text: str) -> list[Any]:
    """Those of the tests that are in the part: every N-th, as neighbours take equally long."""
    part, parts = part_of(text)
    return items[part - 1 :: parts]


def all_pairs(*axes: Sequence[Any]) -> list[Any]:
    """Every combination of one value of each axis, as parameters of a test.

    Those few in which any two values of any two axes come together are for every run; the others
    are marked slow.
    """
    return _mark(axes, together=2)


def each_value(*axes: Sequence[Any]) -> list[Any]:
    """Every combination as in `all_pairs`; those for every run have each value of each axis once.

    For tests that compile much, or whose axes have little to do with each other.
    """
    return _mark(axes, together=1)


def _mark(axes: Sequence[Sequence[Any]], together: int) -> list[Any]:
    """The combinations of the axes, with the mark of `make nightly` of some."""
    sizes = [len(axis) for axis in axes]
    positions = list(product(*map(range, sizes)))
    rows = list(product(*axes))
    often = _cover(positions, together)
    return [
        row if location in often else pytest.param(*row, marks=pytest.mark.slow)
        for location, row in zip(positions, rows, strict=True)
    ]


def _cover(positions: list[tuple[int, ...]], together: int) -> set[tuple[int, ...]]:
    """Some of the positions, which have all sets of that many values: the best one in its turn."""
    sets = {location: set(combinations(enumerate(location), together)) for location in positions}
    missing = set().union(*sets.values())
    result = set()
    while missing:
        best = max(positions, key=lambda location: len(sets[location] & missing))
        result.add(best)
        missing -= sets[best]
    return result
