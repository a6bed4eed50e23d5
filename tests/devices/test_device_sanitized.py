"""The device runtime in C under the sanitizers of gcc, over a libcuda for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from c_build import MEMORY, NATIVE, THREADS, build_test


@pytest.mark.parametrize("sanitizers", [MEMORY, THREADS])
def test_c_program(tmp_path: Path, sanitizers: str) -> None:
    fake = tmp_path / "libfake_cuda.so"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-g", f"-fsanitize={sanitizers}", "-shared", "-fPIC"]
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run(["gcc", *flags, "-o", fake, source], check=True)
    program = build_test(NATIVE / "tests" / "gpu" / "test_device.c", sanitizers, "-ldl")
    done = subprocess.run([program, fake], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
