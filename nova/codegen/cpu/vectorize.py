"""Vectorization: which loop of a nest is vectorized, the vector width, and which nests stay scalar.

Input: a `LoopNest`, the flat buffers of its operands, and the target. Output: a `VectorPlan`, or
None where one of the rules below keeps the nest scalar. `LoopEmitter` calls this; `vector_loops.py`
emits the plan.

A loop can be vectorized when every operand has stride 0 or 1 along it: inputs have either, outputs
have stride 1 along a parallel loop and 0 along a reduction. A nest stays scalar when there is no
such loop of at least `_SHORTEST` iterations; when the body has ops without a vector form
(`_SCALAR_ONLY`, control flow, unusual types, reads of memory other than along rows); when a
reduction is not a single combination of the output with a value (an argmax); or when an output is
also read by an access other than its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.codegen.common.combine import find_combiners
from nova.codegen.common.loop_nest import Loop, LoopNest, score
from nova.codegen.cpu.nontemporal import streams
from nova.core.records import record
from nova.core.sizes import same_shape
from nova.core.targets import Target
from nova.ir.attributes import MAY_BE_EMPTY
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root
from nova.ir.symbolic.size_table import is_number, typical

# Integer division traps on the undefined lanes past the end; remf is a loop.
_SCALAR_ONLY = frozenset(
    f"arith.{name}"
    for name in ("remf", "divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi")
)
_WIDTHS = {
    "f64": 64,
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "f8E4M3FN": 8,
    "f8E5M2": 8,
    "i64": 64,
    "i32": 32,
    "i16": 16,
    "i8": 8,
    "i1": 8,
    "index": 32,  # positions take two registers per vector: better than half the lanes
}
_SHORTEST = 4


@record
class VectorPlan:
    """The vectorized loop of a nest.

    A vector has `width` elements, and one iteration of the loop takes `unroll` vectors. `masked`
    says that the target can load and store part of a vector of every type used; otherwise the
    remainder is scalar. `streams` says that outputs are too large for the caches. `combiners` names
    the op of each output where the loop is a reduction.
    """

    loop: int
    width: int
    unroll: int
    masked: bool
    streams: bool
    combiners: tuple[str, ...] | None


def find_vector_plan(nest: LoopNest, buffers: Sequence[Any], target: Target) -> VectorPlan | None:
    """The vectorization of `nest` on `target`, or None."""
    if any(is_number(loop.size, 0) for loop in nest.loops) or _reads_own_output(nest):
        return None
    candidates = [
        i
        for i, loop in enumerate(nest.loops)
        if typical(loop.size) >= _SHORTEST and _walks(nest, loop)
    ]
    for i in sorted(candidates, key=lambda i: score(nest, i), reverse=True):
        if (plan := _vector_plan_of(nest, i, buffers, target)) is not None:
            return plan
    return None


def find_column_plan(
    nest: LoopNest, number: int, buffers: Sequence[Any], target: Target
) -> VectorPlan | None:
    """The vectorization along a parallel loop, whatever the strides of inputs along it."""
    if any(is_number(loop.size, 0) for loop in nest.loops) or _reads_own_output(nest):
        return None
    if typical(nest.loops[number].size) < _SHORTEST:
        return None
    return _vector_plan_of(nest, number, buffers, target)


def _walks(nest: LoopNest, loop: Loop) -> bool:
    """Whether every operand has stride 0 or 1, as outputs of such a loop must."""
    inputs = nest.generic.num_inputs
    output_stride = 1 if loop.parallel else 0
    return all(is_number(s, 0, 1) for s in loop.strides[:inputs]) and all(
        is_number(s, output_stride) for s in loop.strides[inputs:]
    )


def _reads_own_output(nest: LoopNest) -> bool:
    """Whether an output's buffer is also an input, through an access other than the output's."""
    inputs = nest.generic.num_inputs
    accesses = [
        (buffer_root(value), (nest.offsets[i], *(loop.strides[i] for loop in nest.loops)))
        for i, value in enumerate(nest.generic.op.operands)
    ]
    return any(
        read[0] == written[0] and not same_shape(read[1], written[1])
        for written in accesses[inputs:]
        for read in accesses[:inputs]
    )


def _vector_plan_of(
    nest: LoopNest, number: int, buffers: Sequence[Any], target: Target
) -> VectorPlan | None:
    loop = nest.loops[number]
    varying = varying_values(nest, loop)
    ops = [
        op.operation
        for op in nest.generic.block.operations
        if any(r in varying for r in op.operation.results)
    ]
    types = {str(v.type) for v in varying}
    reads = [op for op in ops if op.name == "memref.load"]
    if not types <= _WIDTHS.keys() or not all(
        _has_vector_form(op) for op in ops if op not in reads
    ):
        return None
    if not all(_reads_row(op, nest, loop, varying) for op in reads):
        return None
    combiners = None
    if not loop.parallel:
        combiners = find_combiners(nest)
        if combiners is None:
            return None
    stored = {
        str(b.type.element_type)
        for b, stride in zip(buffers, loop.strides, strict=True)
        if not is_number(stride, 0) and isinstance(b.type, ir.MemRefType)
    }
    stored |= {str(op.results[0].type) for op in reads}
    masked = all(has_masks(target, _WIDTHS[t]) for t in stored)
    bits = max((_WIDTHS[t] for t in stored | (types - {"i64", "i1", "i8", "i16"})), default=32)
    width = target.lanes(bits)
    size = typical(loop.size)
    while width // 2 >= size or (not masked and width > size):
        width //= 2
    if width < 2:
        return None
    carries = not all(loop.parallel for loop in nest.loops)
    unroll = _unroll(size // width, len(ops), carries, masked)
    return VectorPlan(number, width, unroll, masked, streams(nest, target, width), combiners)


def has_masks(target: Target, bits: int) -> bool:
    """Whether elements of this width have masked load and store instructions."""
    if "avx512bw" in target.features and "avx512vl" in target.features:
        return True
    return bits >= 32 and "avx2" in target.features


def _unroll(vectors: int, ops: int, carries: bool, masked: bool) -> int:
    """Vectors per iteration: enough to hide latency, if the length is a multiple.

    A long body needs no unrolling, because the processor overlaps iterations; sums are a dependence
    chain.
    """
    if carries:
        most = 4 if ops <= 12 else 2
    else:
        most = 4 if ops <= 3 else 2 if ops <= 12 else 1
    if vectors >= 16 and masked:
        return most
    return next(u for u in (4, 3, 2, 1) if u <= most and (vectors % u == 0 or u == 1))


def varying_values(nest: LoopNest, loop: Loop) -> set[Any]:
    """The values of the body that differ from one iteration of `loop` to the next."""
    block = nest.generic.block
    inputs = nest.generic.num_inputs
    varying = {
        a
        for i, a in enumerate(block.arguments)
        if (not is_number(loop.strides[i], 0) or i >= inputs) and any(True for _ in a.uses)
    }
    for op in block.operations:
        op = op.operation
        own_index = op.name == "linalg.index" and int(op.attributes["dim"].value) in loop.dims
        if own_index or any(v in varying for v in op.operands) or _uses_inside(op, varying):
            varying.update(op.results)
    return varying


def _uses_inside(op: Any, varying: set[Any]) -> bool:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if any(v in varying for v in inner.operation.operands):
                    return True
                if _uses_inside(inner.operation, varying):
                    return True
    return False


def _reads_row(op: Any, nest: LoopNest, loop: Loop, varying: set[Any]) -> bool:
    """Whether a `memref.load` reads adjacent elements along `loop`, of a buffer it does not write.

    Its last position is the counter of the loop, as in a row of a padded image. A buffer that may
    be empty has a guard around each load of an element (`guard_empty_buffers`).
    """
    if MAY_BE_EMPTY.has(op):
        return False
    buffer, *positions = op.operands
    outputs = list(nest.generic.op.operands)[nest.generic.num_inputs :]
    if not positions or any(value in varying for value in (buffer, *positions[:-1])):
        return False
    if buffer_root(buffer) in [buffer_root(value) for value in outputs]:
        return False
    last = positions[-1].owner.operation if isinstance(positions[-1], ir.OpResult) else None
    if last is None or last.name != "linalg.index":
        return False
    return loop.dims == (int(last.attributes["dim"].value),)


def _has_vector_form(op: Any) -> bool:
    if op.name == "linalg.index":
        return True
    return op.name.startswith(("arith.", "math.")) and op.name not in _SCALAR_ONLY
