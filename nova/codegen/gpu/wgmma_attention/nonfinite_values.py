"""Non-finite values that `causal` masks, in warpgroup attention: they must not enter a row's sums.

A matmul multiplies a masked value by a weight of 0, and 0 times NaN or infinity is NaN. So the
warps of the producer that copy nothing look at the values of the few blocks that mask some, before
consumers multiply them, and replace non-finite ones with zeros. At the end of such a tile the rows
that see them add them. `forward.py` emits both parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from nova.codegen.common.builder import element_type, loop
from nova.codegen.common.match_attention import Matrix
from nova.codegen.gpu.attention.masked_nonfinite import FORMATS, is_finite, zeros_for_others
from nova.codegen.gpu.block_ops import when
from nova.codegen.gpu.ptx_ops import GLOBAL, SHARED, global_base, load, pointer, store, wide, word
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma_attention.fragment import column_of
from nova.ir.bindings import arith, ir, scf, vector
from nova.ir.gpu_bindings import llvm
from nova.ir.index import Index, add, compare, index, mul

_CHUNK = 16
SCANNERS = 96
"""Threads that look at values: three warps."""


@dataclass(frozen=True)
class TileFlag:
    """A word in shared memory: the number of the last tile with non-finite masked values, from 1.

    Scanners may be a tile ahead of the consumers, so accesses are volatile, and a consumer that
    reads a larger number looks for values of its tile in vain.
    """

    address: ir.Value

    def set(self, number: ir.Value) -> None:
        llvm.store(number, self._pointer, volatile_=True, alignment=4)

    def reaches(self, number: ir.Value) -> ir.Value:
        i32 = ir.IntegerType.get_signless(32)
        stored = llvm.load(i32, self._pointer, volatile_=True, alignment=4)
        return arith.cmpi(arith.CmpIPredicate.sge, stored, number)

    @property
    def _pointer(self) -> ir.Value:
        return pointer(wide(self.address), SHARED)


def clean_tile(
    address: ir.Value, nbytes: int, element: str, thread: ir.Value, on_clean: Callable[[], None]
) -> None:
    """Replace non-finite values of a tile (i32 address) with zeros, and call `on_clean` at each."""
    form = FORMATS[element]
    words = _CHUNK * 8 // form.bits
    chunk_type = ir.VectorType.get([words], ir.IntegerType.get_signless(form.bits))
    clean = zeros_for_others(element, True)
    base = wide(address)
    first = mul(wide(thread), _CHUNK)
    with loop(first, nbytes, SCANNERS * _CHUNK) as offset:
        at = add(base, offset)
        loaded = load(chunk_type, at, SHARED, _CHUNK)
        parts = [vector.extract(loaded, [], [i]) for i in range(words)]
        signs = reduce(arith.ori, [form.signs(part) for part in parts])
        sign_bits = arith.andi(signs, form.constant(form.sign))
        with when(arith.cmpi(arith.CmpIPredicate.ne, sign_bits, form.constant(0))):
            store(vector.from_elements(chunk_type, [clean(p) for p in parts]), at, SHARED, _CHUNK)
            on_clean()
    ptx.fence_shared_writes()


def add_visible_nonfinite(
    values: Matrix,
    keys: tuple[Index, Index],
    rows: list[ir.Value],
    column: ir.Value,
    columns: int,
    sums: list[ir.Value],
) -> list[ir.Value]:
    """Add the non-finite values of keys in a range to the sums of the rows that see their key."""
    op = scf.ForOp(index(keys[0]), index(keys[1]), index(1), sums)
    with ir.InsertionPoint(op.body):
        key = op.induction_variable
        totals = list(op.inner_iter_args)
        start = add(global_base(values.buffer), mul(values.at(key, column), 2))
        visible = [compare(arith.CmpIPredicate.sle, key, row) for row in rows]
        for n in range(len(totals)):
            if n // 2 % 2 or column_of(n) >= columns:
                continue
            value = _as_f32(values, add(start, 2 * column_of(n)))
            zero = arith.constant(ir.F32Type.get(), 0.0)
            value = arith.select(is_finite(value), zero, value)
            for half, is_visible in enumerate(visible):
                at = n + 2 * half
                totals[at] = arith.addf(totals[at], arith.select(is_visible, value, zero))
        scf.YieldOp(totals)
    return list(op.results)


def _as_f32(values: Matrix, address: Index) -> ir.Value:
    if values.type != "bf16":
        return arith.extf(ir.F32Type.get(), load(element_type(values.type), address, GLOBAL, 2))
    # bf16 is the upper half of an f32.
    half = load(ir.IntegerType.get_signless(16), address, GLOBAL, 2)
    wide = arith.extui(ir.IntegerType.get_signless(32), half)
    return arith.bitcast(ir.F32Type.get(), arith.shli(wide, word(16)))
