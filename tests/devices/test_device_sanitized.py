"""The device runtime in C under the sanitizers of gcc, over a libcuda for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "native"))
from machine import MEMORY, NATIVE, THREADS, build_runtime, build_test


@pytest.mark.parametrize("sanitizers", [MEMORY, THREADS])
def test_c_program(tmp_path: Path, sanitizers: str) -> None:
    runtime = build_runtime(tmp_path, sanitizers)
    fake = tmp_path / "libfake_cuda.so"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-g", f"-fsanitize={sanitizers}", "-shared", "-fPIC"]
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run(["gcc", *flags, "-o", fake, source], check=True)
    program = build_test(NATIVE / "tests" / "test_device.c", runtime, sanitizers, tmp_path, "-ldl")
    done = subprocess.run([program, fake], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
