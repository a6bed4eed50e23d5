"""`run.py --avx2`: a process that is held to AVX2 finds no more, whatever its libraries do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.narrow import hold_to_avx2

_FLAGS = set(Path("/proc/cpuinfo").read_text().split())

pytestmark = pytest.mark.skipif(
    not {"avx512f", "cpuid_fault"} <= _FLAGS, reason="needs AVX-512, and a CPU that can hide it"
)

_ASK = """
import faulthandler
faulthandler.enable()  # as libraries do that catch what the hiding needs
from numpy._core._multiarray_umath import __cpu_features__ as has
print(has["AVX2"], any(has[name] for name in has if name.startswith("AVX512")))
"""


@pytest.mark.parametrize("alive, answer", [(False, "True True"), (True, "True False")])
def test_libraries_find_avx2_only(tmp_path: Path, alive: bool, answer: str) -> None:
    variables = os.environ | (hold_to_avx2(tmp_path) if alive else {})
    command = [sys.executable, "-c", _ASK]
    completed = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == answer


def test_a_fault_still_ends_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import ctypes; ctypes.string_at(8)"]
    completed = subprocess.run(
        command, env=os.environ | hold_to_avx2(tmp_path), capture_output=True
    )
    assert completed.returncode == -11
