"""Mistakes with asynchronous instructions: each is reported with the kernel, the line and the
thread. The GEMM of `hopper_programs` is right; here one of its lines is missing or wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hopper_programs import (
    EMPTY,
    FENCE_INIT,
    FULL,
    INIT,
    LOAD,
    LOAD_2D,
    OUT,
    STAGE_BYTES,
    gemm,
    hopper_kernel,
    rows_map,
    run_gemm,
    run_hopper,
    wait_parity,
)

from nova.errors import SimulationError
from nova.gpusim import Fault

STEPS = 4
TEXT = gemm(STEPS)
WAIT_FULL = f"wait_full: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r9+{FULL}], %r8;"
WAIT_EMPTY = f"wait_empty: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r9+{EMPTY}], %r10;"
EXPECT = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9+{FULL}], {STAGE_BYTES};"
RELEASE = f"@%p0 mbarrier.arrive.shared::cta.b64 _, [%r9+{EMPTY}];"
SCHEDULES = pytest.mark.parametrize("schedule", [0, 1, 5])


def fault_of_gemm(old: str, new: str, schedule: int = 0) -> tuple[Fault, str]:
    """The fault of the GEMM after a replacement, and the text of the error."""
    assert old in TEXT
    operands = [np.ones((64, 64 * STEPS), np.uint16) * 0x3F80 for _ in range(2)]
    text = TEXT.replace(old, new)
    with pytest.raises(SimulationError) as caught:
        run_gemm(text, *operands, schedule=schedule)
    fault = caught.value.fault
    assert isinstance(fault, Fault) and fault.kernel == "k"
    lines = text.replace("(.param .u64 k_0", "(.param .u64 k_0, k_1, k_2").splitlines()
    assert fault.text == lines[fault.line - 1].strip()
    assert f"line {fault.line} of the PTX" in str(caught.value)
    return fault, str(caught.value)


def fault_of(body: str, arrays=None, maps=(), **options) -> tuple[Fault, str]:
    """The fault of a kernel whose mistake is on the line that ends in `// here`."""
    text = hopper_kernel(body, 1, len(maps))
    with pytest.raises(SimulationError) as caught:
        run_hopper(text, [np.zeros(256, "u4")] if arrays is None else arrays, maps, **options)
    fault = caught.value.fault
    assert isinstance(fault, Fault)
    assert "// here" in text.splitlines()[fault.line - 1], str(caught.value)
    return fault, str(caught.value)


def reports(fault: Fault, *names: str) -> bool:
    return fault.kind in names


# --- a pipeline -----------------------------------------------------------------------------------


@SCHEDULES
def test_consumers_do_not_wait_for_a_stage(schedule: int):
    fault, message = fault_of_gemm(WAIT_FULL, "wait_full: setp.eq.u32 %p3, 0, 0;", schedule)
    # The stage may be empty still, or its copy pending; an early copy has unordered bytes.
    assert reports(fault, "uninitialized", "pending-copy") and "wgmma" in fault.text
    assert "shared memory" in message


@SCHEDULES
def test_the_producer_does_not_wait_for_a_stage(schedule: int):
    fault, _ = fault_of_gemm(WAIT_EMPTY, "wait_empty: setp.eq.u32 %p3, 0, 0;", schedule)
    assert reports(fault, "overwrite", "pending-copy", "mbarrier", "expect-tx")
    assert fault.thread == (128, 0, 0)


def test_a_stage_is_released_before_the_wgmma_ends():
    wait = "wgmma.wait_group.sync.aligned 0;"
    fault, message = fault_of_gemm(
        f"{wait}\n{RELEASE}", f"{RELEASE}\nwgmma.wait_group.sync.aligned 1;"
    )
    assert reports(fault, "overwrite") and "a wgmma of block (0, 0, 0) may still read" in message
    assert "cp.async.bulk.tensor" in fault.text and fault.writes and fault.space == "shared"


@SCHEDULES
def test_nobody_releases_a_stage(schedule: int):
    fault, message = fault_of_gemm(RELEASE, "", schedule)
    assert reports(fault, "deadlock") and fault.text == WAIT_FULL
    assert f"mbarrier at {EMPTY:#x}, phase 0: 0 of 1 arrivals" in message
    assert "warp 0, line" in message and "warp 4, line" in message


@SCHEDULES
def test_too_many_bytes_are_expected(schedule: int):
    wrong = EXPECT.replace(str(STAGE_BYTES), str(STAGE_BYTES + 16))
    fault, message = fault_of_gemm(EXPECT, wrong, schedule)
    assert reports(fault, "expect-tx") and fault.text == WAIT_FULL
    assert "16 bytes missing (expected at line" in message


@SCHEDULES
def test_too_few_bytes_are_expected(schedule: int):
    fault, message = fault_of_gemm(EXPECT, EXPECT.replace(str(STAGE_BYTES), "8192"), schedule)
    assert reports(fault, "expect-tx", "pending-copy", "uninitialized")
    if schedule == 0:
        assert reports(fault, "pending-copy") and "wgmma" in fault.text, message


def test_bytes_arrive_after_their_phase():
    body = f"""{INIT.format(at=4096, count=1)} {FENCE_INIT} @!%p0 bra end;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+4096], 256; mov.u32 %r5, stage;
{LOAD} [%r5], [%d0], 256, [%r5+4096];
{LOAD} [%r5+256], [%d0], 256, [%r5+4096]; // here
{wait_parity("stage+4096", "0", "wait")}
mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+4096], 256;
{wait_parity("stage+4096", "1", "again")}
end:"""
    fault, message = fault_of(body)
    assert (
        reports(fault, "expect-tx") and "phase 0 of the mbarrier at 0x1000 was complete" in message
    )


@pytest.mark.parametrize(("schedule", "words"), [(0, "copy of thread (0, 0, 0)"), (1, "bulk copy")])
@pytest.mark.parametrize("thread", [0, 40])
def test_a_load_before_the_phase_is_complete(thread: int, schedule: int, words: str):
    """Neither the thread that issues the copy nor another one may read its bytes."""
    body = f"""{INIT.format(at=4096, count=1)} {FENCE_INIT} mov.u32 %r5, stage;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+4096], 256;
@%p0 {LOAD} [%r5], [%d0], 256, [%r5+4096];
bar.sync 0; setp.eq.u32 %p1, %r2, {thread};
@%p1 ld.shared.u32 %r6, [%r5+252]; // here
{wait_parity("stage+4096", "0", "wait")}"""
    fault, message = fault_of(body, schedule=schedule)
    assert reports(fault, "pending-copy") and fault.thread == (thread, 0, 0)
    assert f"where an asynchronous {words}" in message or f"where a {words}" in message


@pytest.mark.parametrize("schedule", [0, 1])
def test_the_wait_for_another_phase(schedule: int):
    """A parity that does not change lets a thread through too early, or never."""
    fault, _ = fault_of_gemm(WAIT_FULL, WAIT_FULL.replace("%r8", "0"), schedule)
    assert reports(fault, "uninitialized", "pending-copy", "deadlock")


def test_generic_writes_to_global_memory_need_a_fence():
    """A bulk load of what the kernel has stored; the second run has the fence."""
    body = f"""{INIT.format(at=4096, count=1)} {FENCE_INIT} mov.u32 %r5, stage; @!%p0 bra end;
st.global.u32 [%d0+16], 7; {{fence}}
mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+4096], 256;
{LOAD} [%r5], [%d0], 256, [%r5+4096]; // here
{wait_parity("stage+4096", "0", "wait")}
end:"""
    fault, _ = fault_of(body.format(fence=""))
    assert reports(fault, "proxy") and fault.space == "global"
    fault, _ = fault_of(body.format(fence="fence.proxy.async.shared::cta;"))
    assert reports(fault, "proxy")
    text = hopper_kernel(body.format(fence="fence.proxy.async.global;"))
    run_hopper(text, [np.zeros(256, "u4")])


def test_generic_writes_need_a_fence_before_a_bulk_store():
    fault, message = fault_of_gemm("fence.proxy.async.shared::cta;", "")
    assert reports(fault, "proxy") and fault.thread == (0, 0, 0) and fault.other is not None
    assert "without a fence.proxy.async" in message and "bulk_group" in fault.text


def test_a_fence_of_one_thread_is_not_enough():
    fence = "fence.proxy.async.shared::cta;"
    fault, _ = fault_of_gemm(fence, f"@%p0 {fence}")
    assert reports(fault, "proxy") and fault.other != (0, 0, 0)


def test_a_fence_of_the_reader_after_the_barrier_is_enough():
    fence, barrier = "fence.proxy.async.shared::cta;", "bar.sync 1, 128;"
    operands = [np.ones((64, 64 * STEPS), np.uint16) * 0x3F80 for _ in range(2)]
    out = run_gemm(TEXT.replace(f"{fence}\n{barrier}", f"{barrier}\n@%p0 {fence}"), *operands)
    assert (out == 0x4380).all()  # 256


def test_a_bulk_store_before_the_barrier():
    fault, _ = fault_of_gemm("bar.sync 1, 128;", "")
    assert reports(fault, "uninitialized", "race") and "bulk_group" in fault.text


def test_the_block_ends_before_its_store_is_read():
    fault, message = fault_of_gemm("@%p0 cp.async.bulk.wait_group.read 0;", "")
    assert reports(fault, "pending-copy") and "may still read its shared memory" in message


def test_shared_memory_is_reused_before_a_store_is_read():
    wait = "@%p0 cp.async.bulk.wait_group.read 0;"
    fault, message = fault_of_gemm(wait, f"@%p0 st.shared.b32 [stage+{OUT}], 7;\n{wait}")
    assert (
        reports(fault, "overwrite") and "a bulk store of block (0, 0, 0) may still read" in message
    )


# --- wgmma ----------------------------------------------------------------------------------------


def test_accumulators_before_the_wait():
    fault, message = fault_of_gemm(
        "wgmma.wait_group.sync.aligned 0;",
        "add.f32 %f3, %f3, %f3;\nwgmma.wait_group.sync.aligned 0;",
    )
    assert reports(fault, "accumulator") and fault.text == "add.f32 %f3, %f3, %f3;"
    assert "an accumulator of a wgmma that is not waited for" in message


def test_a_group_that_may_be_pending():
    fault, _ = fault_of_gemm("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;")
    assert reports(fault, "accumulator", "overwrite")


def test_an_operation_that_is_not_committed():
    fault, _ = fault_of_gemm("wgmma.commit_group.sync.aligned;", "")
    assert reports(fault, "accumulator", "overwrite")


def test_a_missing_wgmma_fence():
    fault, message = fault_of_gemm("wgmma.fence.sync.aligned;", "")
    assert reports(fault, "wgmma-fence") and "wgmma.mma_async" in fault.text
    assert "register 0 of the accumulator" in message


def test_registers_written_after_the_fence():
    fault, _ = fault_of_gemm(
        "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned;\nmov.b32 %f5, 0f3F800000;"
    )
    assert reports(fault, "wgmma-fence")


def test_a_descriptor_outside_of_shared_memory():
    fault, _ = fault_of_gemm("add.s64 %d12, %d10, 0;", "add.s64 %d12, %d10, 8192;")
    assert reports(fault, "bounds") and fault.space == "shared"


def test_reserved_bits_of_a_descriptor():
    fault, message = fault_of_gemm("add.s64 %d12, %d10, 0;", "or.b64 %d12, %d10, 0x40000000;")
    assert reports(fault, "wgmma") and "reserved bits" in message


def test_warps_with_other_descriptors():
    fault, message = fault_of_gemm(
        "add.s64 %d12, %d10, 0;",
        "add.s64 %d12, %d10, 0;\nsetp.eq.u32 %p9, %r3, 2;\n@%p9 add.s64 %d12, %d12, 2;",
    )
    assert reports(fault, "wgmma") and "another warp of the warpgroup" in message


def test_lanes_with_other_descriptors():
    fault, message = fault_of_gemm(
        "add.s64 %d12, %d10, 0;", "add.s64 %d12, %d10, 0;\n@%p0 add.s64 %d12, %d12, 2;"
    )
    assert reports(fault, "wgmma") and "not the same in all lanes" in message


def test_a_warpgroup_has_four_warps():
    d = "{%f0, %f1, %f2, %f3}"
    body = f"""wgmma.fence.sync.aligned; mov.b64 %d1, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {d}, %d1, %d1, 0, 1, 1, 0, 0; // here"""
    fault, message = fault_of(body, block=(64,))
    assert reports(fault, "wgmma") and "2 warps instead of 4" in message


# --- mbarrier -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mbarrier.arrive.shared::cta.b64 %d1, [stage]; // here", "there is no mbarrier at 0x0"),
        (
            f"{INIT.format(at=0, count=1)} bar.sync 0;\n"
            "mbarrier.arrive.shared::cta.b64 %d1, [stage], 2; // here",
            "2 arrivals at the mbarrier at 0x0, whose phase 0 still expects 1 of 1",
        ),
        (
            "@%p0 mbarrier.init.shared::cta.b64 [stage], 2;\n"
            "@%p0 mbarrier.init.shared::cta.b64 [stage], 2; // here",
            "there is an mbarrier at 0x0 already",
        ),
        ("@%p0 mbarrier.init.shared::cta.b64 [stage], 0; // here", "0 expected arrivals"),
        (
            f"{INIT.format(at=0, count=1)} bar.sync 0; @%p0 mbarrier.inval.shared::cta.b64 [stage];"
            "\n@%p0 mbarrier.arrive.shared::cta.b64 %d1, [stage]; // here",
            "there is no mbarrier",
        ),
        (
            f"{INIT.format(at=0, count=128)}\n"
            "mbarrier.arrive.shared::cta.b64 %d1, [stage]; // here",
            "nothing orders the mbarrier.init",
        ),
        (
            f"{INIT.format(at=0, count=1)} bar.sync 0;\nld.shared.u32 %r5, [stage+4]; // here",
            "where an mbarrier is",
        ),
    ],
)
def test_misuse_of_mbarriers(body: str, words: str):
    fault, message = fault_of(body)
    assert reports(fault, "mbarrier") and words in message


def test_an_mbarrier_is_aligned():
    body = "@%p0 mbarrier.init.shared::cta.b64 [stage+4], 1; // here"
    assert reports(fault_of(body)[0], "alignment")


def test_an_mbarrier_that_copies_may_not_see():
    body = f"""{INIT.format(at=0, count=1)} bar.sync 0; mov.u32 %r5, stage;
@%p0 {LOAD} [%r5+128], [%d0], 256, [%r5]; // here"""
    fault, message = fault_of(body)
    assert reports(fault, "proxy") and "fence.mbarrier_init.release.cluster" in message


def test_a_poll_without_end():
    body = f"""{INIT.format(at=0, count=1)} {FENCE_INIT}
poll: mbarrier.test_wait.parity.shared::cta.b64 %p1, [stage], 0; // here
@!%p1 bra poll; // here"""
    fault, _ = fault_of(body, block=(32,))
    assert reports(fault, "deadlock")


# --- clusters, registers, copies ------------------------------------------------------------------


def test_registers_have_to_come_from_somewhere():
    body = "setmaxnreg.inc.sync.aligned.u32 240; // here"
    fault, message = fault_of(body, block=(384,))
    assert reports(fault, "deadlock") and "setmaxnreg: 2304 registers, 0 are free" in message


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("setmaxnreg.inc.sync.aligned.u32 24", "setmaxnreg.inc to 24 registers: the warp has 168"),
        ("setmaxnreg.dec.sync.aligned.u32 240", "dec to 240 registers: the warp has 168"),
    ],
)
def test_misuse_of_setmaxnreg(instruction: str, words: str):
    fault, message = fault_of(f"{instruction}; // here", block=(384,))
    assert reports(fault, "registers") and words in message


def test_setmaxnreg_needs_bounds():
    text = hopper_kernel("setmaxnreg.dec.sync.aligned.u32 40;", bounds="")
    with pytest.raises(SimulationError, match="the kernel has no limit of registers"):
        run_hopper(text, [np.zeros(4, "u4")])


READY = f"{INIT.format(at=32768, count=1)} {FENCE_INIT} mov.u32 %r5, stage;"


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ("[%r5+64], [%d30, {0, 0}], [%r5+32768]", "alignment"),
        ("[%r5+65536], [%d30, {0, 0}], [%r5+32768]", "bounds"),
        ("[%r5], [%d0, {0, 0}], [%r5+32768]", "tensor-map"),
        ("[%r5], [%d30+8, {0, 0}], [%r5+32768]", "tensor-map"),
        ("[%r5], [%d30, {0, 0}], [%r5+16384]", "mbarrier"),
        ("[%r5+32768], [%d30, {0, 0}], [%r5+32768]", "mbarrier"),
    ],
)
def test_operands_of_tensor_copies(operands: str, expected: str):
    array = np.zeros((64, 64), np.uint16)
    fault, _ = fault_of(
        f"{READY}\n@%p0 {LOAD_2D} {operands}; // here",
        [array],
        [(0, rows_map(array, "bf16", (64, 64), 128))],
    )
    assert reports(fault, expected)


def test_another_number_of_dimensions():
    array = np.zeros((64, 64), np.uint16)
    copy = LOAD_2D.replace("2d", "3d")
    fault, message = fault_of(
        f"{READY}\n@%p0 {copy} [%r5], [%d30, {{0, 0, 0}}], [%r5+32768]; // here",
        [array],
        [(0, rows_map(array, "bf16", (64, 64), 128))],
    )
    assert reports(fault, "tensor-map") and "another number of dimensions" in message


@pytest.mark.parametrize("start", ["-16, 0", "0, -2"])
def test_a_store_at_a_negative_coordinate(start: str):
    array = np.zeros((64, 64), np.uint16)
    store = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    maps = [(0, rows_map(array, "bf16", (64, 64), 128))]
    fault, message = fault_of(
        f"{READY}\n@%p0 {store} [%d30, {{{start}}}], [%r5]; // here", [array], maps
    )
    assert reports(fault, "tensor-map") and "coordinate of a store is negative" in message


@pytest.mark.parametrize("coordinate", [4, -4, 63])
def test_the_innermost_coordinate_is_aligned(coordinate: int):
    array = np.zeros((64, 64), np.uint16)
    copy = f"{LOAD_2D} [%r5], [%d30, {{{coordinate}, 0}}], [%r5+32768]"
    maps = [(0, rows_map(array, "bf16", (64, 64), 128))]
    fault, message = fault_of(f"{READY}\n@%p0 {copy}; // here", [array], maps)
    assert reports(fault, "tensor-map") and "illegal instruction" in message


def test_the_tensor_is_larger_than_its_memory():
    array = np.zeros((64, 64), np.uint16)
    keywords = rows_map(array, "bf16", (64, 64), 128) | {"dims": (64, 65)}
    copy = f"{LOAD_2D} [%r5], [%d30, {{0, 1}}], [%r5+32768]"
    fault, _ = fault_of(f"{READY}\n@%p0 {copy}; // here", [array], [(0, keywords)])
    assert reports(fault, "bounds") and fault.space == "global"
