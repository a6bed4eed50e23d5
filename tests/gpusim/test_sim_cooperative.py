"""Cooperative launches: blocks that wait for each other, in every order of blocks."""

from __future__ import annotations

import numpy as np
import pytest
from sim_programs import launch, make_kernel

from nova.errors import SimulationError

SCHEDULES = [0, 1, 2, 3, 4]
# Block 0 writes a word and signals; the others wait for the signal and copy the word.
HANDOVER = """
mov.u32 %r3, %ctaid.x;
setp.ne.u32 %p0, %r3, 0;
@%p0 bra WAIT;
{write}
bra DONE;
WAIT:
{wait}
ld.global.u32 %r4, [%d0];{here}
mul.wide.u32 %d3, %r3, 4;
add.s64 %d3, %d2, %d3;
st.global.u32 [%d3], %r4;
DONE:
"""
WRITE = "st.global.u32 [%d0], 7; red.release.gpu.global.add.u32 [%d1], 1;"
POLL = "ld.acquire.gpu.global.u32 %r5, [%d1]; setp.eq.u32 %p1, %r5, 0; @%p1 bra WAIT;"


def run(write: str = WRITE, wait: str = POLL, blocks: int = 5, here: str = "", **options):
    text = make_kernel(HANDOVER.format(write=write, wait=wait, here=here), 3)
    arrays = [np.zeros(1, "u4"), np.zeros(1, "u4"), np.zeros(8, "u4")]
    return launch(text, arrays, grid=(blocks,), block=(1,), cooperative=True, **options)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_release_and_acquire(schedule: int):
    *_, copies = run(schedule=schedule)
    assert copies.tolist() == [0, 7, 7, 7, 7, 0, 0, 0]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "mistake",
    [
        {"write": WRITE.replace(".release", ".relaxed")},
        {"wait": POLL.replace("ld.acquire", "ld.relaxed")},
        {"write": "red.release.gpu.global.add.u32 [%d1], 1; st.global.u32 [%d0], 7;"},
        {"wait": ""},
    ],
    ids=["relaxed signal", "relaxed poll", "signal before the write", "no wait"],
)
def test_a_hop_that_orders_nothing_is_a_race(mistake: dict[str, str], schedule: int):
    with pytest.raises(SimulationError) as caught:
        run(**mistake, schedule=schedule)
    assert caught.value.fault.kind == "race"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_lost_signal_is_a_deadlock(schedule: int):
    with pytest.raises(SimulationError, match="a value of memory") as caught:
        run(write="st.global.u32 [%d0], 7;", schedule=schedule)
    assert caught.value.fault.kind == "deadlock"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_fences_order_relaxed_accesses(schedule: int):
    *_, copies = run(
        "st.global.u32 [%d0], 7; fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%d1], 1;",
        POLL.replace("ld.acquire", "ld.relaxed") + " fence.acq_rel.gpu;",
        schedule=schedule,
    )
    assert copies[1:5].tolist() == [7] * 4


def test_a_chain_through_a_third_block():
    # Block b waits for the signal b, and signals b + 1: the write of block 0 reaches all.
    body = """
    mov.u32 %r3, %ctaid.x; mul.wide.u32 %d3, %r3, 4; add.s64 %d4, %d1, %d3;
    setp.eq.u32 %p0, %r3, 0;
    @%p0 st.global.u32 [%d0], 5;
    @%p0 bra SIGNAL;
    WAIT:
    ld.acquire.gpu.global.u32 %r5, [%d4]; setp.eq.u32 %p1, %r5, 0; @%p1 bra WAIT;
    ld.global.u32 %r6, [%d0];
    add.s64 %d5, %d2, %d3;
    st.global.u32 [%d5], %r6;
    SIGNAL:
    red.release.gpu.global.add.u32 [%d4+4], 1;
    """
    for schedule in SCHEDULES:
        arrays = [np.zeros(1, "u4"), np.zeros(9, "u4"), np.zeros(8, "u4")]
        *_, copies = launch(
            make_kernel(body, 3),
            arrays,
            grid=(8,),
            block=(1,),
            cooperative=True,
            schedule=schedule,
        )
        assert copies.tolist() == [0, *[5] * 7]


def test_more_blocks_than_run_at_once_are_refused():
    with pytest.raises(SimulationError, match="cooperative grid"):
        run(blocks=17)
