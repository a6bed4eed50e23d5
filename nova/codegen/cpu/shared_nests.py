"""Elementwise nests of GEMM kernels as shared functions: one for all matrices with the same body.

In: an elementwise loop nest over rows and columns, such as the epilogue of a GEMM, and the range of
a tile. Out: a call of a function of the module that takes buffers, positions, strides and sizes as
arguments. The layers of a model differ in their sizes and share the body, so the vector loops of
most epilogues are compiled once. `schedule.py` calls this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from math import gcd
from typing import Any

from nova.codegen.common.index_math import Range
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.divisors import divisor_of
from nova.codegen.cpu.shared_functions import call_shared
from nova.codegen.cpu.vector_loops import VectorLoops
from nova.codegen.cpu.vectorize import VectorPlan, find_vector_plan
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir
from nova.ir.index import add, index, mul
from nova.ir.symbolic.size_table import is_number

_LEAST_OPS = 3
"""Ops of a body from which a call is shorter than the loops."""


@record
class _Access:
    """How operands move: the strides along rows and columns, and the first position."""

    row: int
    column: int
    offset: int


@record
class _SharedNest:
    """A nest that has a shared function: its plan, and the distinct accesses of its operands.

    `access_of` has for each operand the number of its access. A range of columns is a multiple of
    `unit` columns.
    """

    plan: VectorPlan
    accesses: tuple[_Access, ...]
    access_of: tuple[int, ...]
    unit: int


def call_shared_nest(
    nest: LoopNest, buffers: Sequence[Any], ranges: Sequence[Range], target: Target
) -> bool:
    """Call the shared function of an elementwise nest; False where it has none."""
    shared = _match(nest, buffers, ranges, target)
    if shared is None:
        return False
    (first, last), (left, right) = ranges
    offsets = [
        index(add(add(mul(first, access.row), mul(left, access.column)), access.offset))
        for access in shared.accesses
    ]
    strides = [index(access.row) for access in shared.accesses if access.row]
    rows, columns = arith.subi(last, first), arith.subi(right, left)
    if shared.unit > 1:
        columns = arith.divui(columns, index(shared.unit))

    def emit(*args: Any) -> None:
        _emit_nest(nest, shared, args)

    numbers = [*offsets, *strides, rows, columns]
    call_shared(_name(nest, buffers, shared), buffers, numbers, 0, emit)
    return True


def _match(
    nest: LoopNest, buffers: Sequence[Any], ranges: Sequence[Range], target: Target
) -> _SharedNest | None:
    loops = nest.loops
    if len(loops) != 2 or not all(loop.parallel for loop in loops) or nest.indexed:
        return None
    numbers = *nest.offsets, *(n for loop in loops for n in (loop.size, *loop.strides))
    if not all(isinstance(n, int) for n in numbers):
        return None  # symbolic sizes are loaded by the kernel
    if not all(isinstance(buffer.type, ir.MemRefType) for buffer in buffers):
        return None
    if is_number(0, *loops[1].strides):
        return None  # one number for a row: only a kernel, whose buffers do not alias, keeps it
    ops = [op.operation for op in nest.generic.block.operations]
    if len(ops) <= _LEAST_OPS or any(len(op.regions) for op in ops):
        return None
    if not all(_is_constant(value) for value in _outer_values(nest)):
        return None
    plan = find_vector_plan(nest, buffers, target)
    if plan is None or plan.loop != 1 or plan.streams:
        return None
    left, right = ranges[1]
    divisor = gcd(divisor_of(left), divisor_of(right))
    units = (plan.width * plan.unroll, plan.width, 1)
    unit = next(unit for unit in units if divisor % unit == 0)
    if unit == 1 and not plan.masked:
        return None  # the remainder is a scalar loop of the caller
    per_operand = [
        _Access(row, column, offset)
        for row, column, offset in zip(
            loops[0].strides, loops[1].strides, nest.offsets, strict=True
        )
    ]
    accesses = tuple(dict.fromkeys(per_operand))
    return _SharedNest(plan, accesses, tuple(map(accesses.index, per_operand)), unit)


def _outer_values(nest: LoopNest) -> list[Any]:
    """The values that the body uses and does not compute, in the order of use."""
    block = nest.generic.block
    inner = {*block.arguments, *(r for op in block.operations for r in op.operation.results)}
    used = (value for op in block.operations for value in op.operation.operands)
    return list(dict.fromkeys(value for value in used if value not in inner))


def _is_constant(value: Any) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant"


def _name(nest: LoopNest, buffers: Sequence[Any], shared: _SharedNest) -> str:
    """The name of the function: equal for nests with equal code."""
    block = nest.generic.block
    names: dict[Any, str] = {value: f"%{i}" for i, value in enumerate(block.arguments)}
    for value in _outer_values(nest):
        names[value] = str(value.owner.operation.attributes["value"])
    lines = [f"{shared.plan} {shared.access_of} {shared.unit}"]
    lines += [str([(bool(a.row), a.column) for a in shared.accesses])]
    lines += [str(buffer.type.element_type) for buffer in buffers]
    for op in (op.operation for op in block.operations):
        for result in op.results:
            names[result] = f"%{len(names)}"
        operands = " ".join(names[value] for value in op.operands)
        types = " ".join(str(result.type) for result in op.results)
        attributes = {entry: str(op.attributes[entry]) for entry in op.attributes}
        lines.append(f"{op.name} {operands} {attributes} {types}")
    digest = sha256("\n".join(lines).encode()).hexdigest()
    return f"nova_rows_{digest[:12]}"


def _emit_nest(nest: LoopNest, shared: _SharedNest, args: Sequence[Any]) -> None:
    """The function: the nest with positions, strides and sizes that are arguments."""
    count = len(shared.access_of)
    buffers, numbers = list(args[:count]), list(args[count:])
    *numbers, rows, columns = numbers
    offsets, strides = numbers[: len(shared.accesses)], iter(numbers[len(shared.accesses) :])
    by_access = [next(strides) if access.row else 0 for access in shared.accesses]
    row_loop, column_loop = nest.loops
    open_nest = replace(
        nest,
        loops=(
            replace(row_loop, strides=tuple(by_access[i] for i in shared.access_of)),
            column_loop,
        ),
        offsets=tuple(offsets[i] for i in shared.access_of),
    )
    zero = index(0)
    if shared.unit > 1:
        columns = arith.muli(columns, index(shared.unit))
    captured = {value: value.owner.operation.clone().results[0] for value in _outer_values(nest)}
    ranges: list[Range | None] = [(zero, rows), (zero, columns)]
    VectorLoops(open_nest, buffers, ranges, captured, shared.plan).emit()
