"""Short Fourier transforms of vectors of complex numbers, without loops.

Input: vectors of interleaved parts (re, im, re, im, ...), one per element of the transform. Output:
as many vectors, its terms. Called by `passes.py`.
"""

from __future__ import annotations

from math import cos, pi, sin, sqrt

from nova.codegen.common.builder import element_type, splat
from nova.codegen.cpu.multiply_add import multiply_add
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, vector


@record
class ComplexLanes:
    """Arithmetic of vectors of `width` complex numbers; `sign` is that of the exponents."""

    target: Target
    type: str
    width: int
    sign: int

    @property
    def vector_type(self) -> ir.VectorType:
        return ir.VectorType.get([2 * self.width], element_type(self.type))

    def multiply_add(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        return multiply_add(self.target, a, b, total)

    def scaled(self, x: ir.Value, factor: float) -> ir.Value:
        return x if factor == 1 else arith.mulf(x, splat(self.vector_type, factor))

    def swapped(self, x: ir.Value) -> ir.Value:
        """The numbers with their parts exchanged."""
        return self.shuffled(x, x, [i ^ 1 for i in range(2 * self.width)])

    def shuffled(self, a: ir.Value, b: ir.Value, order: list[int]) -> ir.Value:
        return vector.shuffle(a, b, order)

    def plus_turned(self, a: ir.Value, b: ir.Value, sign: int) -> ir.Value:
        """a + sign * i * b."""
        return self.multiply_add(self.swapped(b), self._pattern(-sign, sign), a)

    def times(self, x: ir.Value, re: ir.Value, im: ir.Value) -> ir.Value:
        """x times the numbers a + ib, as vectors of (a, a) and (-b, b)."""
        return self.multiply_add(self.swapped(x), im, arith.mulf(x, re))

    def _pattern(self, re: int, im: int) -> ir.Value:
        element = element_type(self.type)
        numbers = [ir.FloatAttr.get(element, v) for v in (re, im)] * self.width
        return arith.constant(self.vector_type, ir.DenseElementsAttr.get(numbers, self.vector_type))

    def conjugate(self, x: ir.Value) -> ir.Value:
        return arith.mulf(x, self._pattern(1, -1))

    def backward(self, x: ir.Value) -> ir.Value:
        """The numbers in reverse order."""
        order = [2 * i + part for i in reversed(range(self.width)) for part in (0, 1)]
        return self.shuffled(x, x, order)

    # --- transforms -----------------------------------------------------------------------------

    def transform(self, x: list[ir.Value]) -> list[ir.Value]:
        """The terms of the elements `x`: 2, 4, 8 or an odd number of them."""
        by_size = {2: self._two, 4: self._four, 8: self._eight}
        return by_size.get(len(x), self._odd)(x)

    def _two(self, x: list[ir.Value]) -> list[ir.Value]:
        return [arith.addf(x[0], x[1]), arith.subf(x[0], x[1])]

    def _four(self, x: list[ir.Value]) -> list[ir.Value]:
        (a, b), (c, d) = self._two([x[0], x[2]]), self._two([x[1], x[3]])
        first, third = self._two([a, c])
        return [first, self.plus_turned(b, d, self.sign), third, self.plus_turned(b, d, -self.sign)]

    def _eight(self, x: list[ir.Value]) -> list[ir.Value]:
        even, odd = self._four(x[0::2]), self._four(x[1::2])
        low, high = self._two([even[0], odd[0]])
        # exp(sign i pi / 4) is (1 + sign i) / sqrt(2), and its cube (-1 + sign i) / sqrt(2).
        once = self.plus_turned(odd[1], odd[1], self.sign)
        thrice = self.plus_turned(arith.negf(odd[3]), odd[3], self.sign)
        half, minus = (splat(self.vector_type, h * sqrt(0.5)) for h in (1, -1))
        return [
            low,
            self.multiply_add(once, half, even[1]),
            self.plus_turned(even[2], odd[2], self.sign),
            self.multiply_add(thrice, half, even[3]),
            high,
            self.multiply_add(once, minus, even[1]),
            self.plus_turned(even[2], odd[2], -self.sign),
            self.multiply_add(thrice, minus, even[3]),
        ]

    def _odd(self, x: list[ir.Value]) -> list[ir.Value]:
        """Sums and differences of x[j] and x[r - j] have real and imaginary factors."""
        r, half = len(x), len(x) // 2
        pairs = [self._two([x[j], x[r - j]]) for j in range(1, half + 1)]
        first = x[0]
        for total, _ in pairs:
            first = arith.addf(first, total)
        result = [first] * r
        for k in range(1, half + 1):
            across, turned = x[0], None
            for j, (total, difference) in enumerate(pairs, 1):
                angle = 2 * pi * (j * k % r) / r
                across = self.multiply_add(total, splat(self.vector_type, cos(angle)), across)
                factor = splat(self.vector_type, sin(angle))
                turned = (
                    arith.mulf(difference, factor)
                    if turned is None
                    else self.multiply_add(difference, factor, turned)
                )
            assert turned is not None
            result[k] = self.plus_turned(across, turned, self.sign)
            result[r - k] = self.plus_turned(across, turned, -self.sign)
        return result

    # --- layout ---------------------------------------------------------------------------------

    def interleaved(self, vectors: list[ir.Value]) -> list[ir.Value]:
        """Element i of each of 2^a vectors, for i = 0, 1, ...: vectors in the order of memory.

        Zipping the first half of the vectors with the second rotates the bits of (vector, lane).
        """
        count = len(vectors)
        for _ in range(count.bit_length() - 1):
            halves = zip(vectors[: count // 2], vectors[count // 2 :], strict=True)
            vectors = [zipped for a, b in halves for zipped in self._zip(a, b)]
        return vectors

    def _zip(self, a: ir.Value, b: ir.Value) -> list[ir.Value]:
        if self.width == 1:
            return [a, b]
        numbers = [n for i in range(self.width) for n in (i, self.width + i)]
        lanes = [lane for n in numbers for lane in (2 * n, 2 * n + 1)]
        middle = 2 * self.width
        return [self.shuffled(a, b, lanes[:middle]), self.shuffled(a, b, lanes[middle:])]
