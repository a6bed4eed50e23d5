"""Packs a block of a matrix into panels that a microkernel reads sequentially (BLIS packing).

Input: a flat memref, an element offset, and the strides and extents of a block (`Block`). Output: a
call at the insertion point that fills a buffer with the block, widened to the accumulator's type.
`packed_gemm.py` calls `pack`. A panel is `width` lanes (rows of A or columns of B) by `depth` steps
of k, stored `[k][lane]`; panels are stored one after another. The content of lanes past the end of
the block is undefined: the lanes of the microkernel are independent, and those are never stored to
C.

There is one shared function for each pair of types, width and way of reading the source: by vectors
of lanes, by squares that are transposed in registers, or by scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nova.codegen.common.builder import BITS, branch, loop, splat, vector_type
from nova.codegen.common.widening import widen
from nova.codegen.cpu.shared_functions import call_shared
from nova.codegen.cpu.transpose_registers import transpose
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, compare, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number

_CHUNK = 16
"""Steps of k that are copied for all panels before the next: their rows are read as streams."""


@record
class Block:
    """The source of panels: element (lane, k) is at `offset + lane*lane_stride + k*k_stride`."""

    source: ir.Value
    type: str
    offset: Index
    lane_stride: Index
    k_stride: Index
    lanes: Index
    depth: Index

    def at(self, lane: Index, k: Index) -> ir.Value:
        return index(add(self.offset, add(mul(lane, self.lane_stride), mul(k, self.k_stride))))

    def part(self, lane: Index, k: Index, depth: Index) -> Block:
        """The block from (lane, k) on, `depth` steps of k deep."""
        return replace(self, offset=self.at(lane, k), lanes=sub(self.lanes, lane), depth=depth)


def pack(
    target: Target,
    acc_type: str,
    block: Block,
    width: int,
    minimum_depth: int | None,
    buffer: ir.Value,
) -> None:
    """Fill `buffer` with all panels of a block, whose strides are numbers or symbolic sizes.

    A panel whose last vector is not full writes up to a vector past its end: the buffer has room
    for one extra vector. Every block is at least `minimum_depth` deep; None where that depends on
    symbolic sizes.
    """
    vl = target.lanes(BITS[acc_type])
    if is_number(block.lane_stride, 1):
        _pack_by("lanes", target, acc_type, block, width, buffer)
    elif not is_number(block.k_stride, 1) or (minimum_depth is not None and minimum_depth < vl):
        _pack_by("scalars", target, acc_type, block, width, buffer)
    elif minimum_depth is not None:
        _pack_by("squares", target, acc_type, block, width, buffer)
    else:
        branch(
            compare(arith.CmpIPredicate.sge, block.depth, vl),
            lambda: _pack_by("squares", target, acc_type, block, width, buffer),
            lambda: _pack_by("scalars", target, acc_type, block, width, buffer),
        )


def _pack_by(
    method: str, target: Target, acc_type: str, block: Block, width: int, buffer: ir.Value
) -> None:
    """Call the packing function that reads the source by `method`."""

    def body(source: ir.Value, into: ir.Value, *numbers: ir.Value) -> None:
        offset, lane_stride, k_stride, lanes, depth = numbers
        lane: Index = 1 if method == "lanes" else lane_stride
        step: Index = 1 if method == "squares" else k_stride
        packer = _Packer(target, acc_type, width, into)
        packer.pack(Block(source, block.type, offset, lane, step, lanes, depth), method)

    numbers = (block.offset, block.lane_stride, block.k_stride, block.lanes, block.depth)
    name = f"nova_pack_{method}_{block.type}_{acc_type}_{width}"
    values = [index(n) for n in numbers]
    scalars = method == "scalars" or (method == "lanes" and BITS[block.type] < 32)
    call_shared(name, (block.source, buffer), values, 2, body, scalar_loops=scalars)


@record
class _Packer:
    """The body of one packing function."""

    target: Target
    acc_type: str
    width: int
    buffer: ir.Value

    @property
    def vl(self) -> int:
        return self.target.lanes(BITS[self.acc_type])

    def pack(self, block: Block, method: str) -> None:
        if method == "lanes" and self.width % self.vl == 0:
            with loop(0, block.depth, _CHUNK) as k, loop(0, block.lanes, self.width) as first:
                steps = minimum(sub(block.depth, k), _CHUNK)
                offset = add(mul(first, block.depth), mul(k, self.width))
                self._pack_lanes(block.part(first, k, steps), offset)
            return
        with loop(0, block.lanes, self.width) as first:
            panel, offset = block.part(first, 0, block.depth), mul(first, block.depth)
            if method == "lanes":
                self._pack_lanes(panel, offset)
            elif method == "squares":
                self._pack_squares(panel, offset)
            else:
                self._pack_scalars(panel, offset)

    def _widen(self, block: Block, value: ir.Value) -> ir.Value:
        return widen(self.target, value, self.acc_type, unsigned=block.type[0] == "u")

    def _pack_lanes(self, block: Block, offset: Index) -> None:
        reach = round_up(self.width, self.vl)
        full = compare(arith.CmpIPredicate.sge, block.lanes, reach)
        # LLVM turns masked accesses to 16-bit floats into library calls on some targets.
        edge = self._pack_scalars if BITS[block.type] < 32 else self._pack_masked
        branch(full, lambda: self._pack_vectors(block, offset), lambda: edge(block, offset))

    def _pack_vectors(self, block: Block, offset: Index) -> None:
        self._pack_steps(block, offset, lambda type_, start, at: vector.load(type_, *at))

    def _pack_masked(self, block: Block, offset: Index) -> None:
        zero = splat(vector_type(block.type, self.vl), 0.0)
        flags = ir.VectorType.get([self.vl], ir.IntegerType.get_signless(1))
        masks = {
            start: vector.create_mask(flags, [index(sub(block.lanes, start))])
            for start in range(0, self.width, self.vl)
        }
        self._pack_steps(
            block,
            offset,
            lambda type_, start, at: vector.maskedload(type_, *at, masks[start], zero),
        )

    def _pack_steps(self, block: Block, offset: Index, load: Callable[..., ir.Value]) -> None:
        """Loop over k, then vectors of lanes: a step overwrites the overrun of the last one."""
        type_ = vector_type(block.type, self.vl)
        with loop(0, block.depth, 1) as k:
            source, base = block.at(0, k), add(offset, mul(k, self.width))
            for start in range(0, self.width, self.vl):
                value = load(type_, start, (block.source, [index(add(source, start))]))
                where = [index(add(base, start))]
                vector.store(self._widen(block, value), self.buffer, where)

    def _pack_scalars(self, block: Block, offset: Index) -> None:
        last = sub(block.lanes, 1)
        with loop(0, block.depth, 1) as k, loop(0, self.width, 1) as lane:
            value = memref.load(block.source, [block.at(minimum(lane, last), k)])
            value = self._widen(block, value)
            where = index(add(offset, add(mul(k, self.width), lane)))
            memref.store(value, self.buffer, [where])

    def _pack_squares(self, block: Block, offset: Index) -> None:
        """Transpose squares of lanes and k; the last square along k is moved back to end with k.

        One square of lanes at a time where the squares fit into the panel. Where the last square
        does not, its steps write past their ends and the next steps overwrite that, so all squares
        of a step are written before the next step.
        """
        if self.width % self.vl:
            self._transpose(block, offset, list(range(0, self.width, self.vl)))
        else:
            with loop(0, self.width, self.vl) as start:
                self._transpose(block, offset, [start])

    def _transpose(self, block: Block, offset: Index, starts: list[Index]) -> None:
        narrow, last_lane = vector_type(block.type, self.vl), sub(block.lanes, 1)
        rows = [
            [block.at(minimum(add(start, lane), last_lane), 0) for lane in range(self.vl)]
            for start in starts
        ]
        last = sub(block.depth, self.vl)
        with loop(0, block.depth, self.vl) as step:
            k = minimum(step, last)
            squares = []
            for lanes in rows:
                values = [vector.load(narrow, block.source, [index(add(at, k))]) for at in lanes]
                values = [self._widen(block, value) for value in values]
                squares.append(transpose(values, BITS[self.acc_type]))
            base = add(offset, mul(k, self.width))
            for number in range(self.vl):
                for start, square in zip(starts, squares, strict=True):
                    where = index(add(base, add(start, number * self.width)))
                    vector.store(square[number], self.buffer, [where])
