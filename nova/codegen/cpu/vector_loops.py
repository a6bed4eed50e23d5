"""Structured ops as loops over vectors.

Input: a loop nest, its buffers, and the `VectorPlan` that says which loop is vectorized. Output:
scf loops of vector loads, a body on vectors, and vector stores. `LoopEmitter` calls this.

From the outside in: first the other parallel loops. If the vectorized loop is parallel, it follows
in steps of several vectors, and inside it the reductions keep one accumulator per vector in
registers. If the vectorized loop is a reduction, all reductions follow with a few vector
accumulators, which are combined at the end in an order that depends on the shape alone. Long sums
are cut into blocks (cascade_sum.py). The last, partial vector is loaded and stored under a mask;
its arithmetic is that of a whole vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd, prod
from typing import Any

from nova.codegen.common.builder import load_vector, splat, store_vector
from nova.codegen.common.cascade_sum import Body, carried, cascade_of
from nova.codegen.common.combine import combiner, identity, reduce_tree
from nova.codegen.common.index_math import Range, advance, at, distance, shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.divisors import divisor_of
from nova.codegen.cpu.nontemporal import all_aligned, fence_stores, vector_bytes
from nova.codegen.cpu.vector_body import as_vector, emit_body
from nova.codegen.cpu.vectorize import VectorPlan
from nova.ir.bindings import arith, ir, memref, scf, vector
from nova.ir.index import Index, index
from nova.ir.symbolic.size_table import is_number, typical


@dataclass(frozen=True)
class NestPosition:
    """The state of the enclosing loops: the position of each operand's access, and the counters."""

    bases: list[Any]
    indices: dict[int, Any]


class VectorLoops:
    """Emits one loop nest at the insertion point, vector by vector."""

    def __init__(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        ranges: Sequence[Range | None],
        captured: Mapping[Any, Any],
        plan: VectorPlan,
    ):
        self.nest = nest
        self.generic = nest.generic
        self.buffers = buffers
        self.ranges = ranges
        self.captured = captured
        self.plan = plan
        self.loop = nest.loops[plan.loop]
        self.inner = [
            i for i, loop in enumerate(nest.loops) if not loop.parallel and i != plan.loop
        ]
        self.reduces = not all(loop.parallel for loop in nest.loops)
        self.cascade = cascade_of(nest)

    def emit(self) -> Range | None:
        """Emit the loops; return the range of the vectorized loop that remains to be done."""
        low, high = self.ranges[self.plan.loop] or (None, None)
        extent = self._static_size() if low is None else distance(low, high)
        if low is None and extent is None:
            low, high = index(0), index(self.loop.size)
        remainder: Range | None = None
        partial = not self._is_whole(low, high) if extent is None else extent % self.plan.width
        if not self.plan.masked and partial:
            end = index(self.loop.size) if low is None else high
            high = self._last_full(low, end, extent)
            remainder = (high, end)
            extent = None if extent is None else extent - extent % self.plan.width
        outer = [
            i for i, loop in enumerate(self.nest.loops) if loop.parallel and i != self.plan.loop
        ]
        starts = [None if is_number(o, 0) else index(o) for o in self.nest.offsets]
        position = NestPosition(starts, {})
        if self.loop.parallel:
            self._nested(outer, position, lambda p: self._across(p, low, high, extent))
            if self.plan.streams:
                fence_stores()
        else:
            end = high if extent is None else extent
            self._nested(outer, position, lambda p: self._along_reduction(p, end))
        return remainder

    def _is_whole(self, low: Any, high: Any, vectors: int = 1) -> bool:
        """Whether a range is known to be a multiple of that many vectors."""
        return gcd(divisor_of(low), divisor_of(high)) % (vectors * self.plan.width) == 0

    def _static_size(self) -> int | None:
        """The size of the vectorized loop, if it is not symbolic."""
        return self.loop.size if isinstance(self.loop.size, int) else None

    def _last_full(self, low: Any, end: Any, extent: int | None) -> Any:
        """The end of the last whole vector."""
        width = self.plan.width
        if extent is not None:
            full = extent - extent % width
            return index(full) if low is None else arith.addi(low, index(full))
        count = arith.subi(end, low)
        return arith.subi(end, arith.remui(count, index(width)))

    def _nested(
        self, loops: Sequence[int], position: NestPosition, body: Callable[[NestPosition], None]
    ) -> None:
        """Emit the loops numbered `loops` around `body`."""
        if not loops:
            body(position)
            return
        loop = self.nest.loops[loops[0]]
        span = self.ranges[loops[0]]
        if is_number(loop.size, 1) and span is None:
            self._nested(loops[1:], self._inside(position, loops[0], index(0)), body)
            return
        low, high = span or (index(0), index(loop.size))
        if distance(low, high) == 1:  # a tile of one row
            self._nested(loops[1:], self._inside(position, loops[0], low), body)
            return
        op = scf.ForOp(low, high, index(1))
        with ir.InsertionPoint(op.body):
            inside = self._inside(position, loops[0], op.induction_variable)
            self._nested(loops[1:], inside, body)
            scf.YieldOp([])

    def _inside(self, position: NestPosition, number: int, iv: Any) -> NestPosition:
        loop = self.nest.loops[number]
        indices = dict(position.indices)
        if len(loop.dims) == 1:
            indices[loop.dims[0]] = iv
        return NestPosition(advance(position.bases, iv, loop), indices)

    # --- a parallel loop is vectorized ------------------------------------------------------------

    def _across(self, position: NestPosition, low: Any, high: Any, extent: int | None) -> None:
        width, unroll = self.plan.width, self.plan.unroll
        step = width * unroll
        if extent is not None:
            full, remaining = extent - extent % step, extent % step
            if full == step:
                self._block(self._inside(position, self.plan.loop, _or_zero(low)), unroll, None)
            elif full:
                self._iterations(position, _or_zero(low), _end(low, full))
            vectors = remaining // width
            if vectors:
                begin = self._inside(position, self.plan.loop, _end(low, full))
                self._block(begin, vectors, None)
            if remaining % width:
                begin = self._inside(position, self.plan.loop, _end(low, full + vectors * width))
                mask = vector.constant_mask(_mask_type(width), [remaining % width])
                self._block(begin, 1, mask)
            return
        if self._is_whole(low, high, unroll):
            self._iterations(position, low, high)
            return
        count = arith.subi(high, low)
        middle = arith.subi(high, arith.remui(count, index(step)))
        self._iterations(position, low, middle)
        if not self.plan.masked or self._is_whole(low, high):
            if unroll > 1:
                self._steps(position, middle, high, width, 1)
            return
        op = scf.ForOp(middle, high, index(width))
        with ir.InsertionPoint(op.body):
            iv = op.induction_variable
            mask = vector.create_mask(_mask_type(width), [arith.subi(high, iv)])
            self._block(self._inside(position, self.plan.loop, iv), 1, mask)
            scf.YieldOp([])

    def _iterations(self, position: NestPosition, low: Any, high: Any) -> None:
        """The loop over whole iterations; non-temporal stores only if all vectors are aligned."""
        step, unroll = self.plan.width * self.plan.unroll, self.plan.unroll
        if not self.plan.streams:
            self._steps(position, low, high, step, unroll)
            return
        begin = self._inside(position, self.plan.loop, low).bases
        outputs = range(self.generic.num_inputs, len(self.buffers))
        aligned = all_aligned([(self.buffers[i], begin[i]) for i in outputs], self.plan.width)
        op = scf.IfOp(aligned, has_else=True)
        for block, streamed in ((op.then_block, True), (op.else_block, False)):
            with ir.InsertionPoint(block):
                self._steps(position, low, high, step, unroll, streamed=streamed)
                scf.YieldOp([])

    def _steps(
        self,
        position: NestPosition,
        low: Any,
        high: Any,
        step: int,
        vectors: int,
        *,
        streamed: bool = False,
    ) -> None:
        op = scf.ForOp(low, high, index(step))
        with ir.InsertionPoint(op.body):
            inside = self._inside(position, self.plan.loop, op.induction_variable)
            self._block(inside, vectors, None, streamed=streamed)
            scf.YieldOp([])

    def _block(
        self, position: NestPosition, vectors: int, mask: Any, *, streamed: bool = False
    ) -> None:
        """Emit `vectors` adjacent vectors of every output."""
        outputs = range(self.generic.num_inputs, len(self.buffers))
        read = self.generic.uses_output or bool(self.inner)
        totals = [
            self._load(i, position, k, mask) if read else None
            for k in range(vectors)
            for i in outputs
        ]
        totals = self._reduced(self.inner, position, totals, vectors, mask)
        for number, value in enumerate(totals):
            k, i = divmod(number, len(outputs))
            self._store(outputs[i], value, position, k, mask, streamed=streamed)

    def _reduced(
        self,
        loops: Sequence[int],
        position: NestPosition,
        totals: list[Any],
        vectors: int,
        mask: Any,
    ) -> list[Any]:
        """The outputs of a block, `totals`, after the reductions numbered `loops`."""
        if not loops:
            return self._bodies(position, totals, vectors, mask)

        def inside(iv: Any, values: list[Any]) -> list[Any]:
            return self._reduced(
                loops[1:], self._inside(position, loops[0], iv), values, vectors, mask
            )

        return self._reduction_loop(loops[0], self._terms(loops[1:]), totals, inside)

    def _terms(self, loops: Sequence[int]) -> int:
        return typical(prod(self.nest.loops[i].size for i in loops))

    def _reduction_loop(self, number: int, inner: int, totals: list[Any], body: Body) -> list[Any]:
        """A reduction loop in which each iteration adds `inner` terms one by one."""
        count, cascade = self.nest.loops[number].size, self.cascade
        if not cascade.is_long(inner):
            return cascade.emit_loop(count, 1, totals, body, terms_per_iteration=inner)

        def separate_sum(iv: Any, values: list[Any]) -> list[Any]:
            return cascade.combined(values, body(iv, cascade.fresh(values)))

        return cascade.emit_loop(count, 1, totals, separate_sum)

    # --- a reduction is vectorized ----------------------------------------------------------------

    def _along_reduction(self, position: NestPosition, extent: Index) -> None:
        """Reduce `extent` elements; a reduction is never cut into tiles."""
        outputs = range(self.generic.num_inputs, len(self.buffers))
        names = self.cascade.names
        neutral = [identity(name, self._vector(i)) for name, i in zip(names, outputs, strict=True)]
        unroll = self.plan.unroll
        totals = self._folded(self.inner, position, neutral * unroll, extent)
        for k, (i, name) in enumerate(zip(outputs, names, strict=True)):
            parts = [totals[u * len(outputs) + k] for u in range(unroll)]
            total = _fold_lanes(name, reduce_tree(parts, combiner(name)), self.plan.width)
            self._store_scalar(i, combiner(name)(self._load_scalar(i, position), total), position)

    def _folded(
        self, loops: Sequence[int], position: NestPosition, totals: list[Any], extent: Index
    ) -> list[Any]:
        width, unroll = self.plan.width, self.plan.unroll
        step, number = width * unroll, self.plan.loop
        if loops:
            inner = self._terms(loops[1:]) * -(-typical(self.loop.size) // step)
            return self._reduction_loop(
                loops[0],
                inner,
                totals,
                lambda iv, values: self._folded(
                    loops[1:], self._inside(position, loops[0], iv), values, extent
                ),
            )
        if not isinstance(extent, int):
            return self._folded_dynamic(position, totals, extent)
        full, remaining = extent - extent % step, extent % step
        if full:
            totals = self.cascade.emit_loop(
                full,
                step,
                totals,
                lambda iv, values: self._bodies(
                    self._inside(position, number, iv), values, unroll, None
                ),
            )
        outputs = self.generic.num_outputs
        if vectors := remaining // width:
            leading = totals[: vectors * outputs]
            leading = self._bodies(
                self._inside(position, number, index(full)), leading, vectors, None
            )
            totals = leading + totals[vectors * outputs :]
        if remaining % width:
            mask = vector.constant_mask(_mask_type(width), [remaining % width])
            begin = self._inside(position, number, index(full + vectors * width))
            old = totals[-outputs:]
            new = self._bodies(begin, old, 1, mask)
            merged = [arith.select(mask, n, o) for n, o in zip(new, old, strict=True)]
            totals = totals[:-outputs] + merged
        return totals

    def _folded_dynamic(self, position: NestPosition, totals: list[Any], extent: Any) -> list[Any]:
        """The reduction of `extent` elements: whole iterations, then vectors, the last masked."""
        width, unroll, number = self.plan.width, self.plan.unroll, self.plan.loop
        full = arith.subi(extent, arith.remui(extent, index(width * unroll)))
        totals = self.cascade.emit_loop(
            full,
            width * unroll,
            totals,
            lambda iv, values: self._bodies(
                self._inside(position, number, iv), values, unroll, None
            ),
        )
        outputs = self.generic.num_outputs

        def add_vector(iv: Any, old: list[Any]) -> list[Any]:
            inside = self._inside(position, number, iv)
            if not self.plan.masked:
                return self._bodies(inside, old, 1, None)
            mask = vector.create_mask(_mask_type(width), [arith.subi(extent, iv)])
            new = self._bodies(inside, old, 1, mask)
            return [arith.select(mask, n, o) for n, o in zip(new, old, strict=True)]

        leading = carried(full, extent, width, totals[:outputs], add_vector)
        return leading + totals[outputs:]

    def _vector(self, operand: int) -> Any:
        element = self.generic.block.arguments[operand].type
        return ir.VectorType.get([self.plan.width], element)

    # --- one body, on several vectors -------------------------------------------------------------

    def _bodies(
        self, position: NestPosition, totals: list[Any], vectors: int, mask: Any
    ) -> list[Any]:
        """Emit the body on `vectors` adjacent vectors; `totals` are the outputs' old values."""
        arguments = self.generic.block.arguments
        outputs = self.generic.num_outputs
        used = [any(True for _ in a.uses) for a in arguments]
        loaded = [
            [
                self._load(i, position, k, mask) if used[i] else None
                for i in range(self.generic.num_inputs)
            ]
            for k in range(vectors)
        ]
        results: list[Any] = []
        for k in range(vectors):
            results += emit_body(
                self.generic.block,
                [*loaded[k], *totals[k * outputs : (k + 1) * outputs]],
                self.captured,
                position.indices | self._own_indices(position, k),
                self.plan.width,
                relaxed=self.reduces,
                load_row=partial(self._load_row, position, k, mask),
            )
        return results

    def _own_indices(self, position: NestPosition, k: int) -> dict[int, Any]:
        """The loop counters of the lanes, where the body uses them."""
        if not (self.nest.indexed & {*self.loop.dims}):
            return {}
        width = self.plan.width
        index_type = ir.VectorType.get([width], ir.IndexType.get())
        steps = [ir.IntegerAttr.get(ir.IndexType.get(), k * width + i) for i in range(width)]
        offsets = arith.ConstantOp(index_type, ir.DenseElementsAttr.get(steps, index_type)).result
        (dim,) = self.loop.dims
        return {dim: arith.addi(as_vector(position.indices[dim], width), offsets)}

    # --- memory -----------------------------------------------------------------------------------

    def _load(self, operand: int, position: NestPosition, k: int, mask: Any) -> Any:
        """Load vector `k` of an operand, or the scalar that all lanes share."""
        buffer = self.buffers[operand]
        if not isinstance(buffer.type, ir.MemRefType):
            return buffer
        if is_number(self.loop.strides[operand], 0):
            return self._load_scalar(operand, position)
        width = self.plan.width
        memory_type = ir.VectorType.get([width], buffer.type.element_type)
        offset = [shifted(position.bases[operand], k * width)]
        if mask is None:
            value = load_vector(memory_type, buffer, *offset)
        else:
            value = vector.maskedload(memory_type, buffer, offset, mask, splat(memory_type, 0))
        body_type = self.generic.block.arguments[operand].type
        # A bool is a byte in memory and an i1 in registers.
        if body_type == buffer.type.element_type:
            return value
        return arith.trunci(ir.VectorType.get([width], body_type), value)

    def _load_row(
        self, position: NestPosition, k: int, mask: Any, op: Any, operands: Sequence[Any]
    ) -> Any:
        """Vector `k` of a `memref.load` whose last position is the counter of the loop."""
        buffer, *positions = operands
        (dim,) = self.loop.dims
        at_row = [*positions, shifted(position.indices[dim], k * self.plan.width)]
        row_type = ir.VectorType.get([self.plan.width], op.results[0].type)
        if mask is None:
            return vector.load(row_type, buffer, at_row)
        return vector.maskedload(row_type, buffer, at_row, mask, splat(row_type, 0))

    def _load_scalar(self, operand: int, position: NestPosition) -> Any:
        value = memref.load(self.buffers[operand], [at(position.bases[operand])])
        body_type = self.generic.block.arguments[operand].type
        return value if value.type == body_type else arith.trunci(body_type, value)

    def _store(
        self, operand: int, value: Any, position: NestPosition, k: int, mask: Any, *, streamed: bool
    ) -> None:
        buffer = self.buffers[operand]
        width = self.plan.width
        memory_type = ir.VectorType.get([width], buffer.type.element_type)
        if value.type != memory_type:
            value = arith.extui(memory_type, value)
        offset = [shifted(position.bases[operand], k * width)]
        if streamed:
            alignment = vector_bytes(buffer, width)
            vector.store(value, buffer, offset, nontemporal=True, alignment=alignment)
        elif mask is None:
            store_vector(value, buffer, *offset)
        elif _is_single_lane(mask) and _is_made_by(value, "arith.trunci"):
            # LLVM writes the bytes of the wide lane if the mask is a constant with one lane.
            memref.store(vector.extract(value, [], [0]), buffer, offset)
        else:
            vector.maskedstore(buffer, offset, mask, value)

    def _store_scalar(self, operand: int, value: Any, position: NestPosition) -> None:
        buffer = self.buffers[operand]
        if value.type != buffer.type.element_type:
            value = arith.extui(buffer.type.element_type, value)
        memref.store(value, buffer, [at(position.bases[operand])])


def _is_made_by(value: Any, name: str) -> bool:
    return isinstance(value.owner, ir.OpView | ir.Operation) and value.owner.name == name


def _is_single_lane(mask: Any) -> bool:
    """Whether a mask is a constant with one lane."""
    if not _is_made_by(mask, "vector.constant_mask"):
        return False
    return list(mask.owner.attributes["mask_dim_sizes"]) == [1]


def _fold_lanes(name: str, value: Any, width: int) -> Any:
    """Combine the upper half with the lower half until one lane is left."""
    while width > 1:
        width //= 2
        halves = [
            vector.shuffle(value, value, mask=list(range(first, first + width)))
            for first in (0, width)
        ]
        value = combiner(name)(*halves)
    return vector.extract(value, dynamic_position=[], static_position=[0])


def _mask_type(width: int) -> Any:
    return ir.VectorType.get([width], ir.IntegerType.get_signless(1))


def _or_zero(low: Any) -> Any:
    return index(0) if low is None else low


def _end(low: Any, count: int) -> Any:
    """`low + count`."""
    if low is None:
        return index(count)
    return low if count == 0 else arith.addi(low, index(count))
