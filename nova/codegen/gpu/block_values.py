"""Values of a kernel with a single block that stay on its multiprocessor.

Input: a `DeviceKernel` whose grid has one point. Output: the arguments that are in shared memory,
and the fills that need no memory at all. `generic.py` emits code for them.

Such a kernel is a chain of small ops, and its time is the latency of its memory: an access to
global memory takes ten times as long as one to shared memory. So intermediate values are in shared
memory, and so are results that the kernel itself reads; those are copied at its end. A fill before
a reduction is its initial value: it needs neither a store nor a barrier.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod
from typing import Any

from nova.codegen.gpu.device_kernel import SHARED_LIMIT, DeviceKernel
from nova.codegen.gpu.hazards import touched
from nova.codegen.gpu.slice_writes import match_slice_write
from nova.core.sizes import SizeExpr
from nova.ir.bindings import ir, memref
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.kernel import Kernel
from nova.ir.linalg.generic import GenericOp, shape_of
from nova.ir.symbolic.size_table import is_number
from nova.ir.walk import every_op

_PARTIALS = 1 << 10
"""Bytes of shared memory that the block reductions need."""
_INDEXED_ACCESSES = ("memref.load", "memref.store")


def shared_arguments(kernel: DeviceKernel) -> tuple[list[Any], list[Any]]:
    """Arguments that shared memory replaces, if there is a single block: the small ones first.

    The first ones are read by no kernel afterwards; the others are results, which the kernel copies
    to memory at its end.
    """
    if not is_number(kernel.num_points, 0, 1):
        return [], []
    function = Kernel(kernel.function)
    results = [v for v in function.output_arguments if _is_read_again(kernel, v)]
    candidates = [
        value
        for value in (*function.intermediate_arguments, *results)
        if not isinstance(prod(shape_of(value)), SizeExpr)
    ]
    pinned = _pinned_buffers(kernel)
    free_bytes = SHARED_LIMIT - kernel.scratch_bytes - _PARTIALS
    private: list[Any] = []
    copied: list[Any] = []
    for value in sorted(candidates, key=lambda value: nbytes(value.type)):
        free_bytes -= nbytes(value.type) + 16
        if value not in pinned and free_bytes >= 0:
            (copied if value in results else private).append(value)
    return private, copied


def indexed_views(kernel: DeviceKernel, values: Iterable[Any], flat: Any) -> dict[Any, Any]:
    """Buffers in shared memory, in the shape of the arguments that bodies of ops index."""
    indexed = {v for op in kernel.nests for access in _accesses(op) for v in access.operands}
    return {value: _shaped(flat(value), value.type) for value in values if value in indexed}


def folded_fills(kernel: DeviceKernel) -> dict[Any, Any]:
    """Reductions and the constant that they begin with, instead of the fill before each of them."""
    return {
        op: constant
        for fill, op in pairwise(kernel.ops)
        if fill in kernel.nests and op in kernel.nests
        if (constant := _filled_constant(GenericOp(fill))) is not None
        if _overwrites(GenericOp(op), GenericOp(fill).outputs[0])
    }


def _pinned_buffers(kernel: DeviceKernel) -> set[Any]:
    """Buffers that some access needs as they are: not an element of a loop nest's operand."""
    pinned: set[Any] = set()
    for op in kernel.ops:
        for access in _accesses(op):
            pinned |= {
                buffer_root(value)
                for value in access.operands
                if isinstance(value.type, ir.MemRefType)
                and (op not in kernel.nests or access.name != "memref.load" or not _is_root(value))
            }
    return pinned


def _accesses(op: Any) -> list[Any]:
    """The accesses of an op at computed positions."""
    write = match_slice_write(op)
    if write is not None:
        return [write.store]
    return [inner for inner in every_op(op) if inner.name in _INDEXED_ACCESSES]


def _is_read_again(kernel: DeviceKernel, value: Any) -> bool:
    """Whether loop nests compute the whole value, and read it afterwards."""
    begins = folded_fills(kernel)
    users = [op for op in kernel.ops if value in set.union(*touched(op))]
    if not users or any(op not in kernel.nests for op in users):
        return False
    first, *others = users
    if len(others) and others[0] in begins:
        first, *others = others
    is_first = value in GenericOp(first).outputs and _covers(GenericOp(first))
    reads = first not in begins and value in touched(first)[0]
    return is_first and not reads and any(value in touched(op)[0] for op in others)


def _filled_constant(generic: GenericOp) -> Any | None:
    """The constant with which an op fills its whole output."""
    operations = [op.operation for op in generic.block.operations]
    if len(operations) != 1 or generic.num_outputs != 1 or not _covers(generic):
        return None
    (value,) = operations[0].operands
    arguments = list(generic.block.arguments)
    if value in arguments:
        value = list(generic.op.operands)[arguments.index(value)]
    if isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant":
        return value
    return None


def _overwrites(generic: GenericOp, value: Any) -> bool:
    """Whether a reduction into `value` reads it only as its accumulator, and covers it."""
    if generic.outputs != [value] or "reduction" not in generic.iterators:
        return False
    inner = [v for op in every_op(generic.op) for v in op.operands if op != generic.op]
    others = [v for v in (*generic.inputs, *inner) if isinstance(v.type, ir.MemRefType)]
    return _covers(generic) and all(buffer_root(v) != buffer_root(value) for v in others)


def _covers(generic: GenericOp) -> bool:
    """Whether the op writes every element of its only output."""
    rank = len(shape_of(generic.outputs[0]))
    return generic.num_outputs == 1 and len(set(generic.out_dims)) == rank


def _is_root(value: Any) -> bool:
    return bool(buffer_root(value) == value)


def _shaped(flat: Any, type_: Any) -> Any:
    """A flat buffer in the shape of `type_`."""
    shape = list(type_.shape)
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    shaped = ir.MemRefType.get(shape, type_.element_type, memory_space=flat.type.memory_space)
    return memref.ReinterpretCastOp(
        shaped, flat, [], [], [], static_offsets=[0], static_sizes=shape, static_strides=strides
    ).result
