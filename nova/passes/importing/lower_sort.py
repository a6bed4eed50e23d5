"""`lower-sort`: `stablehlo.sort` becomes a bottom-up merge sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.index import index
from nova.ir.scalarize import emit_scalars
from nova.ir.walk import find_ops
from nova.passes.base import Pass


@record
class LowerSort(Pass):
    """Rewrite `stablehlo.sort` as loops that merge runs of 1, 2, 4, ... elements.

    All operands move together. The sort is always stable. The comparator must have been lowered
    (`stablehlo-legalize-to-linalg`).
    """

    name: ClassVar[str] = "lower-sort"

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "stablehlo.sort"):
            with ir.InsertionPoint(op), op.location:
                values = _Sort(op).emit()
            for old, value in zip(op.results, values, strict=True):
                old.replace_all_uses_with(value)
            op.erase()


class _Sort:
    def __init__(self, op: Any):
        self.op = op
        self.axis = int(op.attributes["dimension"].value)
        self.shape = list(op.operands[0].type.shape)
        self.size = self.shape[self.axis]
        self.index_type = ir.IndexType.get()

    def emit(self) -> list[Any]:
        values = list(self.op.operands)
        width = 1
        while width < self.size and 0 not in self.shape:
            values = self._merge_runs(values, width)
            width *= 2
        return values

    def _merge_runs(self, sources: list[Any], width: int) -> list[Any]:
        """Merge every two adjacent sorted runs of `width` elements, along the axis."""
        empties = [tensor.empty(self.shape, s.type.element_type) for s in sources]
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

            def take(place: Any, carried: Sequence[Any]) -> list[Any]:
                left, right, *targets = carried
                first = self._elements(sources, row, left)
                second = self._elements(sources, row, right)
                pairs = [v for pair in zip(second, first, strict=True) for v in pair]
                [smaller] = emit_scalars(self.op.regions[0].blocks[0], pairs)
                has_left = arith.cmpi(arith.CmpIPredicate.slt, left, middle)
                has_right = arith.cmpi(arith.CmpIPredicate.slt, right, high)
                # The right one goes first only when it is strictly smaller: equals keep their
                # order.
                from_right = arith.andi(has_right, arith.ori(smaller, _not(has_left)))
                one, zero = index(1), index(0)
                right_step = arith.select(from_right, one, zero)
                left_step = arith.select(from_right, zero, one)
                targets = [
                    tensor.insert(arith.select(from_right, b, a), t, self._at(row, place))
                    for a, b, t in zip(first, second, targets, strict=True)
                ]
                return [arith.addi(left, left_step), arith.addi(right, right_step), *targets]

            done = self._loop((low, high, index(1)), [low, middle, *inner], take)
            return done[2:]

        return self._loop((index(0), size, index(2 * width)), states, merge)

    def _elements(self, sources: list[Any], row: list[Any], place: Any) -> list[Any]:
        """The elements at `place`; the last one where the run has ended, whose value is unused."""
        last = arith.minsi(place, index(self.size - 1))
        return [tensor.extract(s, self._at(row, last)) for s in sources]

    def _at(self, row: list[Any], place: Any) -> list[Any]:
        return [*row[: self.axis], place, *row[self.axis :]]

    def _loop(self, bounds: tuple[Any, Any, Any], initial: Sequence[Any], body: Any) -> list[Any]:
        loop = scf.ForOp(*bounds, list(initial))
        with ir.InsertionPoint(loop.body):
            scf.YieldOp(body(loop.induction_variable, list(loop.inner_iter_args)))
        return list(loop.results)


def _not(value: Any) -> Any:
    one = arith.ConstantOp(value.type, ir.IntegerAttr.get(value.type, 1)).result
    return arith.xori(value, one)
