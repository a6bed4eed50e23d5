"""The programs of this folder where there is no GPU: ptxas takes them, the simulator runs them."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu_samples import PTX, chain, load, looped, one, training
from ptxas import assemble

from nova.artifact.device_launch import DeviceLaunch
from nova.errors import ArtifactError, SimulationError

SIZE = 1024
x = np.arange(SIZE, dtype="f4")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_they_assemble(arch: str) -> None:
    assert "error" not in assemble(PTX, arch)


def test_they_run_on_the_simulator() -> None:
    np.testing.assert_array_equal(load(chain(SIZE), "sim")(x), 6 * x)
    w = np.zeros(SIZE, "f4")
    y, _ = load(training(SIZE), "sim").run([x], [w])
    np.testing.assert_array_equal(w, x)
    np.testing.assert_array_equal(y, 2 * x)
    loop = load(looped(SIZE), "sim")
    for turns in (3, 0, 1, 7):
        w = np.ones(SIZE, "f4")
        loop.run([x, np.int32(turns)], [w])
        np.testing.assert_array_equal(w, 1 + turns * x)
    with pytest.raises(SimulationError, match="wild, line"):
        load(one("wild", SIZE), "sim")(x)


def test_a_loop_whose_launches_do_nothing_is_refused() -> None:
    """Nothing in it could end it."""
    contents = looped(SIZE)
    (variant,) = contents.variants
    step, start, following, loop = variant.tables.kernels
    nothing = [
        replace(kernel, device=DeviceLaunch((0, 1, 1), (1, 1, 1))) for kernel in (step, following)
    ]
    tables = replace(variant.tables, kernels=(nothing[0], start, nothing[1], loop))
    with pytest.raises(ArtifactError, match="a loop that does nothing"):
        load(replace(contents, variants=(replace(variant, tables=tables),)), "sim")


def test_the_benchmark_of_calls(capsys: pytest.CaptureFixture[str]) -> None:
    """Every row is measured; what the simulator takes means nothing."""
    path = Path(__file__).parents[2] / "benchmarks" / "gpu" / "calls.py"
    assert runpy.run_path(str(path))["main"](["--calls", "2", "--device", "sim"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 7
    assert all(row.endswith(" us") and float(row.split()[-2]) > 0 for row in rows)
