"""Buffer donation: when a kernel may write a parameter's new value over the old one.

The old value must be dead afterwards: no later call reads it, and inside of the writing kernel
every read comes at or before the write, at the same tile (or there is only one tile).
`delay_updates` moves the producers of new values after the other readers of the old ones, where
that changes nothing else: `form-kernels` calls it on ops, `plan-workspace` on kernel calls.
`sink_producers` moves producers that only new values need along with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, TypeAlias

from nova.ir.attributes import IN_PLACE, WORK
from nova.ir.bindings import ir
from nova.ir.buffers import TENSOR_VIEWS, VIEWS, buffer_root, element_bytes
from nova.ir.control_flow.functions import Control, is_control
from nova.ir.kernel import Kernel
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.walk import functions_by_name

_VIEWS = VIEWS | TENSOR_VIEWS
_LARGE = 128 << 20
"""Bytes of a tensor whose lifetime matters more than the order of ops."""


def delay_updates(module: ir.Module, block: Any, updates: Iterable[tuple[Any, Any]]) -> None:
    """Move the producer of each (argument, new value) after the last reader of the argument.

    It stays where an op in between needs its results.
    """
    named = functions_by_name(module)
    for argument, value in updates:
        maker = _maker(block, value)
        if maker is None:
            continue
        last = _last(users(argument))
        if last is None or not maker.is_before_in_block(last):
            continue
        needing = [r for v in _made_by(named, maker) for r in users(v)]
        if any(maker.is_before_in_block(r) and not last.is_before_in_block(r) for r in needing):
            continue
        _move_after(maker, last)


def sink_producers(block: Any, updates: int, old: Iterable[Any]) -> None:
    """Sink producers that only the last `updates` returned values need to their first use.

    Readers of an `old` value stay: after its update, the update could not be in place. So do ops
    that read a large tensor, such as the gradient of scores: it would stay alive for them.
    """
    readers = {op for argument in old for op in users(argument)}
    operations = [op.operation for op in block.operations]
    returned = operations.pop()
    outputs = len(returned.operands) - updates
    producers: set[Any] = set()
    for op in reversed(operations):
        uses = [(_in_block(use), use.operand_number) for r in op.results for use in r.uses]
        if any(o not in producers if o != returned else n < outputs for o, n in uses):
            continue
        if _reads_large(op):
            continue
        producers.add(op)
        needed = [user for user, _ in uses if user != returned]
        if needed and op not in readers:
            first = needed[0]
            for user in needed:
                first = user if user.is_before_in_block(first) else first
            op.move_before(first)


def _reads_large(op: Any) -> bool:
    """Whether an op reads a tensor that is large, and larger than its results."""
    results = sum(_tensor_bytes(r.type) for r in op.results)
    return any(_tensor_bytes(value.type) >= max(_LARGE, results) for value in op.operands)


def _tensor_bytes(type_: Any) -> int:
    """The bytes of a tensor of static sizes; 0 for other types."""
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return 0
    return prod(type_.shape) * element_bytes(type_)


def _in_block(use: Any) -> Any:
    """The op of the function's block that is, or contains, the user."""
    op = use.owner.operation
    while op.parent.operation.name not in ("func.func", "builtin.module"):
        op = op.parent.operation
    return op


def _maker(block: Any, value: Any) -> Any:
    """The op of `block` that produces `value`: a tensor op, or the first call with the buffer."""
    value = buffer_root(value)
    if _is_argument(value):
        return None
    op = value.owner.operation
    if op.name != "memref.alloc":
        return op if op.parent == block.owner.operation else None
    return _first(users(value))


def _made_by(named: Mapping[str, Any], maker: Any) -> list[Any]:
    """The values that an op produces; of a call on buffers, those that its kernel writes."""
    if maker.name != "func.call" or len(maker.results):
        return list(maker.results)
    kernel = named[maker.attributes["callee"].value]
    return [buffer_root(o) for o in list(maker.operands)[Kernel(kernel).ins :]]


def users(value: Any) -> list[Any]:
    """The ops other than the producer of `value` that use it, directly, through views or nested."""
    ops: list[Any] = []
    for use in value.uses:
        op = _in_block(use)
        ops += users(op.results[0]) if op.name in _VIEWS else [op]
    return ops


def _first(ops: Sequence[Any]) -> Any | None:
    """The op that comes first in their block; None for no ops."""
    return reduce(lambda a, b: b if b.is_before_in_block(a) else a, ops) if ops else None


def _last(ops: Sequence[Any]) -> Any | None:
    """The op that comes last in their block; None for no ops."""
    return reduce(lambda a, b: b if a.is_before_in_block(b) else a, ops) if ops else None


def _move_after(maker: Any, last: Any) -> None:
    """Move an op, and the views of its results, after `last`."""
    moved = [maker]
    for op in moved:
        for result in op.results:
            moved += [u.owner.operation for u in result.uses if u.owner.operation.name in _VIEWS]
    for op in reversed(list(dict.fromkeys(moved))):
        op.move_after(last)


def _is_argument(value: Any) -> bool:
    return not isinstance(value, ir.OpResult)


Answers: TypeAlias = "dict[str, dict[Any, bool]]"
"""For each kernel, whether it may have a buffer as these of its inputs and these of its outputs."""


def can_write_in_place(
    named: Mapping[str, Any], argument: Any, target: Any, answers: Answers | None = None
) -> bool:
    """Whether the buffer `target` of main may be the memory of `argument`.

    `named` has the functions of the module by name. `answers` gains those of its kernels: the
    caller drops the ones of a kernel that it changes.
    """
    writers, readers = _calls(target), _calls(argument)
    writer = _first(writers)
    if writer is None or any(writer.is_before_in_block(r) for r in readers):
        return False
    if writer not in readers:
        return True
    name = writer.attributes["callee"].value
    if is_control(named[name]):
        return _is_carry_in_place(named[name], writer, argument, target)
    roots = list(map(buffer_root, writer.operands))
    sources, targets = (
        tuple(i for i, root in enumerate(roots) if root == value) for value in (argument, target)
    )
    of_kernel = {} if answers is None else answers.setdefault(name, {})
    key = (sources, targets)
    if key not in of_kernel:
        of_kernel[key] = _safe_inside(named[name], sources, targets)
    return of_kernel[key]


def _is_carry_in_place(function: Any, call: Any, argument: Any, target: Any) -> bool:
    """Whether a loop has a value as the carry that it updates in place, and as nothing else."""
    roots = [buffer_root(o) for o in call.operands]
    pairs = carries_in_place(function)
    return (roots.index(argument), roots.index(target)) in pairs and (
        roots.count(argument) == roots.count(target) == 1
    )


def carries_in_place(function: Any) -> list[tuple[int, int]]:
    """The operands of a control function with the first and the last value of carries in place."""
    control, in_place = Control.of(function), IN_PLACE.find(function) or ()
    ins = Kernel(function).ins
    return [(control.first_carry + i, ins + i) for i in in_place]


def overwritten_copies(kernel: Any) -> list[tuple[int, int]]:
    """The arguments that a kernel copies to another, of which it then overwrites a slice.

    The lowering of an op that `mark-in-place` has marked is such a kernel: its loops have an
    estimate of their work.
    """
    formal = {argument: i for i, argument in enumerate(kernel.entry_block.arguments)}
    copies: list[Any] = []
    pairs = []
    for op in kernel.entry_block.operations:
        op = op.operation
        if is_copy(op) and all(o in formal for o in op.operands):
            copies.append(op)
        elif WORK.has(op) and not is_generic_op(op):
            pairs += [
                (formal[copy.operands[0]], formal[copy.operands[1]])
                for copy in copies
                if copy.operands[1] in op.operands or _captures(op, {copy.operands[1]})
            ]
    return pairs


def is_copy(op: Any) -> bool:
    """Whether an op copies a buffer to another of the same shape."""
    if not is_generic_op(op) or len(op.operands) != 2:
        return False
    generic = GenericOp(op)
    body = list(op.regions[0].blocks[0].operations)
    is_identity = generic.accesses[0] == generic.accesses[1]
    return (
        is_identity
        and len(body) == 1
        and body[0].operation.operands[0] == op.regions[0].blocks[0].arguments[0]
        and op.operands[0].type == op.operands[1].type
    )


def _calls(buffer: Any) -> list[Any]:
    """The calls that take a buffer or a view of it."""
    return [op for op in users(buffer) if op.name == "func.call"]


def _safe_inside(kernel: Any, sources: Sequence[int], targets: Sequence[int]) -> bool:
    """Whether the arguments `sources` of a kernel may be the memory of its `targets`."""
    formal = list(kernel.entry_block.arguments)
    source = {formal[i] for i in sources}
    written = {formal[i] for i in targets}
    grid = len(Kernel(kernel).grid)
    write_seen = False
    for op in kernel.entry_block.operations:
        op = op.operation
        if not is_generic_op(op):
            if any(o in source for o in op.operands) or _captures(op, source):
                return False
            if op.name != "memref.store" and any(o in written for o in op.operands):
                return False
            write_seen = write_seen or op.name == "memref.store" or _captures(op, written)
            continue
        generic = GenericOp(op)
        writes = any(o in written for o in generic.outputs)
        for value, access in zip(generic.inputs, generic.accesses, strict=False):
            if value not in source:
                continue
            if write_seen:
                return False
            if writes:
                if access != generic.accesses[generic.num_inputs]:
                    return False
            elif any(access.row_dim(i) != generic.grid_dims[i] for i in range(grid)):
                return False
        # A kernel without a grid runs its ops in order.
        if _captures(op, source) and (grid or writes or write_seen):
            return False
        write_seen = write_seen or writes
    return True


def _captures(op: Any, values: set[Any]) -> bool:
    return any(
        operand in values
        for region in op.regions
        for block in region.blocks
        for inner in block.operations
        for operand in inner.operation.operands
    )
