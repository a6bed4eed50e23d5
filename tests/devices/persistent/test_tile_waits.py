"""Tile-level waits of persistent kernels: results, overlap, the tables, and planted bugs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.artifact.tile_waits import awaited_bands, plan_bands, tile_waits
from nova.codegen.gpu.persistent import kernel, lists
from nova.errors import SimulationError
from nova.knobs import SIM_SCHEDULES
from nova.tools.nova import main
from nova.tracing.devices.models import H200

DEVICE = {"target": "cuda:sm_90a", "run_mode": "sim"}
ROWS = 640


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32) / 8


def layers(x: Any, width: int) -> Any:
    """Row programs and matmuls whose tiles line up by rows, and a maximum over all rows."""
    for i in range(2):
        x = nova.softmax(x @ nova.tensor(array(width, width, seed=i)), -1)
    return x, x.max(0)


def compiled(launch: str = "persistent", width: int = 32, rows: int = ROWS) -> Any:
    x = nova.input((rows, width))
    return nova.compile(layers(x, width), inputs=[x], launch=launch, **DEVICE)


def test_launches_are_cut_into_rows_where_tiles_line_up() -> None:
    program = compiled()
    waits = tile_waits(program._executable.tables)
    by_tile = [wait for wait in waits if wait.is_by_tile]
    assert by_tile and all(wait.part * 4 <= wait.blocks for wait in by_tile)
    assert not all(wait.is_by_tile for wait in waits)  # the maximum waits for all rows
    _, rows, counters, count = program._program.persistent_shape()
    assert len(program._executable.tables.launches) < counters <= rows
    assert count >= counters - 1


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_results_are_those_of_a_graph_in_every_order(tmp_path: Path, schedule: str) -> None:
    compiled().save(tmp_path / "program.nova")
    expected = compiled("graph")(array(ROWS, 32))
    with nova.knobs.override(sim_schedule=schedule):
        program = nova.load(tmp_path / "program.nova", device="sim")
    for _ in range(2):  # the counters are 0 again
        for result, other in zip(program(array(ROWS, 32)), expected, strict=True):
            np.testing.assert_array_equal(result, other)


def test_a_launch_starts_before_the_one_that_it_waits_for_has_ended() -> None:
    program = compiled()
    waits = [wait for wait in tile_waits(program._executable.tables) if wait.is_by_tile]
    with nova.trace() as trace:
        program(array(ROWS, 32))
    tasks = trace.runs[0].tasks
    wait = waits[0]
    end = max(span.end for span in tasks if span.launch == wait.before)
    assert min(span.start for span in tasks if span.launch == wait.after) < end


@pytest.mark.parametrize("schedule", SIM_SCHEDULES)
def test_many_steps_wait_for_tiles_of_a_step_and_for_all_of_the_one_before(schedule: str) -> None:
    xs, ys = array(3, 96, 64), np.random.default_rng(1).integers(0, 8, (3, 96))
    losses = []
    for launch in ("graph", "persistent"):
        model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 8))
        for i, param in enumerate(model.parameters()):
            param.data[...] = array(*param.shape, seed=i)
        with nova.knobs.override(sim_schedule=schedule):
            step = nova.train_step(
                model,
                lambda m, x, y: nova.cross_entropy(m(x), y),
                optim.SGD(model.parameters(), lr=0.1),
                launch=launch,
                **DEVICE,
            )
            losses.append(step.run_many(xs, ys).tolist())
    assert losses[0] == losses[1]


def test_a_prediction_has_a_hop_in_place_of_a_barrier() -> None:
    program = compiled()
    tables = program._executable.tables
    times = {item.launch: item for item in program.simulate(device="h200").launches}
    for wait in tile_waits(tables):
        before, after = times[wait.before], times[wait.after]
        assert after.start >= before.start + H200.hop
        assert wait.is_by_tile or after.start >= before.end + H200.hop
    # More blocks than are resident: a band is complete before the launch is.
    larger = nova.input((64 * 600, 32))
    wide = nova.compile(layers(larger, 32)[0], inputs=[larger], launch="persistent", **DEVICE)
    times = {item.launch: item for item in wide.simulate(device="h200").launches}
    assert any(
        times[wait.after].start < times[wait.before].end
        for wait in tile_waits(wide._executable.tables)
        if wait.is_by_tile
    )


def test_joins_are_replaced_by_what_they_wait_for() -> None:
    bands = plan_bands(compiled()._executable.tables)
    for band, awaited in zip(bands, awaited_bands(bands), strict=True):
        assert all(bands[i].begin < bands[i].end for i in awaited)
        assert all(bands[i].launch < band.launch for i in awaited)


def test_inspect_shows_the_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled().save(tmp_path / "program.nova")
    assert main(["inspect", str(tmp_path / "program.nova")]) == 0
    text = capsys.readouterr().out
    assert "waits of the persistent kernel" in text and "each for blocks" in text


# --- planted bugs ---------------------------------------------------------------------------------

BUGS = {
    "a wait for one task too few": "nothing orders the two",
    "a load without an acquire": "nothing orders the two",
    "a signal without a release": "nothing orders the two",
    "a lost signal": "deadlock",
}


def plant(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the text of the kernel."""
    instructions, parts = dict(kernel._INSTRUCTIONS), dict(lists.LIST_PARTS)
    if bug == "a wait for one task too few":
        difference = "%ahead = llvm.sub %value, %needed"
        assert difference in parts["poll"]
        parts["poll"] = parts["poll"].replace(
            difference,
            "%one_more = llvm.add %value, %c1 : i32\n      "
            + difference.replace("%value", "%one_more"),
        )
    elif bug == "a load without an acquire":
        instructions["acquire"] = instructions["acquire"].replace(".acquire", ".relaxed")
    elif bug == "a signal without a release":
        instructions["release"] = instructions["release"].replace(".release", ".relaxed")
    else:
        instructions["release"] = instructions["release"].replace("[$0], $1", "[$0], 0")
    monkeypatch.setattr(kernel, "LIST_PARTS", parts)
    monkeypatch.setattr(kernel, "_INSTRUCTIONS", instructions)


@pytest.mark.parametrize("bug", BUGS)
def test_the_simulator_finds_planted_bugs(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(bug, monkeypatch)
    rows = 256 * (2 + list(BUGS).index(bug))  # a program that no other test has
    with nova.knobs.override(cache=False, sim_schedule="late"):
        program = compiled(rows=rows)
        with pytest.raises(SimulationError, match=BUGS[bug]):
            for schedule in SIM_SCHEDULES:
                with nova.knobs.override(sim_schedule=schedule):
                    program(array(rows, 32))
