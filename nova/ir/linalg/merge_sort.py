"""A bottom-up merge sort of tensors as loops; all tensors move together, and the sort is stable.

In: tensors of one shape, an axis and the code of the comparison. Out: the sorted tensors. Called
by `lower-sort` and by the linalg builder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.core.sizes import known_equal
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.index import index
from nova.ir.symbolic.size_table import representative, static_size


class MergeSort:
    """Merges runs of 1, 2, 4, ... elements along an axis.

    `smaller(second, first)` says whether an element of the second run goes before one of the
    first, given their values in every tensor.
    """

    def __init__(
        self,
        values: Sequence[Any],
        shape: Sequence[Any],
        axis: int,
        smaller: Callable[[Sequence[Any], Sequence[Any]], Any],
    ):
        self.values, self.shape, self.axis, self.smaller = list(values), list(shape), axis, smaller
        self.size = static_size(self.shape[axis], "a sort")

    def emit(self) -> list[Any]:
        values = self.values
        width = 1
        while width < self.size and not any(known_equal(n, 0) for n in self.shape):
            values = self._merge_runs(values, width)
            width *= 2
        return values

    def _merge_runs(self, sources: list[Any], width: int) -> list[Any]:
        """Merge every two adjacent sorted runs of `width` elements, along the axis."""
        shape = [representative(n) for n in self.shape]
        empties = [tensor.empty(shape, s.type.element_type) for s in sources]
        rows = [n for d, n in enumerate(self.shape) if d != self.axis]

        def nest(states: Sequence[Any], row: list[Any]) -> list[Any]:
            if len(row) == len(rows):
                return self._merge_row(sources, states, row, width)
            return self._loop(
                (index(0), index(rows[len(row)]), index(1)),
                states,
                lambda i, inner: nest(inner, [*row, i]),
            )

        return nest(empties, [])

    def _merge_row(
        self, sources: list[Any], states: Sequence[Any], row: list[Any], width: int
    ) -> list[Any]:
        size, half = index(self.size), index(width)

        def merge(low: Any, inner: Sequence[Any]) -> list[Any]:
            middle = arith.minsi(arith.addi(low, half), size)
            high = arith.minsi(arith.addi(middle, half), size)

            def take(position: Any, carried: Sequence[Any]) -> list[Any]:
                first_index, second_index, *targets = carried
                first = self._elements(sources, row, first_index)
                second = self._elements(sources, row, second_index)
                smaller = self.smaller(second, first)
                has_left = arith.cmpi(arith.CmpIPredicate.slt, first_index, middle)
                has_right = arith.cmpi(arith.CmpIPredicate.slt, second_index, high)
                # The right one goes first only when it is strictly smaller: equals keep their
                # order.
                from_right = arith.andi(has_right, arith.ori(smaller, _not(has_left)))
                unit, zero = index(1), index(0)
                right_step = arith.select(from_right, unit, zero)
                left_step = arith.select(from_right, zero, unit)
                targets = [
                    tensor.insert(arith.select(from_right, b, a), t, self._at(row, position))
                    for a, b, t in zip(first, second, targets, strict=True)
                ]
                return [
                    arith.addi(first_index, left_step),
                    arith.addi(second_index, right_step),
                    *targets,
                ]

            results = self._loop((low, high, index(1)), [low, middle, *inner], take)
            return results[2:]

        return self._loop((index(0), size, index(2 * width)), states, merge)

    def _elements(self, sources: list[Any], row: list[Any], position: Any) -> list[Any]:
        """The elements at `position`; past the end of a run the last ones, which are unused."""
        last = arith.minsi(position, index(self.size - 1))
        return [tensor.extract(s, self._at(row, last)) for s in sources]

    def _at(self, row: list[Any], position: Any) -> list[Any]:
        return [*row[: self.axis], position, *row[self.axis :]]

    def _loop(self, bounds: tuple[Any, Any, Any], initial: Sequence[Any], body: Any) -> list[Any]:
        loop = scf.ForOp(*bounds, list(initial))
        with ir.InsertionPoint(loop.body):
            scf.YieldOp(body(loop.induction_variable, list(loop.inner_iter_args)))
        return list(loop.results)


def _not(value: Any) -> Any:
    true = arith.ConstantOp(value.type, ir.IntegerAttr.get(value.type, 1)).result
    return arith.xori(value, true)
