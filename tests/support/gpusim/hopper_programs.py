"""PTX programs with Hopper's asynchronous instructions, for the tests of the simulator.

`PIPELINE` is a GEMM as on the device: a producer warp loads tiles of a and b by bulk tensor copies
into two stages, a warpgroup multiplies them by wgmma, and a bulk tensor store writes the result.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from sim_programs import HEADER

from nova.gpusim import SimMemory, SimModule, tensor_map

REGISTERS = """.reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<60>; .reg .b64 %d<40>;
.reg .b32 %f<260>;"""


def hopper_kernel(
    body: str, pointers: int = 1, maps: int = 0, bounds: str = ".maxntid 384", shared: int = 65536
) -> str:
    """A kernel with pointers in %d0, ... and tensor maps at %d30, ...; %r2 is the thread.

    `stage` is its shared memory, at offset 0 of the simulator's; %r3 is the warp, %p0 holds in
    thread 0 only.
    """
    params = [f".param .u64 k_{i}" for i in range(pointers)]
    params += [f".param .align 64 .b8 map_{i}[128]" for i in range(maps)]
    loads = [f"ld.param.u64 %d{i}, [k_{i}];" for i in range(pointers)]
    for i in range(maps):
        loads.append(f"mov.b64 %d{30 + i}, map_{i}; cvta.param.u64 %d{30 + i}, %d{30 + i};")
    lines = "\n".join(loads)
    return f"""{HEADER}
.visible .entry k({", ".join(params)})
{bounds}
{{
{REGISTERS}
.shared .align 1024 .b8 stage[{shared}];
{lines}
mov.u32 %r2, %tid.x;
shr.u32 %r3, %r2, 5;
setp.eq.u32 %p0, %r2, 0;
{body}
ret;
}}
"""


def run_hopper(
    text: str,
    arrays: Sequence[np.ndarray[Any, Any]],
    maps: Sequence[tuple[int, dict[str, Any]]] = (),
    *,
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (128,),
    **options: Any,
) -> list[Any]:
    """Run a kernel on copies of the arrays; a map is (array, keywords of `tensor_map`)."""
    memory = SimMemory()
    addresses = [memory.put(array) for array in arrays]
    arguments = struct.pack(f"<{len(addresses)}Q", *addresses)
    for number, keywords in maps:
        arguments += bytes(-len(arguments) % 64) + tensor_map(addresses[number], **keywords)
    SimModule(text).launch("k", grid, block, 0, arguments, memory, **options)
    return [memory.array(p, a.shape, a.dtype) for p, a in zip(addresses, arrays, strict=True)]


def rows_map(array: np.ndarray[Any, Any], dtype: str, box: Sequence[int], swizzle: int = 0) -> Any:
    """Keywords of the map of a row-major array."""
    dims = array.shape[::-1]
    strides = array.strides[::-1][1:]
    return {"dtype": dtype, "dims": dims, "strides": strides, "box": box, "swizzle": swizzle}


# --- pieces ---------------------------------------------------------------------------------------

LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
LOAD_2D = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
INIT = """@%p0 mbarrier.init.shared::cta.b64 [stage+{at}], {count};"""
FENCE_INIT = "@%p0 fence.mbarrier_init.release.cluster; bar.sync 0;"


def wait_parity(address: str, parity: str, name: str) -> str:
    return f"""{name}: mbarrier.try_wait.parity.shared::cta.b64 %p10, [{address}], {parity};
@!%p10 bra {name};"""


def registers(prefix: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"{prefix}{first + i}" for i in range(count)) + "}"


def descriptor(to: str, address: str, swizzle: int, leading: int, stride: int) -> str:
    """PTX that makes a matrix descriptor of a shared address in a 32-bit register."""
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    bits = mode << 62 | (stride >> 4) << 32 | (leading >> 4) << 16
    return f"""shr.u32 %r50, {address}, 4; and.b32 %r50, %r50, 16383; cvt.u64.u32 {to}, %r50;
or.b64 {to}, {to}, {bits};"""


def store_fragment(columns: int, target: str = "%d0", first: int = 0) -> str:
    """Stores f32 accumulators of one warpgroup, in %f registers, as a row-major matrix."""
    lines = [
        "and.b32 %r40, %r2, 31; shr.u32 %r41, %r2, 5; and.b32 %r41, %r41, 3;",
        "shl.b32 %r41, %r41, 4; shr.u32 %r42, %r40, 2; add.s32 %r41, %r41, %r42;",
        "and.b32 %r42, %r40, 3; shl.b32 %r42, %r42, 1;",
        f"mad.lo.s32 %r43, %r41, {columns}, %r42; mul.wide.u32 %d20, %r43, 4;",
        f"add.s64 %d20, {target}, %d20;",
    ]
    for i in range(columns // 2):
        offset = 4 * (i // 4 * 8 + i % 2 + i // 2 % 2 * 8 * columns)
        lines.append(f"st.global.f32 [%d20+{offset}], %f{first + i};")
    return "\n".join(lines)


# --- a GEMM ---------------------------------------------------------------------------------------

STAGES, TILE_M, TILE_N, TILE_K = 2, 64, 64, 64
A_BYTES, B_BYTES = TILE_M * TILE_K * 2, TILE_N * TILE_K * 2
STAGE_BYTES = A_BYTES + B_BYTES
FULL, EMPTY = STAGES * STAGE_BYTES + 8192, STAGES * STAGE_BYTES + 8192 + 64
OUT = STAGES * STAGE_BYTES


def gemm(steps: int) -> str:
    """out = a b^T of bf16: warp 4 produces, warps 0 to 3 multiply; all of k is `steps` tiles.

    Each line of the text is one instruction, so that a test can leave one out.
    """
    results = registers("%f", 0, TILE_N // 2)
    init = "\n".join(
        f"@%p0 mbarrier.init.shared::cta.b64 [stage+{base + 8 * i}], 1;"
        for i in range(STAGES)
        for base in (FULL, EMPTY)
    )
    multiply = []
    for k in range(TILE_K // 16):
        multiply += [
            f"add.s64 %d12, %d10, {2 * k};",
            f"add.s64 %d13, %d11, {2 * k};",
            f"wgmma.mma_async.sync.aligned.m64n{TILE_N}k16.f32.bf16.bf16 {results}, %d12, %d13, "
            "%p5, 1, 1, 0, 0;",
            "setp.eq.u32 %p5, 0, 0;",
        ]
    pack = []
    for i in range(0, TILE_N // 2, 2):
        offset = i // 4 * 16 + i // 2 % 2 * 8 * TILE_N * 2
        pack.append(f"cvt.rn.bf16x2.f32 %r20, %f{i + 1}, %f{i};")
        pack.append(f"st.shared.b32 [%r21+{offset}], %r20;")
    newline = "\n"
    return hopper_kernel(
        f"""{init}
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
mov.u32 %r5, stage;
mov.u32 %r6, 0;
mov.u32 %r7, 0;
mov.u32 %r8, 0;
setp.eq.u32 %p1, %r3, 4;
@!%p1 bra consume;
elect.sync _|%p2, -1;
@!%p2 bra end;
produce:
shl.b32 %r9, %r7, 3;
add.s32 %r9, %r9, %r5;
xor.b32 %r10, %r8, 1;
wait_empty: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r9+{EMPTY}], %r10;
@!%p3 bra wait_empty;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9+{FULL}], {STAGE_BYTES};
mad.lo.s32 %r11, %r7, {STAGE_BYTES}, %r5;
add.s32 %r12, %r11, {A_BYTES};
add.s32 %r13, %r9, {FULL};
shl.b32 %r14, %r6, 6;
{LOAD_2D} [%r11], [%d30, {{%r14, 0}}], [%r13];
{LOAD_2D} [%r12], [%d31, {{%r14, 0}}], [%r13];
add.s32 %r7, %r7, 1;
setp.eq.u32 %p4, %r7, {STAGES};
@%p4 xor.b32 %r8, %r8, 1;
@%p4 mov.u32 %r7, 0;
add.s32 %r6, %r6, 1;
setp.lt.u32 %p4, %r6, {steps};
@%p4 bra produce;
bra end;
consume:
setp.ne.u32 %p5, 0, 0;
multiply:
shl.b32 %r9, %r7, 3;
add.s32 %r9, %r9, %r5;
wait_full: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r9+{FULL}], %r8;
@!%p3 bra wait_full;
mad.lo.s32 %r11, %r7, {STAGE_BYTES}, %r5;
add.s32 %r12, %r11, {A_BYTES};
{descriptor("%d10", "%r11", 128, 16, 1024)}
{descriptor("%d11", "%r12", 128, 16, 1024)}
wgmma.fence.sync.aligned;
{newline.join(multiply)}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
@%p0 mbarrier.arrive.shared::cta.b64 _, [%r9+{EMPTY}];
add.s32 %r7, %r7, 1;
setp.eq.u32 %p4, %r7, {STAGES};
@%p4 xor.b32 %r8, %r8, 1;
@%p4 mov.u32 %r7, 0;
add.s32 %r6, %r6, 1;
setp.lt.u32 %p4, %r6, {steps};
@%p4 bra multiply;
and.b32 %r40, %r2, 31;
shr.u32 %r41, %r40, 2;
mad.lo.s32 %r41, %r3, 16, %r41;
and.b32 %r42, %r40, 3;
shl.b32 %r42, %r42, 2;
mad.lo.s32 %r21, %r41, {TILE_N * 2}, %r42;
add.s32 %r21, %r21, %r5;
add.s32 %r21, %r21, {OUT};
{newline.join(pack)}
fence.proxy.async.shared::cta;
bar.sync 1, 128;
@%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d32, {{0, 0}}], [stage+{OUT}];
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group.read 0;
end:""",
        pointers=1,
        maps=3,
        bounds=".maxntid 160",
        shared=48 << 10,
    )


def run_gemm(
    text: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], **options: Any
) -> np.ndarray[Any, Any]:
    """The bits of the result of `gemm`, for bits of bf16."""
    out = np.zeros((TILE_M, TILE_N), np.uint16)
    maps = [
        (1, rows_map(a, "bf16", (TILE_K, TILE_M), 128)),
        (2, rows_map(b, "bf16", (TILE_K, TILE_N), 128)),
        (0, rows_map(out, "bf16", (TILE_N, TILE_M))),
    ]
    text = text.replace("(.param .u64 k_0", "(.param .u64 k_0, .param .u64 k_1, .param .u64 k_2")
    return run_hopper(text, [out, a, b], maps, block=(160,), **options)[0]
