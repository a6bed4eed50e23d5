"""The values of symbols from the shapes of a call's arguments, with errors that name both sources.

In: symbolic and actual shapes by argument. Out: `{name: value}`. Axes that are affine in one
symbol without a value (`B`, `B*2 + 1`) give it one; every axis is then checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nova.core.records import record
from nova.core.sizes import Dim, Size, SizeExpr, evaluate, substitute
from nova.errors import ArgumentShapeError, SignatureError


@record
class Axis:
    """An axis of an argument: its declared size, and its actual size in a call."""

    argument: str
    number: int
    size: Size
    actual: int

    def __str__(self) -> str:
        return f"axis {self.number} of {self.argument!r}"


def bind_sizes(
    arguments: Sequence[tuple[str, Sequence[Size], Sequence[int]]],
) -> dict[str, int]:
    """The value of each symbol, from (name, declared shape, actual shape) of each argument.

    SignatureError names the axes that disagree, and the size that is out of its bounds.
    """
    axes: list[Axis] = []
    for name, declared, actual in arguments:
        if len(declared) != len(actual):
            raise ArgumentShapeError(
                f"argument {name!r} has {len(actual)} axes, shape {tuple(actual)}; the program "
                f"takes {_shape_text(declared)}"
            )
        axes += [
            Axis(name, i, size, n) for i, (size, n) in enumerate(zip(declared, actual, strict=True))
        ]
    values: dict[str, int] = {}
    sources: dict[str, Axis] = {}
    pending = [axis for axis in axes if isinstance(axis.size, SizeExpr)]
    while pending:
        unsolved = [axis for axis in pending if not _solve(axis, values, sources)]
        if len(unsolved) == len(pending):
            break
        pending = unsolved
    for axis in axes:
        _check(axis, values, sources)
    return values


def _affine(size: Size) -> tuple[str, int, int] | None:
    """Symbol, factor and constant of a size `factor * symbol + constant`."""
    if not isinstance(size, SizeExpr):
        return None
    symbol, factor, constant = "", 0, 0
    for monomial, coefficient in size.terms:
        match monomial:
            case ():
                constant = coefficient
            case ((Dim(name=name), 1),) if not symbol:
                symbol, factor = name, coefficient
            case _:
                return None
    return symbol, factor, constant


def _solve(axis: Axis, values: dict[str, int], sources: dict[str, Axis]) -> bool:
    """Give the symbol of an axis its value; whether the axis needs no further look."""
    size = substitute(axis.size, dict(values))
    if not isinstance(size, SizeExpr):
        return True
    factors = _affine(size)
    if factors is None:
        return False
    name, factor, constant = factors
    value, remainder = divmod(axis.actual - constant, factor)
    dim = next(dim for dim in size.symbols if dim.name == name)
    if remainder:
        raise ArgumentShapeError(
            f"{axis} is {axis.actual}, which is not {axis.size} for any {name}",
            hint=f"{name} is a whole number of {dim.min}..{dim.max}",
        )
    if not dim.min <= value <= dim.max:
        raise ArgumentShapeError(
            f"{axis} is {axis.actual}, so {name} is {value}: it must be in {dim.min}..{dim.max}",
            hint=f"compile with other bounds: nova.dim({name!r}, min={min(value, dim.min)}, "
            f"max={max(value, dim.max)})",
        )
    values[name], sources[name] = value, axis
    return True


def _check(axis: Axis, values: dict[str, int], sources: dict[str, Axis]) -> None:
    if not isinstance(axis.size, SizeExpr):
        if axis.size != axis.actual:
            raise ArgumentShapeError(f"{axis} is {axis.actual}, the program takes {axis.size}")
        return
    missing = [dim.name for dim in axis.size.symbols if dim.name not in values]
    if missing:
        raise SignatureError(f"the shapes of the arguments do not determine {', '.join(missing)}")
    expected = evaluate(axis.size, values)
    if expected == axis.actual:
        return
    origins = ", ".join(
        f"{dim.name} is {values[dim.name]}, from {sources[dim.name]}" for dim in axis.size.symbols
    )
    raise ArgumentShapeError(
        f"{axis} is {axis.actual}, and {axis.size} is {expected}: {origins}",
        hint="the axes of one symbol have one size in a call",
    )


def _shape_text(shape: Sequence[Size]) -> str:
    return f"({', '.join(map(str, shape))})"


def undetermined(sizes: Iterable[Size]) -> list[str]:
    """The symbols that axes of these sizes do not determine.

    An axis tells the one symbol of it that no other axis tells, if it has sums and
    multiplications only and names the symbol once; native/src/exec/symbolic.c solves the same.
    """
    expressions = [size for size in sizes if isinstance(size, SizeExpr)]
    names = {dim.name for size in expressions for dim in size.symbols}
    missing = set(names)
    for _ in range(len(names)):
        told = {name for size in expressions for name in _linear_in(size, missing)}
        if not told:
            break
        missing -= told
    return sorted(missing)


def _linear_in(size: SizeExpr, missing: set[str]) -> list[str]:
    """The only symbol of `missing` in a size, if the size is linear in it."""
    factors = [factor for monomial, _ in size.terms for factor in monomial]
    if not all(isinstance(atom, Dim) for atom, _ in factors):
        return []
    unknown = [
        (atom.name, power)
        for atom, power in factors
        if isinstance(atom, Dim) and atom.name in missing
    ]
    return [unknown[0][0]] if len(unknown) == 1 and unknown[0][1] == 1 else []
