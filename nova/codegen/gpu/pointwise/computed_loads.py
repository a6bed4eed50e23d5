"""Loads at computed positions as vectors: pads, windows and gathers of rows.

Input: a loop nest whose body loads elements at positions that it computes (`memref.load`), and the
points of a thread, adjacent along one loop. Output: the loads whose elements are adjacent as well,
because only their last index depends on that loop, and one vector load for each of them.
`elementwise.py` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import element_bytes
from nova.codegen.gpu.memory import ACCESS, extract
from nova.core.sizes import is_multiple
from nova.ir.bindings import ir, vector
from nova.ir.clone import clone_into
from nova.ir.linalg.generic import shape_of
from nova.ir.symbolic.size_table import active_table, is_number
from nova.ir.walk import defining_op

_COMPUTED = ("linalg.index", "affine.apply")
"""Ops other than those of `arith` that compute positions."""


def computed_loads(nest: LoopNest) -> list[Any]:
    """The loads of a body, in order."""
    ops = [op.operation for op in nest.generic.block.operations]
    return [op for op in ops if op.name == "memref.load"]


def find_adjacent(nest: LoopNest, loop: int, width: int) -> list[Any]:
    """The loads that read `width` adjacent, aligned elements at as many points along a loop.

    None in a program with symbolic sizes: loads of buffers that may be empty get guards.
    """
    if len(nest.loops[loop].dims) != 1 or active_table() is not None:
        return []
    return [op for op in computed_loads(nest) if _is_adjacent(op, nest, loop, width)]


def _is_adjacent(op: Any, nest: LoopNest, loop: int, width: int) -> bool:
    buffer, *positions = op.operands
    if not isinstance(buffer, ir.BlockArgument) or not positions:
        return False  # a view may begin anywhere
    (dim,) = nest.loops[loop].dims
    last = defining_op(positions[-1], "linalg.index")
    if last is None or _dim(last) != dim or not is_multiple(shape_of(buffer)[-1], width):
        return False
    slice_of = _find_slice(nest, positions[:-1])
    if slice_of is None:
        return False
    ops, arguments = slice_of
    operands = list(nest.generic.block.arguments)
    return not any(o.name == "linalg.index" and _dim(o) == dim for o in ops) and all(
        is_number(nest.loops[loop].strides[operands.index(argument)], 0) for argument in arguments
    )


def _find_slice(nest: LoopNest, values: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """The ops of the body that compute `values`, in order, and the inputs of the body they read.

    None if they read memory, or results of the op.
    """
    block = nest.generic.block
    body = [op.operation for op in block.operations]
    needed, arguments, pending = set[Any](), list[Any](), list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, ir.BlockArgument):
            if value.owner == block:
                arguments.append(value)
            continue
        op = value.owner.operation
        if op in needed or op not in body:
            continue
        if not op.name.startswith("arith.") and op.name not in _COMPUTED:
            return None
        needed.add(op)
        pending.extend(op.operands)
    operands = list(block.arguments)
    if any(operands.index(argument) >= nest.generic.num_inputs for argument in arguments):
        return None
    return [op for op in body if op in needed], arguments


def load_adjacent(
    nest: LoopNest,
    loads: Sequence[Any],
    inputs: Sequence[Any],
    ivs: Mapping[int, Any],
    captured: Mapping[Any, Any],
    width: int,
) -> list[dict[Any, Any]]:
    """The results of the loads at each of the points; `inputs` and `ivs` are those of the first."""
    known: list[dict[Any, Any]] = [{} for _ in range(width)]
    arguments = nest.generic.block.arguments
    mapping = dict(captured)
    mapping |= {a: v for a, v in zip(arguments, inputs, strict=False) if v is not None}
    for load in loads:
        buffer, *positions = load.operands
        slice_of = _find_slice(nest, positions)
        assert slice_of is not None, "as in `find_adjacent`"
        for op in slice_of[0]:
            if op.results[0] in mapping:
                continue
            if op.name == "linalg.index":
                mapping[op.results[0]] = ivs[_dim(op)]
            else:
                clone_into(op, mapping)
        element = buffer.type.element_type
        loaded = vector.load(
            ir.VectorType.get([width], element),
            mapping.get(buffer, buffer),
            [mapping.get(position, position) for position in positions],
            alignment=min(ACCESS, width * element_bytes(element)),
        )
        for k in range(width):
            known[k][load.results[0]] = extract(loaded, k)
    return known


def _dim(op: Any) -> int:
    return int(op.attributes["dim"].value)
