"""x86 instructions without an MLIR op, as calls of LLVM intrinsics.

Input: values at the current insertion point. Output: the call. `microkernel.py` and
`amx_microkernel.py` call them, for targets that have them.
"""

from __future__ import annotations

from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.index import Index, add, index, mul
from nova.ir.mathlib.intrinsics import call_intrinsic


def dot_vnni_pairs(total: ir.Value, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Add the dot product of the VNNI pairs of `lhs` and `rhs` to each f32 lane of `total`."""
    return call_intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", [total.type], [total, lhs, rhs])[0]


def dot_bytes(total: ir.Value, unsigned: ir.Value, signed: ir.Value) -> ir.Value:
    """Add the dot product of four u8 and four i8 to each i32 lane of `total` (VNNI)."""
    byte = ir.IntegerType.get_signless(8)
    lanes = total.type.shape[0]
    bytes_type = ir.VectorType.get([4 * lanes], byte)
    operands = [total, *(vector.bitcast(bytes_type, words) for words in (unsigned, signed))]
    return call_intrinsic(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", [total.type], operands)[0]


_MULTIPLY_PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def dot_i16_pairs(sums: ir.Type, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """The dot product of each pair of i16, as an i32 lane."""
    name = f"llvm.x86.{_MULTIPLY_PAIRS[sums.shape[0]]}"
    return call_intrinsic(name, [sums], [lhs, rhs])[0]


def address_of(buffer: ir.Value, offset: Index) -> ir.Value:
    """A pointer to an element of a flat buffer of 32-bit elements."""
    start = memref.extract_aligned_pointer_as_index(buffer)
    number = arith.index_cast(ir.IntegerType.get_signless(64), index(add(start, mul(offset, 4))))
    return ir.Operation.create(
        "llvm.inttoptr", results=[ir.Type.parse("!llvm.ptr")], operands=[number]
    ).results[0]


def configure_tiles(configuration: ir.Value) -> None:
    """Configure the shapes of the tile registers: 64 bytes at a pointer."""
    call_intrinsic("llvm.x86.ldtilecfg", [], [configuration])


def release_tiles() -> None:
    """Release the tile registers, so that the system need not save them."""
    call_intrinsic("llvm.x86.tilerelease", [], [])


def load_tile(tile: int, address: ir.Value, pitch: Index) -> None:
    """Load a tile register with rows of 64 bytes at a stride of `pitch` bytes."""
    call_intrinsic("llvm.x86.tileloadd64", [], [_number(tile), address, _pitch(pitch)])


def store_tile_register(tile: int, address: ir.Value, pitch: Index) -> None:
    """The reverse of `load_tile`."""
    call_intrinsic("llvm.x86.tilestored64", [], [_number(tile), address, _pitch(pitch)])


_MULTIPLY_TILES = {
    ("bf16", "bf16"): "tdpbf16ps",
    ("i8", "i8"): "tdpbssd",
    ("i8", "u8"): "tdpbsud",
    ("u8", "i8"): "tdpbusd",
    ("u8", "u8"): "tdpbuud",
}


def multiply_tiles(types: tuple[str, str], total: int, lhs: int, rhs: int) -> None:
    """Add the matmul of two tiles of VNNI words to a tile of f32, or of i32 for bytes."""
    name = f"llvm.x86.{_MULTIPLY_TILES[types]}"
    call_intrinsic(name, [], [_number(n) for n in (total, lhs, rhs)])


def _number(tile: int) -> ir.Value:
    byte_type = ir.IntegerType.get_signless(8)
    return arith.constant(byte_type, ir.IntegerAttr.get(byte_type, tile))


def _pitch(pitch: Index) -> ir.Value:
    return arith.index_cast(ir.IntegerType.get_signless(64), index(pitch))
