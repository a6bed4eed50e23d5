"""The nova dialect: one op for each primitive and composite row of the table, nova.constant, and
the ops that carry attention to the schedules (nova/mlir/attention.py).

The op classes are made from the table. One verifier serves all of them: it runs the row's own type
rule on the operand types and attributes, so the IR is held to the same rules as the graph, and
reports at the op's location, which is the user's line.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from nova.dtypes import TensorType
from nova.errors import DTypeError, NovaError
from nova.mlir import attention
from nova.mlir.attributes import from_attributes, to_attributes
from nova.mlir.bindings import ext, ir
from nova.mlir.types import nova_type, tensor_type
from nova.ops import OPS, Op


class Nova(ext.Dialect, name="nova"):  # type: ignore[call-arg]
    """The dialect itself."""


def op_type(row: Op, op: Any) -> tuple[TensorType, dict[str, Any], tuple[TensorType, ...]]:
    """Result type, canonical attrs and operand types of a nova op, by its row's rules."""
    types = tuple(_tensor(o.type) for o in op.operands)
    _check_operands(row, types)
    _check_segments(op)
    attrs = from_attributes(row, op)
    if row.canon is not None:
        attrs = row.canon(types, attrs)
    assert row.infer is not None
    return row.infer(types, attrs), attrs, types


def _tensor(type_: Any) -> TensorType:
    if not isinstance(type_, ir.RankedTensorType | ir.UnrankedTensorType):
        raise DTypeError(f"{type_} is not a tensor")
    return nova_type(type_)


def _check_segments(op: Any) -> None:
    """Optional operands are left out from the end only: the rows take them by position."""
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
    wanted = row.cast_types(dtypes)
    if wanted != dtypes:
        raise NovaError(
            f"operand types are ({', '.join(map(str, dtypes))}), "
            f"must be ({', '.join(map(str, wanted))})"
        )


def _verifier(row: Op) -> Any:
    def verify_invariants(op: Any) -> bool:
        try:
            if len(op.results) != 1:
                raise NovaError(f"has {len(op.results)} results, must have one")
            expected, _, _ = op_type(row, op)
            actual = _tensor(op.results[0].type)
            if expected != actual:
                raise NovaError(f"result type is {actual}, must be {expected}")
        except NovaError as error:
            op.location.emit_error(f"'nova.{row.name}' op {error.what}")
            return False
        return True

    return verify_invariants


def _verify_constant(op: Any) -> bool:
    try:
        if len(op.results) != 1:
            raise NovaError(f"has {len(op.results)} results, must have one")
        _tensor(op.results[0].type)
        value = op.attributes.get("value")
        if not isinstance(value, ir.DenseElementsAttr) or value.type != op.results[0].type:
            raise NovaError("needs a dense `value` of its result type")
    except NovaError as error:
        op.location.emit_error(f"'nova.constant' op {error.what}")
        return False
    return True


def _define(
    name: str, operands: tuple[str, ...], verify: Any, results: tuple[str, ...] = ("result",)
) -> None:
    # One field an operand: operands that share a field would have to share their type.
    fields: dict[str, Any] = {
        f"{n.rstrip('?')}_": ext.Operand[Any] | None if n.endswith("?") else ext.Operand[Any]
        for n in operands
    }
    namespace = {
        "__annotations__": fields | {f"{n}_": ext.Result[Any] for n in results},
        "verify_invariants": staticmethod(verify),
    }
    type(f"{name}_op", (Nova.Operation,), namespace, name=name, traits=[ext.Pure])


for _row in OPS.values():
    if _row.kind != "sugar":
        _define(_row.name, _row.operands, _verifier(_row))
_define("constant", (), _verify_constant)
for _name, _operands in attention.OPERANDS.items():
    _define(
        _name,
        (*_operands, "mask?"),
        attention.verify_attention(_name),
        results=tuple(f"to_{n}" for n in attention.RESULTS[_name]),
    )
    _define(f"{_name}_point", (*_operands, "mask?"), lambda op: True)


def create_op(row: Op, operands: Sequence[Any], result: TensorType, attrs: dict[str, Any]) -> Any:
    """The result of a new nova op at the current insertion point and location."""
    attributes = to_attributes(attrs)
    if sum(n.endswith("?") for n in row.operands) > 1:
        # MLIR cannot tell which of several optional operands are there.
        sizes = [1] * len(operands) + [0] * (len(row.operands) - len(operands))
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)
    return ir.Operation.create(
        f"nova.{row.name}",
        results=[tensor_type(result, dialect=True)],
        operands=list(operands),
        attributes=attributes,
    ).result


_lock = Lock()


def load_dialect(context: ir.Context) -> None:
    """Make the dialect known to a context, once."""
    # The wheel registers the Python op classes globally on load, which must not race.
    with _lock, context:
        if not context.is_dialect_loaded(Nova.DIALECT_NAMESPACE):
            Nova.load()
