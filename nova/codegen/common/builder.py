"""Builder helpers for schedules: loops, branches, constants, types.

They emit at the insertion point. `nova/ir/index.py` has the index arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, index

BITS = {
    "f64": 64,
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "f8E4M3FN": 8,
    "f8E5M2": 8,
    "i32": 32,
    "i16": 16,
    "u16": 16,
    "i8": 8,
    "u8": 8,
}
"""Bits of the element types of schedules; MLIR's integers are signless, these names are not."""


@contextmanager
def loop(lower: Index, upper: Index, step: Index) -> Iterator[ir.Value]:
    """A loop without carried values; the body is emitted inside the `with`."""
    bounds = [index(lower), index(upper), index(step)]
    op = ir.Operation.create("scf.for", [], bounds, regions=1)
    body = op.regions[0].blocks.append(ir.IndexType.get())
    with ir.InsertionPoint(body):
        yield body.arguments[0]
        ir.Operation.create("scf.yield")


def branch(
    condition: ir.Value | bool, then: Callable[[], None], otherwise: Callable[[], None]
) -> None:
    """Emit one side when the condition is static, both under an `scf.if` when it is not."""
    if isinstance(condition, bool):
        (then if condition else otherwise)()
        return
    op = scf.IfOp(condition, has_else=True)
    for block, body in ((op.then_block, then), (op.else_block, otherwise)):
        with ir.InsertionPoint(block):
            body()
            scf.YieldOp([])


def element_type(name: str) -> ir.Type:
    if name[0] in "iu":
        return ir.IntegerType.get_signless(BITS[name])
    return {
        "f64": ir.F64Type.get,
        "f32": ir.F32Type.get,
        "f16": ir.F16Type.get,
        "bf16": ir.BF16Type.get,
        "f8E4M3FN": ir.Float8E4M3FNType.get,
        "f8E5M2": ir.Float8E5M2Type.get,
    }[name]()


def vector_type(name: str, lanes: int) -> ir.VectorType:
    return ir.VectorType.get([lanes], element_type(name))


def splat(type_: ir.Type, value: float | int) -> ir.Value:
    """A constant of a scalar or vector type."""
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    if isinstance(element, ir.IntegerType):
        attr = ir.IntegerAttr.get(element, int(value))
    else:
        attr = ir.FloatAttr.get(element, value)
    if isinstance(type_, ir.VectorType):
        attr = ir.DenseElementsAttr.get_splat(type_, attr)
    return arith.constant(type_, attr)


# Microkernels have hundreds of the next ops: these take a third of the time of the Python classes.


def load_vector(type_: ir.Type, buffer: ir.Value, position: ir.Value) -> ir.Value:
    """The vector at a position of a flat buffer."""
    return ir.Operation.create("vector.load", [type_], [buffer, position]).result


def store_vector(value: ir.Value, buffer: ir.Value, position: ir.Value) -> None:
    """Write a vector to a position of a flat buffer."""
    ir.Operation.create("vector.store", [], [value, buffer, position])


def load_element(buffer: ir.Value, position: ir.Value) -> ir.Value:
    """The element at a position of a flat buffer."""
    return ir.Operation.create("memref.load", [buffer.type.element_type], [buffer, position]).result


def broadcast(type_: ir.Type, value: ir.Value) -> ir.Value:
    """A vector whose lanes are all `value`."""
    return ir.Operation.create("vector.broadcast", [type_], [value]).result
