"""The transform of input tiles, B^T d B, into the panels that the microkernel reads.

`transform_inputs` calls a function of the module, which the convolutions with equal vectors of
tiles share. It loads rows of tiles, separates the columns of tiles by shuffles, and writes vector
after vector of the panels of all matrices. Elements outside of the image are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.common.builder import loop, splat, store_vector, vector_type
from nova.codegen.cpu.shared_functions import call_shared
from nova.codegen.cpu.winograd.matrices import TAPS, emit_product, matrices
from nova.codegen.cpu.winograd.plan import WinogradPlan
from nova.codegen.cpu.winograd.tiles import (
    Piece,
    TileRows,
    deinterleave,
    joined,
    piece_lanes,
    pieces,
)
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, vector
from nova.ir.index import Index, add, index, mul, sub

_TYPE = "f32"


@record
class InputChannels:
    """The channels of images: `count` of them."""

    stride: Index
    count: Index

    @property
    def numbers(self) -> tuple[Index, Index]:
        return self.stride, self.count


def transform_inputs(
    target: Target,
    plan: WinogradPlan,
    image: ir.Value,
    into: ir.Value,
    rows: TileRows,
    channels: InputChannels,
    start: Index,
) -> None:
    """Fill the panels of all matrices, from `start` on, with the transformed tiles of `rows`."""

    def body(source: ir.Value, panels: ir.Value, *numbers: ir.Value) -> None:
        count = len(rows.numbers)
        args = TileRows(*numbers[:count]), InputChannels(*numbers[count : count + 2])
        _InputTransform(target, plan, source, panels, *args, *numbers[count + 2 :]).emit()

    name = f"nova_winograd_input_{plan.size}x{plan.group}_{plan.nr}"
    numbers = *rows.numbers, *channels.numbers, plan.groups, plan.input_stride, start
    call_shared(name, (image, into), [index(n) for n in numbers], 2, body)


@record
class _InputTransform:
    """The body of the function; the fields from `rows` on are its arguments."""

    target: Target
    plan: WinogradPlan
    source: ir.Value
    panels: ir.Value
    rows: TileRows
    channels: InputChannels
    groups: Index
    stride: Index
    start: Index

    def emit(self) -> None:
        plan = self.plan
        with loop(0, self.rows.count, plan.rows_of_vector) as first, loop(0, self.groups, 1) as g:
            row = arith.divui(first, index(plan.rows_of_vector))
            number = index(add(mul(row, self.groups), g))
            panel = arith.divui(number, index(plan.nv))
            lane = mul(arith.remui(number, index(plan.nv)), plan.vl)
            at = add(mul(panel, mul(self.channels.count, plan.nr)), lane)
            into = add(self.start, at)
            parts = pieces(plan, self.rows, first, g)
            with loop(0, self.channels.count, 1) as c:
                self._emit_vector(parts, mul(c, self.channels.stride), add(into, mul(c, plan.nr)))

    def _emit_vector(self, parts: Sequence[Piece], channel: Index, into: Index) -> None:
        """Transform one vector of tiles of a channel."""
        plan, matrix = self.plan, matrices(self.plan.size).inputs
        rows = []
        for i in range(plan.side):
            step = add(channel, mul(i, self.rows.row_stride))
            columns = self._load_row(parts, i, step)
            rows.append(emit_product(self.target, matrix, columns))
        for j in range(plan.side):
            column = emit_product(self.target, matrix, [row[j] for row in rows])
            for i, value in enumerate(column):
                at = add(into, mul(i * plan.side + j, self.stride))
                store_vector(value, self.panels, index(at))

    def _load_row(self, parts: Sequence[Piece], i: int, step: Index) -> list[ir.Value]:
        """Row i of all tiles: a vector for each of its columns.

        The columns past `size` are the first ones of the next tiles.
        """
        size, later = self.plan.size, TAPS - 1
        first = deinterleave(self._load_elements(parts, i, step, 0))
        second = deinterleave(self._load_elements(parts, i, step, size))
        return [*first, *second[:later]]

    def _load_elements(
        self, parts: Sequence[Piece], i: int, step: Index, shift: int
    ) -> list[ir.Value]:
        """The elements of row i of all tiles in order, `shift` elements later."""
        plan = self.plan
        lanes = piece_lanes(plan)
        type_ = vector_type(_TYPE, lanes)
        flags = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
        zero = splat(type_, 0.0)
        loaded = []
        for part in parts:
            count = part.columns_in(i, TAPS)
            for start in range(0, plan.group * plan.size, lanes):
                at = add(part.offset, add(step, start + shift))
                mask = vector.create_mask(flags, [index(sub(count, start + shift))])
                loaded.append(vector.maskedload(type_, self.source, [index(at)], mask, zero))
        return joined(loaded, plan.vl)
