"""Programs on both sides: where copies stand, and which tasks the launches have."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables, TaskSpec
from nova.artifact.task_plan import plan_tasks
from nova.artifact.tilings import OperandRange, Tiling
from nova.compiler.hybrid.copies import Copy, Step, place_copies

A, B, C, D = (BufferSpec("workspace", 64 * n, 64) for n in range(4))
X, Y = BufferSpec("arg", 0, 64), BufferSpec("output", 0, 64)


def step(side: str, reads: tuple[BufferSpec, ...], *writes: BufferSpec) -> Step:
    return Step(side == "host", None, reads, writes)


def placed(*steps: Step) -> dict[int, list[tuple[str, BufferSpec]]]:
    names = {True: "to_host", False: "to_device"}
    result = place_copies(steps)
    return {n: [(names[c.to_host], c.buffer) for c in copies] for n, copies in result.items()}


def test_what_an_island_needs_is_copied_behind_its_last_maker() -> None:
    assert placed(
        step("device", (X,), A),
        step("device", (A,), B),
        step("device", (X,), C),  # at work while the island is
        step("host", (A,), D),
        step("host", (D, B, X), Y),
    ) == {
        -1: [("to_host", X)],
        1: [("to_host", A), ("to_host", B)],
        4: [("to_device", Y)],
    }


def test_what_an_island_makes_is_copied_when_it_ends() -> None:
    assert placed(
        step("host", (X,), A),
        step("host", (A,), B),
        step("device", (X,), C),
        step("device", (A, C), Y),
    ) == {-1: [("to_host", X)], 1: [("to_device", A)]}


def test_a_value_that_was_written_again_is_copied_again() -> None:
    assert placed(
        step("device", (X,), A),
        step("host", (A,), B),
        step("device", (B,), A),
        step("host", (A,), Y),
    ) == {
        0: [("to_host", A)],
        1: [("to_device", B)],
        2: [("to_host", A)],
        3: [("to_device", Y)],
    }


def test_an_updated_argument_ends_on_the_device() -> None:
    assert placed(step("host", (X,), X)) == {-1: [("to_host", X)], 0: [("to_device", X)]}
    assert placed(step("device", (X,), X), step("host", (X,), Y)) == {
        0: [("to_host", X)],
        1: [("to_device", Y)],
    }


def test_empty_buffers_are_not_copied() -> None:
    empty = BufferSpec("arg", 1, 0)
    assert place_copies([step("host", (empty,), Y)]) == {0: [Copy(Y, to_host=False)]}


# --- tasks ----------------------------------------------------------------------------------------


def kernel(core: str, tiles: int = 1) -> KernelSpec:
    """One on the host writes 64 bytes for each tile, and reads as many."""
    if core != "vector":
        device = DeviceLaunch((1, 1, 1), (32, 1, 1)) if core == "device" else None
        return KernelSpec(core, core, tiles, core, 0, 0, "", device=device)
    size = 64 // tiles
    ranges = (OperandRange(0, False, 0, size, (size,)), OperandRange(1, True, 0, size, (size,)))
    tiling = Tiling((tiles,), (1,), ranges, 1)
    return KernelSpec(core, core, tiles, core, 10**6, 0, "", tiling=tiling)


def planned(cores: str, *buffers: tuple[int, ...]) -> tuple[TaskSpec, ...]:
    """Tasks of launches on the host (h), the device (d), and of copies (c)."""
    names = {"h": 0, "d": 1, "c": 2}
    kernels = (kernel("vector", 2), kernel("device"), kernel("to_host"))
    launches = tuple(LaunchSpec(names[c], b) for c, b in zip(cores, buffers, strict=True))
    return plan_tasks(Tables((X, Y, A, B, C, D), kernels, launches, 256, 0), 4)


def test_an_island_between_launches_of_the_device() -> None:
    """Two launches of the host, cut in two, between those of the device: parts in a row."""
    tasks = planned("dchhdd", (0, 2), (2,), (2, 3), (3, 4), (4, 5), (5, 1))
    assert [(t.launch, t.begin, t.end) for t in tasks] == [
        *((0, 0, 1), (1, 0, 1)),
        *((2, 0, 1), (2, 1, 2), (3, 0, 1), (3, 1, 2)),
        *((4, 0, 1), (5, 0, 1)),
    ]
    assert [t.successors for t in tasks] == [(1,), (2, 3), (4,), (5,), (6,), (6,), (7,), ()]


def test_host_regions_that_follow_each_other_by_a_launch() -> None:
    """All of an island finishes before the device goes on, and that before the next island."""
    tasks = planned("hchd", (0, 2), (2,), (0, 3), (3, 1))
    assert [t.successors for t in tasks] == [(2,), (2,), (3, 4), (5,), (5,), ()]


def test_a_program_of_the_device_alone_has_no_tasks() -> None:
    assert planned("ddd", (0, 2), (2, 3), (3, 1)) == ()


# --- compiled -------------------------------------------------------------------------------------

rng = np.random.default_rng(5)
x = rng.standard_normal((192, 192)).astype("f4")


def mixed() -> nova.Program:
    X = nova.tensor(x, name="X")
    h = X @ X
    with nova.device("cpu"):
        island = nova.softmax(h @ X)
    return nova.compile(
        island @ (nova.tanh(X) @ X), inputs=[X], target="cuda:sm_80", run_mode="sim"
    )


def test_the_device_is_at_work_while_the_island_is() -> None:
    """The product that the island needs is first; the other one is behind the copy of it."""
    tables = mixed()._executable.tables
    cores = [tables.kernels[launch.kernel].core for launch in tables.launches]
    sides = ["host" if core in ("matrix", "vector") else core for core in cores]
    copied, island = sides.index("to_host", 1), sides.index("host")
    assert "device" in sides[:copied] and "device" in sides[copied:island]
    assert set(sides[island:]) == {"host", "to_device", "device"}


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_islands_have_tasks(threads: int) -> None:
    """More than launches: the pieces of the host's product; the same bits for any threads."""
    program = mixed()
    tables = program._executable.tables
    assert len(plan_tasks(tables, 4)) > len(tables.launches)
    with nova.knobs.override(threads=threads):
        result = program(x)
    h = x @ x @ x
    weights = np.exp(h - h.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True) @ (np.tanh(x) @ x)
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)
    assert result.tobytes() == program(x).tobytes()
