"""Copying a block of a matrix into panels that a micro-kernel reads front to back.

In: a flat memref, an element offset, the strides and extents of a block (`Block`), at the current
insertion point. Out: code that fills a stack buffer with the block, widened to the accumulator's
type. `contraction.py` calls this. A panel is `width` lanes (rows of A or columns of B) by `depth`
steps of k, stored `[k][lane]`. Lanes past the end of the block hold anything: the micro-kernel's
lanes are independent and those are never stored to C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from nova.mlir.bindings import arith, ir, memref, scf, vector
from nova.targets import Target

BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}

Index: TypeAlias = "ir.Value | int"
"""An index that is known now (int) or when the kernel runs (an `index` value)."""


def index(value: Index) -> ir.Value:
    """`value` as an `index` SSA value."""
    if isinstance(value, int):
        return arith.constant(ir.IndexType.get(), value)
    return value


def add(left: Index, right: Index) -> Index:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if isinstance(left, int):
        left, right = right, left
    return left if right == 0 else arith.addi(index(left), index(right))


def sub(left: Index, right: Index) -> Index:
    if isinstance(right, int):
        return add(left, -right)
    return arith.subi(index(left), index(right))


def mul(left: Index, right: int) -> Index:
    if isinstance(left, int):
        return left * right
    return 0 if right == 0 else left if right == 1 else arith.muli(left, index(right))


def minimum(left: Index, right: Index) -> Index:
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return arith.minsi(index(left), index(right))


def compare(predicate: arith.CmpIPredicate, left: Index, right: Index) -> ir.Value:
    return arith.cmpi(predicate, index(left), index(right))


@contextmanager
def loop(lower: Index, upper: Index, step: int) -> Iterator[ir.Value]:
    """A loop without carried values; the body is emitted inside the `with`."""
    op = scf.ForOp(index(lower), index(upper), index(step))
    with ir.InsertionPoint(op.body):
        yield op.induction_variable
        scf.YieldOp([])


def branch(condition: ir.Value | bool, then: Callable[[], None], other: Callable[[], None]) -> None:
    """Emit one side when the condition is known, both under an `scf.if` when it is not."""
    if isinstance(condition, bool):
        (then if condition else other)()
        return
    op = scf.IfOp(condition, has_else=True)
    for block, body in ((op.then_block, then), (op.else_block, other)):
        with ir.InsertionPoint(block):
            body()
            scf.YieldOp([])


def element_type(name: str) -> ir.Type:
    return {
        "f64": ir.F64Type.get,
        "f32": ir.F32Type.get,
        "f16": ir.F16Type.get,
        "bf16": ir.BF16Type.get,
    }[name]()


def vector_type(name: str, lanes: int) -> ir.VectorType:
    return ir.VectorType.get([lanes], element_type(name))


def splat(type_: ir.Type, value: float | int) -> ir.Value:
    """A constant of a scalar or vector type."""
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    kind = ir.IntegerAttr if isinstance(element, ir.IntegerType) else ir.FloatAttr
    attr = kind.get(element, value)
    if isinstance(type_, ir.VectorType):
        attr = ir.DenseElementsAttr.get_splat(type_, attr)
    return arith.constant(type_, attr)


def _like(type_: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType.get(type_.shape, element) if isinstance(type_, ir.VectorType) else element


def widen(target: Target, value: ir.Value, to: str) -> ir.Value:
    """A scalar or vector float extended to f32 or f64, exactly and without a library call."""
    wide = _like(value.type, element_type(to))
    if value.type == wide:
        return value
    source = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
    if isinstance(source, ir.F32Type) or (isinstance(source, ir.F16Type) and target.has_f16c):
        return arith.extf(wide, value)
    single = _like(value.type, ir.F32Type.get())
    bits = _like(value.type, ir.IntegerType.get_signless(32))
    half = _like(value.type, ir.IntegerType.get_signless(16))
    raw = arith.extui(bits, arith.bitcast(half, value))
    if isinstance(source, ir.BF16Type):
        result = arith.bitcast(single, arith.shli(raw, splat(bits, 16)))
    else:
        result = _widen_f16(raw, bits, single)
    return result if single == wide else arith.extf(wide, result)


def _widen_f16(raw: ir.Value, bits: ir.Type, single: ir.Type) -> ir.Value:
    """f16 bits to f32 on a target without the instruction.

    The exponent and fraction, moved to their f32 places, are scaled by 2**112: that re-biases the
    exponent and normalises f16's subnormals in one multiplication. Infinity and NaN (all exponent
    bits set) get f32's full exponent instead.
    """
    sign = arith.shli(arith.andi(raw, splat(bits, 0x8000)), splat(bits, 16))
    rest = arith.shli(arith.andi(raw, splat(bits, 0x7FFF)), splat(bits, 13))
    scaled = arith.mulf(arith.bitcast(single, rest), splat(single, 2.0**112))
    special = arith.cmpi(arith.CmpIPredicate.uge, rest, splat(bits, 0x7C00 << 13))
    infinite = arith.ori(rest, splat(bits, 0x7F800000))
    magnitude = arith.select(special, infinite, arith.bitcast(bits, scaled))
    return arith.bitcast(single, arith.ori(magnitude, sign))


@dataclass(frozen=True)
class Block:
    """Where a panel's elements come from: element (lane, k) is at `offset + lane*ls + k*ks`."""

    source: ir.Value
    type: str
    offset: Index
    lane_stride: int
    k_stride: int
    lanes: Index
    """Lanes that exist from `offset` on: at least one, maybe fewer than the panel has."""
    depth: Index

    def at(self, lane: Index, k: Index) -> list[ir.Value]:
        return [index(add(self.offset, add(mul(lane, self.lane_stride), mul(k, self.k_stride))))]


@dataclass(frozen=True)
class Packer:
    """Packs for one target and accumulator type into one buffer."""

    target: Target
    acc_type: str
    buffer: ir.Value

    @property
    def vl(self) -> int:
        return self.target.lanes(BITS[self.acc_type])

    def _put(self, value: ir.Value, place: Index) -> None:
        vector.store(widen(self.target, value, self.acc_type), self.buffer, [index(place)])

    def pack_panel(self, block: Block, width: int, minimum_depth: int, place: Index) -> None:
        """One panel `[k][lane]` at `place`, in the way that suits the block's strides.

        A panel whose last vector is not full writes up to a vector past its end: panels are packed
        in ascending order and the buffer has a vector to spare.
        """
        if block.lane_stride == 1:
            full = compare(arith.CmpIPredicate.sge, block.lanes, -(-width // self.vl) * self.vl)
            # LLVM makes library calls of masked accesses to 16-bit floats on some targets.
            edge = self._pack_scalars if BITS[block.type] < 32 else self._pack_masked
            branch(
                full,
                lambda: self._pack_vectors(block, width, place),
                lambda: edge(block, width, place),
            )
        elif block.k_stride == 1 and minimum_depth >= self.vl:
            self._pack_transposed(block, width, place)
        else:
            self._pack_scalars(block, width, place)

    def _pack_vectors(self, block: Block, width: int, place: Index) -> None:
        self._pack_steps(block, width, place, lambda kind, start, at: vector.load(kind, *at))

    def _pack_masked(self, block: Block, width: int, place: Index) -> None:
        zero = splat(vector_type(block.type, self.vl), 0.0)
        flags = ir.VectorType.get([self.vl], ir.IntegerType.get_signless(1))
        masks = {
            start: vector.create_mask(flags, [index(sub(block.lanes, start))])
            for start in range(0, width, self.vl)
        }
        self._pack_steps(
            block,
            width,
            place,
            lambda kind, start, at: vector.maskedload(kind, *at, masks[start], zero),
        )

    def _pack_steps(
        self, block: Block, width: int, place: Index, load: Callable[..., ir.Value]
    ) -> None:
        """k outside, vectors of lanes inside: what one step writes past its end, the next mends."""
        kind = vector_type(block.type, self.vl)
        with loop(0, block.depth, 1) as k:
            source, base = block.at(0, k)[0], add(place, mul(k, width))
            for start in range(0, width, self.vl):
                value = load(kind, start, (block.source, [index(add(source, start))]))
                self._put(value, add(base, start))

    def _pack_scalars(self, block: Block, width: int, place: Index) -> None:
        with loop(0, block.depth, 1) as k, loop(0, width, 1) as lane:
            value = memref.load(block.source, block.at(minimum(lane, sub(block.lanes, 1)), k))
            value = widen(self.target, value, self.acc_type)
            memref.store(value, self.buffer, [index(add(place, add(mul(k, width), lane)))])

    def _pack_transposed(self, block: Block, width: int, place: Index) -> None:
        if width % self.vl == 0:
            with loop(0, width, self.vl) as start:
                self._pack_squares(block, width, place, [start])
        else:
            self._pack_squares(block, width, place, range(0, width, self.vl))

    def _pack_squares(
        self, block: Block, width: int, place: Index, starts: Sequence[Index]
    ) -> None:
        """Transpose squares of lanes and k; the last one of k is moved back to end with it."""
        narrow, last_lane = vector_type(block.type, self.vl), sub(block.lanes, 1)
        rows = [
            [block.at(minimum(add(start, lane), last_lane), 0)[0] for lane in range(self.vl)]
            for start in starts
        ]
        last = sub(block.depth, self.vl)
        with loop(0, block.depth, self.vl) as step:
            k = minimum(step, last)
            squares = []
            for lanes in rows:
                values = [vector.load(narrow, block.source, [index(add(at, k))]) for at in lanes]
                values = [widen(self.target, value, self.acc_type) for value in values]
                squares.append(transpose(values, BITS[self.acc_type]))
            base = add(place, mul(k, width))
            for number in range(self.vl):
                for start, square in zip(starts, squares, strict=True):
                    where = index(add(base, add(start, number * width)))
                    vector.store(square[number], self.buffer, [where])


def transpose(rows: Sequence[ir.Value], bits: int) -> list[ir.Value]:
    """The transpose of a square of n vectors of n lanes, in n*log2(n) two-operand shuffles.

    Inside 128-bit blocks the steps are the interleavings that SSE, AVX and NEON have as one
    instruction; between blocks they exchange whole blocks.
    """
    n = len(rows)
    per_block = min(n, 128 // bits)
    values, group = list(rows), 1
    while group < per_block:
        values = _interleave(values, group, per_block)
        group *= 2
    # Interleaving leaves the columns of a block in bit-reversed order.
    digits = per_block.bit_length() - 1
    order = [int(f"{q:0{digits}b}"[::-1], 2) if digits else 0 for q in range(per_block)]
    values = [values[p + q] for p in range(0, n, per_block) for q in order]
    while group < n:
        values = _exchange(values, group)
        group *= 2
    return values


def _interleave(values: list[ir.Value], group: int, per_block: int) -> list[ir.Value]:
    """Merge rows `group` apart by runs of `group` lanes inside each 128-bit block."""
    n, half = len(values), per_block // 2
    result = list(values)
    for first in range(n):
        if first & group:
            continue
        for upper in (0, 1):
            mask: list[int] = []
            for block in range(upper * half, n, per_block):
                for run in range(block, block + half, group):
                    mask += [*range(run, run + group), *range(n + run, n + run + group)]
            pair = values[first], values[first | group]
            result[first | (group * upper)] = vector.shuffle(*pair, mask)
    return result


def _exchange(values: list[ir.Value], group: int) -> list[ir.Value]:
    """The butterfly step of a transpose: swap off-diagonal runs of `group` lanes."""
    n = len(values)
    result: list[ir.Value] = list(values)
    for first in range(n):
        if first & group:
            continue
        low, high = values[first], values[first | group]
        keep = [lane if not lane & group else n + lane - group for lane in range(n)]
        move = [lane + group if not lane & group else n + lane for lane in range(n)]
        result[first] = vector.shuffle(low, high, keep)
        result[first | group] = vector.shuffle(low, high, move)
    return result
