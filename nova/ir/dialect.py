"""The nova dialect: one op per primitive and composite row of the op table, and a few others.

These are nova.constant, nova.size, the attention ops (nova/ir/attention_ops.py) and the
Fourier transform (nova/ir/linalg/fourier.py).

The dialect is generated from the table as IRDL text. One verifier serves all rows: it runs the type
rule of the row on operand types and attributes. So the IR obeys the same rules as the graph, and
errors are reported at the location of the op, which is the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from nova.core.dtypes import TensorType, dtype
from nova.core.records import record
from nova.core.sizes import parse_size
from nova.errors import DTypeError, NovaError, SymbolicSizeError
from nova.ir import attention_ops
from nova.ir.bindings import ir, load_irdl
from nova.ir.linalg.attribute_cache import active_cache
from nova.ir.linalg.fourier import NAME as FOURIER
from nova.ir.linalg.fourier import verify_fourier
from nova.ir.linalg.winograd import NAME as WINOGRAD_POINT
from nova.ir.op_attributes import from_attributes, to_attributes
from nova.ir.resources import is_resource
from nova.ir.types import nova_type, tensor_type
from nova.ops import OPS, Op
from nova.ops.complex.rows import PAIR

DIALECT = "nova"
CONSTANT = f"{DIALECT}.constant"
SIZE = f"{DIALECT}.size"
"""The value of a symbolic size at run time."""
BARRIER = f"{DIALECT}.barrier"
"""An identity op that fusion and CSE do not look through; see `create_barrier`."""


def full_name(row: str) -> str:
    """The name of the nova op of a row, with the dialect."""
    return f"{DIALECT}.{row}"


def op_type(row: Op, op: Any) -> tuple[TensorType, dict[str, Any], tuple[TensorType, ...]]:
    """Result type, canonical attrs and operand types of a nova op, by the rules of its row."""
    types = tuple(_tensor(o.type) for o in op.operands)
    _check_operands(row, types)
    _check_segments(op)
    return (*_apply_rules(row, types, op.attributes), types)


def infer_type(name: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """The MLIR result type of a nova op, for text that omits it."""
    row = OPS.get(name)
    if row is None:
        raise NovaError("needs the types of its results", hint="write `: (operands) -> (results)`")
    types = tuple(map(_tensor, operands))
    _check_operands(row, types)
    return tensor_type(_apply_rules(row, types, attributes)[0], dialect=True)


def _apply_rules(
    row: Op, types: tuple[TensorType, ...], attributes: Mapping[str, Any]
) -> tuple[TensorType, dict[str, Any]]:
    """Result type and canonical attrs."""
    attrs = from_attributes(row, attributes)
    if row.canon is not None:
        attrs = row.canon(types, attrs)
    assert row.infer is not None
    return row.infer(types, attrs), attrs


def _tensor(type_: Any) -> TensorType:
    if not isinstance(type_, ir.RankedTensorType | ir.UnrankedTensorType):
        raise DTypeError(f"{type_} is not a tensor")
    tensor = nova_type(type_)
    dtype(tensor.dtype)
    return tensor


def _check_segments(op: Any) -> None:
    """Only trailing optional operands may be omitted: the rows take them by position."""
    if "operandSegmentSizes" in op.attributes:
        sizes = op.attributes["operandSegmentSizes"]
        count = len(op.operands)
        if not isinstance(sizes, ir.DenseI32ArrayAttr) or list(sizes) != (
            [1] * count + [0] * (len(sizes) - count)
        ):
            raise NovaError(f"operandSegmentSizes is {sizes}, must be {count} ones, then zeros")


def _check_operands(row: Op, types: tuple[TensorType, ...]) -> None:
    top = row.max_operands
    if len(types) < row.min_operands or (top is not None and len(types) > top):
        raise NovaError(f"takes ({', '.join(row.operands)}), has {len(types)} operands")
    dtypes = tuple(t.dtype for t in types)
    if PAIR not in row.tags and any(d.is_complex for d in dtypes):
        raise NovaError(
            "operands are complex: only nova.complex, nova.real and nova.imag have such types"
        )
    expected = row.cast_types(dtypes)
    if expected != dtypes:
        raise NovaError(
            f"operand types are ({', '.join(map(str, dtypes))}), "
            f"must be ({', '.join(map(str, expected))})"
        )


def _verifier(row: Op) -> Any:
    def verify_invariants(op: Any) -> bool:
        # Layers repeat ops: one with the types and attributes of a valid one is valid.
        valid, key = active_cache(), _types_and_attributes(row, op)
        if key in valid:
            return True
        try:
            if len(op.results) != 1:
                raise NovaError(f"has {len(op.results)} results, must have one")
            expected, _, _ = op_type(row, op)
            actual = _tensor(op.results[0].type)
            if expected != actual:
                raise NovaError(f"result type is {actual}, must be {expected}")
        except NovaError as error:
            op.location.emit_error(f"'{full_name(row.name)}' op {error.what}")
            return False
        valid[key] = True
        return True

    return verify_invariants


def _types_and_attributes(row: Op, op: Any) -> tuple[Any, ...]:
    """What the validity of an op depends on."""
    attributes = op.attributes
    return (
        row.name,
        tuple([value.type for value in op.operands]),
        tuple([value.type for value in op.results]),
        *[(name, attributes[name]) for name in attributes],
    )


def _verify_constant(op: Any) -> bool:
    try:
        if len(op.results) != 1:
            raise NovaError(f"has {len(op.results)} results, must have one")
        if _tensor(op.results[0].type).dtype.is_complex:
            raise NovaError("is complex: write nova.complex of two constants")
        value = op.attributes.get("value")
        dense = isinstance(value, ir.DenseElementsAttr) or is_resource(value)
        if not dense or value.type != op.results[0].type:
            raise NovaError("needs a dense `value` of its result type")
    except NovaError as error:
        op.location.emit_error(f"'{CONSTANT}' op {error.what}")
        return False
    return True


def _verify_size(op: Any) -> bool:
    try:
        if len(op.results) != 1 or not isinstance(op.results[0].type, ir.IndexType):
            raise NovaError("must have one result of type index")
        text = op.attributes.get("expr")
        if not isinstance(text, ir.StringAttr):
            raise NovaError("needs a string `expr`")
        _check_text(text.value)
    except NovaError as error:
        op.location.emit_error(f"'{SIZE}' op {error.what}")
        return False
    return True


def _check_text(size: str) -> None:
    try:
        parse_size(size)
    except SymbolicSizeError:
        return  # whether a divisor may be 0 depends on the dims of `main`


@record
class _Definition:
    """An op of the dialect; operands whose names end in `?` are optional."""

    name: str
    operands: tuple[str, ...]
    verify: Callable[[Any], bool]
    results: tuple[str, ...] = ("result",)

    def text(self) -> str:
        """IRDL. One constraint per value: values that share one must have the same type."""
        operands = [f"{n.rstrip('?')}_:{' optional' * n.endswith('?')}" for n in self.operands]
        values = operands + [f"{n}_:" for n in self.results]
        lines = [f"%{i} = irdl.any" for i in range(len(values))]
        numbered = [f"{value} %{i}" for i, value in enumerate(values)]
        if operands:
            lines.append(f"irdl.operands({', '.join(numbered[: len(operands)])})")
        lines.append(f"irdl.results({', '.join(numbered[len(operands) :])})")
        return f"irdl.operation @{self.name} {{\n{chr(10).join(lines)}\n}}"

    def attach(self) -> None:
        """Attach what IRDL cannot express: no side effects, and the verifier."""
        name = full_name(self.name)
        _NoEffects.attach(name)
        _Speculatable.attach(name)
        trait = type(self.name, (), {"verify_invariants": staticmethod(self.verify)})
        ir.DynamicOpTrait.attach(name, trait)


class _NoEffects(ir.MemoryEffectsOpInterface):
    @staticmethod
    def get_effects(op: Any, effects: Any) -> None:
        pass


class _Speculatable(ir.ConditionallySpeculatable):
    @staticmethod
    def get_speculatability(op: Any) -> Any:
        return ir.Speculatability.Speculatable


def _definitions() -> Iterator[_Definition]:
    for row in OPS.values():
        if row.kind != "sugar":
            yield _Definition(row.name, row.operands, _verifier(row))
    yield _Definition("constant", (), _verify_constant)
    yield _Definition("size", (), _verify_size)
    for name, (base, extras) in attention_ops.VARIANTS.items():
        values = (*attention_ops.OPERANDS[base], *extras, "mask?")
        results = tuple(f"to_{n}" for n in attention_ops.RESULTS[base])
        yield _Definition(name, values, attention_ops.verify_attention(name), results)
        yield _Definition(f"{name}_point", values, lambda op: True)
    yield _Definition(FOURIER, ("x", "table"), verify_fourier)
    yield _Definition(f"{FOURIER}_point", ("x", "table"), lambda op: True)
    yield _Definition(WINOGRAD_POINT, ("x",), lambda op: True)


_DEFINITIONS = tuple(_definitions())
OP_NAMES = tuple(definition.name for definition in _DEFINITIONS)
_TEXT = "\n".join(
    (f"irdl.dialect @{DIALECT} {{", *(definition.text() for definition in _DEFINITIONS), "}")
)


def create_op(row: Op, operands: Sequence[Any], result: TensorType, attrs: dict[str, Any]) -> Any:
    """The result of a new nova op at the current insertion point and location."""
    attributes = to_attributes(attrs)
    if sum(n.endswith("?") for n in row.operands) > 1:
        # MLIR cannot infer which of several optional operands are present.
        sizes = [1] * len(operands) + [0] * (len(row.operands) - len(operands))
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)
    return ir.Operation.create(
        full_name(row.name),
        results=[tensor_type(result, dialect=True)],
        operands=list(operands),
        attributes=attributes,
    ).result


def create_barrier(value: Any, after: Any, region: int, released: bool = False) -> Any:
    """A barrier: its result is `value`, and its users run after `after` is computed.

    With `released`, they run after all ops that read `after`.
    """
    attributes = {"region": region, "released": True} if released else {"region": region}
    return ir.Operation.create(
        BARRIER,
        results=[value.type],
        operands=[value, after],
        attributes=to_attributes(attributes),
    )


def is_released(barrier: Any) -> bool:
    """Whether a barrier waits for all ops that read its second operand."""
    return bool(from_attributes(OPS["barrier"], barrier.attributes).get("released", False))


_lock = Lock()


def load_dialect(context: ir.Context) -> None:
    """Register the dialect in a context, once."""
    # Traits are attached through state of the wheel that is not thread-safe.
    with _lock, context:
        if not context.is_dialect_loaded(DIALECT):
            load_irdl(ir.Module.parse(_TEXT))
            for definition in _DEFINITIONS:
                definition.attach()
