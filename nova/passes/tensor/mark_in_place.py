"""`mark-in-place`: finds the ops that may write their result over their first operand."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attributes import OVERWRITES
from nova.ir.bindings import ir
from nova.ir.control_flow.functions import Control, is_call, is_control
from nova.ir.dialect import full_name
from nova.ir.kernel import Main
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import functions_by_name, main_function
from nova.ops import OPS
from nova.passes.base import Pass


@record
class MarkInPlace(Pass):
    """Mark `dynamic_update_slice` where its operand is dead afterwards, with `nova.overwrites`.

    The operand must be the value of a carry of a loop, or of an argument that `main` updates, and
    the result must be its next value, directly or through other such ops and loops that carry it.
    Or it is the result of a loop. No op after the update may read it. `convert-nova-to-linalg`
    writes loops over the slice alone for these ops, and `plan-workspace` lets them share a buffer
    with their operand. Other updates, and those of programs with symbolic sizes, are elementwise
    ops, which are fused. `most_elements` limits the slice: on a device one block writes it, and an
    elementwise op has all of them.
    """

    name: ClassVar[str] = "mark-in-place"
    most_elements: int | None = None

    def run(self, module: ir.Module) -> None:
        main = main_function(module)
        if SizeTable.of(main) is not None:
            return
        if any(_has_lowering(op) for op in main.entry_block.operations):
            _Marker(module, main, self.most_elements).mark()


def _has_lowering(op: Any) -> bool:
    return op.operation.name in _ROWS


_ROWS = {full_name(row.name) for row in OPS.values() if row.lower_in_place is not None}


class _Marker:
    def __init__(self, module: ir.Module, main: Any, most: int | None):
        self.most = most
        self.named = functions_by_name(module)
        self.block = main.entry_block
        self.returned = self.block.operations[len(self.block.operations) - 1].operation
        arguments, results = list(self.block.arguments), list(self.returned.operands)
        updates, carried = Main(main).updates, Main(main).carried
        new = results[len(results) - len(updates) :]
        pairs = [*zip(updates, new, strict=False), *zip(carried, results, strict=False)]
        self.next = {arguments[a]: value for a, value in pairs if 0 <= a < len(arguments)}

    def mark(self) -> None:
        for argument, new in self.next.items():
            steps = self._steps(argument)
            if steps and steps[-1][1] == new:
                self._mark_ops(steps)
        for op in self.block.operations:
            op = op.operation
            if is_call(op) and is_control(self.named[op.attributes["callee"].value]):
                for result in op.results:
                    self._mark_ops(self._steps(result))

    def _steps(self, value: Any) -> list[tuple[Any, Any]]:
        """The ops that may overwrite `value` one after the other, and the value after each."""
        steps: list[tuple[Any, Any]] = []
        while (step := self._step(value)) is not None:
            steps.append(step)
            value = step[1]
        return steps

    def _step(self, value: Any) -> tuple[Any, Any] | None:
        """The last op that reads a value, if it may overwrite it."""
        users = [use.owner.operation for use in value.uses]
        if not users or self.returned in users:
            return None
        last = users[0]
        for user in users:
            last = user if last.is_before_in_block(user) else last
        positions = [i for i, operand in enumerate(last.operands) if operand == value]
        if len(positions) != 1:
            return None
        if _has_lowering(last):
            return (last, last.results[0]) if positions == [0] else None
        result = self._carry(last, positions[0])
        return None if result is None else (last, result)

    def _carry(self, op: Any, position: int) -> Any | None:
        """The result of a loop that is the last value of the carry at an operand."""
        function = self.named[op.attributes["callee"].value] if is_call(op) else None
        if function is None or not is_control(function):
            return None
        control = Control.of(function)
        carry = position - control.first_carry
        is_carry = control.construct in ("while", "for") and 0 <= carry < control.carries
        return op.results[carry] if is_carry else None

    def _mark_ops(self, steps: list[tuple[Any, Any]]) -> None:
        for op, _ in steps:
            if not is_call(op) and (self.most is None or _update_size(op) <= self.most):
                OVERWRITES.set(op)


def _update_size(op: Any) -> int:
    return prod(op.operands[1].type.shape)
