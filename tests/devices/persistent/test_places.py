"""Where the tasks of persistent kernels run: the multiprocessors of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova.knobs import SIM_SCHEDULES

DEVICE: dict[str, Any] = {"target": "cuda:sm_90a", "launch": "persistent", "run_mode": "sim"}


def _blocks_of_processors(rows: int) -> dict[int, set[int]]:
    x = nova.input((rows, 48))
    program = nova.compile(nova.tanh(x @ x.T), inputs=[x], **DEVICE)
    with nova.trace() as trace:
        program(np.ones((rows, 48), np.float32))
    blocks: dict[int, set[int]] = {}
    for span in trace.runs[-1].tasks:
        processor, block = (int(part.split()[-1]) for part in span.lane.split(", "))
        blocks.setdefault(processor, set()).add(block)
    return blocks


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_adjacent_blocks_are_on_different_processors(schedule: str) -> None:
    """The simulator has two blocks on each of the processors 0, 1 and 5."""
    with nova.knobs.override(sim_schedule=schedule):
        blocks = _blocks_of_processors(512)
    assert set(blocks) == {0, 1, 5}
    assert set().union(*blocks.values()) == set(range(6))
    # 5 is no number of three processors: its blocks take what is free, and may be first
    if schedule == "late":
        assert blocks == {0: {0, 3}, 1: {1, 4}, 5: {2, 5}}
