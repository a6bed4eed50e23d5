"""Finds the prologues of GEMVs: a norm that every block of a GEMV computes again.

Input: the block of `main`, linalg ops on tensors. Output: the ops of norms (reductions of a
vector, and elementwise ops after them) whose result is read only as the vector of GEMVs.
`form-kernels` puts a copy of them into the kernel of each GEMV, with the attribute `nova.prologue`.
On a device a launch takes longer than a row of a decoder: its norm is a few thousand values, which
all blocks of the next launch can read, too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from nova.codegen.common.gemv_size import is_gemv_size
from nova.codegen.common.match_contraction import is_multiply_add
from nova.ir.bindings import ir
from nova.ir.buffers import TENSOR_VIEWS, buffer_root
from nova.ir.linalg.generic import GenericOp, is_generic_op

_MOST_WORK = 1 << 18
"""Scalar operations of a prologue: about a layer norm of 16,384 values."""
_MOST_OPS = 8
_MOST_MATRIX = 1 << 24
"""Elements of a matrix: the many blocks of a larger one would all compute the prologue, and their
first loads overlap with a separate launch of it."""


def vector_of(op: GenericOp) -> Any | None:
    """The vector of a matrix-vector product; None for another op."""
    if op.num_inputs != 2 or op.num_outputs != 1 or op.iterators.count("reduction") != 1:
        return None
    if op.iterators[-1] != "reduction" or not is_multiply_add(op):
        return None
    for value, access in zip(op.inputs, op.accesses, strict=False):
        if len(access.coefficients) == 1 and access.row_dim(0) == len(op.iterators) - 1:
            return buffer_root(value)
    return None


def find_prologues(block: Any, may_repeat: Callable[[Any], bool]) -> set[Any]:
    """The ops of all prologues; `may_repeat` says which ops several kernels may compute."""
    vectors: dict[Any, None] = {}
    gemvs: dict[Any, Any] = {}
    for op in block.operations:
        op = op.operation
        vector = vector_of(GenericOp(op)) if is_generic_op(op) else None
        if vector is not None and _is_fitting(GenericOp(op)):
            vectors[vector] = None
            gemvs[op] = vector
    chosen: set[Any] = set()
    for vector in vectors:
        chosen |= _prologue_of(vector, gemvs, may_repeat)
    return chosen


def _prologue_of(vector: Any, gemvs: dict[Any, Any], may_repeat: Any) -> set[Any]:
    """The ops that only the vector of GEMVs needs, back to the reductions of a norm."""
    if not isinstance(vector, ir.OpResult):
        return set()
    chosen: dict[Any, None] = {}
    queue = [vector.owner.operation]
    while queue:
        op = queue.pop()
        if op in chosen or not (_is_row_op(op) and may_repeat(op)):
            continue
        users = _users(op.results[0])
        reads = [user for user in users if user not in gemvs or gemvs[user] != vector]
        if op.results[0] != vector and len(reads) < len(users):
            continue
        if not all(user in chosen for user in reads):
            continue
        chosen[op] = None
        for value in op.operands:
            if isinstance(root := buffer_root(value), ir.OpResult):
                queue.append(root.owner.operation)
    work = sum(GenericOp(op).work for op in chosen)
    reduces = any("reduction" in GenericOp(op).iterators for op in chosen)
    return set(chosen) if reduces and work <= _MOST_WORK and len(chosen) <= _MOST_OPS else set()


def _is_row_op(op: Any) -> bool:
    """Whether an op computes a vector, or a reduction of one."""
    if not is_generic_op(op) or len(op.results) != 1:
        return False
    generic = GenericOp(op)
    tensors = [value for value in generic.inputs if isinstance(value.type, ir.RankedTensorType)]
    long = [size for size in generic.sizes if size != 1]
    return bool(tensors) and len(long) == 1 and not generic.is_whole


def _users(value: Any) -> list[Any]:
    """The ops that use a value, directly or through reshapes."""
    users: list[Any] = []
    for use in value.uses:
        op = use.owner.operation
        users += _users(op.results[0]) if op.name in TENSOR_VIEWS else [op]
    return users


def _is_fitting(op: GenericOp) -> bool:
    return is_gemv_size(prod(op.sizes[:-1]), op.sizes[-1]) and prod(op.sizes) <= _MOST_MATRIX
