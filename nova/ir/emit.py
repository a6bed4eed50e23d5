"""Plan to nova dialect: `func.func @main(inputs, params) -> (results, updated params)`.

Arguments carry `nova.name`; the function carries `nova.inputs` (the number of inputs among the
arguments) and `nova.updates` (for each trailing result, the argument it updates in place). Every op
has the location of the user's line, and `nova.device` if it is host-pinned. Steps with regions
become scf ops on tensors (`control_flow/emit_scf.py`). Symbolic sizes are representatives
(`nova/ir/symbolic/size_table.py`), which `nova.dims` and `nova.sizes` list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, real_of
from nova.core.location import Location
from nova.core.sizes import Size, SizeExpr, bounds, find_choices, symbols_of
from nova.errors import SymbolicSizeError
from nova.ir.attributes import DEVICE, name_dictionaries
from nova.ir.bindings import func, ir
from nova.ir.control_flow.emit_scf import emit_control
from nova.ir.dialect import CONSTANT, create_op
from nova.ir.kernel import Main
from nova.ir.symbolic.size_table import (
    SizeTable,
    choose_representatives,
    degree_of,
    is_product,
)
from nova.ir.types import dense, tensor_type
from nova.ops import OPS
from nova.ops.attention.kept_weights import code_constants as weight_constants
from nova.ops.complex.rows import PAIR, PARTS
from nova.ops.randomness import code_constants
from nova.plan import Arg, Input, Literal, Param, Plan, Slot, Step
from nova.plan.expand import expand_composites


def emit_module(plan: Plan, context: ir.Context) -> ir.Module:
    """The module of a plan, in the nova dialect."""
    table = None
    if plan.dims:
        plan = expand_composites(plan)
        table = _size_table(plan)
    with context, ir.Location.unknown(), nullcontext() if table is None else table.active():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = _Emitter(plan).function()
        if table is not None:
            table.write(function)
        return module


def emit_inline(plan: Plan, arguments: Sequence[Any]) -> list[Any]:
    """The results of a plan with static sizes over values, at the insertion point."""
    return _Emitter(plan).inline(arguments)


def _size_table(plan: Plan) -> SizeTable:
    """Representatives for the symbolic sizes in the types and attributes of a plan."""
    values: list[Any] = []
    degree = 1
    for part in _with_regions(plan):
        types = [a.type for a in part.signature.arguments]
        for step in part.steps:
            types += [step.out_type, *map(part.type_of, step.args), *step.results]
            values += [v for v in step.attrs.values() if not isinstance(v, tuple)]
            values += [n for v in step.attrs.values() if isinstance(v, tuple) for n in v]
            literals = [a for a in step.args if isinstance(a, Literal) and a.array.size == 1]
            values += [int(a.array.item()) for a in literals if np.isfinite(a.array).all()]
        values += [n for type_ in types for n in type_.shape]
        degree = max([degree, *(sum(map(degree_of, type_.shape)) for type_ in types)])
    # A size that is never positive is written as the negative of a size.
    sizes = [-v if bounds(v)[1] <= 0 else v for v in values if isinstance(v, SizeExpr)]
    expressions = {size: size for size in sizes if not is_product(size)}
    numbers = {v for v in values if type(v) is int}
    for step in (s for part in _with_regions(plan) for s in part.steps):
        if step.op == "uniform":
            numbers |= code_constants(step.attrs["stream"])
        elif step.op.startswith(("kept_weights", "dropout_attention", "segment_attention")):
            numbers |= code_constants(0) | weight_constants(step.attrs.get("dropout", 0.0))
    for size in expressions:
        _refuse_choices(size, plan)
    return choose_representatives(plan.dims, expressions, numbers, degree, _bounded_dims(plan))


def _bounded_dims(plan: Plan) -> set[str]:
    """The dims of slices of static axes: only their upper bounds keep `table[:n]` in the table."""
    return {
        dim.name
        for part in _with_regions(plan)
        for step in part.steps
        if step.op == "slice"
        for n, *bounds in zip(
            part.type_of(step.args[0]).shape,
            step.attrs["starts"],
            step.attrs["stops"],
            strict=True,
        )
        if isinstance(n, int)
        for dim in symbols_of(bounds)
    }


def _with_regions(plan: Plan) -> Iterator[Plan]:
    """A plan, and the plans of all regions inside."""
    yield plan
    for step in plan.steps:
        for region in step.regions:
            yield from _with_regions(region)


def _refuse_choices(size: Size, plan: Plan) -> None:
    """SymbolicSizeError at the first step with a size that is a maximum or minimum."""
    choice = next(find_choices(size), None)
    if choice is None:
        return
    location = next(
        (
            step.location
            for part in _with_regions(plan)
            for step in part.steps
            if any(str(size) == str(n) for n in step.out_type.shape)
        ),
        None,
    )
    raise SymbolicSizeError(
        f"code generation does not take the size {size}: {choice} is not a polynomial of the dims",
        where=None if location is None else str(location),
        hint="narrow the bounds of nova.dim until they decide it, e.g. min=128 for x[:128]",
    )


class _Emitter:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.slots: list[Any] = []
        self.arguments: list[Any] = []
        self.values: dict[Literal, Any] = {}

    def function(self) -> Any:
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
        return function

    def inline(self, arguments: Sequence[Any]) -> list[Any]:
        """Emit the steps at the insertion point, over values of the inputs; returns the results."""
        self.arguments = list(arguments)
        for step in self.plan.steps:
            self.slots.append(self._step(step))
        return [self._value(r, None) for r in self.plan.results]

    def _step(self, step: Step) -> Any:
        if step.op in PARTS and isinstance(step.args[0], Literal):
            part = getattr(step.args[0].array, step.op)
            return self._value(Literal(part, step.out_type), step.location)
        operands = [self._value(a, step.location) for a in step.args]
        if step.op == "result":
            return operands[0][step.attrs["index"]]
        if step.results:
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
            case Literal(array, type_) if type_.dtype.is_complex:
                parts = TensorType(type_.shape, real_of(type_.dtype))
                values = [
                    self._value(Literal(p, parts), location) for p in (array.real, array.imag)
                ]
                with mlir_location(location):
                    return create_op(OPS[PAIR], values, type_, {})
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
