"""Row programs of persistent clusters: one row after the other, the next ones copied ahead.

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
from nova.ir.index import index, mul


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

        A row is copied to shared memory while those before it are computed.
        """
        plan = self.plan
        assert plan.slot is not None, "the plan has prefetched rows"
        pipeline = RowPipeline(
            plan.prefetched,
            self.shared,
            self.position.thread,
            plan.slot,
            plan.stages,
            [i for i, guard in enumerate(self.guards) if isinstance(guard, PartialGuard)],
        )
        operands = [
            Elements(operand.nest, flat, {})
            for operand, flat in zip(plan.prefetched, buffers, strict=True)
        ]
        step, zero = index(plan.clusters), word(0)
        row = self.first_row
        for stage in range(plan.stages):
            # A cluster has at least one row, but for sizes whose launch has more clusters.
            if stage == 0 and isinstance(plan.rows, int):
                self._copy_row(pipeline, operands, row, index(stage))
            else:
                with when(is_less(row, index(plan.rows))):
                    self._copy_row(pipeline, operands, row, index(stage))
            self._commit(pipeline)
            row = arith.addi(row, step)
        cluster_barrier()  # the others have initialized their barriers
        rows = scf.ForOp(self.first_row, index(plan.rows), step, [zero])
        with ir.InsertionPoint(rows.body):
            row, number = rows.induction_variable, rows.inner_iter_args[0]
            self.row_number = RowNumber(number)
            self.cached.clear()
            self.go_to(row)
            pipeline.wait(self.row_number, elements=plan.phase is not None)
            stage_index = pipeline.stage_of(self.row_number)
            self._take_row(pipeline, operands, stage_index)
            barrier()  # all threads have read the row that another one overwrites
            following = arith.addi(row, index(mul(step, plan.stages)))
            with when(is_less(following, index(plan.rows))):
                # Computed again: registers are few while the row is in them.
                stage_index = pipeline.stage_of(RowNumber(opaque(number)))
                self._copy_row(pipeline, operands, following, stage_index)
            self._commit(pipeline)
            self.row = row
            self.go_to(row)
            emit_ops()
            scf.YieldOp([arith.addi(number, word(1))])

    def _commit(self, pipeline: RowPipeline) -> None:
        """End the copies of elements of a row, where vectors are cut."""
        if self.plan.phase is not None:
            pipeline.commit()

    def _copy_row(
        self, pipeline: RowPipeline, operands: Sequence[Elements], row: Any, stage: Any
    ) -> None:
        """Start the copies of a row: vectors in bulk, and elements of vectors that are cut."""
        self.go_to(row)
        with when(pipeline.is_first):
            self._copy_vectors(pipeline, operands, stage)
        if self.plan.phase is None:
            return
        for number, elements in enumerate(operands):
            operand = self.plan.prefetched[number].number
            for chunk, guard in enumerate(self.guards):
                if isinstance(guard, PartialGuard):
                    where, _ = self._at(elements.nest, self.starts[chunk])
                    position = where[operand], chunk, stage
                    self._copy_cut(pipeline, number, elements, position, guard)

    def _copy_vectors(
        self, pipeline: RowPipeline, operands: Sequence[Elements], stage: Any
    ) -> None:
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
        pipeline.copy_ranges(ranges, sources, stage)

    def _copy_cut(
        self,
        pipeline: RowPipeline,
        number: int,
        elements: Elements,
        position: tuple[Any, int, Any],
        guard: PartialGuard,
    ) -> None:
        """Copy the elements of a vector at the end of the row, which has not all of them.

        `position` is that of the vector in memory, its chunk, and the stage.
        """
        base, chunk, stage = position
        cut = arith.xori(guard.full, splat(guard.full.type, 1))
        with when(arith.andi(cut, guard.elements[0])):
            for k, inside in enumerate(guard.elements):
                with when(inside):
                    pipeline.copy_element(number, elements, base, chunk, k, stage)

    def _take_row(self, pipeline: RowPipeline, operands: Sequence[Elements], stage: Any) -> None:
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
                    return [pipeline.load(number, elements, chunk, parts, stage)]

                if isinstance(guard, PartialGuard):
                    guard = None  # the thread's part of shared memory is there in any case
                values = self._guarded(guard, load, [type_], self.plan.vector_width)
                self.cached[key, chunk] = values[0]
