"""`lower-scans`: prefix scans become loops that are linear in their elements."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.index import index, sub
from nova.ir.linalg.loops import loop, nest
from nova.ir.linalg.scalarize import emit_scalars
from nova.ir.walk import find_function, find_ops
from nova.passes.base import Pass
from nova.passes.importing.outline_scans import TARGET


@record
class LowerScans(Pass):
    """Rewrite each call of `nova.scan` as loops, and drop the functions of the combiners.

    Along the last axis the state is carried in a register. Along another axis the loop over the
    later axes is innermost, so that it is vectorized, and the state is the result's previous row.
    """

    name: ClassVar[str] = "lower-scans"
    only_with: ClassVar[tuple[str, ...]] = ("stablehlo.reduce_window",)

    def run(self, module: ir.Module) -> None:
        combiners: dict[str, Any] = {}
        for op in find_ops(module, "stablehlo.custom_call"):
            if op.attributes["call_target_name"].value != TARGET:
                continue
            name = op.attributes["called_computations"][0].value
            combiners[name] = find_function(module, name)
            with ir.InsertionPoint(op), op.location:
                value = _Scan(op, combiners[name].entry_block).emit()
            op.results[0].replace_all_uses_with(value)
            op.erase()
        for function in combiners.values():
            function.erase()


class _Scan:
    def __init__(self, op: Any, combiner: Any):
        self.combiner = combiner
        self.operand, self.initial = op.operands
        self.shape = list(self.operand.type.shape)
        settings = op.attributes["backend_config"]
        self.axis = int(settings["axis"].value)
        self.is_reverse = bool(settings["reverse"].value)
        self.size = self.shape[self.axis]

    def emit(self) -> Any:
        lead, trail = self.shape[: self.axis], self.shape[self.axis + 1 :]
        if 0 in self.shape:
            return self.operand
        if prod(trail) == 1:
            start, body = tensor.empty(self.shape, self.operand.type.element_type), self._row
        else:
            # In place, so that no copy of the state reads unwritten memory.
            start, body = self.operand, self._rows
        [result] = nest(lead, [start], lambda at, carried: body(carried, at, trail))
        return result

    def _row(self, carried: list[Any], lead: list[Any], trail: list[int]) -> list[Any]:
        rest = [index(0)] * len(trail)

        def step(i: Any, values: list[Any]) -> list[Any]:
            state, result = values
            at = [*lead, self._position(i), *rest]
            [state] = emit_scalars(self.combiner, [state, tensor.extract(self.operand, at)])
            return [state, tensor.insert(state, result, at)]

        return loop(0, self.size, [tensor.extract(self.initial, []), *carried], step)[1:]

    def _rows(self, carried: list[Any], lead: list[Any], trail: list[int]) -> list[Any]:
        def first(rest: list[Any], values: list[Any]) -> list[Any]:
            at = [*lead, self._position(index(0)), *rest]
            return self._combine(values[0], tensor.extract(self.initial, []), at)

        def step(i: Any, values: list[Any]) -> list[Any]:
            before = self._position(sub(i, 1))
            here = self._position(i)

            def element(rest: list[Any], inner: list[Any]) -> list[Any]:
                state = tensor.extract(inner[0], [*lead, before, *rest])
                return self._combine(inner[0], state, [*lead, here, *rest])

            return nest(trail, values, element)

        return loop(1, self.size, nest(trail, carried, first), step)

    def _combine(self, result: Any, state: Any, at: list[Any]) -> list[Any]:
        [new] = emit_scalars(self.combiner, [state, tensor.extract(result, at)])
        return [tensor.insert(new, result, at)]

    def _position(self, i: Any) -> Any:
        return index(sub(self.size - 1, i)) if self.is_reverse else index(i)
