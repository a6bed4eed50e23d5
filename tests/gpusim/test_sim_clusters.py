"""mbarriers, clusters, distributed shared memory, multicast, setmaxnreg and elect: their values."""

from __future__ import annotations

import numpy as np
import pytest
from hopper_programs import (
    FENCE_INIT,
    INIT,
    LOAD,
    LOAD_2D,
    hopper_kernel,
    rows_map,
    run_hopper,
    wait_parity,
)

from nova.errors import SimulationError

AT = 4096
SCHEDULES = pytest.mark.parametrize("schedule", [0, 1, 9])
CLUSTER = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
STORE = "mul.wide.u32 %d20, %r2, 4; add.s64 %d20, %d0, %d20; st.global.u32 [%d20], {value};"


def fault_kind(text: str, cluster: tuple[int, ...] = (2,)) -> str:
    with pytest.raises(SimulationError) as caught:
        run_hopper(text, [np.zeros(256, "u4")], block=(32,), grid=cluster, cluster=cluster)
    return caught.value.fault.kind


# --- mbarrier -------------------------------------------------------------------------------------


def test_phases_of_an_mbarrier():
    """Warps 1 to 3 arrive, warp 0 waits for them, twice."""
    body = f"""{INIT.format(at=AT, count=96)} {FENCE_INIT}
setp.eq.u32 %p1, %r3, 0; shl.b32 %r5, %r2, 2; add.s32 %r5, %r5, stage_at; mov.u32 %r10, 0;
@%p1 bra wait;
st.shared.u32 [%r5], %r2; mbarrier.arrive.shared::cta.b64 _, [stage+{AT}]; bra end;
wait: {wait_parity(f"stage+{AT}", "0", "again")}
ld.shared.u32 %r6, [%r5+128]; ld.shared.u32 %r7, [%r5+256]; ld.shared.u32 %r8, [%r5+384];
add.s32 %r10, %r6, %r7; add.s32 %r10, %r10, %r8;
{STORE.format(value="%r10")}
end:""".replace("add.s32 %r5, %r5, stage_at;", "mov.u32 %r4, stage; add.s32 %r5, %r5, %r4;")
    out = run_hopper(hopper_kernel(body), [np.zeros(32, "u4")])[0]
    assert (out == 3 * np.arange(32) + 32 + 64 + 96).all()


def test_tokens_counts_and_polls():
    """An arrival gives a token; a poll of it succeeds when its phase is complete."""
    body = f"""{INIT.format(at=AT, count=3)} {FENCE_INIT} @!%p0 bra end;
mbarrier.arrive.shared::cta.b64 %d1, [stage+{AT}];
mbarrier.test_wait.shared::cta.b64 %p1, [stage+{AT}], %d1; selp.u32 %r5, 1, 0, %p1;
mbarrier.pending_count.b64 %r6, %d1;
mbarrier.arrive.release.cta.shared::cta.b64 %d2, [stage+{AT}], 2;
mbarrier.test_wait.shared::cta.b64 %p1, [stage+{AT}], %d1; selp.u32 %r7, 1, 0, %p1;
mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p1, [stage+{AT}], 0;
selp.u32 %r8, 1, 0, %p1;
mbarrier.try_wait.parity.shared::cta.b64 %p1, [stage+{AT}], 0, 1000; selp.u32 %r9, 1, 0, %p1;
mbarrier.arrive_drop.shared::cta.b64 %d3, [stage+{AT}];
mbarrier.arrive.noComplete.shared::cta.b64 %d3, [stage+{AT}], 1;
mbarrier.arrive.shared::cta.b64 %d3, [stage+{AT}];
mbarrier.arrive.shared::cta.b64 %d3, [stage+{AT}], 2;
mbarrier.test_wait.parity.shared::cta.b64 %p1, [stage+{AT}], 0; selp.u32 %r10, 1, 0, %p1;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [stage+{AT}], 64;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [stage+{AT}], 64;
mbarrier.inval.shared::cta.b64 [stage+{AT}]; st.shared.u32 [stage+{AT}], 7;
st.global.v4.u32 [%d0], {{%r5, %r6, %r7, %r8}}; st.global.v2.u32 [%d0+16], {{%r9, %r10}};
end:"""
    out = run_hopper(hopper_kernel(body), [np.zeros(6, "u4")], block=(32,))[0]
    assert out.tolist() == [0, 3, 1, 1, 1, 1]


@SCHEDULES
def test_copies_of_threads_arrive(schedule: int):
    """cp.async with an mbarrier instead of a group."""
    body = f"""{INIT.format(at=AT, count=64)} {FENCE_INIT} mov.u32 %r4, stage;
setp.lt.u32 %p1, %r2, 64; shl.b32 %r5, %r2, 4; add.s32 %r5, %r5, %r4;
mul.wide.u32 %d5, %r2, 16; add.s64 %d5, %d1, %d5; @!%p1 bra wait;
cp.async.cg.shared.global [%r5], [%d5], 16;
cp.async.mbarrier.arrive.noinc.shared::cta.b64 [stage+{AT}];
wait: {wait_parity(f"stage+{AT}", "0", "again")}
shl.b32 %r6, %r2, 2; add.s32 %r6, %r6, %r4; ld.shared.u32 %r7, [%r6];
{STORE.format(value="%r7")}"""
    array = np.arange(256, dtype=np.uint32) * 3
    out = run_hopper(hopper_kernel(body, 2), [np.zeros(128, "u4"), array], schedule=schedule)[0]
    assert (out == array[:128]).all()


# --- clusters -------------------------------------------------------------------------------------


def test_special_registers():
    names = "clusterid.x clusterid.y nclusterid.x cluster_ctaid.x cluster_ctaid.y cluster_nctaid.x"
    names += " cluster_ctarank cluster_nctarank"
    moves = "\n".join(
        f"mov.u32 %r5, %{name}; st.global.u32 [%d5+{4 * i}], %r5;"
        for i, name in enumerate(names.split())
    )
    body = f"""mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mad.lo.s32 %r6, %r7, 4, %r6;
mul.wide.u32 %d5, %r6, 32; add.s64 %d5, %d0, %d5;
{moves}"""
    text = hopper_kernel(body, bounds=".reqnctapercluster 2, 2, 1")
    out = run_hopper(text, [np.zeros((16, 8), "u4")], grid=(4, 4), block=(1,))[0]
    for y in range(4):
        for x in range(4):
            rank = x % 2 + y % 2 * 2
            expected = [x // 2, y // 2, 2, x % 2, y % 2, 2, rank, 4]
            assert out[y * 4 + x].tolist() == expected


def test_clusters_of_a_launch_are_checked():
    text = hopper_kernel("", bounds=".reqnctapercluster 2")
    for grid, cluster in [((3,), None), ((4,), (4,)), ((4,), (0,)), ((32,), (32,))]:
        with pytest.raises(SimulationError, match="cannot be launched"):
            run_hopper(text, [np.zeros(1, "u4")], grid=grid, cluster=cluster)


@pytest.mark.parametrize("generic", [False, True])
def test_distributed_shared_memory(generic: bool):
    """Each block reads the word of its neighbour, and adds to one of block 0."""
    address = "mapa.shared::cluster.u32 %r8, %r4, %r7; ld.shared::cluster.u32 %r9, [%r8];"
    if generic:
        address = """cvt.u64.u32 %d8, %r4; cvta.shared.u64 %d8, %d8; mapa.u64 %d9, %d8, %r7;
ld.u32 %r9, [%d9]; getctarank.u64 %r11, %d9; setp.ne.u32 %p3, %r11, %r7; @%p3 trap;"""
    body = f"""mov.u32 %r4, stage; mov.u32 %r5, %cluster_ctarank;
@%p0 st.shared.u32 [stage], %r5; @%p0 st.shared.u32 [stage+64], 0;
{CLUSTER}
add.s32 %r7, %r5, 1; and.b32 %r7, %r7, 3;
{address}
mapa.shared::cluster.u32 %r10, %r4, 0; @%p0 red.shared::cluster.add.u32 [%r10+64], %r9;
{CLUSTER}
@!%p0 bra end; mov.u32 %r12, %ctaid.x; mul.wide.u32 %d5, %r12, 8; add.s64 %d5, %d0, %d5;
ld.shared.u32 %r6, [stage+64]; st.global.v2.u32 [%d5], {{%r9, %r6}};
end:"""
    out = run_hopper(
        *(hopper_kernel(body), [np.zeros((8, 2), "u4")]), grid=(8,), block=(32,), cluster=(4,)
    )[0]
    assert out[:, 0].tolist() == [1, 2, 3, 0] * 2
    assert out[:, 1].tolist() == [6, 0, 0, 0] * 2


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mapa.shared::cluster.u32 %r5, %r2, 2;", "cluster"),
        ("mapa.shared::cluster.u32 %r5, 0, 1; ld.shared::cluster.u32 %r6, [%r5];", "cluster"),
        (
            f"{CLUSTER} mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 1; @%p1 ret;"
            "bar.sync 0; mapa.shared::cluster.u32 %r5, 0, 1; ld.shared::cluster.u32 %r6, [%r5];",
            "cluster",
        ),
        ("barrier.cluster.wait;", "cluster"),
        ("barrier.cluster.arrive; barrier.cluster.arrive;", "cluster"),
        ("@%p0 barrier.cluster.arrive.aligned;", "diverged"),
        (
            "mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 1;\n"
            "@%p1 bra wait; barrier.cluster.arrive; barrier.cluster.wait; bra end;\n"
            f"wait: {INIT.format(at=0, count=64)} mbarrier.arrive.shared::cta.b64 %d1, [stage];"
            f"{wait_parity('stage', '0', 'again')} end:",
            "deadlock",
        ),
        (
            f"{CLUSTER} mapa.shared::cluster.u32 %r5, 0, 1; st.shared::cluster.u32 [%r5], %r2;",
            "race",
        ),
    ],
)
def test_misuse_of_clusters(body: str, expected: str):
    assert fault_kind(hopper_kernel(body)) == expected


def test_a_block_that_ended():
    body = f"""{CLUSTER} mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 0; @%p1 ret;
mapa.shared::cluster.u32 %r5, 0, 0; st.shared::cluster.u32 [%r5], 1;"""
    assert fault_kind(hopper_kernel(body)) == "cluster"


def test_a_cluster_that_waits_for_ever():
    body = f"""{INIT.format(at=AT, count=1)} {FENCE_INIT} {CLUSTER}
mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 0; @%p1 ret;
{wait_parity(f"stage+{AT}", "0", "again")}"""
    with pytest.raises(SimulationError) as caught:
        run_hopper(
            *(hopper_kernel(body), [np.zeros(1, "u4")]), block=(32,), grid=(2,), cluster=(2,)
        )
    assert caught.value.fault.kind == "deadlock"
    assert "block (1, 0, 0), warp 0" in str(caught.value)


@SCHEDULES
def test_an_mbarrier_of_another_block(schedule: int):
    """Blocks 1 to 3 write to block 0 and arrive at its mbarrier."""
    body = f"""{INIT.format(at=AT, count=3)} {FENCE_INIT} {CLUSTER}
mov.u32 %r4, stage; mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p1, %r5, 0;
mapa.shared::cluster.u32 %r6, %r4, 0; shl.b32 %r7, %r5, 2; add.s32 %r8, %r6, %r7;
@%p1 bra wait; @!%p0 bra end;
st.shared::cluster.u32 [%r8], %r5;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6+{AT}]; bra end;
wait: {wait_parity(f"stage+{AT}", "0", "again")}
@!%p0 bra end; ld.shared.u32 %r10, [stage+4]; ld.shared.u32 %r11, [stage+8];
ld.shared.u32 %r12, [stage+12]; st.global.v4.u32 [%d0], {{%r10, %r11, %r12, %r12}};
end: {CLUSTER}"""
    out = run_hopper(
        *(hopper_kernel(body), [np.zeros(4, "u4")]),
        grid=(4,),
        block=(32,),
        cluster=(4,),
        schedule=schedule,
    )[0]
    assert out.tolist() == [1, 2, 3, 3]


@SCHEDULES
def test_multicast(schedule: int):
    """Each block of a cluster loads half of a tile for both."""
    body = f"""{INIT.format(at=AT, count=1)} {FENCE_INIT} {CLUSTER} mov.u32 %r4, stage;
mov.u32 %r5, %cluster_ctarank; shl.b32 %r6, %r5, 10; add.s32 %r6, %r6, %r4; shl.b32 %r7, %r5, 3;
mov.u16 %h1, 3;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+{AT}], 2048;
@%p0 {LOAD_2D}.multicast::cluster [%r6], [%d30, {{0, %r7}}], [%r4+{AT}], %h1;
{wait_parity(f"stage+{AT}", "0", "again")}
mov.u32 %r10, %ctaid.x; shl.b32 %r10, %r10, 11; cvt.u64.u32 %d5, %r10; add.s64 %d5, %d0, %d5;
@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d5], [%r4], 2048;
@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;
{CLUSTER}"""
    array = np.arange(16 * 64, dtype=np.uint16).reshape(16, 64)
    out = run_hopper(
        *(hopper_kernel(body, 2, 1), [np.zeros((2, 16, 64), "u2"), array]),
        [(1, rows_map(array, "u16", (64, 8)))],
        grid=(2,),
        block=(32,),
        cluster=(2,),
        schedule=schedule,
    )[0]
    assert (out == array).all()


def test_a_copy_to_another_block():
    """cp.async.bulk from shared memory to that of rank 1."""
    send = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    body = f"""{INIT.format(at=AT, count=1)} {FENCE_INIT} {CLUSTER} mov.u32 %r4, stage;
mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p1, %r5, 1; shl.b32 %r6, %r2, 2; add.s32 %r6, %r6, %r4;
@%p1 bra receive;
st.shared.u32 [%r6], %r2; fence.proxy.async.shared::cta; bar.warp.sync -1;
mapa.shared::cluster.u32 %r7, %r4, 1;
@%p0 {send} [%r7+1024], [%r4], 128, [%r7+{AT}]; bra end;
receive: @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+{AT}], 128;
{wait_parity(f"stage+{AT}", "0", "again")}
ld.shared.u32 %r8, [%r6+1024]; {STORE.format(value="%r8")}
end: {CLUSTER}"""
    options = {"grid": (2,), "block": (32,), "cluster": (2,)}
    out = run_hopper(hopper_kernel(body), [np.zeros(32, "u4")], **options)[0]
    assert (out == np.arange(32)).all()


def test_multicast_outside_of_the_cluster():
    body = f"""{INIT.format(at=AT, count=1)} {FENCE_INIT} mov.u32 %r4, stage; mov.u16 %h1, 5;
@%p0 {LOAD}.multicast::cluster [%r4], [%d0], 256, [%r4+{AT}], %h1;"""
    assert fault_kind(hopper_kernel(body)) == "cluster"


# --- registers and scopes -------------------------------------------------------------------------


def test_registers_move_between_warpgroups():
    body = f"""setp.lt.u32 %p1, %r3, 4; @%p1 bra give;
setmaxnreg.inc.sync.aligned.u32 232; bra end;
give: setmaxnreg.dec.sync.aligned.u32 40;
end: {STORE.format(value="1")}"""
    out = run_hopper(
        hopper_kernel(body, bounds=".maxntid 384 .minnctapersm 1"),
        [np.zeros(384, "u4")],
        block=(384,),
    )[0]
    assert out.all()


def test_a_warp_without_its_registers():
    """All warps of a warpgroup execute setmaxnreg."""
    d = "{%f0, %f1, %f2, %f3}"
    body = f"""setp.lt.u32 %p1, %r3, 3; @%p1 bra fewer; bra more;
fewer: setmaxnreg.dec.sync.aligned.u32 40;
more: wgmma.fence.sync.aligned; mov.b64 %d1, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {d}, %d1, %d1, 0, 1, 1, 0, 0;"""
    with pytest.raises(SimulationError, match="have 40 and 168 registers") as caught:
        run_hopper(hopper_kernel(body), [np.zeros(1, "u4")])
    assert caught.value.fault.kind == "registers"


def test_policies_are_hints():
    body = """createpolicy.fractional.L2::evict_first.b64 %d5, 1.0;
@!%p0 bra end; ld.global.L1::no_allocate.L2::cache_hint.u32 %r5, [%d0], %d5; add.s32 %r5, %r5, 1;
st.global.L2::cache_hint.u32 [%d0+4], %r5, %d5;
red.global.add.L2::cache_hint.u32 [%d0+8], 5, %d5;
end:"""
    out = run_hopper(hopper_kernel(body), [np.array([7, 0, 1], "u4")])[0]
    assert out.tolist() == [7, 8, 6]


def test_labels_and_registers_of_scopes():
    """Inline assembly of a compiler uses the same names again."""
    part = "{ .reg .pred p; W: setp.lt.u32 p, %r5, %r2; @!p bra D; add.s32 %r5, %r5, 1; bra W; D: }"
    body = f"mov.u32 %r5, 0; {part} add.s32 %r6, %r5, 0; mov.u32 %r5, 0; {part}"
    body += f" add.s32 %r6, %r6, %r5; {STORE.format(value='%r6')}"
    out = run_hopper(hopper_kernel(body), [np.zeros(128, "u4")])[0]
    assert (out == 2 * np.arange(128)).all()


def test_flags_between_warps():
    """A warp that spins on a flag lets the warp run that sets it."""
    body = """setp.eq.u32 %p1, %r3, 0; mov.u32 %r4, stage; @!%p1 bra set;
spin: ld.acquire.gpu.global.u32 %r5, [%d0]; setp.eq.u32 %p2, %r5, 0; @%p2 bra spin;
@%p0 st.global.u32 [%d0+4], %r5; bra end;
set: setp.eq.u32 %p3, %r2, 32; @%p3 st.release.gpu.global.u32 [%d0], 9;
end:"""
    out = run_hopper(hopper_kernel(body), [np.zeros(2, "u4")])[0]
    assert out.tolist() == [9, 9]
