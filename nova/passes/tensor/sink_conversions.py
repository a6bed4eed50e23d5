"""`sink-conversions`: consumers read narrow floats and widen them themselves."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.linalg.generic import GenericOp
from nova.ir.mathlib.f8_formats import NARROW_TYPES
from nova.ir.walk import functions
from nova.passes.base import Pass

_CASTS = {"arith.extf", "arith.truncf", "linalg.yield"}
_CHEAP = {
    *_CASTS,
    *(f"arith.{name}" for name in ("addf", "subf", "mulf", "divf", "negf", "constant")),
}
_SMALL = 64 << 10


@record
class SinkConversions(Pass):
    """Give every consumer of a widened narrow float its own copy of the op that widens it.

    Elementwise fusion does not merge an op with several users: its result would be stored, in
    f32, although its operands take fewer bytes. With a copy for each user, fusion merges the op
    into all of them, and they read the operands: layer norms, forward and backward, read the 16-bit
    activations and the statistics of rows, not a normalized f32. An op is copied if its body has at
    most `max_ops` cheap operations, counting those of the copied ops before it, and if the tensors
    that it then reads take fewer bytes than its result. Casts of small tensors, such as the scale
    of a norm, are copied too: they are not worth a kernel. Without narrow floats nothing changes.
    """

    name: ClassVar[str] = "sink-conversions"
    max_ops: int = 16

    def concerns(self, text: str) -> bool:
        return "f16" in text or "f8E" in text

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if not function.is_external:
                for op in reversed(self._recomputed(function.entry_block)):
                    _copy_for_users(op)

    def _recomputed(self, block: Any) -> list[Any]:
        """The ops whose results are computed by each user, in order."""
        sources: dict[Any, tuple[frozenset[Any], int]] = {}
        """For the result of each: the tensors that its users then read, and its operations."""
        ops = []
        for op in block.operations:
            op = op.operation
            if not _is_cheap(op):
                continue
            read: set[Any] = set()
            operations = len(op.regions[0].blocks[0].operations) - 1
            for value in GenericOp(op).inputs:
                if isinstance(value.type, ir.RankedTensorType):
                    tensors, more = sources.get(value, (frozenset((value,)), 0))
                    read |= tensors
                    operations += more
            if operations <= self.max_ops and _is_worth(op, read):
                sources[op.results[0]] = (frozenset(read), operations)
                ops.append(op)
        return ops


def _is_cheap(op: Any) -> bool:
    """Whether an op is elementwise, static, and has cheap operations only."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    if not op.results[0].type.has_static_shape:
        return False
    generic = GenericOp(op)
    body = generic.block.operations
    return (
        all(iterator == "parallel" for iterator in generic.iterators)
        and all(inner.operation.name in _CHEAP for inner in body)
        and not any(True for _ in generic.block.arguments[generic.num_inputs].uses)
        and op.attributes["indexing_maps"][generic.num_inputs].value.is_permutation
    )


def _is_worth(op: Any, read: set[Any]) -> bool:
    """Whether users read fewer bytes, of 16-bit floats, if they compute the result of `op`."""
    result = op.results[0].type
    body = op.regions[0].blocks[0].operations
    casts = [inner.operation for inner in body if inner.operation.name in _CASTS]
    if _bytes(result) <= _SMALL and len(casts) == len(body):
        return any(map(_converts_narrow, casts))
    narrow = [v for v in read if _is_narrow(v.type) and prod(v.type.shape) == prod(result.shape)]
    return bool(narrow) and sum(_bytes(value.type) for value in read) < _bytes(result)


def _converts_narrow(op: Any) -> bool:
    return any(isinstance(v.type, NARROW_TYPES) for v in [*op.operands, *op.results])


def _is_narrow(type_: Any) -> bool:
    return isinstance(type_.element_type, NARROW_TYPES)


def _bytes(type_: Any) -> int:
    return prod(type_.shape) * type_.element_type.width // 8


def _copy_for_users(op: Any) -> None:
    """A copy of the op for each user that fusion may merge it into, but for a single user."""
    users: dict[Any, list[int]] = {}
    for use in op.results[0].uses:
        users.setdefault(use.owner.operation, []).append(use.operand_number)
    fusable = [user for user in users if _fuses(user, op)]
    if len(fusable) == len(users):
        fusable = fusable[1:]
    for user in fusable:
        with ir.InsertionPoint(user):
            copy = op.clone()
        for number in users[user]:
            user.operands[number] = copy.operation.results[0]


def _fuses(user: Any, op: Any) -> bool:
    return user.name == "linalg.generic" and user.parent.operation == op.parent.operation
