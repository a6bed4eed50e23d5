"""Non-finite values that `causal` masks, on a GPU: they must not enter the sums of a row.

Input: an `AttentionBlock`, and the address of a tile of values. Output: code. `flash_forward.py`
accumulates values with `multiply_seen`.

A matmul of tiles multiplies a masked value by a weight of 0, and 0 times NaN or infinity is NaN. So
each warp scans the values of the few blocks that mask some. Where one is not finite, the matmul
reads zeros for such values, and the rows that see them add them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import inf

from nova.codegen.common.builder import element_type, splat
from nova.codegen.gpu.attention.block import AttentionBlock
from nova.codegen.gpu.block_ops import WARP, ballot
from nova.codegen.gpu.gemm.epilogue import Core
from nova.codegen.gpu.gemm.shared_tile import CHUNK, Clean
from nova.codegen.gpu.ptx_ops import SHARED, load
from nova.ir.bindings import arith, ir, math, scf, vector
from nova.ir.index import Index, add, compare, divide, index, modulo, mul, offset_by


@dataclass(frozen=True)
class WordFormat:
    """A word of one or two elements; an exponent of all ones plus `carry` carries into the sign."""

    bits: int
    exponent: int
    carry: int
    sign: int

    def constant(self, value: int) -> ir.Value:
        signed = value - (1 << self.bits) if value >> (self.bits - 1) else value
        return splat(ir.IntegerType.get_signless(self.bits), signed)

    def signs(self, word: ir.Value) -> ir.Value:
        """The word with the sign bits of its non-finite elements set, and other bits."""
        exponents = arith.andi(word, self.constant(self.exponent))
        return arith.addi(exponents, self.constant(self.carry))


FORMATS = {
    "f64": WordFormat(64, 0x7FF << 52, 1 << 52, 1 << 63),
    "f32": WordFormat(32, 0x7F800000, 0x00800000, 0x80000000),
    "f16": WordFormat(32, 0x7C007C00, 0x04000400, 0x80008000),
    "bf16": WordFormat(32, 0x7F807F80, 0x00800080, 0x80008000),
}


def multiply_seen(
    block: AttentionBlock,
    core: Core,
    values: Index,
    first: Index,
    key: Index,
    matmul: Callable[[Clean | None], list[ir.Value]],
) -> list[ir.Value]:
    """The sums plus the matmul of a block of weights and the values from `key` on.

    `matmul` multiplies by the tile at the address `values`, whose elements are cleaned first.
    """
    plan = block.plan
    if not block.attention.spec.causal:
        return matmul(None)
    truth = ir.IntegerType.get_signless(1)
    edge = compare(arith.CmpIPredicate.sgt, add(key, plan.keys - 1), first)
    look = scf.IfOp(edge, [truth], has_else=True)
    with ir.InsertionPoint(look.then_block):
        scf.YieldOp([_any_not_finite(block, values)])
    with ir.InsertionPoint(look.else_block):
        scf.YieldOp([splat(truth, 0)])
    types = [value.type for value in core.zeros()]
    either = scf.IfOp(look.results[0], types, has_else=True)
    with ir.InsertionPoint(either.then_block):
        sums = matmul(zeros_for_others(plan.element, plan.core_type == "tensor"))
        scf.YieldOp(_add_not_finite(block, core, values, (first, key), sums))
    with ir.InsertionPoint(either.else_block):
        scf.YieldOp(matmul(None))
    return list(either.results)


def _any_not_finite(block: AttentionBlock, values: Index) -> ir.Value:
    """Whether any value of the tile is not finite, uniform over a warp."""
    tile, form = block.tile("v"), FORMATS[block.plan.element]
    per_row, words = tile.row_bytes // CHUNK, CHUNK * 8 // form.bits
    chunk_type = ir.VectorType.get([words], ir.IntegerType.get_signless(form.bits))
    lane = index(modulo(block.thread, WARP))
    loop = scf.ForOp(lane, index(tile.rows * per_row), index(WARP), [form.constant(0)])
    with ir.InsertionPoint(loop.body):
        number = loop.induction_variable
        offset = tile.at(divide(number, per_row), modulo(number, per_row))
        loaded = load(chunk_type, offset_by(values, offset), SHARED, CHUNK)
        signs = [form.signs(vector.extract(loaded, [], [i])) for i in range(words)]
        scf.YieldOp([reduce(arith.ori, signs, loop.inner_iter_args[0])])
    sign_bits = arith.andi(loop.results[0], form.constant(form.sign))
    in_lane = arith.cmpi(arith.CmpIPredicate.ne, sign_bits, form.constant(0))
    everyone = ballot(in_lane)
    return arith.cmpi(arith.CmpIPredicate.ne, everyone, splat(everyone.type, 0))


def zeros_for_others(element: str, pairs: bool) -> Clean:
    """Replace non-finite elements with zeros: of pairs in words, or of scalars."""
    if not pairs:
        return lambda value: arith.select(is_finite(value), value, splat(value.type, 0.0))
    form = FORMATS[element]

    def clean(word: ir.Value) -> ir.Value:
        signs = arith.andi(form.signs(word), form.constant(form.sign))
        lowest = arith.shrui(signs, form.constant(15))
        others = arith.muli(lowest, form.constant(0xFFFF))
        return arith.andi(word, arith.xori(others, form.constant(0xFFFFFFFF)))

    return clean


def _add_not_finite(
    block: AttentionBlock,
    core: Core,
    values: Index,
    corner: tuple[Index, Index],
    sums: list[ir.Value],
) -> list[ir.Value]:
    """Add non-finite values of the tile to the sums of the rows that see their key."""
    first, key = corner
    rows = [add(first, tile_row) for tile_row in core.rows()]
    loop = scf.ForOp(index(0), index(block.plan.keys), index(1), sums)
    with ir.InsertionPoint(loop.body):
        number = loop.induction_variable
        new_sums = list(loop.inner_iter_args)
        visible = [compare(arith.CmpIPredicate.sle, add(key, number), row) for row in rows]
        for j, column in enumerate(core.columns()):
            value = _value(block, values, number, column)
            zero = splat(value.type, 0.0)
            value = arith.select(is_finite(value), zero, value)
            for i, is_visible in enumerate(visible):
                n = core.number(i, j)
                new_sums[n] = arith.addf(new_sums[n], arith.select(is_visible, value, zero))
        scf.YieldOp(new_sums)
    return list(loop.results)


def _value(block: AttentionBlock, values: Index, row: Index, column: Index) -> ir.Value:
    """An element of the tile of values, in the accumulator type."""
    tile, element = block.tile("v"), block.plan.element
    chunk, within = divide(column, tile.per_chunk), modulo(column, tile.per_chunk)
    address = offset_by(values, tile.at(row, chunk), mul(within, tile.element))
    if element == "bf16":
        # bf16 is the upper half of an f32.
        half_type, word_type = (ir.IntegerType.get_signless(bits) for bits in (16, 32))
        wide = arith.extui(word_type, load(half_type, address, SHARED, tile.element))
        return arith.bitcast(ir.F32Type.get(), arith.shli(wide, splat(word_type, 16)))
    value = load(element_type(element), address, SHARED, tile.element)
    sums = element_type(block.attention.type)
    return value if value.type == sums else arith.extf(sums, value)


def is_finite(value: ir.Value) -> ir.Value:
    """Whether a float is neither infinite nor NaN."""
    return arith.cmpf(arith.CmpFPredicate.OLT, math.absf(value), splat(value.type, inf))
