"""`lower-select-and-scatter`: the gradient of a pooling becomes loops over its windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from nova.core.records import record
from nova.ir.attributes import INVERTED
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.linalg.builder import LinalgBuilder
from nova.ir.linalg.ops import fill
from nova.ir.linalg.scalarize import emit_scalars
from nova.ir.walk import find_ops
from nova.passes.base import Pass


@record
class LowerSelectAndScatter(Pass):
    """Rewrite `stablehlo.select_and_scatter` as a loop over the elements of its source.

    For each of them an inner loop finds the selected element of its window of the operand, the
    first one of equals; the source is then combined with the result there. In row-major order, so
    that the result is deterministic. Both regions must have been lowered
    (`stablehlo-legalize-to-linalg`).
    """

    name: ClassVar[str] = "lower-select-and-scatter"
    only_with: ClassVar[tuple[str, ...]] = ("stablehlo.select_and_scatter",)

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "stablehlo.select_and_scatter"):
            with ir.InsertionPoint(op), op.location:
                value = _SelectAndScatter(op).emit()
            op.results[0].replace_all_uses_with(value)
            op.erase()


class _SelectAndScatter:
    def __init__(self, op: Any):
        self.op = op
        self.operand, self.source, self.initial = op.operands
        self.shape = list(self.operand.type.shape)
        rank = len(self.shape)
        self.window = _numbers(op, "window_dimensions", [1] * rank)
        self.strides = _numbers(op, "window_strides", [1] * rank)
        padding = [[0, 0]] * rank
        if "padding" in op.attributes:
            padding = np.array(op.attributes["padding"]).reshape(rank, 2).tolist()
        self.low = [int(low) for low, _ in padding]
        self.index_type = ir.IndexType.get()
        self.flag_type = ir.IntegerType.get_signless(1)

    def emit(self) -> Any:
        element = self.operand.type.element_type
        start = fill(tensor.extract(self.initial, []), tensor.empty(self.shape, element))
        if 0 in self.source.type.shape or 0 in self.shape:
            return start
        return LinalgBuilder().loop_nest(start, self.source.type.shape, self._scatter)

    def _scatter(self, state: Any, at: list[Any]) -> Any:
        found, _, *place = self._select(at)
        old = tensor.extract(state, place)
        update = tensor.extract(self.source, at)
        [new] = emit_scalars(self.op.regions[1].blocks[0], [old, update])
        # A window in the padding alone selects nothing.
        return tensor.insert(arith.select(found, new, old), state, place)

    def _select(self, at: list[Any]) -> list[Any]:
        """Whether the window of the source element at `at` has an element, it, and its position."""
        zero = self._index(0)
        first = tensor.extract(self.operand, [zero] * len(self.shape))
        carried = [self._flag(0), first, *[zero] * len(self.shape)]
        starts = [
            arith.subi(arith.muli(i, self._index(stride)), self._index(low))
            for i, stride, low in zip(at, self.strides, self.low, strict=True)
        ]

        def nest(values: Sequence[Any], offsets: list[Any]) -> list[Any]:
            if len(offsets) == len(self.window):
                return self._compare(values, starts, offsets)
            size = self.window[len(offsets)]
            if size == 1:
                return nest(values, [*offsets, zero])
            loop = scf.ForOp(zero, self._index(size), self._index(1), list(values))
            with ir.InsertionPoint(loop.body):
                inner = nest(list(loop.inner_iter_args), [*offsets, loop.induction_variable])
                scf.YieldOp(inner)
            return list(loop.results)

        return nest(carried, [])

    def _compare(self, values: Sequence[Any], starts: list[Any], offsets: list[Any]) -> list[Any]:
        found, selected, *place = values
        inside = self._flag(1)
        clamped = []
        for start, offset, size in zip(starts, offsets, self.shape, strict=True):
            position = arith.addi(start, offset)
            last = self._index(size - 1)
            for test in (
                arith.cmpi(arith.CmpIPredicate.sge, position, self._index(0)),
                arith.cmpi(arith.CmpIPredicate.sle, position, last),
            ):
                inside = arith.andi(inside, test)
            clamped.append(arith.maxsi(arith.minsi(position, last), self._index(0)))
        candidate = tensor.extract(self.operand, clamped)
        stays = arith.andi(found, self._stays(selected, candidate))
        takes = arith.andi(inside, arith.xori(stays, self._flag(1)))
        return [
            arith.ori(found, inside),
            arith.select(takes, candidate, selected),
            *[arith.select(takes, new, old) for new, old in zip(clamped, place, strict=True)],
        ]

    def _stays(self, selected: Any, candidate: Any) -> Any:
        """Whether the selected element is kept."""
        block = self.op.regions[0].blocks[0]
        if not INVERTED.find(self.op):
            return emit_scalars(block, [selected, candidate])[0]
        [takes] = emit_scalars(block, [candidate, selected])
        return arith.xori(takes, self._flag(1))

    def _index(self, value: int) -> Any:
        return arith.ConstantOp(self.index_type, ir.IntegerAttr.get(self.index_type, value)).result

    def _flag(self, value: int) -> Any:
        return arith.ConstantOp(self.flag_type, ir.IntegerAttr.get(self.flag_type, value)).result


def _numbers(op: Any, name: str, default: list[int]) -> list[int]:
    return [int(n) for n in op.attributes[name]] if name in op.attributes else default
