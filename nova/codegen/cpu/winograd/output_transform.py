"""The transform of the sums of matmuls to outputs, A^T (...) A, into the rows of an image.

`transform_outputs` calls a function of the module, like that of input_transform.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.common.builder import branch, load_vector, loop, store_vector, vector_type
from nova.codegen.cpu.shared_functions import call_shared
from nova.codegen.cpu.winograd.matrices import emit_product, matrices
from nova.codegen.cpu.winograd.plan import WinogradPlan
from nova.codegen.cpu.winograd.tiles import (
    Piece,
    TileRows,
    divided,
    interleave,
    piece_lanes,
    pieces,
)
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, vector
from nova.ir.index import Index, add, compare, index, mul, sub

_TYPE = "f32"


def transform_outputs(
    target: Target,
    plan: WinogradPlan,
    sums: ir.Value,
    into: ir.Value,
    rows: TileRows,
    channel_stride: Index,
) -> None:
    """Write the outputs of a block; `sums` has a row of tiles for each output channel."""

    def body(source: ir.Value, out: ir.Value, *numbers: ir.Value) -> None:
        count = len(rows.numbers)
        args = TileRows(*numbers[:count]), *numbers[count:]
        _OutputTransform(target, plan, source, out, *args).emit()

    name = f"nova_winograd_output_{plan.size}x{plan.group}"
    sizes = plan.block_outputs, plan.groups, plan.lanes, plan.sum_stride
    numbers = *rows.numbers, channel_stride, *sizes
    call_shared(name, (sums, into), [index(n) for n in numbers], 2, body)


@record
class _OutputTransform:
    """The body of the function; the fields from `rows` on are its arguments."""

    target: Target
    plan: WinogradPlan
    sums: ir.Value
    out: ir.Value
    rows: TileRows
    channel_stride: Index
    channels: Index
    groups: Index
    lanes: Index
    stride: Index

    def emit(self) -> None:
        plan = self.plan
        with loop(0, self.rows.count, plan.rows_of_vector) as first, loop(0, self.groups, 1) as g:
            row = arith.divui(first, index(plan.rows_of_vector))
            lane = mul(add(mul(row, self.groups), g), plan.vl)
            parts = pieces(plan, self.rows, first, g)
            with loop(0, self.channels, 1) as o:
                source = add(mul(o, self.lanes), lane)
                self._emit_vector(parts, source, mul(o, self.channel_stride))

    def _emit_vector(self, parts: Sequence[Piece], source: Index, channel: Index) -> None:
        """Transform one vector of tiles of an output channel."""
        plan, matrix = self.plan, matrices(self.plan.size).outputs
        type_ = vector_type(_TYPE, plan.vl)
        columns = []
        for j in range(plan.side):
            offsets = [mul(i * plan.side + j, self.stride) for i in range(plan.side)]
            values = [
                load_vector(type_, self.sums, index(add(source, offset))) for offset in offsets
            ]
            columns.append(emit_product(self.target, matrix, values))
        for i in range(plan.size):
            row = emit_product(self.target, matrix, [column[i] for column in columns])
            self._store_row(parts, i, add(channel, mul(i, self.rows.row_stride)), row)

    def _store_row(
        self, parts: Sequence[Piece], i: int, step: Index, row: Sequence[ir.Value]
    ) -> None:
        """Store row i of all tiles: the elements that are in the image."""
        plan = self.plan
        lanes = piece_lanes(plan)
        flags = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
        values = iter(divided(interleave(row), lanes))
        for part in parts:
            count = part.columns_in(i, 1)
            for start in range(0, plan.group * plan.size, lanes):
                value, at = next(values), index(add(part.offset, add(step, start)))
                self._store(value, at, sub(count, start), flags)

    def _store(self, value: ir.Value, at: ir.Value, count: Index, flags: ir.Type) -> None:
        """Store the first `count` elements."""
        lanes = value.type.shape[0]

        def store_whole() -> None:
            store_vector(value, self.out, at)

        def store_part() -> None:
            mask = vector.create_mask(flags, [index(count)])
            vector.maskedstore(self.out, [at], mask, value)

        if "avx512vl" in self.target.features:
            store_part()
        else:
            # Masked stores of AVX2 take many cycles on some processors.
            branch(compare(arith.CmpIPredicate.sge, count, lanes), store_whole, store_part)
