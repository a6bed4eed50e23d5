"""Fourier transforms on a CPU: the passes of Stockham's algorithm over rows of complex numbers.

Input: the loop nest of a `linalg.generic` that stands for a transform (nova/ir/fourier_ops.py), and
the ranges of its batch that a tile computes. Output: code at the insertion point: loops over the
batch that call a function of the module, which transforms one row. `schedule.py` calls it.

Passes read a row of memory and write another: the operand first, then the result and a buffer on
the stack in turns, so that the last one writes the result. Vectors run over q, the products of the
passes before; in the first pass over p, where results are transposed in registers. See
`nova/ir/fourier_ops.py` for p and q.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.common.builder import BITS, element_type, loop
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.fourier.butterflies import ComplexLanes
from nova.codegen.cpu.loops import Range
from nova.codegen.cpu.shared_functions import call_shared, entry_alloca
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import ir, vector
from nova.ir.fourier_ops import FourierKind, FourierPass, passes
from nova.ir.index import Index, add, index, mul

_LOOPS = 4
"""The loops after those of the batch: j, k, c and t."""


def emit_fourier(
    target: Target,
    kind: FourierKind,
    nest: LoopNest,
    buffers: Sequence[ir.Value],
    ranges: Sequence[Range | None],
) -> None:
    """Emit the code of one tile; `buffers` are flat, `ranges` are those of the grid."""
    batch = nest.loops[:-_LOOPS]
    n = next(loop.size for loop in nest.loops if loop.dims == (len(batch),))
    row = _Row(target, str(buffers[0].type.element_type), int(n), kind)

    def nested(number: int, begin: Index, end: Index) -> None:
        if number == len(batch):
            row.call(buffers, begin, end)
            return
        current = batch[number]
        low, high = (ranges[number] if number < len(ranges) else None) or (0, current.size)
        with loop(low, high, 1) as at:
            source, _, result = current.strides
            nested(number + 1, add(begin, mul(at, source)), add(end, mul(at, result)))

    nested(0, nest.offsets[0], nest.offsets[2])


@record
class _Row:
    """The transform of one row of `n` numbers."""

    target: Target
    type: str
    n: int
    kind: FourierKind

    @property
    def name(self) -> str:
        scale = float(self.kind.scale).hex().translate(str.maketrans("+-.", "pm_"))
        way = "forward" if self.kind.sign < 0 else "inverse"
        return f"fourier_{self.type}_{self.n}_{way}_{scale}"

    def call(self, buffers: Sequence[ir.Value], begin: Index, end: Index) -> None:
        x, table, out = buffers
        several = len(passes(self.n)) > 1
        spare = entry_alloca(2 * self.n if several else 1, self.type)
        call_shared(
            self.name, [x, table, out, spare], [index(begin), index(end)], 2, self._emit_function
        )

    def _emit_function(
        self, x: ir.Value, table: ir.Value, out: ir.Value, spare: ir.Value, begin: Index, end: Index
    ) -> None:
        steps = passes(self.n)
        source = x, begin
        for number, step in enumerate(steps):
            is_last = number == len(steps) - 1
            result = (out, end) if (len(steps) - number) % 2 else (spare, 0)
            scale = self.kind.scale if is_last else 1.0
            _Pass(self.target, self.type, self.kind.sign, step, table, source, result, scale).emit()
            source = result


@record
class _Pass:
    """One pass: from `source` to `result`, each a buffer and the first element of the row."""

    target: Target
    type: str
    sign: int
    step: FourierPass
    table: ir.Value
    source: tuple[ir.Value, Index]
    result: tuple[ir.Value, Index]
    scale: float

    def emit(self) -> None:
        if self.step.done == 1 and self.step.rest > 1:
            self._over_vectors(self.step.rest, self._first)
        elif self.step.rest == 1:
            self._over_vectors(self.step.done, lambda lanes, q: self._point(lanes, 0, q, []))
        else:
            with loop(0, self.step.rest, 1) as p:
                self._over_vectors(
                    self.step.done,
                    lambda lanes, q: self._point(lanes, p, q, self._spread_factors(lanes, p)),
                )

    def _over_vectors(self, count: int, body: object) -> None:
        """`body` for each vector of `count` numbers, and of those left over in narrower ones."""
        assert callable(body)
        low, width = 0, max(1, self.target.lanes(BITS[self.type]) // 2)
        while low < count:
            lanes = ComplexLanes(self.target, self.type, width, self.sign)
            high = low + (count - low) // width * width
            if high - low == width:
                body(lanes, low)
            elif high > low:
                with loop(low, high, width) as at:
                    body(lanes, at)
            low, width = high, width // 2

    def _first(self, lanes: ComplexLanes, p: Index) -> None:
        """The first pass: vectors over p, and all terms of a p side by side in memory."""
        r, m = self.step.radix, self.step.rest
        terms = lanes.transform([self._load(lanes, add(j * m, p)) for j in range(r)])
        for k in range(1, r):
            begin = self.step.table + 4 * m * (k - 1)
            re, im = (
                vector.load(lanes.vector_type, self.table, [index(add(at, mul(p, 2)))])
                for at in (begin, begin + 2 * m)
            )
            terms[k] = lanes.times(terms[k], re, im)
        if r & (r - 1) == 0:
            for number, value in enumerate(lanes.interleaved(terms)):
                self._store(value, add(mul(p, r), number * lanes.width))
            return
        for k, value in enumerate(terms):
            for lane in range(lanes.width):
                single = vector.shuffle(value, value, [2 * lane, 2 * lane + 1])
                self._store(single, add(mul(add(p, lane), r), k))

    def _point(
        self, lanes: ComplexLanes, p: Index, q: Index, factors: list[tuple[ir.Value, ir.Value]]
    ) -> None:
        """The terms of one p and the q of a vector."""
        r, m, s = self.step.radix, self.step.rest, self.step.done
        elements = [self._load(lanes, add(mul(add(j * m, p), s), q)) for j in range(r)]
        for k, term in enumerate(lanes.transform(elements)):
            value = lanes.times(term, *factors[k - 1]) if k and factors else term
            self._store(lanes.scaled(value, self.scale), add(mul(add(mul(p, r), k), s), q))

    def _spread_factors(self, lanes: ComplexLanes, p: Index) -> list[tuple[ir.Value, ir.Value]]:
        """The factors of one p, each in all numbers of a vector."""
        pair = ir.VectorType.get([2], element_type(self.type))
        first = add(self.step.table, mul(p, 4 * (self.step.radix - 1)))
        order = [0, 1] * lanes.width

        def spread(at: int) -> ir.Value:
            value = vector.load(pair, self.table, [index(add(first, at))])
            return vector.shuffle(value, value, order)

        return [(spread(4 * k), spread(4 * k + 2)) for k in range(self.step.radix - 1)]

    def _load(self, lanes: ComplexLanes, at: Index) -> ir.Value:
        buffer, begin = self.source
        return vector.load(lanes.vector_type, buffer, [index(add(begin, mul(at, 2)))])

    def _store(self, value: ir.Value, at: Index) -> None:
        buffer, begin = self.result
        vector.store(value, buffer, [index(add(begin, mul(at, 2)))])
