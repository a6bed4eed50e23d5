"""What a kernel may not do: each is reported with the kernel, the line of PTX and the thread."""

from __future__ import annotations

import numpy as np
import pytest
from sim_programs import launch, make_kernel

from nova.errors import SimulationError
from nova.gpusim import Fault, SimMemory, SimModule

SHARED = """.shared .align 16 .b8 tile[1024];
    mov.u32 %r3, tile; shl.b32 %r4, %r2, 2; add.s32 %r4, %r3, %r4;"""
WORD = "mul.wide.u32 %d10, %r0, 4; add.s64 %d10, %d0, %d10;"


def fault_of(body: str, arrays=None, *, pointers: int = 1, outside: str = "", **options) -> Fault:
    """The fault of a kernel whose mistake is on the line that ends in `// here`."""
    text = make_kernel(body, pointers, outside=outside)
    with pytest.raises(SimulationError) as caught:
        launch(text, [np.zeros(64, "u4")] if arrays is None else arrays, **options)
    fault = caught.value.fault
    assert isinstance(fault, Fault) and fault.kernel == "k"
    assert "// here" in text.splitlines()[fault.line - 1] and fault.text in str(caught.value)
    assert f"line {fault.line} of the PTX" in str(caught.value)
    assert f"thread {fault.thread} of block {fault.block}" in str(caught.value)
    return fault


# --- bounds and alignment -----------------------------------------------------------------------


def test_global_memory_has_an_end():
    fault = fault_of(f"{WORD}\nst.global.u32 [%d10], 1; // here", [np.zeros(40, "u4")], grid=(2,))
    assert (fault.kind, fault.space, fault.writes, fault.nbytes) == ("bounds", "global", True, 4)
    assert (fault.block, fault.thread) == ((1, 0, 0), (8, 0, 0))


def test_a_vector_may_not_reach_behind_the_end():
    fault = fault_of(
        "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%d0+16]; // here", [np.zeros(7, "u4")]
    )
    assert (fault.kind, fault.writes, fault.nbytes) == ("bounds", False, 16)


def test_the_message_says_how_far():
    text = make_kernel("st.global.u32 [%d0+32], 1;")
    with pytest.raises(
        SimulationError, match="16 bytes after the end of an allocation of 16 bytes"
    ):
        launch(text, [np.zeros(4, "u4")])


@pytest.mark.parametrize("access", ["ld.global.u32 %r3, [%d1]", "ld.u32 %r3, [%d1+64]"])
def test_nothing_is_at_zero(access: str):
    assert fault_of(f"mov.u64 %d1, 0;\n{access}; // here").kind == "bounds"


def test_freed_memory():
    memory = SimMemory()
    address = memory.alloc(64)
    memory.free(address)
    with pytest.raises(SimulationError, match="out of bounds"):
        SimModule(make_kernel("st.global.u32 [%d0], 1;")).launch(
            "k", (1,), (1,), 0, address.to_bytes(8, "little"), memory
        )


def test_shared_memory_has_an_end():
    fault = fault_of(f"{SHARED}\nst.shared.u32 [%r4+992], 1; // here")
    assert (fault.kind, fault.space, fault.thread) == ("bounds", "shared", (8, 0, 0))


def test_dynamic_shared_memory_has_an_end():
    outside = ".extern .shared .align 16 .b8 room[];"
    body = "shl.b32 %r4, %r2, 2; mov.u32 %r3, room; add.s32 %r4, %r3, %r4;"
    fault = fault_of(f"{body}\nst.shared.u32 [%r4], 1; // here", outside=outside, shared=64)
    assert (fault.kind, fault.thread) == ("bounds", (16, 0, 0))


def test_generic_addresses_are_checked_too():
    body = (
        f"{SHARED}\ncvt.u64.u32 %d5, %r4; cvta.shared.u64 %d5, %d5;\nst.u32 [%d5+1000], 1; // here"
    )
    fault = fault_of(body)
    assert (fault.kind, fault.space, fault.address) == ("bounds", "shared", 1024)


def test_local_memory_has_an_end():
    body = ".local .align 4 .b8 depot[8];\nst.local.u32 [depot+8], 1; // here"
    fault = fault_of(body)
    assert (fault.kind, fault.space) == ("bounds", "local")


@pytest.mark.parametrize(
    ("access", "nbytes"),
    [
        ("ld.global.u32 %r3, [%d0+2]", 4),
        ("st.global.v4.u32 [%d0+8], {%r3, %r3, %r3, %r3}", 16),
        ("ld.global.u16 %h3, [%d0+1]", 2),
        ("atom.global.add.u64 %d3, [%d0+4], 1", 8),
    ],
)
def test_alignment(access: str, nbytes: int):
    fault = fault_of(f"{access}; // here")
    assert (fault.kind, fault.nbytes) == ("alignment", nbytes)


def test_alignment_of_copies_and_matrices():
    copy = "cp.async.cg.shared.global [%r3], [%d0+8], 16; // here"
    assert fault_of(f"{SHARED}\n{copy}").kind == "alignment"
    copy = "cp.async.cg.shared.global [%r3+8], [%d0], 16; // here"
    assert fault_of(f"{SHARED}\n{copy}").kind == "alignment"
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r3+4]; // here"
    assert fault_of(f"{SHARED}\n{load}").kind == "alignment"


def test_parameters_are_not_written():
    body = "mov.b64 %d1, k_0; cvta.param.u64 %d1, %d1;\nst.u32 [%d1], 1; // here"
    assert fault_of(body).kind == "read-only"


# --- races --------------------------------------------------------------------------------------


def test_two_writes():
    fault = fault_of(f"{SHARED}\nst.shared.u32 [tile], %r2; // here")
    assert (fault.kind, fault.thread, fault.other) == ("race", (1, 0, 0), (0, 0, 0))
    assert fault.writes and fault.other_writes


def test_two_writes_of_the_same_value_are_none():
    launch(make_kernel(f"{SHARED} st.shared.u32 [tile], 7;"), [np.zeros(1, "u4")], block=(128,))


PARTNER = "xor.b32 %r5, %r2, 32; shl.b32 %r5, %r5, 2; add.s32 %r5, %r3, %r5;"


def test_a_write_and_a_read_of_other_warps():
    body = f"""{SHARED} st.shared.u32 [%r4], %r2; {{barrier}} {PARTNER}
    ld.shared.u32 %r6, [%r5]; // here"""
    # The second warp has not run yet when the first one reads.
    assert fault_of(body.format(barrier=""), block=(64,)).kind == "uninitialized"
    launch(make_kernel(body.format(barrier="bar.sync 0;")), [np.zeros(1, "u4")], block=(64,))


def test_a_write_behind_a_read_of_another_warp():
    """The classic: a tile is filled again while another warp still reads it."""
    body = f"""{SHARED} st.shared.u32 [%r4], %r2; bar.sync 0; {PARTNER}
    setp.lt.u32 %p1, %r2, 32; @%p1 ld.shared.u32 %r6, [%r5]; {{barrier}}
    @!%p1 st.shared.u32 [%r4], %r6; // here"""
    fault = fault_of(body.format(barrier=""), block=(64,))
    assert (fault.kind, fault.writes, fault.other_writes) == ("race", True, False)
    assert (fault.thread, fault.other) == ((32, 0, 0), (0, 0, 0))
    launch(make_kernel(body.format(barrier="bar.sync 0;")), [np.zeros(1, "u4")], block=(64,))


def test_a_read_behind_a_write_of_another_warp():
    body = f"""{SHARED} st.shared.u32 [%r4], %r2; bar.sync 0; {PARTNER}
    setp.lt.u32 %p1, %r2, 32; @%p1 st.shared.u32 [%r4], 7; {{barrier}}
    @!%p1 ld.shared.u32 %r6, [%r5]; // here"""
    fault = fault_of(body.format(barrier=""), block=(64,))
    assert (fault.kind, fault.writes, fault.other_writes) == ("race", False, True)
    assert (fault.thread, fault.other) == ((32, 0, 0), (0, 0, 0))
    launch(make_kernel(body.format(barrier="bar.sync 0;")), [np.zeros(1, "u4")], block=(64,))


def test_lanes_of_a_warp_race_too():
    body = f"""{SHARED}
    st.shared.u32 [%r4], %r2; {{barrier}} xor.b32 %r5, %r4, 4;
    ld.shared.u32 %r6, [%r5]; // here"""
    assert fault_of(body.format(barrier="")).kind == "race"
    launch(make_kernel(body.format(barrier="bar.warp.sync -1;")), [np.zeros(1, "u4")])


def test_many_readers_and_one_writer():
    body = f"""{SHARED}
    setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.u32 [tile], 3; bar.sync 0; ld.shared.u32 %r5, [tile];
    setp.eq.u32 %p2, %r2, 31; @%p2 st.shared.u32 [tile], 4; // here"""
    fault = fault_of(body)
    assert (fault.kind, fault.thread) == ("race", (31, 0, 0))


def test_bytes_of_a_word_do_not_race():
    body = ".shared .align 4 .b8 small[64];\nmov.u32 %r3, small; add.s32 %r4, %r3, %r2;"
    body += "cvt.u16.u32 %h1, %r2; st.shared.u8 [%r4], %h1; ld.shared.u8 %h2, [%r4];"
    launch(make_kernel(body), [np.zeros(1, "u4")], block=(64,))
    body += "xor.b32 %r4, %r4, 1;\nld.shared.u8 %h2, [%r4]; // here"
    assert fault_of(body, block=(64,)).kind == "race"


def test_a_barrier_of_some_warps_orders_only_those():
    body = f"""{SHARED}
    st.shared.u32 [%r4], %r2; shr.u32 %r5, %r2, 6; add.s32 %r5, %r5, 1; bar.sync %r5, 64;
    xor.b32 %r6, %r2, {{partner}}; shl.b32 %r6, %r6, 2; add.s32 %r6, %r3, %r6;
    ld.shared.u32 %r7, [%r6]; // here"""
    launch(make_kernel(body.format(partner=32)), [np.zeros(1, "u4")], block=(128,))
    assert fault_of(body.format(partner=64), block=(128,)).kind in ("race", "uninitialized")


def test_atomics_do_not_race_with_each_other_but_with_the_rest():
    body = f"""{SHARED}
    setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.u32 [tile], 0; bar.sync 0;
    atom.shared.add.u32 %r5, [tile], 1;"""
    launch(make_kernel(body), [np.zeros(1, "u4")], block=(64,))
    assert fault_of(f"{body}\nld.shared.u32 %r6, [tile]; // here", block=(64,)).kind == "race"


def test_the_first_guess_of_a_swap_is_no_race():
    body = """
    ld.global.u32 %r3, [%d0];
    LOOP: add.s32 %r4, %r3, 1; mov.u32 %r5, %r3; atom.global.cas.b32 %r3, [%d0], %r5, %r4;
    setp.ne.u32 %p1, %r3, %r5; @%p1 bra LOOP;"""
    assert launch(make_kernel(body), [np.zeros(1, "u4")], grid=(3,))[0] == 96
    second = body.replace("[%d0];", "[%d1];", 1)
    assert fault_of(f"mov.u64 %d1, %d0; {second}".replace("%r4;", "%r4; // here")).kind == "race"


def test_blocks_that_write_the_same_place():
    fault = fault_of(
        "mov.u32 %r3, %ctaid.x;\nst.global.u32 [%d0], %r3; // here", grid=(3,), block=(1,)
    )
    assert (fault.kind, fault.block, fault.other_block) == ("race", (1, 0, 0), (0, 0, 0))


def test_a_block_that_reads_what_another_writes():
    body = """
    mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; @%p1 bra FIRST;
    {acquire}
    ld.global.u32 %r4, [%d0]; // here
    ret;
    FIRST: st.global.u32 [%d0], 5; {release}"""
    fault = fault_of(body.format(acquire="", release=""), grid=(2,), block=(1,))
    assert (fault.kind, fault.block, fault.other_block) == ("race", (1, 0, 0), (0, 0, 0))
    # Ordered: the first has published it, the second asked for it.
    for fence in ("membar.gl;", "fence.acq_rel.gpu;"):
        body_ = body.format(acquire=fence, release=fence)
        launch(make_kernel(body_), [np.zeros(1, "u4")], grid=(2,), block=(1,))
    half = body.format(acquire="", release="membar.gl;")
    assert fault_of(half, grid=(2,), block=(1,)).kind == "race"


def test_global_memory_within_a_block():
    body = f"""{WORD}
    st.global.u32 [%d10], %r2; {{barrier}} // here
    xor.b32 %r5, %r2, 32; mul.wide.u32 %d11, %r5, 4; add.s64 %d11, %d0, %d11;
    ld.global.u32 %r6, [%d11];"""
    assert fault_of(body.format(barrier=""), block=(64,)).kind == "race"
    launch(make_kernel(body.format(barrier="bar.sync 0;")), [np.zeros(64, "u4")], block=(64,))


def test_the_last_block_may_sum_what_all_have_written():
    """Partial results, a counter and a fence: how reductions over the grid are written."""
    body = """
    mov.u32 %r3, %ctaid.x; mul.wide.u32 %d10, %r3, 4; add.s64 %d10, %d0, %d10;
    st.global.u32 [%d10+4], %r3; membar.gl; atom.global.add.u32 %r4, [%d0], 1;
    setp.ne.u32 %p1, %r4, 7; @%p1 ret; membar.gl;
    mov.u32 %r5, 0; mov.u32 %r6, 0;
    LOOP: mul.wide.u32 %d11, %r6, 4; add.s64 %d11, %d0, %d11; ld.global.u32 %r7, [%d11+4];
    add.s32 %r5, %r5, %r7; add.s32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 8; @%p1 bra LOOP;
    st.global.u32 [%d0+64], %r5;"""
    out = launch(make_kernel(body), [np.zeros(17, "u4")], grid=(8,), block=(1,))[0]
    assert out[16] == sum(range(8))


def test_races_can_be_left_out():
    text = make_kernel(f"{SHARED} st.shared.u32 [tile], %r2;")
    launch(text, [np.zeros(1, "u4")], check_races=False)


# --- bytes that nobody has written --------------------------------------------------------------


def test_shared_memory_begins_without_values():
    fault = fault_of(f"{SHARED}\nld.shared.u32 %r5, [%r4]; // here")
    assert (fault.kind, fault.space, fault.thread) == ("uninitialized", "shared", (0, 0, 0))
    second = f"""{SHARED}
    st.shared.u32 [%r4], 1;
    ld.shared.v2.u32 {{%r5, %r6}}, [%r4]; // here
    add.u32 %r7, %r5, %r6;"""
    assert fault_of(second, block=(1,)).kind == "uninitialized"
    assert (
        fault_of(f"{SHARED}\natom.shared.add.u32 %r5, [tile], 1; // here").kind == "uninitialized"
    )


def test_loads_may_be_wider_than_what_is_looked_at():
    """LLVM joins loads, and reads bytes beside those that the program asked for."""
    bytes_of_a_word = f"{SHARED}\nst.shared.u16 [%r4], 1;\nld.shared.u32 %r5, [%r4];"
    part_of_a_vector = f"{SHARED}\nst.shared.u32 [%r4], 1;\nld.shared.v2.u32 {{%r5, %r6}}, [%r4];"
    part_of_a_vector += " add.u32 %r7, %r5, 1;"
    for body in (bytes_of_a_word, part_of_a_vector):
        launch(make_kernel(body), [np.zeros(64, "u4")], block=(1,))


def test_every_block_begins_anew():
    body = f"""{SHARED}
    mov.u32 %r5, %ctaid.x; setp.eq.u32 %p1, %r5, 0; @%p1 st.shared.u32 [%r4], 1;
    ld.shared.u32 %r6, [%r4]; // here"""
    fault = fault_of(body, grid=(2,))
    assert (fault.kind, fault.block) == ("uninitialized", (1, 0, 0))


def test_global_memory_begins_without_values():
    memory = SimMemory()
    address = memory.alloc(64)
    module = SimModule(make_kernel("ld.global.u32 %r3, [%d0+32]; st.global.u32 [%d0], %r3;"))
    arguments = address.to_bytes(8, "little")
    with pytest.raises(SimulationError, match="uninitialized: read of 4 bytes") as caught:
        module.launch("k", (1,), (1,), 0, arguments, memory)
    assert "byte 32 of an allocation of 64 bytes" in str(caught.value)
    memory.write(address + 32, b"1234")
    module.launch("k", (1,), (1,), 0, arguments, memory)
    assert memory.read(address, 4) == b"1234"


# --- waiting ------------------------------------------------------------------------------------


def test_a_barrier_that_some_warps_miss():
    body = "setp.lt.u32 %p1, %r2, 32; @%p1 bra A; bar.sync 1, 64; ret; A: bar.sync 2, 64;"
    text = make_kernel(body)
    with pytest.raises(SimulationError, match="deadlock"):
        launch(text, [np.zeros(1, "u4")], block=(64,))


def test_a_barrier_inside_of_a_branch():
    body = "setp.lt.u32 %p1, %r2, 7; @%p1 bra END;\nbar.sync 0; // here\nEND: bar.sync 0; // here"
    assert fault_of(body).kind == "diverged"


def test_lanes_that_go_around_a_barrier_and_end():
    """PTX wants a whole warp at `bar.sync`; lanes that had ended before are not part of it."""
    body = """
    setp.lt.u32 %p1, %r2, 7; @%p1 bra END;
    bar.sync 0; // here
    END:"""
    fault = fault_of(body)
    assert (fault.kind, fault.thread, fault.other) == ("diverged", (7, 0, 0), (0, 0, 0))
    text = make_kernel(body)
    with pytest.raises(SimulationError) as caught:
        launch(text, [np.zeros(1, "u4")], block=(64,))
    assert str(caught.value) == (
        "not all lanes of the warp are here: thread (0, 0, 0) of block (0, 0, 0) went around it "
        f"and ended\n  at k, line {fault.line} of the PTX: bar.sync 0; // here\n"
        "  by thread (7, 0, 0) of block (0, 0, 0)\n"
        "  hint: all lanes of the warp have to execute it together"
    )


@pytest.mark.parametrize(
    "body",
    [
        "setp.lt.u32 %p1, %r2, 7; @%p1 ret; bar.sync 0;",  # ended before the others arrive
        "setp.lt.u32 %p1, %r2, 32; @%p1 bra END; bar.sync 0; END:",  # a warp as a whole
        "setp.lt.u32 %p1, %r2, 7; @%p1 bra END; barrier.sync 0; END:",  # by thread, not by warp
    ],
)
def test_ended_threads_are_not_waited_for(body: str):
    launch(make_kernel(body), [np.zeros(1, "u4")], block=(96,))


def test_an_exchange_that_some_lanes_miss():
    body = """
    setp.lt.u32 %p1, %r2, 7; @%p1 bra END;
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; // here
    END: bar.sync 0;"""
    assert fault_of(body).kind == "diverged"
    body = """
    setp.lt.u32 %p1, %r2, 7; @%p1 ret;
    mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 // here
        {%r3, %r4, %r5, %r6}, {%r7, %r8}, {%r9}, {%r3, %r4, %r5, %r6};
    """
    assert fault_of(body).kind == "diverged"


def test_a_value_of_a_lane_that_does_not_take_part():
    body = """
    setp.ge.u32 %p1, %r2, 8; @%p1 bra END;
    shfl.sync.idx.b32 %r3, %r2, 9, 31, 0xff; // here
    END:"""
    fault = fault_of(body)
    assert (fault.kind, fault.other) == ("exchange", (9, 0, 0))


@pytest.mark.parametrize("operands", ["16", "0, 48", "0, 96"])
def test_barriers_that_cannot_be(operands: str):
    assert fault_of(f"bar.sync {operands}; // here", block=(64,)).kind == "barrier"


def test_a_loop_without_end():
    fault = fault_of("L: add.s32 %r3, %r3, 1; bra L; // here", most_steps=10_000)
    assert fault.kind == "steps"
    with pytest.raises(SimulationError, match="too many instructions"):
        launch(make_kernel("L: bra L;"), [np.zeros(1, "u4")], most_steps=100)


def test_a_trap():
    fault = fault_of("setp.eq.u32 %p1, %r2, 5;\n@%p1 trap; // here")
    assert (fault.kind, fault.thread) == ("trap", (5, 0, 0))


# --- launches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": (1025,)}, "1025"),
        ({"block": (0,)}, "a block of"),
        ({"grid": (0,)}, "a grid of"),
        ({"grid": (1, 70000)}, "a grid of"),
        ({"shared": 300_000}, "bytes of shared memory"),
        ({"block": (64,), "rest": ".maxntid 32"}, "32 are the most"),
        ({"block": (64,), "rest": ".reqntid 32, 1, 1"}, "are required"),
        ({"pointers": 2}, "8 bytes of arguments where 16 are expected"),
    ],
)
def test_launches_that_the_driver_would_refuse(options: dict, message: str):
    text = make_kernel("", options.pop("pointers", 1), rest=options.pop("rest", ""))
    with pytest.raises(SimulationError, match=message):
        launch(text, [np.zeros(1, "u4")], **options)
