"""Instructions of x86 that MLIR has no op for, as calls of LLVM's intrinsics.

In: values at the current insertion point; out: the call. `microkernel.py` and `amx_microkernel.py`
call
them, for targets that have them.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.common.builder import Index, add, index, mul
from nova.ir.bindings import arith, ir, memref


def call_intrinsic(
    name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value]
) -> list[ir.Value]:
    call = ir.Operation.create(
        "llvm.call_intrinsic",
        results=list(results),
        operands=list(operands),
        attributes={
            "intrin": ir.StringAttr.get(name),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    )
    return list(call.results)


def dot_vnni_pairs(total: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
    """Each f32 lane of `total` plus both products of the bf16 pairs of `left` and `right`."""
    return call_intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", [total.type], [total, left, right])[0]


def address_of(buffer: ir.Value, place: Index) -> ir.Value:
    """A pointer to an element of a flat buffer of 32-bit elements."""
    start = memref.extract_aligned_pointer_as_index(buffer)
    number = arith.index_cast(ir.IntegerType.get_signless(64), index(add(start, mul(place, 4))))
    return ir.Operation.create(
        "llvm.inttoptr", results=[ir.Type.parse("!llvm.ptr")], operands=[number]
    ).results[0]


def configure_tiles(configuration: ir.Value) -> None:
    """Give the tile registers their shapes: 64 bytes at a pointer."""
    call_intrinsic("llvm.x86.ldtilecfg", [], [configuration])


def release_tiles() -> None:
    """Forget the tile registers, which the system then need not save."""
    call_intrinsic("llvm.x86.tilerelease", [], [])


def load_tile(tile: int, address: ir.Value, pitch: Index) -> None:
    """Fill a tile register with rows of 64 bytes that are `pitch` bytes apart."""
    call_intrinsic("llvm.x86.tileloadd64", [], [_number(tile), address, _pitch(pitch)])


def store_tile_register(tile: int, address: ir.Value, pitch: Index) -> None:
    """The reverse of `load_tile`."""
    call_intrinsic("llvm.x86.tilestored64", [], [_number(tile), address, _pitch(pitch)])


def multiply_tiles(total: int, left: int, right: int) -> None:
    """Add the product of two tiles of bf16 pairs to a tile of f32."""
    call_intrinsic("llvm.x86.tdpbf16ps", [], [_number(n) for n in (total, left, right)])


def _number(tile: int) -> ir.Value:
    kind = ir.IntegerType.get_signless(8)
    return arith.constant(kind, ir.IntegerAttr.get(kind, tile))


def _pitch(pitch: Index) -> ir.Value:
    return arith.index_cast(ir.IntegerType.get_signless(64), index(pitch))
