"""Row programs of persistent clusters: one row after the other, the next one copied ahead.

Input: a `RowwisePlan` with prefetched operands. Output: the loop of a cluster over its rows, around
the ops that `code.py` emits. `pipeline.py` has the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.combine import Combine
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import at, shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import barrier, is_less, when
from nova.codegen.gpu.cluster_ops import cluster_barrier
from nova.codegen.gpu.ptx_ops import opaque, word
from nova.codegen.gpu.rowwise.code import PartialGuard, Parts, RowwiseCode, Values
from nova.codegen.gpu.rowwise.exchange import ClusterExchange, RowNumber
from nova.codegen.gpu.rowwise.pipeline import RowPipeline, copied_range
from nova.codegen.gpu.rowwise.plan import row_key
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import index


class PersistentRows(RowwiseCode):
    """Emits the code of a thread for all rows of its cluster."""

    row_number: RowNumber
    row: Any
    """The row that the loop is at."""

    def emit(self, nest: LoopNest, buffers: Sequence[Any], captured: Mapping[Any, Any]) -> None:
        if self.plan.phase is not None:
            # The guards of a row that is not aligned take many registers, if they live as long as
            # the row: each op computes its own.
            self.go_to(arith.index_castui(ir.IndexType.get(), opaque(word(self.row))))
        super().emit(nest, buffers, captured)

    def reserve_exchange(self, type_: Any) -> Any:
        position, cluster = self.position, self.plan.cluster
        return ClusterExchange(self.shared, type_, position.thread, self.rank, cluster)

    def reduce_cluster(self, total: Any, combine: Combine, room: Any) -> Any:
        return self.block_totals[room].reduce(total, combine, self.row_number)

    def loop_over_rows(self, buffers: Sequence[list[Any]], emit_ops: Callable[[], None]) -> None:
        """Emit all ops for every row of this cluster; `buffers` are those of the plan's operands.

        A row is copied to shared memory while the previous one is computed.
        """
        plan = self.plan
        pipeline = RowPipeline(
            plan.prefetched,
            self.shared,
            self.position.thread,
            plan.vector_width,
            plan.vectors_per_thread,
            [i for i, guard in enumerate(self.guards) if isinstance(guard, PartialGuard)],
        )
        operands = [
            Elements(operand.nest, flat, {})
            for operand, flat in zip(plan.prefetched, buffers, strict=True)
        ]
        if isinstance(plan.rows, int):
            self._copy_row(pipeline, operands, self.first_row)
        else:
            # The launch of some sizes has more clusters than rows.
            with when(is_less(self.first_row, index(plan.rows))):
                self._copy_row(pipeline, operands, self.first_row)
        cluster_barrier()  # the others have initialized their barriers
        step, zero = index(plan.clusters), word(0)
        rows = scf.ForOp(self.first_row, index(plan.rows), step, [zero])
        with ir.InsertionPoint(rows.body):
            row, number = rows.induction_variable, rows.inner_iter_args[0]
            self.row_number = RowNumber(number)
            self.cached.clear()
            self.go_to(row)
            pipeline.wait(self.row_number.buffer, elements=plan.phase is not None)
            self._take_row(pipeline, operands)
            barrier()  # all threads have read the row that the next one overwrites
            following = arith.addi(row, step)
            with when(is_less(following, index(plan.rows))):
                self._copy_row(pipeline, operands, following)
            self.row = row
            self.go_to(row)
            emit_ops()
            scf.YieldOp([arith.addi(number, word(1))])

    def _copy_row(self, pipeline: RowPipeline, operands: Sequence[Elements], row: Any) -> None:
        """Start the copies of a row: vectors in bulk, and elements of vectors that are cut."""
        self.go_to(row)
        with when(pipeline.is_first):
            self._copy_vectors(pipeline, operands)
        if self.plan.phase is None:
            return
        for number, elements in enumerate(operands):
            operand = self.plan.prefetched[number].number
            for chunk, guard in enumerate(self.guards):
                if isinstance(guard, PartialGuard):
                    where, _ = self._at(elements.nest, self.starts[chunk])
                    self._copy_cut(pipeline, number, elements, where[operand], chunk, guard)
        pipeline.commit()

    def _copy_vectors(self, pipeline: RowPipeline, operands: Sequence[Elements]) -> None:
        """Start the bulk copies of this block's part of a row, by one thread."""
        plan = self.plan
        rank = arith.index_castui(ir.IndexType.get(), opaque(word(self.rank)))
        first = arith.muli(rank, index(self.position.threads * plan.vector_width))
        ranges = []
        for chunk in range(plan.vectors_per_thread):
            start = shifted(first, chunk * plan.threads_per_row * plan.vector_width)
            start = start if self.shift is None else arith.subi(start, self.shift)
            is_inner = self.guards[chunk] is None
            part = copied_range(start, self.shift, plan.length, plan.vector_width, is_inner)
            ranges.append(part)
        sources = []
        for operand, elements in zip(plan.prefetched, operands, strict=True):
            positions = [
                at(self._at(elements.nest, part.first)[0][operand.number]) for part in ranges
            ]
            sources.append((elements.buffers[operand.number], positions))
        pipeline.copy_ranges(ranges, sources)

    def _copy_cut(
        self,
        pipeline: RowPipeline,
        number: int,
        elements: Elements,
        base: Any,
        chunk: int,
        guard: PartialGuard,
    ) -> None:
        """Copy the elements of a vector that the row has in part."""
        cut = arith.xori(guard.full, splat(guard.full.type, 1))
        with when(cut):
            for k, inside in enumerate(guard.elements):
                with when(inside):
                    pipeline.copy_element(number, elements, base, chunk, k)

    def _take_row(self, pipeline: RowPipeline, operands: Sequence[Elements]) -> None:
        """Read this thread's elements of the copied row into registers."""
        for number, elements in enumerate(operands):
            operand = self.plan.prefetched[number].number
            key = row_key(elements.nest, operand, self.grid_rank)
            type_ = elements.generic.block.arguments[operand].type
            for chunk, guard in enumerate(self.guards):

                def load(
                    parts: Parts,
                    number: int = number,
                    elements: Elements = elements,
                    chunk: int = chunk,
                ) -> Values:
                    return [pipeline.load(number, elements, chunk, parts)]

                if isinstance(guard, PartialGuard):
                    guard = None  # the thread's part of shared memory is there in any case
                values = self._guarded(guard, load, [type_], self.plan.vector_width)
                self.cached[key, chunk] = values[0]
