"""The simulator in C under the sanitizers of gcc: the launches of the other tests, once more.

Their launches are recorded with their results, and native/tests/gpusim/test_sim.c runs them again:
an unoptimized build gives the same bits, the same fault at the same thread, and nothing to report.
"""

from __future__ import annotations

import ctypes
import inspect
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_sim_async_faults
import test_sim_clusters
import test_sim_cooperative
import test_sim_faults
import test_sim_matrices
import test_sim_memory
import test_sim_mutations
import test_sim_warps
from c_build import MEMORY, NATIVE, THREADS, build_program, sanitized

from nova import _native
from nova.gpusim import module as sim_module
from nova.gpusim.records import INSTRUCTION, OPERAND, RANGE

MODULES = (
    test_sim_faults,
    test_sim_memory,
    test_sim_warps,
    test_sim_matrices,
    test_sim_async_faults,
    test_sim_clusters,
    test_sim_cooperative,
    test_sim_mutations,
)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


class Recorder:
    """`_native.sim_run` that keeps what it was given and what came of it."""

    def __init__(self) -> None:
        self.launches: list[bytes] = []

    def sim_lanes(self) -> Any:
        return _native.sim_lanes()

    def sim_run(self, *arguments: Any) -> Any:
        code, operands, constants, sizes, ranges, params, grid, block, cluster = arguments[:9]
        dynamic, most_steps, check_races, schedule, cooperative = arguments[9:]
        rows = np.frombuffer(ranges, RANGE)
        before = [ctypes.string_at(int(row["start"]), int(row["size"])) for row in rows]
        states = [
            ctypes.string_at(int(row["state"]), int(row["size"])) if row["state"] else b""
            for row in rows
        ]
        steps, fault = _native.sim_run(*arguments)
        mode, line, thread = (fault[0], fault[1], fault[3]) if fault else (0, 0, (0, 0, 0))
        counts = [
            len(code.tobytes()) // INSTRUCTION.itemsize,
            len(operands.tobytes()) // OPERAND.itemsize,
            len(constants.tobytes()) // 8,
            len(params),
            len(rows),
        ]
        numbers = [*sizes, *grid, *block, *cluster, dynamic, check_races, schedule, mode, line]
        numbers += [*thread, cooperative]
        parts = [np.array(counts, "u8").tobytes() + np.array(numbers, "u4").tobytes()]
        parts += [np.array([most_steps, steps], "u8").tobytes()]
        parts += [_padded(bytes(part)) for part in (code, operands, constants, params)]
        for row, old, state in zip(rows, before, states, strict=True):
            head = [row["start"], row["size"], bool(state), row["read_only"]]
            after = ctypes.string_at(int(row["start"]), int(row["size"]))
            parts += [np.array(head, "u8").tobytes(), _padded(old), _padded(state), _padded(after)]
        # Addresses of variables are in the code itself: those launches cannot be moved.
        fixed = {*np.frombuffer(constants, "u8")} | {*np.frombuffer(operands, OPERAND)["offset"]}
        if not any(row["start"] <= n < row["start"] + row["size"] for row in rows for n in fixed):
            self.launches.append(b"".join(parts))
        return steps, fault


def simple_tests() -> list[Callable[[], None]]:
    """Tests without parameters."""
    result = []
    for module in MODULES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and not inspect.signature(function).parameters:
                result.append(function)
    return result


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launches of the other tests."""
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sim_module, "_native", recorder)
        for test in simple_tests():
            test()
    assert len(recorder.launches) > 60
    path = tmp_path_factory.mktemp("recorded") / "launches"
    path.write_bytes(b"".join(recorder.launches))
    return path


@pytest.mark.parametrize("sanitizers", [MEMORY, THREADS])
def test_c_program(launches: Path, sanitizers: str):
    simulator = NATIVE / "src" / "gpusim"
    sources = [path for path in simulator.rglob("*.c") if path.parent.name != "driver"]
    flags = [*sanitized(sanitizers), "-ffp-contract=off"]
    test = NATIVE / "tests" / "gpusim" / "test_sim.c"
    program = build_program([test, *sorted(sources)], flags, ["-lm"])
    completed = subprocess.run([program, launches], capture_output=True, text=True, timeout=240)
    assert completed.returncode == 0, completed.stderr
