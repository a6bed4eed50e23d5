"""`fuse-elementwise`: fuses an elementwise op into the only user of its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from nova.codegen.common.match_contraction import is_integer_contraction, reads_windows
from nova.core.records import record
from nova.ir.attributes import FUSION_GUARD
from nova.ir.bindings import ir
from nova.ir.buffers import TENSOR_VIEWS, buffer_root
from nova.ir.dialect import BARRIER, create_barrier
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.walk import find_ops, find_tensor_ops
from nova.passes.base import Pass, UpstreamPass
from nova.passes.kernels.code_size import code_size
from nova.passes.windows.match_pad import match_pad
from nova.passes.windows.materialize_pads import read_by_windows


@record
class FuseElementwise(Pass):
    """Run upstream's elementwise fusion, but not into contractions.

    Ops fused into a contraction would be recomputed for every element of its result, and no
    schedule would match it as a GEMM. `linalg.contract` alone does not prevent that: upstream moves
    the reshape after one into it, as a `linalg.generic` that it then fuses. So barriers guard the
    operands of contractions during this pass. They also guard the result of an op that would make
    its only user larger than `max_size` (`nova/passes/kernels/code_size.py`): upstream's time is
    quadratic in the size of the fused op, and LLVM's grows faster than a kernel. With `keep_pads`
    paddings that windows read are guarded as well, for `materialize-pads`. With `keep_windows`
    contractions that read windows are guarded like others: on a device, they are GEMMs.
    """

    name: ClassVar[str] = "fuse-elementwise"
    max_size: int = 1024
    keep_pads: bool = False
    keep_windows: bool = False

    def run(self, module: ir.Module) -> None:
        _copy_counters(module)
        _bound_chains(module, self.max_size)
        if self.keep_pads:
            _guard_pads(module)
        for op in _contractions(module, self.keep_windows):
            for operand in (0, 1):
                if _is_computed(op.operands[operand]):
                    _guard(op, operand)
        UpstreamPass("linalg-fuse-elementwise-ops", verify=False).run(module)
        for op in find_tensor_ops(module, BARRIER):
            if FUSION_GUARD.has(op):
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()


def _copy_counters(module: ir.Module) -> None:
    """Give each elementwise user its own copy of an op without operands, such as a range.

    Fusion then merges it with all of them: they count, and read no memory.
    """
    for op in find_tensor_ops(module, "linalg.generic"):
        if len(op.operands) > 1 or len(op.results) != 1:  # it has inputs
            continue
        uses = list(op.results[0].uses)
        if len(uses) < 2 or not find_ops(op, "linalg.index"):
            continue
        for use in uses[1:]:
            user = use.owner.operation
            if is_generic_op(user) and use.operand_number < GenericOp(user).num_inputs:
                with ir.InsertionPoint(op):
                    user.operands[use.operand_number] = op.clone().results[0]


def _is_unnamed_contraction(op: Any, windows: bool) -> bool:
    if len(op.operands) != 3:
        return False
    generic = GenericOp(op)
    return is_integer_contraction(generic) or (windows and reads_windows(generic))


def _contractions(module: ir.Module, windows: bool) -> Iterator[Any]:
    """Contractions of floats, and those without a named op: of integers, and of windows."""
    for op in find_tensor_ops(module, "linalg.contract", "linalg.generic"):
        if op.name == "linalg.contract" or _is_unnamed_contraction(op, windows):
            yield op


def _bound_chains(module: ir.Module, most: int) -> None:
    """Guard values that would make a fused op larger than `most`; each op is visited once."""
    fused: dict[Any, int] = {}
    """For each elementwise op, the size of the fused op so far."""
    for op in find_tensor_ops(module, "linalg.generic"):
        sizes: dict[int, int] = {}
        for number, value in enumerate(op.operands):
            producer = _only_used_here(value)
            if producer is not None and producer in fused:
                sizes[number] = fused[producer]
        total = code_size(op) + sum(sizes.values())
        # The largest first: few guards, and ops of about the same size.
        for number in sorted(sizes, key=lambda n: -sizes[n]):
            if total > most:
                total -= sizes[number]
                _guard(op, number)
        if "reduction" not in GenericOp(op).iterators:
            fused[op] = total


def _guard_pads(module: ir.Module) -> None:
    for op in find_tensor_ops(module, "linalg.generic"):
        if read_by_windows(op) and match_pad(op) is not None:
            for use in list(op.results[0].uses):
                _guard(use.owner.operation, use.operand_number)


def _only_used_here(value: Any) -> Any | None:
    """The producer of `value`, directly or through reshapes, if it has no other use."""
    while isinstance(value, ir.OpResult) and _has_one_use(value):
        op = value.owner.operation
        if op.name not in TENSOR_VIEWS:
            return op
        value = op.operands[0]
    return None


def _has_one_use(value: Any) -> bool:
    uses = iter(value.uses)
    return next(uses, None) is not None and next(uses, None) is None


def _is_computed(value: Any) -> bool:
    source = buffer_root(value)
    return isinstance(source, ir.OpResult) and is_generic_op(source.owner)


def _guard(op: Any, operand: int) -> None:
    value = op.operands[operand]
    with ir.InsertionPoint(op), op.location:
        barrier = create_barrier(value, value, 0)
        FUSION_GUARD.set(barrier)
        op.operands[operand] = barrier.result
