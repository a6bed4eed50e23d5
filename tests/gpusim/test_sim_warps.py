"""Threads together: divergence and loops, barriers, shuffles, votes, reductions of a warp."""

from __future__ import annotations

import numpy as np
import pytest
from sim_programs import launch, make_kernel

LANES = np.arange(32, dtype=np.uint32)
STORE = "mul.wide.u32 %d10, %r0, 4; add.s64 %d10, %d0, %d10; st.global.u32 [%d10], %r20;"


def run(body: str, count: int = 32, **options):
    """What each thread leaves in %r20."""
    text = make_kernel(f"{body}\n{STORE}", rest=options.pop("rest", ""))
    return launch(text, [np.zeros(count, np.uint32)], **options)[0]


# --- control flow -------------------------------------------------------------------------------


def test_special_registers():
    text = make_kernel(
        """
        mov.u32 %r3, %tid.y; mov.u32 %r4, %tid.z; mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;
        mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z; mov.u32 %r9, %nctaid.y;
        mov.u32 %r10, %laneid; mov.u32 %r11, %warpid; mov.u32 %r12, %lanemask_lt;
        mov.u32 %r13, %lanemask_ge; mov.u32 %r14, %nctaid.x; mov.u32 %r15, %nctaid.z;
        // (((z * ny + y) * nx + x) of the block, then of the thread
        mad.lo.s32 %r16, %r8, %r9, %r7; mov.u32 %r17, %ctaid.x; mad.lo.s32 %r16, %r16, %r14, %r17;
        mad.lo.s32 %r18, %r4, %r5, %r3; mad.lo.s32 %r18, %r18, %r1, %r2;
        mul.lo.s32 %r19, %r1, %r5; mul.lo.s32 %r19, %r19, %r6; mad.lo.s32 %r16, %r16, %r19, %r18;
        mul.wide.u32 %d10, %r16, 32; add.s64 %d10, %d0, %d10;
        st.global.v4.u32 [%d10], {%r2, %r3, %r4, %r10};
        st.global.v4.u32 [%d10+16], {%r11, %r12, %r13, %r15};
        """
    )
    out = launch(text, [np.zeros((12, 48, 8), np.uint32)], grid=(2, 3, 2), block=(8, 3, 2))[0]
    z, y, x = np.unravel_index(np.arange(48), (2, 3, 8))
    lane = np.arange(48) % 32
    for block in out:
        np.testing.assert_array_equal(block[:, 0], x)
        np.testing.assert_array_equal(block[:, 1], y)
        np.testing.assert_array_equal(block[:, 2], z)
        np.testing.assert_array_equal(block[:, 3], lane)
        # A warp of a block has a number of its own on the device, whatever it is.
        first, second = block[0, 4], block[32, 4]
        np.testing.assert_array_equal(block[:, 4], np.where(np.arange(48) < 32, first, second))
        assert first != second
        np.testing.assert_array_equal(block[:, 5], (1 << lane) - 1)
        np.testing.assert_array_equal(block[:, 6], (0xFFFFFFFF << lane) & 0xFFFFFFFF)
    assert (out[..., 7] == 2).all()


def test_lanes_take_different_ways_and_meet_again():
    body = """
    and.b32 %r3, %r2, 3;
    setp.eq.u32 %p1, %r3, 0; @%p1 bra A;
    setp.eq.u32 %p1, %r3, 1; @%p1 bra B;
    mov.u32 %r4, 30; bra.uni C;
    B: mov.u32 %r4, 20; bra C;
    A: mov.u32 %r4, 10;
    C: activemask.b32 %r5;
    setp.eq.u32 %p2, %r5, -1;
    selp.u32 %r6, 1, 0, %p2;
    add.s32 %r20, %r4, %r6;
    """
    expected = np.where(LANES % 4 == 0, 10, np.where(LANES % 4 == 1, 20, 30)) + 1
    np.testing.assert_array_equal(run(body), expected)


def test_loops_of_different_lengths():
    body = """
    mov.u32 %r20, 0; mov.u32 %r3, 0;
    LOOP: setp.ge.u32 %p1, %r3, %r2; @%p1 bra DONE;
    mov.u32 %r4, 0;
    INNER: setp.ge.u32 %p2, %r4, %r3; @%p2 bra NEXT;
    add.s32 %r20, %r20, %r4; add.s32 %r4, %r4, 1; bra INNER;
    NEXT: add.s32 %r3, %r3, 1; bra LOOP;
    DONE:
    """
    expected = [sum(sum(range(i)) for i in range(n)) for n in range(32)]
    np.testing.assert_array_equal(run(body), expected)


def test_early_exits():
    body = "setp.gt.u32 %p1, %r2, 9; mov.u32 %r20, 7; @%p1 ret;"
    np.testing.assert_array_equal(run(body), np.where(LANES > 9, 0, 7))
    np.testing.assert_array_equal(run(body.replace("ret", "exit")), np.where(LANES > 9, 0, 7))


def test_a_jump_through_a_table():
    body = """
    and.b32 %r3, %r2, 3;
    TABLE: .branchtargets A, B, C, A;
    brx.idx %r3, TABLE;
    A: mov.u32 %r20, 1; bra.uni END;
    B: mov.u32 %r20, 2; bra.uni END;
    C: mov.u32 %r20, 3;
    END:
    """
    np.testing.assert_array_equal(run(body), np.array([1, 2, 3, 1])[LANES % 4])


def test_a_block_that_is_no_multiple_of_a_warp():
    body = "setp.eq.u32 %p3, %r2, %r2; vote.sync.ballot.b32 %r3, %p3, 0xffffffff;"
    body += "add.s32 %r20, %r2, %r3;"
    out = run(body, 40, block=(40,))
    expected = np.arange(40) + np.where(np.arange(40) < 32, 0xFFFFFFFF, 0xFF)
    np.testing.assert_array_equal(out, expected.astype(np.uint64).astype(np.uint32))


def test_inner_scopes_have_registers_of_their_own():
    body = """
    mov.u32 %r20, 1;
    { .reg .u32 t; .reg .pred q; mov.u32 t, 5; setp.eq.u32 q, t, 5; @q add.s32 %r20, %r20, t; }
    { .reg .b64 t; mov.u64 t, 7; cvt.u32.u64 %r3, t; add.s32 %r20, %r20, %r3; }
    """
    np.testing.assert_array_equal(run(body), 13)


# --- barriers -----------------------------------------------------------------------------------

SHARED = ".shared .align 16 .b8 tile[4096];"


@pytest.mark.parametrize("barrier", ["bar.sync 0", "barrier.sync 0", "barrier.cta.sync.aligned 3"])
def test_a_reversal_through_shared_memory(barrier: str):
    body = f"""
    {SHARED}
    mov.u32 %r3, tile; shl.b32 %r4, %r2, 2; add.s32 %r4, %r3, %r4; st.shared.u32 [%r4], %r2;
    {barrier};
    sub.s32 %r5, 255, %r2; shl.b32 %r5, %r5, 2; add.s32 %r5, %r3, %r5; ld.shared.u32 %r20, [%r5];
    """
    np.testing.assert_array_equal(run(body, 256, block=(256,)), np.arange(256)[::-1])


def test_tree_reduction():
    body = f"""
    {SHARED}
    shl.b32 %r4, %r2, 2; mov.u32 %r3, tile; add.s32 %r4, %r3, %r4; st.shared.u32 [%r4], %r2;
    mov.u32 %r5, 128;
    LOOP: bar.sync 0;
    setp.ge.u32 %p1, %r2, %r5; @%p1 bra SKIP;
    shl.b32 %r6, %r5, 2; add.s32 %r6, %r4, %r6; ld.shared.u32 %r7, [%r6];
    ld.shared.u32 %r8, [%r4]; add.s32 %r8, %r8, %r7; st.shared.u32 [%r4], %r8;
    SKIP: shr.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra LOOP;
    bar.sync 0;
    ld.shared.u32 %r20, [tile];
    """
    assert (run(body, 256, block=(256,)) == sum(range(256))).all()


def test_named_barriers_of_some_warps():
    """Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2; all at barrier 0 in the end."""
    body = f"""
    {SHARED}
    shl.b32 %r4, %r2, 2; mov.u32 %r3, tile; add.s32 %r4, %r3, %r4; st.shared.u32 [%r4], %r2;
    shr.u32 %r5, %r2, 6; add.s32 %r6, %r5, 1;
    bar.sync %r6, 64;
    xor.b32 %r7, %r2, 32; shl.b32 %r7, %r7, 2; add.s32 %r7, %r3, %r7; ld.shared.u32 %r20, [%r7];
    bar.sync 0;
    xor.b32 %r7, %r2, 64; shl.b32 %r7, %r7, 2; add.s32 %r7, %r3, %r7; ld.shared.u32 %r8, [%r7];
    shl.b32 %r8, %r8, 8; or.b32 %r20, %r20, %r8;
    """
    threads = np.arange(128)
    expected = (threads ^ 32) | (threads ^ 64) << 8
    np.testing.assert_array_equal(run(body, 128, block=(128,)), expected)


def test_producers_and_consumers():
    """Warp 0 writes and arrives; warp 1 waits for it, and reads."""
    body = f"""
    {SHARED}
    mov.u32 %r3, tile; and.b32 %r4, %r2, 31; shl.b32 %r4, %r4, 2; add.s32 %r4, %r3, %r4;
    mov.u32 %r20, 1000; setp.lt.u32 %p1, %r2, 32; @%p1 bra PRODUCE;
    bar.sync 1, 64; ld.shared.u32 %r20, [%r4]; bra.uni END;
    PRODUCE: st.shared.u32 [%r4], %r2; bar.arrive 1, 64;
    END:
    """
    out = run(body, 64, block=(64,))
    np.testing.assert_array_equal(out, [1000] * 32 + list(range(32)))


def test_a_barrier_that_ended_warps_do_not_reach():
    body = "setp.lt.u32 %p1, %r2, 32; @%p1 ret; bar.sync 0; mov.u32 %r20, 5;"
    np.testing.assert_array_equal(run(body, 64, block=(64,)), [0] * 32 + [5] * 32)


def test_a_divergent_barrier_that_is_not_aligned():
    body = """
    setp.lt.u32 %p1, %r2, 7; @%p1 bra A;
    barrier.sync 0; mov.u32 %r20, 1; bra END;
    A: barrier.sync 0; mov.u32 %r20, 2;
    END:
    """
    np.testing.assert_array_equal(run(body), np.where(LANES < 7, 2, 1))


# --- exchanges ----------------------------------------------------------------------------------


def shuffled(mode: str, by: int, clamp: int) -> tuple[np.ndarray, np.ndarray]:
    """As the manual has it: the source lane of each lane, and whether it is in its segment."""
    segment, bound = clamp >> 8, clamp & 31
    source, inside = [], []
    for lane in range(32):
        most = (lane & segment) | (bound & ~segment)
        least = lane & segment
        j, valid = {
            "up": (lane - by, lane - by >= most),
            "down": (lane + by, lane + by <= most),
            "bfly": (lane ^ by, (lane ^ by) <= most),
            "idx": (least | (by & ~segment), (least | (by & ~segment)) <= most),
        }[mode]
        source.append(j if valid else lane)
        inside.append(valid)
    return np.array(source), np.array(inside)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("by", [0, 1, 5, 16, 31])
@pytest.mark.parametrize("width", [32, 16, 4])
def test_shuffles(mode: str, by: int, width: int):
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    body = f"""
    mul.lo.u32 %r3, %r2, 3; shfl.sync.{mode}.b32 %r4|%p1, %r3, {by}, {clamp}, -1;
    selp.u32 %r5, 1000, 0, %p1; add.s32 %r20, %r4, %r5;
    """
    source, inside = shuffled(mode, by, clamp)
    np.testing.assert_array_equal(run(body), source * 3 + np.where(inside, 1000, 0))


def test_a_shuffle_waits_for_its_lanes():
    """Both sides of a branch come to the same exchange."""
    body = """
    setp.lt.u32 %p1, %r2, 16; mov.u32 %r3, %r2; @%p1 bra A;
    add.s32 %r3, %r3, 100; bra MEET;
    A: add.s32 %r3, %r3, 200;
    MEET: shfl.sync.bfly.b32 %r20, %r3, 16, 31, -1;
    """
    partner = LANES ^ 16
    np.testing.assert_array_equal(run(body), partner + np.where(partner < 16, 200, 100))


def test_an_exchange_of_some_lanes():
    body = """
    mov.u32 %r20, 99; setp.ge.u32 %p1, %r2, 8; @%p1 bra END;
    shfl.sync.bfly.b32 %r20, %r2, 1, 31, 0xff;
    END:
    """
    np.testing.assert_array_equal(run(body), np.where(LANES < 8, LANES ^ 1, 99))


def test_a_guarded_exchange():
    body = (
        "setp.lt.u32 %p1, %r2, 8; mov.u32 %r20, 99; @%p1 shfl.sync.bfly.b32 %r20, %r2, 1, 31, 0xff;"
    )
    np.testing.assert_array_equal(run(body), np.where(LANES < 8, LANES ^ 1, 99))


@pytest.mark.parametrize(
    ("opcode", "threshold", "expected"),
    [
        ("vote.sync.ballot.b32 %r20", 5, 0x1F),
        ("vote.sync.any.pred %p2", 5, 1),
        ("vote.sync.any.pred %p2", 0, 0),
        ("vote.sync.all.pred %p2", 32, 1),
        ("vote.sync.all.pred %p2", 31, 0),
        ("vote.sync.uni.pred %p2", 0, 1),
        ("vote.sync.uni.pred %p2", 9, 0),
    ],
)
def test_votes(opcode: str, threshold: int, expected: int):
    select = "" if "ballot" in opcode else "selp.u32 %r20, 1, 0, %p2;"
    body = f"setp.lt.u32 %p1, %r2, {threshold}; {opcode}, %p1, 0xffffffff; {select}"
    assert (run(body) == expected).all()


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("add.s32", sum(range(-16, 16))),
        ("add.u32", sum(range(-16, 16))),
        ("min.s32", -16),
        ("max.s32", 15),
        ("min.u32", 0),
        ("max.u32", 2**32 - 1),
        ("and.b32", 0),
        ("or.b32", -1),
        ("xor.b32", 0),
    ],
)
def test_reductions_of_a_warp(opcode: str, expected: int):
    body = f"sub.s32 %r3, %r2, 16; redux.sync.{opcode} %r20, %r3, 0xffffffff;"
    assert (run(body) == expected % 2**32).all()


def test_matches():
    body = "and.b32 %r3, %r2, 3; match.any.sync.b32 %r20, %r3, 0xffffffff;"
    expected = [sum(1 << j for j in range(32) if j % 4 == i % 4) for i in range(32)]
    np.testing.assert_array_equal(run(body), expected)
    identical = "mov.u64 %d3, 7; match.all.sync.b64 %r20|%p1, %d3, -1; @!%p1 mov.u32 %r20, 1;"
    assert (run(identical) == 0xFFFFFFFF).all()
    second = "match.all.sync.b32 %r20|%p1, %r2, 0xffffffff; @%p1 mov.u32 %r20, 5;"
    assert (run(second) == 0).all()


def test_an_elected_lane():
    body = """
    mov.u32 %r20, 0; setp.lt.u32 %p1, %r2, 4; @%p1 bra END;
    elect.sync %r3|%p2, 0xfffffff0; selp.u32 %r20, 1, 2, %p2;
    shl.b32 %r3, %r3, 4; or.b32 %r20, %r20, %r3;
    END:
    """
    expected = np.where(LANES < 4, 0, np.where(LANES == 4, 0x41, 0x42))
    np.testing.assert_array_equal(run(body), expected)


def test_a_warp_orders_its_lanes():
    body = f"""
    {SHARED}
    mov.u32 %r3, tile; shl.b32 %r4, %r2, 2; add.s32 %r4, %r3, %r4; st.shared.u32 [%r4], %r2;
    bar.warp.sync 0xffffffff;
    xor.b32 %r5, %r2, 1; shl.b32 %r5, %r5, 2; add.s32 %r5, %r3, %r5; ld.shared.u32 %r20, [%r5];
    """
    np.testing.assert_array_equal(run(body), LANES ^ 1)
