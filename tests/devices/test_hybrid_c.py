"""Files with kernels on both sides, opened by C programs: the file's own runtime, and libnova.a.

The second one is built with the sanitizers of gcc, and so is the libcuda for tests under it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from c_build import MEMORY, NATIVE, THREADS, build_program, build_runtime, sanitized
from device_samples import without_driver
from hybrid_samples import compile_host, hybrid_contents

from nova import _native
from nova.artifact.write import write_artifact

SOURCE = Path(__file__).with_name("run_hybrid.c")
Run = Callable[[str, bool], tuple[int, list[str]]]

NEGATIVE = (
    f"{_native.TASK_REPORTED} kernel refuse_negative, tiles 0 to 12 of 96, model.py:9 "
    "reported error 7"
)
ALL = ["cuda:sm_80 right"] * 3
ALL += [NEGATIVE, "cuda:sm_80 right", "values right", "1 argument 0 (x) is NULL", "threads right"]
MISSING = [
    ("cuda:1", "there is no GPU 1: this machine has 1"),
    ("cuda:99", "there is no GPU 99"),
    ("cuda:", "device 'cuda:' is not known: it is cpu, cuda or cuda:1"),
    ("tpu", "device 'tpu' is not known: it is cpu, cuda or cuda:1"),
    ("sim", "device 'sim' is of Python's nova.load: here it is cpu, cuda or cuda:1"),
    ("sim:1", "device 'sim:1' is of Python's nova.load: here it is cpu, cuda or cuda:1"),
    ("cpu", "cuda:sm_80 needs a GPU of sm_80"),
]


@pytest.fixture(scope="module")
def file(runtime: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    path = folder / "hybrid.nova"
    path.write_bytes(
        write_artifact(replace(hybrid_contents(compile_host(folder)), runtime=runtime))
    )
    return path


def make_driver(folder: Path, *flags: str) -> Path:
    """A folder with a libcuda.so.1."""
    folder.mkdir()
    own = ["-std=c11", "-D_GNU_SOURCE", "-g", "-shared", "-fPIC", *flags]
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run(["gcc", *own, "-o", folder / "libcuda.so.1", source], check=True)
    return folder


@pytest.fixture(scope="module", params=["inside", MEMORY, THREADS])
def run(file: Path, request: pytest.FixtureRequest, tmp_path_factory) -> Run:
    """Runs the program with the name of a device, with or without a driver."""
    folder = tmp_path_factory.mktemp("run")
    if request.param == "inside":
        flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread"]
        program = build_program([SOURCE], [*flags, f"-I{NATIVE / 'include'}"], ["-ldl"])
        driver = make_driver(folder / "driver")
    else:
        flags = [*sanitized(request.param), "-D_GNU_SOURCE", "-DLINKED"]
        program = build_program([SOURCE], flags, [build_runtime(request.param), "-ldl"])
        driver = make_driver(folder / "driver", f"-fsanitize={request.param}")

    def run(device: str, has_driver: bool = True) -> tuple[int, list[str]]:
        environment = {"NOVA_THREADS": "3"}
        if has_driver:
            environment["LD_LIBRARY_PATH"] = str(driver)
        done = subprocess.run(
            [program, file, device], env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    return run


def test_arrays_of_the_host(run: Run) -> None:
    """Opened, run in several ways, and closed, twice in one process."""
    status, lines = run("cuda")
    assert lines == ALL * 2
    assert status == 0


@pytest.mark.parametrize(("device", "says"), MISSING)
def test_devices_that_are_not_there(run: Run, device: str, says: str) -> None:
    status, lines = run(device)
    assert status == 1
    assert says in lines[0]


@without_driver
def test_no_driver(run: Run) -> None:
    status, lines = run("cuda", has_driver=False)
    assert status == 1
    assert "there is no CUDA driver: libcuda.so.1" in lines[0]
