"""Loads, stores and atomics of all spaces and types; asynchronous copies; variables."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from sim_programs import HEADER, REGISTERS, launch, make_kernel

from nova.errors import SimulationError
from nova.gpusim import SimMemory, SimModule

THREAD = "mul.wide.u32 %d10, %r0, {size}; add.s64 %d11, %d0, %d10; add.s64 %d12, %d1, %d10;"
CACHED = ["", ".ca", ".cg", ".cs", ".nc", ".volatile", ".relaxed.gpu", ".acquire.sys"]
CACHED += [".L1::no_allocate", ".L2::128B", ".nc.L1::evict_last.L2::256B"]


@pytest.mark.parametrize(
    ("bits", "count"), [(b, c) for b in (8, 16, 32, 64) for c in (1, 2, 4) if b * c <= 128]
)
@pytest.mark.parametrize("space", ["global", "generic"])
def test_copies_of_all_widths(bits: int, count: int, space: str):
    size = bits * count // 8
    prefix = {8: "h", 16: "h", 32: "r", 64: "d"}[bits]
    names = [f"%{prefix}{30 + i}" for i in range(count)]
    vector = f".v{count}" if count > 1 else ""
    text = f"{{{', '.join(names)}}}" if count > 1 else names[0]
    dot = "" if space == "generic" else f".{space}"
    body = f"""{THREAD.format(size=size)}
    ld{dot}{vector}.b{bits} {text}, [%d12];
    st{dot}{vector}.b{bits} [%d11], {text};"""
    data = np.random.default_rng(size).integers(0, 256, (64, size), dtype=np.uint8)
    out = launch(make_kernel(body, 2), [np.zeros_like(data), data], grid=(2,))[0]
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("words", CACHED)
def test_words_about_caches_change_nothing(words: str):
    scope = words if not words.startswith(".nc") else ""
    order = ".global" + words if words.startswith((".nc", ".L", ".c")) else words + ".global"
    body = f"{THREAD.format(size=4)} ld{order}.u32 %r10, [%d12]; st.global.u32 [%d11], %r10;"
    data = np.arange(32, dtype=np.uint32) + len(scope)
    out = launch(make_kernel(body, 2), [np.zeros_like(data), data])[0]
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize(
    ("type_", "dtype", "wide"),
    [("u8", "u1", "u4"), ("s8", "i1", "i4"), ("u16", "u2", "u4"), ("s16", "i2", "i4")],
)
def test_narrow_loads_extend(type_: str, dtype: str, wide: str):
    data = np.random.default_rng(1).integers(0, 256, 32 * 2, dtype=np.uint8).view(dtype)[:32]
    data = np.ascontiguousarray(data)
    size = data.itemsize
    body = f"""
    mul.wide.u32 %d10, %r0, {size}; add.s64 %d12, %d1, %d10;
    mul.wide.u32 %d10, %r0, 4; add.s64 %d11, %d0, %d10;
    ld.global.{type_} %r10, [%d12]; st.global.u32 [%d11], %r10;"""
    out = launch(make_kernel(body, 2), [np.zeros(32, wide), data])[0]
    np.testing.assert_array_equal(out, data.astype(wide))


def test_offsets_of_addresses():
    body = "ld.global.u32 %r10, [%d0+-4]; add.s64 %d1, %d0, 8; ld.global.u32 %r11, [%d1+4];"
    body = f"add.s64 %d0, %d0, 4; {body} add.s32 %r10, %r10, %r11; st.global.u32 [%d0], %r10;"
    out = launch(make_kernel(body), [np.array([5, 0, 0, 0, 11], "u4")], block=(1,))[0]
    assert out[1] == 16


def test_parameters_of_several_types():
    text = f"""{HEADER}
.visible .entry k(.param .u8 k_0, .param .f32 k_1, .param .align 8 .b8 k_2[16], .param .u64 k_3)
{{ {REGISTERS}
ld.param.u8 %h1, [k_0]; cvt.u32.u16 %r1, %h1; ld.param.b32 %r2, [k_1];
ld.param.v2.b32 {{%r3, %r4}}, [k_2+8]; ld.param.u64 %d1, [k_3];
mov.b64 %d2, k_2; cvta.param.u64 %d3, %d2; ld.u32 %r5, [%d3+4];
st.global.v4.b32 [%d1], {{%r1, %r2, %r3, %r4}}; st.global.b32 [%d1+16], %r5; ret; }}
"""
    memory = SimMemory()
    address = memory.alloc(20)
    arguments = bytes([200, 0, 0, 0]) + np.float32(1.5).tobytes()
    arguments += np.array([1, 2, 3, 4], "u4").tobytes() + address.to_bytes(8, "little")
    SimModule(text).launch("k", (1,), (1,), 0, arguments, memory)
    assert memory.array(address, 5, "u4").tolist() == [200, 0x3FC00000, 3, 4, 2]


def test_local_memory_belongs_to_a_thread():
    body = """
    .local .align 16 .b8 depot[32];
    mov.b64 %d5, depot; cvta.local.u64 %d6, %d5; st.local.u32 [%d5+4], %r2;
    st.u32 [%d6+16], %r0; bar.sync 0; ld.u32 %r10, [%d6+4]; ld.local.u32 %r11, [depot+16];
    add.s32 %r10, %r10, %r11;
    mul.wide.u32 %d10, %r0, 4; add.s64 %d11, %d0, %d10; st.global.u32 [%d11], %r10;
    cvta.to.local.u64 %d7, %d6; ld.local.u32 %r12, [%d7+4]; add.s64 %d11, %d11, 512;
    st.global.u32 [%d11], %r12;
    """
    out = launch(make_kernel(body), [np.zeros((2, 128), np.uint32)], block=(64,), grid=(2,))[0]
    np.testing.assert_array_equal(out[0], np.arange(128) + np.arange(128) % 64)
    np.testing.assert_array_equal(out[1], np.arange(128) % 64)


OUTSIDE = """
.extern .shared .align 16 .b8 dynamic[];
.shared .align 4 .b8 fixed[20];
.shared .align 4 .b8 unused[40000];
.global .align 4 .u32 table[4] = {10, 0x20, 30};
.visible .const .align 8 .f64 half = 0d3FE0000000000000;
.global .align 1 .b8 zeros[8];
"""


def test_variables_of_a_module():
    body = """
    .shared .align 8 .b8 own[12];
    shl.b32 %r3, %r2, 2; mov.u32 %r4, dynamic; add.s32 %r4, %r4, %r3;
    mov.b64 %d5, table; ld.global.u32 %r10, [table+4]; ld.global.u32 %r11, [%d5+8];
    ld.const.f64 %d6, [half]; mov.b64 {_, %r12}, %d6; ld.global.u8 %r13, [zeros+3];
    st.shared.u32 [%r4], %r10; ld.shared.u32 %r14, [%r4];
    setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.u32 [fixed], 5; @%p1 st.shared.u32 [own], 6;
    bar.sync 0; ld.shared.u32 %r15, [fixed]; ld.shared.u32 %r16, [own]; add.s32 %r15, %r15, %r16;
    mul.wide.u32 %d10, %r0, 16; add.s64 %d10, %d0, %d10;
    add.s32 %r14, %r14, %r11; st.global.v4.u32 [%d10], {%r12, %r13, %r14, %r15};
    """
    text = make_kernel(body, outside=OUTSIDE)
    module = SimModule(text)
    assert module.kernels["k"].shared_bytes == 32  # 12 of its own and 20 that it names
    out = launch(text, [np.zeros((32, 4), np.uint32)], shared=128)[0]
    assert (out == [0x3FE00000, 0, 0x20 + 30, 11]).all()


# --- atomics ------------------------------------------------------------------------------------

ATOMICS = [
    ("add.u32", "u4", lambda a: a.sum(dtype="u4")),
    ("add.u64", "u8", lambda a: a.sum(dtype="u8")),
    ("add.f64", "f8", lambda a: a.sum()),
    ("min.s32", "i4", np.min),
    ("max.s32", "i4", np.max),
    ("min.u32", "u4", np.min),
    ("max.u64", "u8", np.max),
    ("min.s64", "i8", np.min),
    ("and.b32", "u4", np.bitwise_and.reduce),
    ("or.b64", "u8", np.bitwise_or.reduce),
    ("xor.b32", "u4", np.bitwise_xor.reduce),
]


def numbers(dtype: str, count: int = 64):
    random = np.random.default_rng(3)
    if dtype[0] == "f":
        return random.integers(-1000, 1000, count).astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min // 256, info.max // 256, count, dtype=dtype)


@pytest.mark.parametrize(("operation", "dtype", "truth"), ATOMICS)
@pytest.mark.parametrize("opcode", ["atom.global", "red.relaxed.gpu.global", "atom.acq_rel.gpu"])
def test_atomics(operation: str, dtype: str, truth, opcode: str):
    values = numbers(dtype)
    size = values.itemsize
    name = {4: "r", 8: "d"}[size]
    result = f"%{name}31, " if opcode.startswith("atom") else ""
    body = f"""{THREAD.format(size=size)} ld.global.b{8 * size} %{name}30, [%d12];
    {opcode}.{operation} {result}[%d0], %{name}30;"""
    start = values[:1].copy()
    out = launch(make_kernel(body, 2), [start, values], grid=(2,))[0]
    np.testing.assert_array_equal(out[0], truth(np.append(values, start)))


@pytest.mark.parametrize("type_", ["f16", "bf16", "f16x2", "bf16x2", "f32"])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomic_sums_of_floats(type_: str, space: str):
    dtype = {"f32": np.float32}.get(type_)
    dtype = dtype or (ml_dtypes.bfloat16 if type_.startswith("b") else np.float16)
    pair = 2 if type_.endswith("x2") else 1
    values = np.arange(32 * pair).reshape(32, pair).astype(np.float32).astype(dtype)
    size = values.itemsize * pair
    name, noftz = {2: "h", 4: "r"}[size], "" if type_ == "f32" else ".noftz"
    location = "%d0" if space == "global" else "total"
    body = f"""
    .shared .align 4 .b32 total;
    st.shared.b32 [total], 0; bar.sync 0;
    {THREAD.format(size=size)} ld.global.b{8 * size} %{name}30, [%d12];
    atom.{space}.add{noftz}.{type_} %{name}31, [{location}], %{name}30;
    bar.sync 0; setp.eq.u32 %p1, %r2, 0;
    """
    if space == "shared":
        body += f"@%p1 ld.shared.b{8 * size} %{name}30, [total];"
        body += f"@%p1 st.global.b{8 * size} [%d0], %{name}30;"
    out = launch(make_kernel(body, 2), [np.zeros(4, dtype), values])[0]
    truth = np.zeros(pair, dtype)
    for row in values:
        truth = (truth.astype(np.float64) + row.astype(np.float64)).astype(dtype)
    np.testing.assert_array_equal(out[:pair], truth)


def test_atomics_return_what_was_there():
    body = """
    atom.global.add.u32 %r10, [%d0], 1; atom.global.exch.b32 %r11, [%d0+4], %r2;
    atom.global.inc.u32 %r12, [%d0+8], 4; atom.global.dec.u32 %r13, [%d0+12], 3;
    atom.global.cas.b32 %r14, [%d0+16], %r2, 100;
    mul.wide.u32 %d10, %r0, 16; add.s64 %d11, %d1, %d10;
    st.global.v4.u32 [%d11], {%r10, %r11, %r12, %r13};
    """
    state, out = launch(make_kernel(body, 2), [np.zeros(5, "u4"), np.zeros((32, 4), "u4")])
    np.testing.assert_array_equal(out[:, 0], np.arange(32))
    np.testing.assert_array_equal(out[:, 1], [0, *range(31)])
    np.testing.assert_array_equal(out[:, 2], np.arange(32) % 5)
    np.testing.assert_array_equal(out[:, 3], -np.arange(32) % 4)
    assert state.tolist() == [32, 31, 32 % 5, -32 % 4, 100]


def test_a_lock_by_compare_and_swap():
    """Blocks add to a number that they read and write, one after the other."""
    body = """
    SPIN: atom.acquire.gpu.global.cas.b32 %r10, [%d0], 0, 1;
    setp.ne.u32 %p1, %r10, 0; @%p1 bra SPIN;
    ld.global.u32 %r11, [%d0+4]; add.s32 %r11, %r11, 1; st.global.u32 [%d0+4], %r11;
    atom.release.gpu.global.exch.b32 %r12, [%d0], 0;
    """
    assert launch(make_kernel(body), [np.zeros(2, "u4")], grid=(50,), block=(1,))[0][1] == 50


def test_vectors_of_atomics():
    body = """
    mov.f32 %r10, 0f3F800000; mov.f32 %r11, 0f40000000;
    red.global.add.v4.f32 [%d0], {%r10, %r11, %r10, %r11};
    """
    out = launch(make_kernel(body), [np.zeros(4, "f4")])[0]
    np.testing.assert_array_equal(out, [32, 64, 32, 64])


# --- asynchronous copies ------------------------------------------------------------------------

PIPELINE = """
    .shared .align 16 .b8 tile[2048];
    mul.wide.u32 %d10, %r0, 16; add.s64 %d11, %d0, %d10; add.s64 %d12, %d1, %d10;
    mov.u32 %r3, tile; shl.b32 %r4, %r2, 4; add.s32 %r4, %r3, %r4; add.s32 %r5, %r4, 512;
    cp.async.cg.shared.global [%r4], [%d12], 16; cp.async.commit_group;
    cp.async.cg.shared.global.L2::128B [%r5], [%d12+512], 16; cp.async.commit_group;
    cp.async.wait_group 1; ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r4];
    {second}
    st.global.v4.b32 [%d11], {{%r10, %r11, %r12, %r13}};
"""
SECOND = "ld.shared.b32 %r10, [%r5];"


def pipeline(second: str):
    data = np.random.default_rng(5).integers(0, 1 << 30, (64, 4)).astype("u4")
    text = make_kernel(PIPELINE.format(second=second), 2)
    return data, launch(text, [np.zeros((32, 4), "u4"), data])[0]


def test_groups_of_copies():
    data, out = pipeline("")
    np.testing.assert_array_equal(out, data[:32])
    data, out = pipeline(f"cp.async.wait_group 0; {SECOND}")
    np.testing.assert_array_equal(out[:, 0], data[32:, 0])
    data, out = pipeline(f"cp.async.wait_all; {SECOND}")
    np.testing.assert_array_equal(out[:, 0], data[32:, 0])


def test_a_copy_that_nobody_waited_for():
    with pytest.raises(SimulationError, match="asynchronous copy of thread") as caught:
        pipeline(SECOND)
    assert caught.value.fault.kind == "pending-copy"
    with pytest.raises(SimulationError, match="asynchronous copy"):
        pipeline("st.shared.b32 [%r5], 0;")


@pytest.mark.parametrize("size", [4, 8, 16])
def test_copies_fill_with_zeros(size: int):
    mode = "cg" if size == 16 else "ca"
    body = f"""
    .shared .align 16 .b8 tile[1024];
    mul.wide.u32 %d10, %r0, {size}; add.s64 %d11, %d0, %d10; add.s64 %d12, %d1, %d10;
    mov.u32 %r3, tile; mad.lo.s32 %r4, %r2, {size}, %r3;
    rem.u32 %r6, %r2, {size + 1};
    cp.async.{mode}.shared.global [%r4], [%d12], {size}, %r6; cp.async.wait_all;
    """
    for offset in range(0, size, 4):
        body += f"ld.shared.b32 %r10, [%r4+{offset}]; st.global.b32 [%d11+{offset}], %r10;"
    data = np.random.default_rng(size).integers(1, 256, (32, size)).astype("u1")
    out = launch(make_kernel(body, 2), [np.zeros_like(data), data])[0]
    retained = np.arange(size)[None] < (np.arange(32) % (size + 1))[:, None]
    np.testing.assert_array_equal(out, np.where(retained, data, 0))


def test_copies_that_ignore_their_source():
    body = """
    .shared .align 16 .b8 tile[512];
    mul.wide.u32 %d10, %r0, 16; add.s64 %d11, %d0, %d10; add.s64 %d12, %d1, %d10;
    mov.u32 %r3, tile; mad.lo.s32 %r4, %r2, 16, %r3; setp.gt.u32 %p1, %r2, 15;
    @%p1 mov.u64 %d12, 0; cp.async.cg.shared.global [%r4], [%d12], 16, %p1; cp.async.wait_all;
    ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r4];
    st.global.v4.b32 [%d11], {%r10, %r11, %r12, %r13};
    """
    data = np.arange(128, dtype="u4").reshape(32, 4)
    out = launch(make_kernel(body, 2), [np.zeros_like(data), data])[0]
    np.testing.assert_array_equal(out, np.where(np.arange(32)[:, None] > 15, 0, data))


# --- SimMemory ----------------------------------------------------------------------------------


def test_memory_of_the_host():
    memory = SimMemory()
    address = memory.alloc(100)
    assert address % 256 == 0
    memory.write(address + 10, b"abc")
    assert memory.read(address + 10, 3) == b"abc"
    with pytest.raises(SimulationError, match="4 bytes after the end of an allocation of 100"):
        memory.read(address + 104, 1)
    with pytest.raises(SimulationError, match="1 bytes in front of"):
        memory.write(address - 1, b"a")
    memory.free(address)
    with pytest.raises(SimulationError, match="no allocation"):
        memory.free(address)
    with pytest.raises(SimulationError, match="nothing is allocated"):
        memory.read(address, 1)


def test_shared_arrays_are_written_in_place():
    memory, array = SimMemory(), np.zeros(32, np.uint32)
    address = memory.share(array)
    text = make_kernel("mul.wide.u32 %d1, %r0, 4; add.s64 %d1, %d0, %d1; st.global.u32 [%d1], %r0;")
    SimModule(text).launch("k", (1,), (32,), 0, address.to_bytes(8, "little"), memory)
    np.testing.assert_array_equal(array, np.arange(32))
    with pytest.raises(SimulationError, match="contiguous"):
        memory.share(array[::2])
    memory = SimMemory()
    address = memory.share(array, read_only=True)
    with pytest.raises(SimulationError, match="read-only: write of 4 bytes of global memory"):
        SimModule(text).launch("k", (1,), (32,), 0, address.to_bytes(8, "little"), memory)
