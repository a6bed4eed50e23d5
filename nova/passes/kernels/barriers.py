"""Barriers of `main`: the order that they impose on ops, for `form-kernels`.

Input: a function with `nova.barrier` ops between linalg ops. Output: the function without them, and
the values for which ops wait. A barrier that waits until the memory of a value is free also moves
the readers of this value before itself, where those do not need the result of the barrier.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from nova.ir.bindings import ir
from nova.ir.buffers import TENSOR_VIEWS
from nova.ir.dialect import BARRIER, is_released
from nova.passes.kernels.group_ops import captured, is_scalar


def drop_barriers(main: Any) -> dict[Any, list[Any]]:
    """Replace barriers by their operands; return the values for which the ops after each must wait.

    Kernels are opaque to CSE, so a barrier is not needed once they are formed: ops that it kept
    separate stay separate because no pass merges ops after this point.
    """
    barriers: list[tuple[list[Any], list[Any]]] = []
    found = [op.operation for op in main.entry_block.operations if op.operation.name == BARRIER]
    for op in found:
        hidden, after = op.operands
        values = [after]
        if is_released(op):
            values += [r for reader in _release(main.entry_block, op) for r in reader.results]
        barriers.append((users_in_main(op.results[0]), values))
        op.results[0].replace_all_uses_with(hidden)
        op.erase()
    # Only now: the hash of an op changes with its operands.
    waits: dict[Any, list[Any]] = {}
    for users, values in barriers:
        for user in users:
            waits.setdefault(user, []).extend(values)
    return waits


def users_in_main(value: Any) -> list[Any]:
    """The ops of main that use `value`, directly or through reshapes and scalars read from it.

    Those are rematerialized in every kernel that needs them.
    """
    users: list[Any] = []
    for use in value.uses:
        user = _in_main(use.owner.operation)
        if user.name in TENSOR_VIEWS or (len(user.results) and is_scalar(user)):
            for result in user.results:
                users += users_in_main(result)
        else:
            users.append(user)
    return users


def _in_main(op: Any) -> Any:
    """The op of main whose regions contain `op`; `op` itself where it is one."""
    while op.parent.operation.name != "func.func":
        op = op.parent.operation
    return op


def _release(block: Any, barrier: Any) -> list[Any]:
    """Move the readers of the barrier's second operand before the barrier; return them.

    Readers of values of its size that are computed from it count too: they may have its memory.
    """
    ops = [op.operation for op in block.operations]
    position = {op: i for i, op in enumerate(ops)}
    later = ops[position[barrier] + 1 : -1]
    held: set[Any] = {barrier}
    for op in later:
        if any(producer in held for producer in _producers(op)):
            held.add(op)
    readers = [op for op in _readers(barrier.operands[1]) if op in position and op not in held]
    moved = _needed(readers)
    for op in later:
        if op in moved:
            op.move_before(barrier)
    return [op for op in readers if op != ops[-1]]


def _readers(value: Any) -> list[Any]:
    """The ops that read a value, or one of its size that is computed from it."""
    size = prod(value.type.shape)
    readers: dict[Any, None] = {}
    waiting = [value]
    while waiting:
        for op in users_in_main(waiting.pop()):
            if op.name == BARRIER or op in readers:
                continue
            readers[op] = None
            waiting += [r for r in op.results if prod(r.type.shape) == size]
    return list(readers)


def _needed(ops: Iterable[Any]) -> set[Any]:
    """Ops, and all that they depend on."""
    needed: set[Any] = set()
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        if op not in needed:
            needed.add(op)
            waiting += _producers(op)
    return needed


def _producers(op: Any) -> list[Any]:
    """The ops whose results an op reads."""
    values = [*op.operands, *captured(op)]
    return [value.owner.operation for value in values if isinstance(value, ir.OpResult)]
