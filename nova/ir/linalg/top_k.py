"""The first elements of an axis in order, by selection: a heap of the best ones so far.

In: tensors of one shape, an axis, a count and the code of the comparison. Out: tensors with `count`
elements along the axis, those that a stable sort would put first, and their positions. The heap
(Williams, 1964) has the last of the chosen elements at its root. Most elements of a row are
compared with it and not chosen, so a row takes n comparisons and few updates, where a sort takes
n log n moves. The heap lies in the results themselves. Called by `lower-sort` and by the linalg
builder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.index import index
from nova.ir.symbolic.size_table import representative, static_size

Elements = list[Any]


class TopK:
    """Selects along an axis.

    `smaller(second, first)` says whether the second element goes before the first, given their
    values in every tensor. Equal elements keep their order.
    """

    def __init__(
        self,
        values: Sequence[Any],
        shape: Sequence[Any],
        axis: int,
        count: int,
        smaller: Callable[[Sequence[Any], Sequence[Any]], Any],
    ):
        self.values, self.shape, self.axis, self.smaller = list(values), list(shape), axis, smaller
        self.size, self.count = static_size(self.shape[axis], "a selection"), count
        # Steps from the root of the heap to its lowest leaf.
        self.depth = count.bit_length() - 1
        self.types = [v.type.element_type for v in self.values]
        self.types.append(ir.IntegerType.get_signless(64))

    def emit(self) -> list[Any]:
        """The selected elements of every tensor, and their positions as i64."""
        shape = [representative(n) for n in self.shape]
        shape[self.axis] = self.count
        empties = [tensor.empty(shape, type_) for type_ in self.types]
        rows = [n for d, n in enumerate(self.shape) if d != self.axis]

        def nest(states: Elements, row: list[Any]) -> Elements:
            if len(row) == len(rows):
                return self._select_row(states, row)
            return _loop(0, rows[len(row)], states, lambda i, inner: nest(inner, [*row, i]))

        return nest(empties, [])

    def _select_row(self, targets: Elements, row: list[Any]) -> Elements:
        targets = _loop(
            0,
            self.count,
            targets,
            lambda i, inner: self._store(inner, row, i, self._source(row, i)),
        )
        half = self.count // 2

        def order(step: Any, inner: Elements) -> Elements:
            position = arith.subi(index(half - 1), step)
            element = self._load(inner, row, position)
            return self._sift(inner, row, element, position, index(self.count))

        targets = _loop(0, half, targets, order)
        roots = self._load(targets, row, index(0))
        chosen = _loop(
            self.count, self.size, [*roots, *targets], lambda i, c: self._offer(row, i, c)
        )
        return self._sort_heap(chosen[len(roots) :], row)

    def _offer(self, row: list[Any], i: Any, carried: Elements) -> Elements:
        """Replace the root by element i if that goes before it; `carried` begins with the root."""
        width = len(self.types)
        element = self._source(row, i)
        is_better = self.smaller(element[:-1], carried[: width - 1])

        def replace(_: Any, inner: Elements) -> Elements:
            targets = self._sift(inner[width:], row, element, index(0), index(self.count))
            return [*self._load(targets, row, index(0)), *targets]

        # A loop of one iteration or none.
        return _loop(0, arith.select(is_better, index(1), index(0)), carried, replace)

    def _sift(
        self, targets: Elements, row: list[Any], element: Elements, start: Any, size: Any
    ) -> Elements:
        """Put an element into the heap of `size` at `start`, or below it after later children."""
        last = arith.subi(size, index(1))

        def descend(_: Any, carried: Elements) -> Elements:
            hole, *inner = carried
            left = arith.addi(arith.addi(hole, hole), index(1))
            first = arith.minsi(left, last)
            second = arith.minsi(arith.addi(left, index(1)), last)
            a, b = self._load(inner, row, first), self._load(inner, row, second)
            is_right = self._is_after(b, a)
            child = _select(is_right, b, a)
            is_inside = arith.cmpi(arith.CmpIPredicate.slt, left, size)
            moves = arith.andi(is_inside, self._is_after(child, element))
            stored = self._store(inner, row, hole, _select(moves, child, element))
            position = arith.select(is_right, second, first)
            return [arith.select(moves, position, hole), *stored]

        hole, *targets = _loop(0, self.depth, [start, *targets], descend)
        return self._store(targets, row, hole, element)

    def _sort_heap(self, targets: Elements, row: list[Any]) -> Elements:
        """Heapsort: the root is the last of the remaining elements."""

        def take(step: Any, inner: Elements) -> Elements:
            end = arith.subi(index(self.count - 1), step)
            element = self._load(inner, row, end)
            inner = self._store(inner, row, end, self._load(inner, row, index(0)))
            return self._sift(inner, row, element, index(0), end)

        return _loop(0, self.count - 1, targets, take)

    def _is_after(self, element: Elements, other: Elements) -> Any:
        """Whether an element goes after another one; of equal ones, the later."""
        later = arith.cmpi(arith.CmpIPredicate.sgt, element[-1], other[-1])
        is_smaller = self.smaller(element[:-1], other[:-1])
        true = arith.ConstantOp(later.type, ir.IntegerAttr.get(later.type, 1)).result
        is_tie = arith.andi(arith.xori(is_smaller, true), later)
        return arith.ori(self.smaller(other[:-1], element[:-1]), is_tie)

    def _source(self, row: list[Any], i: Any) -> Elements:
        """Element i of every tensor, and its position."""
        elements = [tensor.extract(v, self._at(row, i)) for v in self.values]
        return [*elements, arith.index_cast(self.types[-1], i)]

    def _load(self, targets: Elements, row: list[Any], i: Any) -> Elements:
        return [tensor.extract(t, self._at(row, i)) for t in targets]

    def _store(self, targets: Elements, row: list[Any], i: Any, element: Elements) -> Elements:
        at = self._at(row, i)
        return [tensor.insert(v, t, at) for v, t in zip(element, targets, strict=True)]

    def _at(self, row: list[Any], position: Any) -> list[Any]:
        return [*row[: self.axis], position, *row[self.axis :]]


def _select(condition: Any, first: Elements, second: Elements) -> Elements:
    return [arith.select(condition, a, b) for a, b in zip(first, second, strict=True)]


def _loop(start: Any, stop: Any, initial: Elements, body: Any) -> Elements:
    """`scf.for` from `start` to `stop`, which are sizes or values."""
    low, high = (v if isinstance(v, ir.Value) else index(v) for v in (start, stop))
    loop = scf.ForOp(low, high, index(1), list(initial))
    with ir.InsertionPoint(loop.body):
        scf.YieldOp(body(loop.induction_variable, list(loop.inner_iter_args)))
    return list(loop.results)
