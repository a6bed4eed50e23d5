"""Loops of a persistent kernel that do not end: a time-out stops them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import RunTimeoutError
from nova.knobs import SIM_SCHEDULES

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim", "launch": "persistent"}
ROWS = 2048  # the tasks of several blocks


def compiled(nested: bool = False) -> Any:
    """Doubles x until it is large: endless where all elements are 0."""
    x = nova.input((ROWS,))

    def double(v: Any) -> Any:
        inner = nova.while_loop(lambda u: u.max() < 50, lambda u: u * 2, v) if nested else v
        return inner * 2

    root = nova.while_loop(lambda v: v.max() < 100, double, x)
    return nova.compile(root, inputs=[x], **DEVICE)


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
@pytest.mark.parametrize("nested", [False, True])
def test_a_timeout_stops_an_endless_loop(schedule: str, nested: bool) -> None:
    ones = np.ones(ROWS, np.float32)
    with nova.knobs.override(sim_schedule=schedule):
        program = compiled(nested)
        with pytest.raises(RunTimeoutError):
            program.run([ones * 0], timeout=0.3)
        # The device is free again, and the counters are 0.
        for _ in range(2):
            np.testing.assert_array_equal(program(ones), ones * 128)


def test_a_timeout_stops_only_its_run() -> None:
    program = compiled()
    ones = np.ones(ROWS, np.float32)
    endless = program.submit(ones * 0, timeout=0.3)
    other = program.submit(ones, timeout=300)
    with pytest.raises(RunTimeoutError):
        endless.result()
    np.testing.assert_array_equal(other.result(), ones * 128)


def test_a_run_within_its_time() -> None:
    ones = np.ones(ROWS, np.float32)
    np.testing.assert_array_equal(compiled().run([ones], timeout=300), ones * 128)
