"""A file's own runtime on a device: C programs that open and run it, with a libcuda for tests."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device_samples import SIZE, sized_contents, step_contents, without_driver

from nova.artifact.write import write_artifact

ROOT = Path(__file__).resolve().parents[2]


def build(name: str, folder: Path) -> Path:
    """A C program of the tests for devices."""
    path = folder / name
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-pedantic"]
    include = f"-I{ROOT / 'native/include'}"
    source = next(ROOT.glob(f"tests/*/{name}.c"))
    subprocess.run(["cc", *flags, include, "-o", path, source, "-ldl"], check=True)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("run_on_device", tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="module")
def file(runtime: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("c") / "step.nova"
    weights = {1: np.ones(SIZE, "f4").tobytes()}
    path.write_bytes(write_artifact(replace(step_contents(), runtime=runtime, weights=weights)))
    return path


@pytest.fixture(scope="module")
def driver(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "libcuda.so.1").symlink_to(library)
    return folder


def run(program: Path, file: Path, device: str, driver: Path | None) -> tuple[int, list[str]]:
    environment = {} if driver is None else {"LD_LIBRARY_PATH": str(driver)}
    done = subprocess.run(
        [program, file, device], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_symbolic_sizes(runtime: bytes, driver: Path, tmp_path: Path) -> None:
    """y = 4 x of 5, 64, 5 and 100 elements, and nothing after them; a size out of bounds."""
    path = tmp_path / "any.nova"
    path.write_bytes(write_artifact(replace(sized_contents(), runtime=runtime)))
    status, lines = run(build("run_sizes", tmp_path), path, "cuda", driver)
    assert status == 0
    assert lines[0] == "the model has symbolic sizes: nova_open_sizes gives one to run"
    assert lines[1:5] == ["5 16 -1", "64 252 -1", "5 16 20", "100 396 -1"]
    assert lines[5] == "B is 5000, the program is for 1 to 4096"


@pytest.mark.parametrize("device", ["-", "cuda", "cuda:0"])
def test_a_step_of_training(program: Path, file: Path, driver: Path, device: str) -> None:
    """Four runs: w = 1 + 4 x, y = 2 w; params that runs update cannot stay in the file."""
    status, lines = run(program, file, device, driver)
    assert status == 0
    assert lines[0] == "cuda:sm_80 0 21 42"
    assert lines[1].startswith("argument 1 (w) is updated in place and cannot stay in the file")


WRONG = [
    ("cuda:1", "there is no GPU 1: this machine has 1"),
    ("tpu", "device 'tpu' is not known"),
    ("cuda:x", "device 'cuda:x' is not known"),
    ("cpu", "cuda:sm_80 needs a GPU of sm_80"),
]


@pytest.mark.parametrize(("device", "says"), WRONG)
def test_devices_that_are_not_there(
    program: Path, file: Path, driver: Path, device: str, says: str
) -> None:
    status, lines = run(program, file, device, driver)
    assert status == 1
    assert says in lines[0]


@without_driver
def test_no_driver(program: Path, file: Path, tmp_path: Path) -> None:
    status, lines = run(program, file, "cuda", tmp_path)
    assert status == 1
    assert "there is no CUDA driver: libcuda.so.1" in lines[0]
