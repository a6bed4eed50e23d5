"""wgmma against numpy: all types, both operands in all layouts of shared memory, and registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hopper_programs import (
    descriptor,
    gemm,
    hopper_kernel,
    registers,
    run_gemm,
    run_hopper,
    store_fragment,
)

DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}
A_AT, B_AT = 0, 16384
SWIZZLES = (0, 32, 64, 128)


def draw(shape: tuple[int, int], dtype: str, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if dtype in ("s8", "u8"):
        return rng.integers(-100 if dtype == "s8" else 0, 100, shape).astype(DTYPES[dtype])
    values = rng.standard_normal(shape).astype(np.float32)
    if dtype == "tf32":
        return (values.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return values.astype(DTYPES[dtype])


def lay_out(matrix: np.ndarray[Any, Any], swizzle: int, transposed: bool) -> tuple[bytes, int, int]:
    """A matrix (rows, k) of one instruction in a canonical layout: bytes, leading, stride.

    K-major: atoms of 8 rows of one swizzle span; MN-major: atoms of 8 values of k.
    """
    size = matrix.dtype.itemsize
    rows, depth = matrix.shape
    span = swizzle or 16
    per_span = span // size
    out = np.zeros(1 << 15, np.uint8)
    outer, inner = (depth, rows) if transposed else (rows, depth)
    atom = 8 * span
    across = -(-inner // per_span)  # atoms along the contiguous dimension
    # Distances between atoms: along the contiguous dimension, and along the other one.
    inner_step, outer_step = atom, atom * across
    for row in range(rows):
        for k in range(depth):
            o, i = (k, row) if transposed else (row, k)
            address = (
                i // per_span * inner_step
                + o // 8 * outer_step
                + o % 8 * span
                + i % per_span * size
            )
            if swizzle:
                address ^= (address >> 7 & (swizzle // 16 - 1)) << 4
            data = np.frombuffer(matrix[row, k].tobytes(), np.uint8)
            out[address : address + size] = data
    assert outer % 8 == 0
    if swizzle == 0:
        # Without a swizzle `leading` is along k, `stride` along m or n.
        leading, stride = (outer_step, inner_step) if transposed else (inner_step, outer_step)
    else:
        leading, stride = inner_step, outer_step
    return out.tobytes()[: 1 << 14], leading, stride


def copy_in(pointer: str, at: int, nbytes: int) -> str:
    """All threads copy words from global to shared memory."""
    lines = []
    for offset in range(0, nbytes, 128 * 16):
        lines.append(
            f"shl.b32 %r4, %r2, 4; add.s32 %r4, %r4, {offset}; cvt.u64.u32 %d20, %r4; "
            f"add.s64 %d20, {pointer}, %d20; ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%d20]; "
            f"st.shared.v4.u32 [%r4+{at}], {{%r10, %r11, %r12, %r13}};"
        )
    return "\n".join(lines)


def multiply(
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    names: tuple[str, str, str],
    *,
    swizzles: tuple[int, int] = (128, 128),
    transposes: tuple[bool, bool] = (False, False),
    signs: tuple[int, int] = (1, 1),
    in_registers: bool = False,
    accumulate: bool = False,
    word: str = "",
    schedule: int = 0,
) -> np.ndarray[Any, Any]:
    """The accumulators (bits) of one wgmma of a (64, k) and b (n, k), in row-major order."""
    to, a_type, b_type = names
    columns, depth = b.shape[0], a.shape[1]
    a_bytes, a_leading, a_stride = lay_out(a, swizzles[0], transposes[0])
    b_bytes, b_leading, b_stride = lay_out(b, swizzles[1], transposes[1])
    count = columns // (4 if to == "f16" else 2)
    results = registers("%f", 0, count)
    immediates = "" if to == "s32" else f", {signs[0]}, {signs[1]}"
    if a_type in ("bf16", "f16"):
        immediates += "" if in_registers else f", {int(transposes[0])}"
        immediates += f", {int(transposes[1])}"
    start = "\n".join(f"mov.b32 %f{i}, {2.5 if accumulate else 0};" for i in range(count))
    start = start.replace("2.5", "0f40200000")
    load_a = descriptor("%d10", "%r20", swizzles[0], a_leading, a_stride)
    operand = "%d10"
    if in_registers:
        # Thread (g, q) of warp w: rows 16 w + g and + 8, words q and q + 4 of the 32 bytes of k.
        load_a = """and.b32 %r30, %r2, 31; shr.u32 %r31, %r30, 2; and.b32 %r32, %r30, 3;
mad.lo.s32 %r31, %r3, 16, %r31; shl.b32 %r31, %r31, 5; shl.b32 %r32, %r32, 2;
add.s32 %r31, %r31, %r32; cvt.u64.u32 %d20, %r31; add.s64 %d20, %d1, %d20;
ld.global.b32 %r40, [%d20]; ld.global.b32 %r41, [%d20+256];
ld.global.b32 %r42, [%d20+16]; ld.global.b32 %r43, [%d20+272];"""
        operand = "{%r40, %r41, %r42, %r43}"
        a_bytes = a.tobytes().ljust(1 << 14, b"\0")
    shape = f"m64n{columns}k{depth}"
    opcode = f"wgmma.mma_async.sync.aligned.{shape}{word}.{to}.{a_type}.{b_type}"
    body = f"""{copy_in("%d1", A_AT, 1 << 14)}
{copy_in("%d2", B_AT, 1 << 14)}
fence.proxy.async.shared::cta; bar.sync 0;
mov.u32 %r20, {A_AT}; mov.u32 %r21, {B_AT};
{load_a}
{descriptor("%d11", "%r21", swizzles[1], b_leading, b_stride)}
{start}
wgmma.fence.sync.aligned;
{opcode} {results}, {operand}, %d11, {int(accumulate)}{immediates};
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
{store_fragment(columns) if to != "f16" else store_halves(columns)}"""
    out = np.zeros((64, columns), np.uint16 if to == "f16" else np.uint32)
    arrays = [out, np.frombuffer(a_bytes, np.uint8), np.frombuffer(b_bytes, np.uint8)]
    return run_hopper(hopper_kernel(body, 3), arrays, schedule=schedule)[0]


def store_halves(columns: int) -> str:
    lines = [
        "and.b32 %r40, %r2, 31; shr.u32 %r42, %r40, 2; mad.lo.s32 %r41, %r3, 16, %r42;",
        "and.b32 %r42, %r40, 3; shl.b32 %r42, %r42, 1;",
        f"mad.lo.s32 %r43, %r41, {columns}, %r42; mul.wide.u32 %d20, %r43, 2;",
        "add.s64 %d20, %d0, %d20;",
    ]
    for i in range(columns // 4):
        lines.append(f"st.global.b32 [%d20+{i // 2 * 16 + i % 2 * 16 * columns}], %f{i};")
    return "\n".join(lines)


def check_sums(
    actual: np.ndarray[Any, Any], a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], on_gpu: bool
) -> None:
    """f32 sums; a device sums fp8 with fewer bits."""
    tolerance = 1e-4 if on_gpu else 1e-5
    if on_gpu and a.dtype.itemsize == 1:
        tolerance = 1e-2
    np.testing.assert_allclose(actual, expected(a, b), rtol=tolerance, atol=8 * tolerance)


def expected(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_layouts_of_halves(
    dtype: str, transpose_a: bool, transpose_b: bool, swizzle: int, is_on_gpu: bool
):
    a, b = draw((64, 16), dtype, 1), draw((128, 16), dtype, 2)
    next_swizzle = SWIZZLES[(SWIZZLES.index(swizzle) + 1) % 4]
    out = multiply(
        *(a, b, ("f32", dtype, dtype)),
        swizzles=(swizzle, next_swizzle),
        transposes=(transpose_a, transpose_b),
    )
    check_sums(out.view(np.float32), a, b, is_on_gpu)


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize(
    "names",
    [
        ("f32", "tf32", "tf32"),
        ("f32", "e4m3", "e4m3"),
        ("f32", "e4m3", "e5m2"),
        ("f32", "e5m2", "e4m3"),
        ("s32", "s8", "s8"),
        ("s32", "u8", "s8"),
        ("s32", "s8", "u8"),
    ],
)
def test_other_types(names: tuple[str, str, str], swizzle: int, is_on_gpu: bool):
    depth = 8 if names[1] == "tf32" else 32
    a, b = draw((64, depth), names[1], 3), draw((64, depth), names[2], 4)
    out = multiply(a, b, names, swizzles=(swizzle, swizzle))
    if names[0] == "s32":
        assert (out.view(np.int32) == expected(a, b)).all()
    else:
        check_sums(out.view(np.float32), a, b, is_on_gpu)


@pytest.mark.parametrize("columns", [8, 24, 96, 256])
def test_columns(columns: int, is_on_gpu: bool):
    a, b = draw((64, 16), "bf16", 5), draw((columns, 16), "bf16", 6)
    out = multiply(a, b, ("f32", "bf16", "bf16"), swizzles=(64, 32))
    check_sums(out.view(np.float32), a, b, is_on_gpu)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "tf32", "e4m3", "s8"])
def test_a_of_registers(dtype: str, is_on_gpu: bool):
    depth = {"bf16": 16, "f16": 16, "tf32": 8}.get(dtype, 32)
    a, b = draw((64, depth), dtype, 7), draw((32, depth), dtype, 8)
    to = "s32" if dtype == "s8" else "f32"
    out = multiply(a, b, (to, dtype, dtype), in_registers=True)
    actual = out.view(np.int32) if dtype == "s8" else out.view(np.float32)
    check_sums(actual, a, b, is_on_gpu)


@pytest.mark.parametrize("dtype", ["f16", "e5m2"])
def test_sums_in_halves(dtype: str):
    depth = 16 if dtype == "f16" else 32
    a, b = draw((64, depth), dtype, 9), draw((64, depth), dtype, 10)
    out = multiply(a, b, ("f16", dtype, dtype))
    np.testing.assert_allclose(out.view(np.float16), expected(a, b), rtol=1e-3, atol=1e-3)


def test_signs_and_accumulation():
    a, b = draw((64, 16), "bf16", 11), draw((64, 16), "bf16", 12)
    names = ("f32", "bf16", "bf16")
    out = multiply(a, b, names, signs=(-1, 1), accumulate=True)
    np.testing.assert_allclose(out.view(np.float32), 2.5 - expected(a, b), rtol=1e-5, atol=1e-5)
    both = multiply(a, b, names, signs=(-1, -1))
    assert (both == multiply(a, b, names)).all()


def test_saturation():
    a = np.full((64, 32), -128, np.int8)
    b = np.full((8, 32), 127, np.int8)
    out = multiply(a, b, ("s32", "s8", "s8"), word=".satfinite")
    assert (out.view(np.int32) == -128 * 127 * 32).all()


@pytest.mark.parametrize("schedule", [0, 1, 2, 3])
def test_a_pipelined_gemm(schedule: int):
    steps = 5
    a, b = draw((64, 64 * steps), "bf16", 13), draw((64, 64 * steps), "bf16", 14)
    out = run_gemm(gemm(steps), a.view(np.uint16), b.view(np.uint16), schedule=schedule)
    actual = out.view(DTYPES["bf16"]).astype(np.float64)
    np.testing.assert_allclose(actual, expected(a, b), rtol=1e-2, atol=1e-2)
