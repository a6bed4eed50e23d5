"""The libcuda of this folder, built, and a device of it."""

from __future__ import annotations

import gc
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from device_samples import FakeCuda

from nova import _native
from nova.artifact.elf.runtime_object import runtime_object


@pytest.fixture(scope="session")
def runtime() -> bytes:
    """What a file needs to be opened by C programs; a package built for tests has it."""
    found = runtime_object(os.uname().machine)
    if found is None:
        pytest.skip("the package came without a runtime for files")
    return found


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fake") / "libfake_cuda.so"
    source = Path(__file__).with_name("fake_cuda.c")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", path, source], check=True)
    return path


@pytest.fixture
def only_new_objects() -> None:
    """`gc.collect()` walks the objects of this test, and not those of all imported libraries."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def fake(library: Path) -> Iterator[FakeCuda]:
    controls = FakeCuda(library)
    controls.reset()
    yield controls
    deadline = time.monotonic() + 10  # a thread may be about to end a run whose time was over
    while controls.library.fake_depth() != 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert controls.library.fake_depth() == 0, "a context was left on the stack"
    controls.reset()


@pytest.fixture
def device(fake: FakeCuda) -> _native.Device:
    return fake.device()
