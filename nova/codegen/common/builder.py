"""Builder helpers for schedules: loops, branches, constants, types.

They emit at the insertion point. `nova/ir/index.py` has the index arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, index

BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i32": 32}


@contextmanager
def loop(lower: Index, upper: Index, step: Index) -> Iterator[ir.Value]:
    """A loop without carried values; the body is emitted inside the `with`."""
    op = scf.ForOp(index(lower), index(upper), index(step))
    with ir.InsertionPoint(op.body):
        yield op.induction_variable
        scf.YieldOp([])


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
    if name == "i32":
        return ir.IntegerType.get_signless(32)
    return {
        "f64": ir.F64Type.get,
        "f32": ir.F32Type.get,
        "f16": ir.F16Type.get,
        "bf16": ir.BF16Type.get,
    }[name]()


def vector_type(name: str, lanes: int) -> ir.VectorType:
    return ir.VectorType.get([lanes], element_type(name))


def splat(type_: ir.Type, value: float | int) -> ir.Value:
    """A constant of a scalar or vector type."""
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    attribute = ir.IntegerAttr if isinstance(element, ir.IntegerType) else ir.FloatAttr
    attr = attribute.get(element, value)
    if isinstance(type_, ir.VectorType):
        attr = ir.DenseElementsAttr.get_splat(type_, attr)
    return arith.constant(type_, attr)
