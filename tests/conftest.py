"""What all tests share: a disk cache of their own, so that no run sees another's programs, and a
folder of what was built of C."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from typing import Any

import c_build
import nightly
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="run the K-th of N parts of the tests")


@pytest.hookimpl(trylast=True)  # of what -m and -k have left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if text := config.getoption("--part"):
        chosen = nightly.take_part(items, text)
        remaining = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in remaining])
        items[:] = chosen


def pytest_configure(config: pytest.Config) -> None:
    """Before anything of Nova is imported; child processes inherit the variable."""
    if text := config.getoption("--part"):
        try:
            nightly.part_of(text)
        except ValueError:
            raise pytest.UsageError(f"--part is K/N, such as 3/8, and not {text!r}") from None
    # A test run in the background of a shell ignores Ctrl-C, and would pass that on to the tests
    # of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Every other process that a test starts would compile Nova's Python anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Where a GPU is, jax computes on it, in less precision, and takes most of its memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if "not gpu" in config.option.markexpr:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["NOVA_CACHE_DIR"] = _make_folder(config, "nova-test-cache-")
    if not hasattr(config, "workerinput"):  # one for all processes of the run
        os.environ[c_build.FOLDER] = _make_folder(config, "nova-test-build-")
    else:  # torch's threads would wait in loops for those of the other workers
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Garbage collections no longer walk the modules and tests: a third of a second each."""
    gc.collect()
    gc.freeze()


def _make_folder(config: pytest.Config, prefix: str) -> str:
    """A folder that goes with this process."""
    folder = tempfile.mkdtemp(prefix=prefix)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


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
