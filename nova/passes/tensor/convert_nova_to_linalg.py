"""`convert-nova-to-linalg`: the `lower` column of every row, applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attention_ops import OPS as ATTENTION
from nova.ir.attributes import OVERWRITES
from nova.ir.bindings import arith, func, ir
from nova.ir.diagnostics import place_of
from nova.ir.dialect import SIZE, full_name
from nova.ir.linalg.builder import LinalgBuilder, Operand
from nova.ir.linalg.fourier import OP as FOURIER
from nova.ir.op_attributes import from_attributes, symbolic_attrs
from nova.ir.resources import retyped
from nova.ir.symbolic.size_table import sizes_of
from nova.ir.types import nova_type, symbolic_type, tensor_type
from nova.ir.walk import functions
from nova.ops import OPS
from nova.passes.base import Pass


@record
class ConvertNovaToLinalg(Pass):
    """Rewrite primitive nova ops as linalg on tensors.

    Unsigned element types become signless: from here on the ops carry the signedness. Composites
    must have been decomposed. In a symbolic program, a value that depends on a size is `nova.size`.
    `nova.barrier` stays (see `nova/graph/checkpoint/recompute.py`), and so do the
    ops of `form-attention`; all other ops of the dialect are gone afterwards. With
    `bytes_as_bf16`, for a device, matmuls of 8-bit integers become matmuls of bf16.
    """

    name: ClassVar[str] = "convert-nova-to-linalg"
    bytes_as_bf16: bool = False

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if function.is_external:
                _make_type_signless(function)
                continue
            with sizes_of(function):
                _Converter(self.bytes_as_bf16).function(function)


def convert_ops(ops: Sequence[Any]) -> None:
    """Convert these ops, which are in an order in which operands come first."""
    converter = _Converter()
    for op in ops:
        converter.convert(op)


class _Converter:
    def __init__(self, bytes_as_bf16: bool = False) -> None:
        self.builder = LinalgBuilder(bytes_as_bf16)
        self.types: dict[Any, TensorType] = {}
        # The result of the first elementwise op of each key: equal ones are copies of its linalg,
        # in a quarter of the time. Most ops of a training step are those of the optimizer, which
        # are the same for all parameters of one shape.
        self.written: dict[Any, tuple[TensorType, Any]] = {}

    def function(self, function: Any) -> None:
        block = function.entry_block
        for argument in block.arguments:
            self._make_signless(argument)
        for op in list(block.operations):
            name = op.operation.name
            if name.startswith("nova.") and name not in (*ATTENTION, FOURIER, SIZE):
                self.convert(op.operation)
            elif name == "func.call":
                for result in op.operation.results:
                    self._make_signless(result)
        returned = block.operations[len(block.operations) - 1]
        function_type = ir.FunctionType.get(
            [a.type for a in block.arguments], [o.type for o in returned.operands]
        )
        function.attributes["function_type"] = ir.TypeAttr.get(function_type)
        assert isinstance(returned, func.ReturnOp)

    def _make_signless(self, value: Any) -> None:
        if isinstance(value.type, ir.RankedTensorType):
            self.types[value] = symbolic_type(value.type)
            value.set_type(tensor_type(self.types[value]))

    def _operand(self, value: Any) -> Operand:
        return Operand(value, self.types.get(value) or symbolic_type(value.type))

    def convert(self, op: Any) -> None:
        name = op.name.removeprefix("nova.")
        with ir.InsertionPoint(op), op.location:
            if name == "constant":
                result = nova_type(op.results[0].type)
                value = _signless_constant(op, result)
            else:
                result, value = self._lower(name, op)
        self.types[value] = result
        op.results[0].replace_all_uses_with(value)
        op.erase()

    def _lower(self, name: str, op: Any) -> tuple[TensorType, Any]:
        row = OPS.get(name)
        if row is None or (row.kind != "primitive" and row.lower is None):
            raise LoweringError(
                f"{full_name(name)} has no lowering to linalg",
                where=place_of(op.location),
                hint="run decompose-composites first" if row else "no row has that name",
            )
        operands = [self._operand(v) for v in op.operands]
        is_scalar = row.scalar is not None and row.lower is None and row.lower_in_place is None
        key = (name, *_key_of(op, operands)) if is_scalar else None
        if key in self.written:
            result, first = self.written[key]
            return result, _copy_generic(first.owner, operands, op.location)
        types = tuple(o.type for o in operands)
        attrs = symbolic_attrs(from_attributes(row, op.attributes))
        if row.canon is not None:
            attrs = row.canon(types, attrs)
        assert row.infer is not None
        result = row.infer(types, attrs)
        if row.lower_in_place is not None and OVERWRITES.has(op):
            return result, row.lower_in_place(self.builder, result, *operands, **attrs)
        if row.lower is not None:
            return result, row.lower(self.builder, result, *operands, **attrs)
        if row.scalar is not None:
            scalar = row.scalar
            value = self.builder.pointwise(result, operands, lambda s, *xs: scalar(s, *xs, **attrs))
            if is_scalar:
                self.written[key] = result, value
            return result, value
        raise LoweringError(f"the row of {name} has no lower column", where=place_of(op.location))


def _key_of(op: Any, operands: Sequence[Operand]) -> Iterator[Any]:
    """What the linalg of an elementwise op depends on, other than its name."""
    for operand in operands:
        yield operand.value.type
        yield operand.type
    for name in op.attributes:
        yield name
        yield op.attributes[name]


def _copy_generic(generic: Any, operands: Sequence[Operand], location: Any) -> Any:
    """The result of a copy of an elementwise `linalg.generic`, over other operands."""
    generic = generic.operation
    empty = generic.operands[len(operands)].owner.operation.clone()
    copy = generic.clone()
    for number, value in enumerate([*(o.value for o in operands), empty.results[0]]):
        copy.operands[number] = value
    if location != generic.location:
        body = copy.regions[0].blocks[0].operations
        for new in (empty, copy, *(inner.operation for inner in body)):
            new.location = location
    return copy.results[0]


def _make_type_signless(function: Any) -> None:
    """Convert the type of a declaration."""
    types = [
        [tensor_type(nova_type(t)) if isinstance(t, ir.RankedTensorType) else t for t in part]
        for part in (function.type.inputs, function.type.results)
    ]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))


def _signless_constant(op: Any, result: TensorType) -> Any:
    value = op.attributes["value"]
    type_ = tensor_type(result)
    if value.type != type_:
        # Only the signedness of the element type differs: same bytes, another type.
        value = retyped(value, type_)
    return arith.ConstantOp(type_, value).result
