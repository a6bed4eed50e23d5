"""Row programs: a row in the registers of a few threads (softmax, norms, losses, gradients).

Input: a `RowwisePlan` and the loop nests of a kernel. Output: the code of a thread, which keeps its
elements of the row from op to op. Every thread of a row has the scalars of the row. A row of up to
a warp is reduced by shuffles, a row of a block through shared memory too, and a row of a cluster of
blocks (Hopper) through distributed shared memory; there is no other synchronization, and only
results of the kernel are stored in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.combine import Combine, combiner, find_combiners, identity, reduce_tree
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import advance, at, shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import (
    WARP,
    SharedMemory,
    ThreadPosition,
    is_equal,
    is_less,
    reduce_block_once,
    reduce_lanes,
    split,
    when,
)
from nova.codegen.gpu.cluster_ops import cluster_barrier, reduce_cluster
from nova.codegen.gpu.memory import load_run, store_run
from nova.codegen.gpu.rowwise.plan import (
    Key,
    RowwisePlan,
    along_row,
    row_key,
)
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir, memref, scf
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent, is_number, least_size
from nova.ir.walk import find_ops

Values = list[list[Any]]
"""This thread's part of each of some rows: a list of adjacent elements for each."""


_PARTIAL_OPS = ("memref.load", "arith.divsi", "arith.divui", "arith.remsi", "arith.remui")

Parts = Sequence[int]
"""Numbers of elements of a vector: all, or one."""


@dataclass(frozen=True)
class PartialGuard:
    """The guard of a vector that may be cut by an end of the row.

    `full` says that the row has all of its elements, `elements` which of them it has.
    """

    full: Any
    elements: list[Any]


class RowwiseCode:
    """Emits the ops of a kernel for one thread, in order."""

    def __init__(
        self,
        plan: RowwisePlan,
        position: ThreadPosition,
        grid: Sequence[Extent],
        shared: SharedMemory,
    ):
        self.plan = plan
        self.position = position
        self.grid_rank = len(grid)
        self.shared = shared
        # This thread's part of a chunk of a row, and the scalars of the row: chunk 0.
        self.cached: dict[tuple[Key, int], list[Any]] = {}
        self.partials: dict[tuple[Any, int], Any] = {}
        # In a cluster: the result of this block, by the partial results of its warps.
        self.block_totals: dict[Any, Any] = {}
        threads = index(plan.threads_per_row)
        self.member = (
            position.thread if plan.rows_per_block == 1 else arith.remui(position.thread, threads)
        )
        row = position.block
        if plan.cluster > 1:
            self.rank = arith.remui(row, index(plan.cluster))
            row = arith.divui(row, index(plan.cluster))
            before = arith.muli(self.rank, index(position.threads))
            self.member = arith.addi(before, position.thread)
        if plan.rows_per_block > 1:
            row_in_block = arith.divui(position.thread, threads)
            row = arith.addi(arith.muli(row, index(plan.rows_per_block)), row_in_block)
        # Rows past the last one: their threads take part in shuffles, and access no memory.
        ragged = not is_multiple(plan.rows, plan.rows_per_block)
        self.active = is_less(row, index(plan.rows)) if ragged else None
        self.grid, self.first_row = list(grid), row
        self.go_to(row)

    def go_to(self, row: Any) -> None:
        """Let positions and guards be those of a row."""
        self.counters = split(row, self.grid)
        self.shift = self._shift() if self.plan.phase else None
        self._place_chunks()

    def _place_chunks(self) -> None:
        """The positions and guards of the thread's chunks."""
        self.starts: Sequence[Any] = [
            self._start(chunk) for chunk in range(self.plan.vectors_per_thread)
        ]
        self.guards: Sequence[Any] = [
            self._guard(chunk, start) for chunk, start in enumerate(self.starts)
        ]

    def reserve(self, nests: Sequence[LoopNest]) -> None:
        """Allocate shared memory for the partial results of all warps, at the top of the launch.

        Each reduction has separate memory, so that none waits for the readers of the previous one.
        """
        if self.plan.threads_per_row <= WARP:
            return
        for nest in nests:
            if all(loop.parallel for loop in nest.loops):
                continue
            first = nest.generic.num_inputs
            for i, argument in enumerate(list(nest.generic.block.arguments)[first:]):
                room = self.shared.allocate(self.position.warps, argument.type)
                self.partials[nest.generic.op, i] = room
                if self.plan.cluster > 1:
                    self.block_totals[room] = self.reserve_exchange(argument.type)

    def reserve_exchange(self, type_: Any) -> Any:
        """Allocate shared memory for the result of this block, which the cluster reads."""
        return self.shared.allocate(1, type_)

    def reduce_cluster(self, total: Any, combine: Combine, room: Any) -> Any:
        """Combine the results of the blocks of a cluster."""
        slot, thread = self.block_totals[room], self.position.thread
        return reduce_cluster(total, combine, slot, thread, self.plan.cluster)

    def emit(self, nest: LoopNest, buffers: Sequence[Any], captured: Mapping[Any, Any]) -> None:
        """Emit one op."""
        elements = Elements(nest, buffers, captured)
        row = along_row(nest, self.grid_rank)
        if not row:
            self._number(elements)
        elif row[0].parallel:
            self._map_chunks(elements)
        else:
            self._reduction(elements)

    def preload(self, nest: LoopNest, buffers: Sequence[Any], operand: int) -> None:
        """Load a thread's part of a row that later ops read."""
        if is_number(row_key(nest, operand, self.grid_rank)[-1], 0):
            return
        elements = Elements(nest, buffers, {})
        for chunk, start in enumerate(self.starts):
            where, _ = self._at(nest, start)
            self._load(elements, operand, where[operand], chunk)

    # --- kinds of ops -----------------------------------------------------------------------------

    def _number(self, elements: Elements) -> None:
        """An op on scalars of the row: in every thread, and stored by the first."""

        where, ivs = self._at(elements.nest, None)
        inputs = [v and v[0] for v in self._inputs(elements, where, None)]
        if elements.generic.uses_output:
            inputs += [v[0] for v in self._outputs(elements, where, None)]

        def make(_: Parts) -> Values:
            return [[value] for value in elements.apply(inputs, ivs)]

        results = self._guarded(self.active, make, self._output_types(elements), 1)
        self._keep_numbers(elements, [values[0] for values in results])

    def _elementwise(self, elements: Elements, chunk: int) -> None:
        generic = elements.generic

        where, ivs = self._at(elements.nest, self.starts[chunk])
        inputs = self._inputs(elements, where, chunk)
        if generic.uses_output:
            inputs += self._outputs(elements, where, chunk)

        def compute(parts: Parts) -> Values:
            points = [
                elements.apply([v and v[k] for v in inputs], self._moved(elements.nest, ivs, k))
                for k in parts
            ]
            return [list(values) for values in zip(*points, strict=True)]

        def store(parts: Parts, results: Values) -> None:
            for i, values in enumerate(results):
                if self.plan.stored[generic.op, i]:
                    operand = generic.num_inputs + i
                    packed = [elements.packed(operand, v) for v in values]
                    stride = along_row(elements.nest, self.grid_rank)[0].strides[operand]
                    aligned = is_number(stride, 1)
                    first = shifted(where[operand], parts[0] * stride)
                    store_run(packed, elements.buffers[operand], first, stride, aligned)

        def make(parts: Parts) -> Values:
            results = compute(parts)
            store(parts, results)
            return results

        guard, width = self.guards[chunk], self.plan.vector_width
        if isinstance(guard, PartialGuard) and is_total(elements.nest):
            # Elements outside of the row are computed too, but neither stored nor reduced.
            results = compute(range(width))

            def store_parts(parts: Parts) -> Values:
                store(parts, [[values[k] for k in parts] for values in results])
                return []

            if any(self.plan.stored[generic.op, i] for i in range(generic.num_outputs)):
                self._guarded(guard, store_parts, [], width)
        else:
            results = self._guarded(guard, make, self._output_types(elements), width)
        for i, values in enumerate(results):
            key = row_key(elements.nest, generic.num_inputs + i, self.grid_rank)
            self.cached[key, chunk] = values

    def _reduction(self, elements: Elements) -> None:
        nest = elements.nest
        names = find_combiners(nest)
        assert names is not None, "the plan has only reductions that combine"
        types = self._output_types(elements)
        neutral = [identity(n, type_) for n, type_ in zip(names, types, strict=True)]
        width = self.plan.vector_width
        totals: Values = [[value] * width for value in neutral]

        def add_chunk(chunk: int, totals: Values) -> Values:
            return self._add_chunk(elements, chunk, totals)

        totals = self._fold_chunks(add_chunk, totals)
        results = []
        for i, (name, values) in enumerate(zip(names, totals, strict=True)):
            combine = combiner(name)
            room = self.partials.get((elements.generic.op, i))
            results.append(self._reduced(reduce_tree(values, combine), combine, room))

        where, _ = self._at(nest, None)
        initial = self._outputs(elements, where, None)
        together = zip(names, initial, results, strict=True)
        self._keep_numbers(elements, [combiner(n)(b[0], t) for n, b, t in together])

    def _add_chunk(self, elements: Elements, chunk: int, totals: Values) -> Values:
        """The totals of a reduction after the thread's elements of a chunk."""
        nest, width = elements.nest, self.plan.vector_width
        where, ivs = self._at(nest, self.starts[chunk])
        inputs = self._inputs(elements, where, chunk)

        def make(parts: Parts) -> Values:
            points = [
                elements.apply(
                    [*[v and v[k] for v in inputs], *[t[k] for t in totals]],
                    self._moved(nest, ivs, k),
                )
                for k in parts
            ]
            return [list(values) for values in zip(*points, strict=True)]

        guard = self.guards[chunk]
        if not isinstance(guard, PartialGuard) or not is_total(nest):
            return self._guarded(guard, make, self._output_types(elements), width, totals)
        sums = make(range(width))
        return [
            [arith.select(*each) for each in zip(guard.elements, new, old, strict=True)]
            for new, old in zip(sums, totals, strict=True)
        ]

    def _map_chunks(self, elements: Elements) -> None:
        """An elementwise op at all chunks."""
        for chunk in range(self.plan.vectors_per_thread):
            self._elementwise(elements, chunk)

    def _fold_chunks(self, step: Callable[[int, Values], Values], totals: Values) -> Values:
        """The totals after a step for each chunk."""
        for chunk in range(self.plan.vectors_per_thread):
            totals = step(chunk, totals)
        return totals

    def _load_scalars(self, elements: Elements) -> None:
        """Load the scalars of the row before a loop: all iterations, and later ops, use them."""
        where, _ = self._at(elements.nest, None)
        arguments = list(elements.generic.block.arguments)[: elements.generic.num_inputs]
        for number, argument in enumerate(arguments):
            is_scalar = is_number(row_key(elements.nest, number, self.grid_rank)[-1], 0)
            if is_scalar and any(True for _ in argument.uses):
                self._load(elements, number, where[number], None)

    def _reduced(self, value: Any, combine: Combine, room: Any) -> Any:
        """Combine over the threads of the row, in each of them."""
        if self.plan.threads_per_row <= WARP:
            return reduce_lanes([value], combine, self.plan.threads_per_row)[0]
        total = reduce_block_once(self.position, value, combine, room)
        return total if self.plan.cluster == 1 else self.reduce_cluster(total, combine, room)

    def finish(self) -> None:
        """End the code: other blocks may still read the shared memory of this one."""
        if self.plan.cluster > 1:
            cluster_barrier()

    # --- values -----------------------------------------------------------------------------------

    def _guarded(
        self,
        guard: Any,
        make: Callable[[Parts], Values],
        types: Sequence[Any],
        width: int,
        otherwise: Values | None = None,
    ) -> Values:
        """The values of `make` where `guard` holds, and elsewhere `otherwise`: zeros by default.

        All of it is inside the guard: nothing out of bounds is loaded, divided or looked up.
        """
        parts = range(width)
        if guard is None:
            return make(parts)
        empty = otherwise or [[splat(type_, 0)] * width for type_ in types]
        if not isinstance(guard, PartialGuard):
            return self._select(guard, types, width, lambda: make(parts), lambda: empty)

        def make_each() -> Values:
            columns = []
            for k, inside in enumerate(guard.elements):
                outside = [[values[k]] for values in empty]
                inner = partial(make, [k])
                columns.append(self._select(inside, types, 1, inner, partial(_same, outside)))
            return [[column[i][0] for column in columns] for i in range(len(types))]

        return self._select(guard.full, types, width, lambda: make(parts), make_each)

    def _select(
        self,
        condition: Any,
        types: Sequence[Any],
        width: int,
        make: Callable[[], Values],
        otherwise: Callable[[], Values],
    ) -> Values:
        """The values of one of two branches."""
        op = scf.IfOp(condition, [type_ for type_ in types for _ in range(width)], has_else=True)
        for block, branch in ((op.then_block, make), (op.else_block, otherwise)):
            with ir.InsertionPoint(block):
                scf.YieldOp([value for values in branch() for value in values])
        results = list(op.results)
        return [results[i * width : (i + 1) * width] for i in range(len(types))]

    def _inputs(self, elements: Elements, bases: list[Any], chunk: int | None) -> list[Any]:
        arguments = elements.generic.block.arguments
        return [
            self._load(elements, i, bases[i], chunk)
            if any(True for _ in arguments[i].uses)
            else None
            for i in range(elements.generic.num_inputs)
        ]

    def _outputs(self, elements: Elements, bases: list[Any], chunk: int | None) -> list[Any]:
        first = elements.generic.num_inputs
        return [
            self._load(elements, first + i, bases[first + i], chunk)
            for i in range(elements.generic.num_outputs)
        ]

    def _load(self, elements: Elements, operand: int, base: Any, chunk: int | None) -> list[Any]:
        """A thread's elements of an operand; a scalar is repeated."""
        width = 1 if chunk is None else self.plan.vector_width
        buffer = elements.buffers[operand]
        if not isinstance(buffer.type, ir.MemRefType):
            return [buffer] * width
        key = row_key(elements.nest, operand, self.grid_rank)
        in_row = not is_number(key[-1], 0) and chunk is not None
        part = chunk if in_row and chunk is not None else 0
        if (key, part) not in self.cached:
            self.cached[key, part] = self._fetch(elements, operand, base, part if in_row else None)
        cached = self.cached[key, part]
        return cached if in_row else cached * width

    def _fetch(self, elements: Elements, operand: int, base: Any, chunk: int | None) -> list[Any]:
        """Load a thread's elements of an operand from memory, where they exist; else zeros."""
        key = row_key(elements.nest, operand, self.grid_rank)
        stride = key[-1]
        width = 1 if chunk is None else self.plan.vector_width
        buffer = elements.buffers[operand]

        def load(parts: Parts) -> Values:
            aligned = is_number(stride, 1) and not (self.plan.phase and self._is_shared(key))
            first = base if is_number(stride, 0) else shifted(base, parts[0] * stride)
            loaded = load_run(buffer, first, len(parts), stride, aligned)
            return [[elements.unpacked(operand, value) for value in loaded]]

        type_ = elements.generic.block.arguments[operand].type
        return self._guarded(self._where(chunk), load, [type_], width)[0]

    def _is_shared(self, key: Key) -> bool:
        """Whether a row is the same for all points of the grid: it may have another phase."""
        return all(is_number(stride, 0) for stride in key[2])

    def _keep_numbers(self, elements: Elements, values: list[Any]) -> None:
        generic = elements.generic
        where, _ = self._at(elements.nest, None)
        for i, value in enumerate(values):
            operand = generic.num_inputs + i
            self.cached[row_key(elements.nest, operand, self.grid_rank), 0] = [value]
            if not self.plan.stored[generic.op, i]:
                continue
            first = is_equal(self.member, index(0))
            stores = first if self.active is None else arith.andi(first, self.active)
            with when(stores):
                packed = elements.packed(operand, value)
                memref.store(packed, elements.buffers[operand], [at(where[operand])])

    def _output_types(self, elements: Elements) -> list[Any]:
        arguments = list(elements.generic.block.arguments)
        return [argument.type for argument in arguments[elements.generic.num_inputs :]]

    # --- positions --------------------------------------------------------------------------------

    def _start(self, chunk: int) -> Any:
        """The position of the thread's elements of a chunk in the row."""
        width, threads = self.plan.vector_width, self.plan.threads_per_row
        first = self.member if width == 1 else arith.muli(self.member, index(width))
        if self.shift is not None:
            first = arith.subi(first, self.shift)
        return first if chunk == 0 else arith.addi(first, index(chunk * threads * width))

    def _shift(self) -> Any:
        """Elements from an aligned position to the start of the row."""
        phase = self.plan.phase
        assert phase is not None, "the plan has rows that are not aligned"
        where: Any = index(phase.offset)
        for counter, stride in zip(self.counters, phase.strides, strict=True):
            where = arith.addi(where, arith.muli(counter, index(stride)))
        return arith.remui(where, index(phase.unit))

    def _where(self, chunk: int | None) -> Any:
        """The guard of a thread's elements of a chunk, or of the scalars of its row."""
        return self.active if chunk is None else self.guards[chunk]

    def _guard(self, chunk: int, start: Any) -> Any:
        """Whether the thread has elements in a chunk; None where every thread has."""
        end = (chunk + 1) * self.plan.threads_per_row * self.plan.vector_width
        if self.shift is not None:
            return None if chunk and end <= least_size(self.plan.length) else self._cut(start)
        if end <= least_size(self.plan.length):
            return self.active
        inside = is_less(start, index(self.plan.length))
        return inside if self.active is None else arith.andi(inside, self.active)

    def _cut(self, start: Any) -> PartialGuard:
        """The guard of a vector that may begin before the row, or end after it."""
        width, length = self.plan.vector_width, self.plan.length
        # The position before the row is a large unsigned number.
        full = arith.andi(
            is_less(start, index(length)), is_less(shifted(start, width - 1), index(length))
        )
        elements = [is_less(shifted(start, k), index(length)) for k in range(width)]
        return PartialGuard(full, elements)

    def _at(self, nest: LoopNest, start: Any) -> tuple[list[Any], dict[int, Any]]:
        """The position of each operand's elements from `start` on, and the loop counters there.

        None is for the scalars of the row.
        """
        bases: list[Any] = [None if is_number(o, 0) else index(o) for o in nest.offsets]
        ivs: dict[int, Any] = {}
        for i, loop in enumerate(nest.loops):
            if i < self.grid_rank:
                counter = self.counters[i]
            elif not is_number(loop.size, 1):
                counter = start
            else:
                counter = None
            if counter is not None:
                bases = advance(bases, counter, loop)
            if len(loop.dims) == 1 and loop.dims[0] in nest.indexed:
                ivs[loop.dims[0]] = index(0) if counter is None else counter
        return bases, ivs

    def _moved(self, nest: LoopNest, ivs: dict[int, Any], by: int) -> dict[int, Any]:
        """The counters `by` elements later in the row."""
        (row,) = along_row(nest, self.grid_rank)
        if not by or len(row.dims) != 1 or row.dims[0] not in ivs:
            return ivs
        return {**ivs, row.dims[0]: arith.addi(ivs[row.dims[0]], index(by))}


def _same(values: Values) -> Values:
    return values


def is_total(nest: LoopNest) -> bool:
    """Whether the body of an op may run on any values: it neither divides integers nor loads."""
    return not find_ops(nest.generic.op, *_PARTIAL_OPS)
