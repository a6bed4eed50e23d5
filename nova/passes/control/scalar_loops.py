"""Loops over a few numbers as scalar code: a few instructions of one kernel for an iteration.

A loop whose operands, carries and results are tensors of a few elements, such as a counter,
Newton's method or a small state machine, would cost a device a graph node and two kernels for an
iteration. As `scf.while` over scalars it is code of one thread. `inline-control-flow` calls this
for devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.control_flow.functions import Control
from nova.ir.walk import main_function
from nova.passes.control.scalar_code import count_scalar_ops, emit_block, is_small, read_elements

_MOST_SCALARS = 48
"""Elements that a loop carries and reads: they are in registers of one thread."""
_MOST_OPS = 512
"""Scalar ops of an iteration: more of them are faster by several threads."""


def is_scalar_loop(control: Control, call: Any, regions: Sequence[Any]) -> bool:
    """Whether a call of a control function is a loop over a few numbers, without loops inside."""
    if control.construct not in ("while", "for") or not len(call.results):
        return False
    block = main_function(regions[0]).entry_block
    if control.construct == "for" and len(call.operands) != control.consts + control.carries:
        return False  # it reads slices
    if len(call.results) != control.carries:
        return False  # it writes slices
    values = [*call.operands, *call.results, *block.arguments]
    if not all(map(is_small, values)):
        return False
    if sum(int(np.prod(value.type.shape)) for value in call.operands) > _MOST_SCALARS:
        return False
    *operations, _ = [op.operation for op in block.operations]
    counts = [count_scalar_ops(op) for op in operations]
    return None not in counts and sum(c for c in counts if c is not None) <= _MOST_OPS


def emit_scalar_loop(control: Control, call: Any, regions: Sequence[Any]) -> list[Any]:
    """Write the loop as `scf.while` over scalars at the insertion point; return its results."""
    block = main_function(regions[0]).entry_block
    operands = [read_elements(value) for value in call.operands]
    if control.construct == "while":
        condition, *others = operands
        again = condition[()]
    else:
        others = operands
        again = _constant(ir.IntegerType.get_signless(64), 0)
    consts, carries = others[: control.consts], others[control.consts :]
    start = [again, *_flat(carries)]
    types = [value.type for value in start]
    loop = ir.Operation.create("scf.while", types, start, regions=2)
    locations = [call.location] * len(types)
    before, after = (r.blocks.append(*types, arg_locs=locations) for r in loop.regions)
    with ir.InsertionPoint(before):
        first = before.arguments[0]
        if control.construct == "for":
            length = _constant(first.type, control.length)
            first = arith.cmpi(arith.CmpIPredicate.slt, first, length)
        scf.ConditionOp(first, before.arguments)
    with ir.InsertionPoint(after):
        state, *elements = list(after.arguments)
        values = _arrays(elements, carries)
        if control.construct == "while":
            *new, holds = emit_block(block, [*consts, *values])
            state = holds[()]
        else:
            position = np.full((), _position(control, state), object)
            new = emit_block(block, [position, *consts, *values])
            state = arith.addi(state, _constant(state.type, 1))
        scf.YieldOp([state, *_flat(new)])
    arrays = _arrays(list(loop.results)[1:], carries)
    pairs = zip(call.results, arrays, strict=True)
    return [tensor.from_elements(old.type, _flat([new])) for old, new in pairs]


def _flat(arrays: Sequence[Any]) -> list[Any]:
    """The elements of all arrays, in row-major order."""
    return [value for array in arrays for value in array.ravel().tolist()]


def _arrays(elements: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Elements as arrays of the shapes of others."""
    arrays, values = [], iter(elements)
    for other in like:
        array = np.empty(other.shape, object)
        for position in np.ndindex(*other.shape):
            array[position] = next(values)
        arrays.append(array)
    return arrays


def _position(control: Control, iteration: Any) -> Any:
    if not control.reverse:
        return iteration
    return arith.subi(_constant(iteration.type, control.length - 1), iteration)


def _constant(type_: Any, value: int) -> Any:
    return arith.ConstantOp(type_, value).result
