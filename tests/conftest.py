"""What all tests share: a disk cache of their own, so that no run sees another's programs."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Before anything of Nova is imported; child processes inherit the variable."""
    # A test run in the background of a shell ignores Ctrl-C, and would pass that on to the tests
    # of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = tempfile.mkdtemp(prefix="nova-test-cache-")
    os.environ["NOVA_CACHE_DIR"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session", params=["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def on_device(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What `nova.compile` is told to compile for a device and run there.

    Device code runs on the simulated GPU in `make test`, and on the GPU of the machine in `make
    test-gpu`.
    """
    if request.param == "sim":
        return {"target": "cuda:sm_80", "run_mode": "sim"}
    from nova.errors import DriverMissingError
    from nova.runtime.devices import local_architecture

    try:
        return {"target": f"cuda:{local_architecture()}"}
    except DriverMissingError as error:
        pytest.skip(f"no GPU here: {error.what}")
