"""Single PTX instructions, as code at the insertion point; the device schedules use them.

Memory is addressed by `index` values that are byte addresses: those of a buffer in global memory
begin at `global_base`, those of the block's shared memory at `shared_base`. The caller knows the
alignment, which memrefs cannot express, so that accesses are as wide as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.codegen.common.builder import splat
from nova.ir.bindings import arith, ir, memref, vector
from nova.ir.gpu_bindings import gpu, llvm, nvvm
from nova.ir.index import Index, index
from nova.ir.mathlib.f8_formats import f8_format

GLOBAL, SHARED = 1, 3
"""Address spaces."""

_DEPTHS = {"bf16": 16, "f16": 16, "tf32": 8}
"""Operand type -> steps of k of one tensor-core instruction: 32 bytes."""


# --- numbers ------------------------------------------------------------------------------------


def word(value: Index) -> ir.Value:
    """A small number as an i32."""
    word_type = ir.IntegerType.get_signless(32)
    if isinstance(value, int):
        return splat(word_type, value)
    return arith.index_cast(word_type, value)


def wide(value: ir.Value) -> ir.Value:
    """An i32, which is not negative, as an index."""
    return arith.index_castui(ir.IndexType.get(), value)


def opaque(value: ir.Value) -> ir.Value:
    """The same i32, of which LLVM knows nothing.

    Values that depend on it are computed from here on, again: they are live for a shorter time.
    """
    word_type = ir.IntegerType.get_signless(32)
    return llvm.inline_asm(word_type, [value], "mov.b32 $0, $1;", "=r,r", has_side_effects=True)


def fused(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once (fused multiply-add)."""
    return llvm.intr_fma(a, b, c)


def permute_bytes(low: ir.Value, high: ir.Value, selector: ir.Value) -> ir.Value:
    """Four of the eight bytes of two i32 (prmt): four bits of the selector for each.

    Their upper bit replaces the byte by its sign, eight times.
    """
    word_type = ir.IntegerType.get_signless(32)
    text = "prmt.b32 $0, $1, $2, $3;"
    return llvm.inline_asm(word_type, [low, high, selector], text, "=r,r,r,r")


# --- memory -------------------------------------------------------------------------------------


def global_base(buffer: ir.Value) -> ir.Value:
    """The address of a buffer's first element."""
    return memref.extract_aligned_pointer_as_index(buffer)


def shared_base() -> ir.Value:
    """The address of the block's shared memory."""
    space = ir.Attribute.parse("#gpu.address_space<workgroup>")
    byte = ir.IntegerType.get_signless(8)
    size = ir.ShapedType.get_dynamic_size()
    buffer = gpu.dynamic_shared_memory(ir.MemRefType.get([size], byte, memory_space=space))
    return memref.extract_aligned_pointer_as_index(buffer)


def pointer(address: Index, space: int) -> ir.Value:
    number = arith.index_cast(ir.IntegerType.get_signless(64), index(address))
    return llvm.inttoptr(ir.Type.parse(f"!llvm.ptr<{space}>"), number)


def load(type_: ir.Type, address: Index, space: int, align: int) -> ir.Value:
    stored = _stored_type(type_)
    value = llvm.load(stored, pointer(address, space), alignment=align)
    return value if stored == type_ else arith.bitcast(type_, value)


def store(value: ir.Value, address: Index, space: int, align: int) -> None:
    stored = _stored_type(value.type)
    value = value if stored == value.type else arith.bitcast(stored, value)
    llvm.store(value, pointer(address, space), alignment=align)


def _stored_type(type_: ir.Type) -> ir.Type:
    """The type of LLVM for elements in memory: it has no 8-bit floats."""
    if f8_format(type_) is None:
        return type_
    byte = ir.IntegerType.get_signless(8)
    return ir.VectorType.get(type_.shape, byte) if isinstance(type_, ir.VectorType) else byte


def load_floats(address: ir.Value, offset: int) -> list[ir.Value]:
    """Four adjacent f32 of shared memory at an i32 address, by inline PTX: LLVM keeps its place."""
    text = f"ld.shared.v4.f32 {{$0, $1, $2, $3}}, [$4+{offset}];"
    struct = ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")
    loaded = llvm.inline_asm(
        struct, [address], text, "=f,=f,=f,=f,r,~{memory}", has_side_effects=True
    )
    return [llvm.extractvalue(ir.F32Type.get(), loaded, [i]) for i in range(4)]


# --- asynchronous copies (cp.async) ---------------------------------------------------------------


def copy_async(to: Index, source: Index, nbytes: int, valid: ir.Value | None = None) -> None:
    """Start an asynchronous copy (cp.async) of 4, 8 or 16 bytes from global to shared memory.

    Of those, `valid` (i32) bytes are read, and the others written as zeros. Copies of 16 bytes,
    which are of whole tiles, bypass the L1 cache.
    """
    cache = "cg" if nbytes == 16 else "ca"
    operands = [pointer(to, SHARED), pointer(source, GLOBAL), *(() if valid is None else (valid,))]
    ir.Operation.create(
        "nvvm.cp.async.shared.global",
        operands=operands,
        attributes={
            "size": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), nbytes),
            "modifier": ir.Attribute.parse(f"#nvvm<load_cache_modifier {cache}>"),
        },
    )


def commit_copies() -> None:
    """Make a group of the copies of this thread since the last commit."""
    nvvm.cp_async_commit_group()


def wait_for_copies(but: int) -> None:
    """Wait until all copy groups of this thread, except the last `but`, have arrived."""
    nvvm.cp_async_wait_group(but)


def barrier() -> None:
    """A block barrier: all threads have arrived, and see the writes of the others."""
    gpu.barrier()


# --- dependent launches (Hopper) ------------------------------------------------------------------


def start_dependents() -> None:
    """Let the launches after this one start, once all of its blocks have come here."""
    _run("griddepcontrol.launch_dependents;")


def wait_for_launches() -> None:
    """Wait until the launches before this one have ended, and see what they wrote.

    A kernel touches no memory that other launches of the program write before it.
    """
    _run("griddepcontrol.wait;")


def issue_loads() -> None:
    """Keep the loads before this point before it: LLVM would move them to their uses."""
    _run("")


def prefetch(buffer: ir.Value, position: Index, nbytes: int) -> None:
    """Bring the line of an element, of so many bytes, to the L2 cache.

    No value is read, so it may come before the wait for launches that write the element.
    """
    address = arith.addi(global_base(buffer), arith.muli(index(position), index(nbytes)))
    i64 = ir.IntegerType.get_signless(64)
    llvm.inline_asm(
        None,
        [arith.index_cast(i64, address)],
        "prefetch.global.L2 [$0];",
        "l",
        has_side_effects=True,
    )


def _run(instruction: str) -> None:
    llvm.inline_asm(None, [], instruction, "~{memory}", has_side_effects=True)


# --- matrices of a warp -------------------------------------------------------------------------


def load_matrices(address: Index, *, transposed: bool) -> list[ir.Value]:
    """Load four matrices of 8 rows of 16 bytes (ldmatrix); lane 8i + j addresses row j of matrix i.

    Each becomes an i32 per lane: of row `lane / 4`, the four bytes at `lane % 4`; transposed, which
    is for elements of two bytes, two elements of column `lane / 4`.
    """
    integer = ir.IntegerType.get_signless(32)
    loaded = ir.Operation.create(
        "nvvm.ldmatrix",
        results=[ir.Type.parse("!llvm.struct<(i32, i32, i32, i32)>")],
        operands=[pointer(address, SHARED)],
        attributes={
            "num": ir.IntegerAttr.get(integer, 4),
            "layout": ir.Attribute.parse(f"#nvvm.mma_layout<{'col' if transposed else 'row'}>"),
            "shape": ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
            "eltType": ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>"),
        },
    ).result
    return [llvm.extractvalue(integer, loaded, [i]) for i in range(4)]


def multiply(
    element: str, a: Sequence[ir.Value], b: Sequence[ir.Value], c: Sequence[ir.Value]
) -> list[ir.Value]:
    """c + a b of 16 x 8 elements of f32 (mma.sync); the operands are `element`, 32 bytes deep."""
    single = ir.F32Type.get()
    attributes: dict[str, Any] = {
        "shape": ir.Attribute.parse(f"#nvvm.shape<m = 16, n = 8, k = {_DEPTHS[element]}>"),
        "layoutA": ir.Attribute.parse("#nvvm.mma_layout<row>"),
        "layoutB": ir.Attribute.parse("#nvvm.mma_layout<col>"),
        "multiplicandAPtxType": ir.Attribute.parse(f"#nvvm.mma_type<{element}>"),
        "multiplicandBPtxType": ir.Attribute.parse(f"#nvvm.mma_type<{element}>"),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(a), len(b), len(c)]),
    }
    if element == "f16":
        # f16 pairs have a type of their own.
        pair = ir.VectorType.get([2], ir.F16Type.get())
        a, b = ([llvm.bitcast(pair, value) for value in part] for part in (a, b))
    result = ir.Operation.create(
        "nvvm.mma.sync",
        results=[ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")],
        operands=[*a, *b, *c],
        attributes=attributes,
    ).result
    return [llvm.extractvalue(single, result, [i]) for i in range(4)]


def round_tf32(value: ir.Value) -> ir.Value:
    """An f32 as a tf32 operand, rounded to nearest."""
    return ir.Operation.create(
        "nvvm.convert.float.to.tf32",
        results=[ir.IntegerType.get_signless(32)],
        operands=[value],
        attributes={"rnd": ir.Attribute.parse("#nvvm.fp_rnd_mode<rna>")},
    ).result


# --- warp barriers, and conversions ---------------------------------------------------------------


def warp_barrier() -> None:
    """A warp barrier: all lanes have arrived, and see the writes of the others."""
    nvvm.bar_warp_sync(word(0xFFFFFFFF))


def exponential2(value: ir.Value) -> ir.Value:
    """2 to the power of an f32, to about 22 bits (ex2.approx)."""
    return ir.Operation.create(
        "llvm.call_intrinsic",
        results=[value.type],
        operands=[value],
        attributes={
            "intrin": ir.StringAttr.get("llvm.nvvm.ex2.approx.ftz.f"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    ).result


def narrow_pair(first: ir.Value, second: ir.Value, element: str) -> ir.Value:
    """Two f32 as two adjacent elements of bf16 or f16: an i32."""
    word_type = ir.IntegerType.get_signless(32)
    if element == "bf16":
        # Inline PTX, because bf16 is not an arithmetic type on this path through LLVM.
        text = "cvt.rn.bf16x2.f32 $0, $1, $2;"
        return llvm.inline_asm(word_type, [second, first], text, "=r,f,f")
    pair = ir.VectorType.get([2], ir.F16Type.get())
    half = ir.F16Type.get()
    parts = [arith.truncf(half, value) for value in (first, second)]
    return llvm.bitcast(word_type, vector.from_elements(pair, parts))
