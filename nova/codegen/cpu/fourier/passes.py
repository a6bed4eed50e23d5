"""The passes of a Fourier transform: loops around butterflies, from one buffer to another.

Input: a pass of `nova/ir/linalg/fourier.py`, the table of twiddle factors and two places. Output:
code at the insertion point. Called by `transform.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.codegen.common.builder import BITS, element_type, loop
from nova.codegen.cpu.fourier.butterflies import ComplexLanes
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index, mul, sub
from nova.ir.linalg.fourier import FourierPass

Factors = list[tuple[ir.Value, ir.Value]]


@record
class Place:
    """Complex numbers in a flat buffer: where they begin, and the numbers between two elements."""

    buffer: ir.Value
    begin: Index
    pitch: Index = 1

    def at(self, element: Index, column: Index = 0) -> ir.Value:
        offset = add(mul(element, self.pitch), column)
        return index(add(self.begin, mul(offset, 2)))


@record
class _Step:
    """What the steps of a transform share."""

    target: Target
    type: str
    sign: int
    table: ir.Value
    source: Place
    result: Place

    @property
    def width(self) -> int:
        """The complex numbers of a vector."""
        return max(1, self.target.lanes(BITS[self.type]) // 2)

    def lanes(self, width: int) -> ComplexLanes:
        return ComplexLanes(self.target, self.type, width, self.sign)

    def over_vectors(self, count: int, body: Callable[[ComplexLanes, Index], None]) -> None:
        """`body` for each vector of `count` numbers, and of those left over in narrower ones."""
        low, width = 0, self.width
        while low < count:
            high = low + (count - low) // width * width
            if high - low == width:
                body(self.lanes(width), low)
            elif high > low:
                with loop(low, high, width) as at:
                    body(self.lanes(width), at)
            low, width = high, width // 2

    def load(self, lanes: ComplexLanes, element: Index, column: Index = 0) -> ir.Value:
        where = self.source.at(element, column)
        return vector.load(lanes.vector_type, self.source.buffer, [where])

    def store(self, value: ir.Value, element: Index, column: Index = 0) -> None:
        vector.store(value, self.result.buffer, [self.result.at(element, column)])

    def factors(
        self, lanes: ComplexLanes, begin: int, count: int, at: Index
    ) -> tuple[ir.Value, ...]:
        """A vector of factors from `at` on, of `count` that are in the order of vectors."""
        return tuple(
            vector.load(lanes.vector_type, self.table, [index(add(first, mul(at, 2)))])
            for first in (begin, begin + 2 * count)
        )


@record
class _Pass(_Step):
    """One pass, with a factor of its results."""

    step: FourierPass
    scale: float

    def spread_factors(self, lanes: ComplexLanes, p: Index) -> Factors:
        """The factors of one p, each in all numbers of a vector."""
        if self.step.rest == 1:
            return []
        pair = ir.VectorType.get([2], element_type(self.type))
        first = add(self.step.table, mul(p, 4 * (self.step.radix - 1)))
        order = [0, 1] * lanes.width

        def spread(at: int) -> ir.Value:
            value = vector.load(pair, self.table, [index(add(first, at))])
            return vector.shuffle(value, value, order)

        return [(spread(4 * k), spread(4 * k + 2)) for k in range(self.step.radix - 1)]

    def point(
        self, lanes: ComplexLanes, p: Index, q: Index, factors: Factors, column: Index = 0
    ) -> None:
        """The terms of one p, from q on: of several q, or of several columns."""
        r, m, s = self.step.radix, self.step.rest, self.step.done
        elements = [self.load(lanes, add(mul(add(j * m, p), s), q), column) for j in range(r)]
        for k, term in enumerate(lanes.transform(elements)):
            value = lanes.times(term, *factors[k - 1]) if k and factors else term
            to = add(mul(add(mul(p, r), k), s), q)
            self.store(lanes.scaled(value, self.scale), to, column)


@record
class RowPass(_Pass):
    """A pass over one row."""

    def emit(self) -> None:
        if self.step.done == 1 and self.step.rest > 1:
            self.over_vectors(self.step.rest, self._first)
        elif self.step.rest == 1:
            self.over_vectors(self.step.done, lambda lanes, q: self.point(lanes, 0, q, []))
        else:
            with loop(0, self.step.rest, 1) as p:
                self.over_vectors(
                    self.step.done,
                    lambda lanes, q: self.point(lanes, p, q, self.spread_factors(lanes, p)),
                )

    def _first(self, lanes: ComplexLanes, p: Index) -> None:
        """The first pass: vectors over p, and all terms of a p side by side in memory."""
        r, m = self.step.radix, self.step.rest
        terms = lanes.transform([self.load(lanes, add(j * m, p)) for j in range(r)])
        for k in range(1, r):
            factors = self.factors(lanes, self.step.table + 4 * m * (k - 1), m, p)
            terms[k] = lanes.times(terms[k], *factors)
        if r & (r - 1) == 0:
            for number, value in enumerate(lanes.interleaved(terms)):
                self.store(value, add(mul(p, r), number * lanes.width))
            return
        for k, value in enumerate(terms):
            for lane in range(lanes.width):
                single = vector.shuffle(value, value, [2 * lane, 2 * lane + 1])
                self.store(single, add(mul(add(p, lane), r), k))


@record
class ColumnPass(_Pass):
    """A pass over `count` columns."""

    count: Index

    def emit(self) -> None:
        count, width = index(self.count), self.width
        whole = arith.subi(count, arith.remsi(count, index(width)))
        with loop(0, self.step.rest, 1) as p:
            for low, high, lanes in (
                (0, whole, self.lanes(width)),
                (whole, count, self.lanes(1)),
            ):
                factors = self.spread_factors(lanes, p)
                with (
                    loop(0, self.step.done, 1) as q,
                    loop(low, high, lanes.width) as column,
                ):
                    self.point(lanes, p, q, factors, column)


@record
class RealStep(_Step):
    """The step between the transform of n complex numbers and that of 2 n real ones."""

    n: int
    numbers: int
    """Where its factors begin in the table."""

    def emit_terms(self) -> None:
        """The n + 1 terms of the real numbers, of the n of the complex ones."""
        re, im = self._scalars(self.source, 0)
        total, difference = arith.addf(re, im), arith.subf(re, im)
        zero = arith.constant(re.type, ir.FloatAttr.get(re.type, 0.0))
        self._put(0, arith.addf(total, total), zero)
        self._put(self.n, arith.addf(difference, difference), zero)
        self._pairs()

    def emit_elements(self) -> None:
        """The transform of the complex numbers, of the n + 1 terms."""
        (first, _), (last, _) = (self._scalars(self.source, k) for k in (0, self.n))
        self._put(0, arith.addf(first, last), arith.subf(first, last))
        self._pairs()

    def _pairs(self) -> None:
        """The terms k and n - k, for k from 1 to n // 2."""
        count = self.n // 2
        self.over_vectors(count, lambda lanes, at: self._pair(lanes, count, at))

    def _pair(self, lanes: ComplexLanes, count: int, at: Index) -> None:
        k = add(at, 1)
        mirrored = sub(sub(self.n, k), lanes.width - 1)
        x = self.load(lanes, k)
        y = lanes.conjugate(lanes.backward(self.load(lanes, mirrored)))
        even, odd = arith.addf(x, y), arith.subf(x, y)
        turned = lanes.times(odd, *self.factors(lanes, self.numbers, count, at))
        other = lanes.backward(lanes.conjugate(arith.subf(even, turned)))
        self.store(other, mirrored)
        self.store(arith.addf(even, turned), k)

    def _scalars(self, place: Place, element: int) -> tuple[ir.Value, ir.Value]:
        at = place.at(element)
        re, im = (memref.load(place.buffer, [index(add(at, part))]) for part in (0, 1))
        return re, im

    def _put(self, element: int, re: ir.Value, im: ir.Value) -> None:
        at = self.result.at(element)
        for part, value in enumerate((re, im)):
            memref.store(value, self.result.buffer, [index(add(at, part))])
