"""Plan to nova dialect: `func.func @main(inputs, params) -> (results, updated params)`.

Arguments carry `nova.name`; the function carries `nova.inputs` (the number of inputs among the
arguments) and `nova.updates` (for each trailing result, the argument it updates in place). Every op
has the location of the user's line, and `nova.device` if it is host-pinned. Steps with regions
become scf ops on tensors (`control_flow/emit_scf.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType
from nova.core.location import Location
from nova.ir.attributes import DEVICE, name_dictionaries
from nova.ir.bindings import func, ir
from nova.ir.control_flow.emit_scf import emit_control
from nova.ir.dialect import CONSTANT, create_op
from nova.ir.kernel import Main
from nova.ir.types import dense, tensor_type
from nova.ops import OPS
from nova.plan import Arg, Input, Literal, Param, Plan, Slot, Step


def emit_module(plan: Plan, context: ir.Context) -> ir.Module:
    """The module of a plan, in the nova dialect."""
    with context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            _Emitter(plan).function()
        return module


class _Emitter:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.slots: list[Any] = []
        self.arguments: list[Any] = []
        self.values: dict[Literal, Any] = {}

    def function(self) -> None:
        plan, signature = self.plan, self.plan.signature
        arg_types = [tensor_type(a.type, dialect=True) for a in signature.arguments]
        returned = [*plan.results, *(v for _, v in plan.updates)]
        result_types = [tensor_type(plan.type_of(r), dialect=True) for r in returned]
        function = func.FuncOp("main", (arg_types, result_types))
        inputs = len(signature.inputs)
        main = Main(function)
        main.inputs = inputs
        if plan.updates:
            main.updates = tuple(inputs + i for i, _ in plan.updates)
        function.arg_attrs = name_dictionaries([a.name for a in signature.arguments])
        block = function.add_entry_block()
        self.arguments = list(block.arguments)
        with ir.InsertionPoint(block):
            for step in plan.steps:
                self.slots.append(self._step(step))
            func.ReturnOp([self._value(r, None) for r in returned])

    def inline(self, arguments: Sequence[Any]) -> list[Any]:
        """Emit the steps at the insertion point, over values of the inputs; returns the results."""
        self.arguments = list(arguments)
        for step in self.plan.steps:
            self.slots.append(self._step(step))
        return [self._value(r, None) for r in self.plan.results]

    def _step(self, step: Step) -> Any:
        operands = [self._value(a, step.location) for a in step.args]
        if step.op == "result":
            return operands[0][step.attrs["index"]]
        if step.regions:
            regions = [_Emitter(plan).inline for plan in step.regions]
            with mlir_location(step.location):
                results = emit_control(step.op, operands, step.attrs, step.results, regions)
                if step.device:
                    DEVICE.set(results[0].owner, step.device)
                return results
        with mlir_location(step.location):
            result = create_op(OPS[step.op], operands, step.out_type, step.attrs)
        if step.device:
            DEVICE.set(result.owner, step.device)
        return result

    def _value(self, arg: Arg, location: Location | None) -> Any:
        match arg:
            case Input(index):
                return self.arguments[index]
            case Param(index):
                return self.arguments[len(self.plan.signature.inputs) + index]
            case Slot(index):
                return self.slots[index]
            case Literal(array, type_):
                if arg not in self.values:
                    self.values[arg] = dense(array, type_, dialect=True)
                return _constant(self.values[arg], mlir_location(location))


def emit_constant(array: np.ndarray, type_: TensorType, location: Any) -> Any:
    """A nova.constant."""
    return _constant(dense(array, type_, dialect=True), location)


def _constant(value: ir.Attribute, location: Any) -> Any:
    return ir.Operation.create(
        CONSTANT, results=[value.type], attributes={"value": value}, loc=location
    ).result


def mlir_location(location: Location | None) -> Any:
    """A user's source line as an MLIR location."""
    if location is None:
        return ir.Location.unknown()
    return ir.Location.file(location.file, location.line, 0)
