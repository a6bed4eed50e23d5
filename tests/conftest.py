"""What all tests share: a disk cache of their own, so that no run sees another's programs, and a
folder of what was built of C."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import c_build
import nightly
import persistent_runs
import pytest
from hypothesis import HealthCheck, settings

_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# `make test` decides whether a change lands: it generates the same examples every time, however
# busy the machine is. `make nightly` looks for new ones.
settings.register_profile("test", derandomize=True, **_SLOW)
settings.register_profile("nightly", print_blob=True, **_SLOW)
settings.load_profile("test")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="run the K-th of N parts of the tests")
    persistent_runs.add_options(parser)


@pytest.hookimpl(trylast=True)  # of what -m and -k have left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    persistent_runs.skip_graph_tests(config, items)
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
    persistent_runs.set_knobs(config)
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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every test draws the same numbers, whatever ran before it in its process."""
    if item.get_closest_marker("gpu") is not None:
        from gpu_samples import has_gpu  # imports Nova

        if not has_gpu():
            pytest.skip("there is no GPU")
    random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
    if (seeds := sys.modules.get("nova.nn.seeds")) is not None:
        seeds.manual_seed(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    persistent_runs.report_refusal(item, call, outcome.get_result())


def pytest_collection_finish(session: pytest.Session) -> None:
    """Garbage collections no longer walk the modules and tests: a third of a second each."""
    gc.collect()
    gc.freeze()


def _make_folder(config: pytest.Config, prefix: str) -> str:
    """A folder that goes with this process."""
    folder = tempfile.mkdtemp(prefix=prefix)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


@pytest.fixture(scope="session", autouse=True)
def runtimes_of_other_machines() -> Iterator[None]:
    """The C runtime for another architecture is compiled once a run, whatever cache a test has."""
    from nova.artifact.elf import cross_compile

    folder = Path(os.environ[c_build.FOLDER]) / "runtimes"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(cross_compile, "_cache_folder", lambda: folder)
        yield


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
