"""The builder of single launches is with the benchmarks of device schedules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))


@pytest.fixture(params=["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def on_hopper(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What `nova.compile` is told to compile for a Hopper GPU, and run there or simulated."""
    if request.param == "sim":
        return {"target": "cuda:sm_90a", "run_mode": "sim"}
    from nova.errors import DriverMissingError
    from nova.runtime.devices import local_architecture

    try:
        architecture = local_architecture()
    except DriverMissingError as error:
        pytest.skip(f"no GPU here: {error.what}")
    if architecture != "sm_90a":
        pytest.skip(f"the GPU here is of {architecture}")
    return {"target": "cuda:sm_90a"}
