"""Fourier transforms on a CPU: the passes of Stockham's algorithm over rows of complex numbers.

Input: the loop nest of a `linalg.generic` that stands for a transform, and the ranges of its batch
that a tile computes. Output: code at the insertion point: loops over the batch that call a function
of the module, which transforms one row, or several columns. `schedule.py` calls it.

Passes read a row of memory and write another: the operand first, then the result and a buffer on
the stack alternately, so that the last one writes the result. With the names of
`nova/ir/linalg/fourier.py`, vectors run over q; in the first pass over p, where results are
transposed in registers; of columns, over these.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.common.builder import BITS, loop
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.fourier.passes import ColumnPass, Place, RealStep, RowPass
from nova.codegen.cpu.loops import Range
from nova.codegen.cpu.shared_functions import call_shared, entry_alloca
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import ir
from nova.ir.index import Index, add, index, minimum, mul, sub
from nova.ir.linalg.fourier import FourierSpec, passes, table_end

_LOOPS = 4
"""The loops after those of the batch and the columns: j, k, c and t."""
_COLUMN_BYTES = 128 << 10
_MOST_COLUMNS = 32


def block_columns(target: Target, spec: FourierSpec, type_: str) -> int:
    """How many columns are transformed together: whole vectors, which fit into a private cache."""
    width = max(1, target.lanes(BITS[type_]) // 2)
    most = _COLUMN_BYTES // (spec.n * BITS[type_] // 4)
    return max(width, min(_MOST_COLUMNS, most // width * width))


def emit_fourier(
    target: Target,
    spec: FourierSpec,
    nest: LoopNest,
    buffers: Sequence[ir.Value],
    ranges: Sequence[Range | None],
) -> None:
    """Emit the code of one tile; `buffers` are flat, `ranges` are those of the grid."""
    loops = nest.loops[:-_LOOPS]
    full = [*ranges, *[None] * (len(loops) - len(ranges))]
    transform = _Transform(target, str(buffers[0].type.element_type), spec)
    batch = len(loops) - (spec.form == "columns")

    def nested(number: int, begin: Index, end: Index) -> None:
        if number == len(loops):
            transform.call(buffers, [begin, end])
            return
        current = loops[number]
        low, high = full[number] or (0, current.size)
        source, _, result = current.strides
        step = 1 if number < batch else transform.columns
        with loop(low, high, step) as at:
            places = [add(begin, mul(at, source)), add(end, mul(at, result))]
            if number < batch:
                nested(number + 1, *places)
            else:
                pitch = index(current.size)
                count = index(minimum(sub(high, at), step))
                transform.call(buffers, [*places, pitch, count])

    nested(0, nest.offsets[0], nest.offsets[2])


@record
class _Transform:
    """The function that transforms a row, or a block of columns."""

    target: Target
    type: str
    spec: FourierSpec

    @property
    def name(self) -> str:
        scale = float(self.spec.scale).hex().translate(str.maketrans("+-.", "pm_"))
        way = "forward" if self.spec.sign < 0 else "inverse"
        return f"fourier_{self.spec.form}_{self.type}_{self.spec.n}_{way}_{scale}"

    @property
    def columns(self) -> int:
        """The most columns of a call."""
        return block_columns(self.target, self.spec, self.type)

    def call(self, buffers: Sequence[ir.Value], numbers: Sequence[Index]) -> None:
        x, table, out = buffers
        is_columns = self.spec.form == "columns"
        spare = entry_alloca(2 * self.spec.n * (self.columns if is_columns else 1), self.type)
        call_shared(
            self.name,
            [x, table, out, spare],
            [index(number) for number in numbers],
            2,
            self._emit_columns if is_columns else self._emit_row,
        )

    def _emit_row(
        self, x: ir.Value, table: ir.Value, out: ir.Value, spare: ir.Value, begin: Index, end: Index
    ) -> None:
        steps, spec = passes(self.spec.n), self.spec
        shared = self.target, self.type, spec.sign, table
        places = [Place(spare, 0), Place(out, end)]
        source = Place(x, begin)
        if spec.form == "to_real":
            turned = places[(len(steps) + 1) % 2]
            RealStep(*shared, source, turned, spec.n, table_end(spec.n)).emit_elements()
            source = turned
        # The last pass writes the result, or what the step of real numbers reads.
        last = 0 if spec.form == "from_real" else 1
        for number, step in enumerate(steps):
            is_last = number == len(steps) - 1
            scale = spec.scale if is_last else 1.0
            result = places[(len(steps) - 1 - number + last) % 2]
            RowPass(*shared, source, result, step, scale).emit()
            source = result
        if spec.form == "from_real":
            RealStep(*shared, source, places[1], spec.n, table_end(spec.n)).emit_terms()

    def _emit_columns(
        self,
        x: ir.Value,
        table: ir.Value,
        out: ir.Value,
        spare: ir.Value,
        begin: Index,
        end: Index,
        pitch: Index,
        count: Index,
    ) -> None:
        steps = passes(self.spec.n)
        shared = self.target, self.type, self.spec.sign, table
        source = Place(x, begin, pitch)
        for number, step in enumerate(steps):
            is_last = number == len(steps) - 1
            to_result = (len(steps) - number) % 2
            result = Place(out, end, pitch) if to_result else Place(spare, 0, self.columns)
            scale = self.spec.scale if is_last else 1.0
            ColumnPass(*shared, source, result, step, scale, count).emit()
            source = result
