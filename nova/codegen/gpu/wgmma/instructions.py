"""Hopper instructions as inline PTX: mbarrier, bulk tensor copies (TMA), wgmma, stmatrix.

Shared memory is addressed by i32 values, as the instructions take it. All of them have side
effects, so that LLVM neither reorders nor drops them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.codegen.common.builder import BITS
from nova.codegen.gpu.ptx_ops import word
from nova.ir.bindings import arith, ir
from nova.ir.gpu_bindings import llvm
from nova.ir.index import Index
from nova.ir.mathlib.f8_formats import FORMATS

_STEP_BITS = 256
"""Bits of k that one matmul multiplies."""
_TILE = ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"


def _integer(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def emit_ptx(text: str, operands: Sequence[Any] = (), constraints: str = "") -> None:
    """An instruction without a result, which may access memory."""
    clobbers = ",".join(part for part in (constraints, "~{memory}") if part)
    llvm.inline_asm(None, list(operands), text, clobbers, has_side_effects=True)


# --- barriers -----------------------------------------------------------------------------------


def init_barrier(address: ir.Value, arrivals: int) -> None:
    """mbarrier.init: a phase of the barrier ends after so many arrivals, and all expected bytes."""
    emit_ptx("mbarrier.init.shared::cta.b64 [$0], $1;", [address, word(arrivals)], "r,r")


def publish_barriers() -> None:
    """Let the copy engine, and the other blocks of the cluster, see initialized barriers."""
    emit_ptx("fence.mbarrier_init.release.cluster;")


def expect_bytes(address: ir.Value, count: int) -> None:
    """Arrive, and let the phase wait for `count` bytes of copies."""
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    emit_ptx(text, [address, word(count)], "r,r")


def expect_byte_count(address: ir.Value, count: ir.Value) -> None:
    """Like `expect_bytes`, with a count (i32) that is computed."""
    emit_ptx("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", [address, count], "r,r")


def arrive(address: ir.Value, rank: ir.Value | None = None) -> None:
    """Arrive at a barrier of this block, or at the same one of another block of the cluster."""
    if rank is None:
        emit_ptx("mbarrier.arrive.shared::cta.b64 _, [$0];", [address], "r")
        return
    text = (
        "{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, $0, $1;\n\t"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}"
    )
    emit_ptx(text, [address, rank], "r,r")


def arrive_where(address: ir.Value, condition: ir.Value) -> None:
    """Arrive at a barrier of this block in threads where `condition` (i1) holds, by a predicate.

    A branch would separate the threads of a warp between matmuls.
    """
    text = (
        "{\n\t.reg .pred arrives;\n\tsetp.ne.b32 arrives, $1, 0;\n\t"
        "@arrives mbarrier.arrive.shared::cta.b64 _, [$0];\n\t}"
    )
    emit_ptx(text, [address, arith.extui(_integer(32), condition)], "r,r")


def await_phase(address: ir.Value, parity: ir.Value) -> None:
    """Wait until the phase of this parity (i32) has ended."""
    text = (
        "{\n\t.reg .pred ended;\n\tTRY:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [$0], $1;\n\t"
        "@ended bra ENDED;\n\tbra TRY;\n\tENDED:\n\t}"
    )
    emit_ptx(text, [address, parity], "r,r")


def named_barrier(number: ir.Value, threads: int) -> None:
    """A barrier of some warps of the block."""
    emit_ptx("bar.sync $0, $1;", [number, word(threads)], "r,r")


def arrive_at_named(number: ir.Value, threads: int) -> None:
    """Arrive at a barrier that other warps of the block wait for."""
    emit_ptx("bar.arrive $0, $1;", [number, word(threads)], "r,r")


def set_registers(count: int, *, more: bool) -> None:
    """setmaxnreg: the registers of each thread of this warpgroup from here on."""
    direction = "inc" if more else "dec"
    emit_ptx(f"setmaxnreg.{direction}.sync.aligned.u32 {count};")


def fence_shared_writes() -> None:
    """Let the copy engine and the tensor cores see the writes of this thread to shared memory."""
    emit_ptx("fence.proxy.async.shared::cta;")


def copy_bytes(to: ir.Value, source: ir.Value, count: ir.Value, barrier: ir.Value) -> None:
    """Copy adjacent bytes of global memory to shared memory; `barrier` counts them.

    Both addresses and the count (i32) are multiples of 16.
    """
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    address = arith.index_cast(_integer(64), source)
    emit_ptx(text, [to, address, count, barrier], "r,l,r,r")


def send_bytes(to: ir.Value, source: ir.Value, count: int, barrier: ir.Value) -> None:
    """Copy bytes of shared memory to another block of the cluster, whose `barrier` counts them."""
    text = (
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        "[$0], [$1], $2, [$3];"
    )
    emit_ptx(text, [to, source, word(count), barrier], "r,r,r,r")


# --- bulk tensor copies -------------------------------------------------------------------------


def tensor_map(number: int, buffer_address: ir.Value) -> ir.Value:
    """The address of a tensor map of this kernel; `pass-tensor-maps` makes it a parameter.

    `buffer_address` (i64) is that of its buffer, which so becomes an operand of the launch.
    """
    text = f"nova.tensor_map {number} $0, $1;"
    return llvm.inline_asm(_integer(64), [buffer_address], text, "=l,l")


def copy_box(
    to: ir.Value,
    source_map: ir.Value,
    barrier: ir.Value,
    position: Sequence[Index],
    mask: int = 0,
) -> None:
    """Copy the box at `position` (innermost first) to shared memory; `barrier` counts its bytes.

    With a `mask` it arrives at the same address in all of these blocks of the cluster.
    """
    names = ", ".join(f"${3 + i}" for i in range(len(position)))
    multicast = ".multicast::cluster" if mask else ""
    last = f", ${3 + len(position)}" if mask else ""
    text = (
        f"cp.async.bulk.tensor.{len(position)}d{_TILE}{multicast} "
        f"[$0], [$1, {{{names}}}], [$2]{last};"
    )
    operands = [to, source_map, barrier, *map(word, position)]
    constraints = ["r", "l", "r", *["r"] * len(position)]
    if mask:
        operands.append(arith.constant(_integer(16), mask))
        constraints.append("h")
    emit_ptx(text, operands, ",".join(constraints))


def store_box(target_map: ir.Value, source: ir.Value, position: Sequence[Index]) -> None:
    """Copy a box from shared memory to `position`; elements out of bounds are not written."""
    names = ", ".join(f"${2 + i}" for i in range(len(position)))
    text = (
        f"cp.async.bulk.tensor.{len(position)}d.global.shared::cta.tile.bulk_group "
        f"[$0, {{{names}}}], [$1];\n\tcp.async.bulk.commit_group;"
    )
    emit_ptx(text, [target_map, source, *map(word, position)], ",".join("lr" + "r" * len(position)))


def await_stores(but: int, *, read: bool = True) -> None:
    """Wait for the stores of this thread except the last `but`: until their source was `read`."""
    emit_ptx(f"cp.async.bulk.wait_group{'.read' if read else ''} {but};")


# --- matmuls of a warpgroup ---------------------------------------------------------------------


def descriptor(address: ir.Value, leading: int, stride: int) -> ir.Value:
    """The descriptor (i64) of a tile in shared memory with a swizzle of 128 bytes.

    `stride` is the distance in bytes of groups of 8 rows, `leading` that of groups of 64 elements
    in tiles that do not run along k.
    """
    fields = leading >> 4 << 16 | stride >> 4 << 32 | 1 << 62
    long = _integer(64)
    low = arith.andi(address, arith.constant(address.type, 0x3FFFF))
    start = arith.extui(long, arith.shrui(low, arith.constant(low.type, 4)))
    return arith.ori(start, arith.constant(long, fields))


def _instruction(columns: int, elements: tuple[str, str]) -> str:
    depth = _STEP_BITS // BITS[elements[0]]
    names = (FORMATS[e].ptx if e in FORMATS else e for e in elements)
    return f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{'.'.join(names)}"


def multiply_stage(
    elements: tuple[str, str],
    sums: Sequence[ir.Value],
    lhs: Sequence[ir.Value],
    rhs: ir.Value,
    adds: ir.Value,
    steps: int,
    advances: tuple[int, int],
    transposed: tuple[bool, bool],
    pending: int,
) -> list[ir.Value]:
    """sums (+)= a stage, asynchronously; the sums of all stages but the last `pending` are ready.

    `sums` are those of one m64nNk matmul per descriptor in `lhs`, all with the same `rhs`. `adds`
    (i32) is 0 where the first step does not read the old sums. A step adds `advances` to the
    descriptors. `transposed` says which operands do not run along k.
    """
    count, blocks = len(sums), len(lhs)
    per_block = count // blocks
    columns = per_block * 2
    first = 2 * count
    lines = [".reg .pred p, q;", ".reg .b64 b;", f".reg .b64 a<{blocks}>;"]
    lines += [f"setp.ne.b32 p, ${first + blocks + 1}, 0;", "setp.eq.b32 q, 0, 0;"]
    lines += [f"mov.b64 a{i}, ${first + i};" for i in range(blocks)]
    lines += [f"mov.b64 b, ${first + blocks};", "wgmma.fence.sync.aligned;"]
    is_16_bit = BITS[elements[0]] == 16
    majors = f", {int(transposed[0])}, {int(transposed[1])}" if is_16_bit else ""
    name = _instruction(columns, elements)
    for step in range(steps):
        for i in range(blocks):
            registers = ", ".join(f"${i * per_block + k}" for k in range(per_block))
            scale = "q" if step else "p"
            lines.append(f"{name} {{{registers}}}, a{i}, b, {scale}, 1, 1{majors};")
        if step + 1 < steps:
            lines += [f"add.s64 a{i}, a{i}, {advances[0]};" for i in range(blocks)]
            lines.append(f"add.s64 b, b, {advances[1]};")
    lines += ["wgmma.commit_group.sync.aligned;", f"wgmma.wait_group.sync.aligned {pending};"]
    inputs = ["l"] * (blocks + 1) + ["r"]
    return _accumulate(lines, sums, [*lhs, rhs, adds], inputs)


def issue_matmul(
    element: str,
    sums: Sequence[ir.Value],
    lhs: ir.Value | Sequence[ir.Value],
    rhs: ir.Value,
    steps: Sequence[tuple[int, int]],
    *,
    adds: bool,
    rhs_transposed: bool,
) -> list[ir.Value]:
    """Start sums (+)= lhs rhs of 64 rows (m64nNk16), as one group; `await_sums` waits for it.

    `lhs` is a descriptor, or words in registers: four per step. A step adds its offsets to the
    descriptors. Without `adds` the first step overwrites the sums. `rhs_transposed` says that the
    rows of rhs do not run along k.
    """
    count = len(sums)
    fragments = [] if isinstance(lhs, ir.Value) else list(lhs)
    operands = [*(fragments or [lhs]), rhs]
    first = 2 * count
    rhs_name = f"${first + len(operands) - 1}"
    lines = [".reg .pred p, q;", ".reg .b64 a, b;", "setp.ne.b32 p, 0, 0;"]
    lines += ["setp.eq.b32 q, 0, 0;", "wgmma.fence.sync.aligned;"]
    registers = ", ".join(f"${k}" for k in range(count))
    name = _instruction(2 * count, (element, element))
    for number, (lhs_offset, rhs_offset) in enumerate(steps):
        lines.append(f"add.s64 b, {rhs_name}, {rhs_offset};")
        if fragments:
            words = ", ".join(f"${first + 4 * number + i}" for i in range(4))
            left, majors = f"{{{words}}}", f"{int(rhs_transposed)}"
        else:
            lines.append(f"add.s64 a, ${first}, {lhs_offset};")
            left, majors = "a", f"0, {int(rhs_transposed)}"
        scale = "q" if number or adds else "p"
        lines.append(f"{name} {{{registers}}}, {left}, b, {scale}, 1, 1, {majors};")
    lines.append("wgmma.commit_group.sync.aligned;")
    inputs = ["r" if fragments else "l"] * (len(operands) - 1) + ["l"]
    return _accumulate(lines, sums, operands, inputs)


def await_sums(sums: Sequence[ir.Value], pending: int = 0) -> list[ir.Value]:
    """Wait for all groups of matmuls of this warpgroup but the last `pending`."""
    return _accumulate([f"wgmma.wait_group.sync.aligned {pending};"], sums, [], [])


def _accumulate(
    lines: Sequence[str],
    sums: Sequence[ir.Value],
    operands: Sequence[ir.Value],
    constraints: Sequence[str],
) -> list[ir.Value]:
    """Instructions that update `sums` in place: operands $0 and on."""
    count = len(sums)
    single = ir.F32Type.get()
    struct = ir.Type.parse(f"!llvm.struct<({', '.join(['f32'] * count)})>")
    text = "{\n\t" + "\n\t".join(lines) + "\n\t}"
    tied = [*["=f"] * count, *map(str, range(count)), *constraints, "~{memory}"]
    result = llvm.inline_asm(
        struct, [*sums, *operands], text, ",".join(tied), has_side_effects=True
    )
    return [llvm.extractvalue(single, result, [i]) for i in range(count)]


def undefined_sums(count: int) -> list[ir.Value]:
    """Sums that the first stage overwrites."""
    single = ir.F32Type.get()
    return [llvm.mlir_undef(single)] * count


# --- matrices of a warp -------------------------------------------------------------------------


def store_matrices(address: ir.Value, words: Sequence[ir.Value]) -> None:
    """Store four matrices of 8 rows of 16 bytes (stmatrix); lane 8i + j addresses row j of i."""
    text = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
    emit_ptx(text, [address, *words], "r,r,r,r,r")
