"""The C tests of the runtime, built and run under the sanitizers of gcc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"


@pytest.mark.parametrize(
    ("test", "sanitizers"),
    [
        ("test_runtime.c", "address,undefined"),
        ("test_threads.c", "thread"),
        ("test_threads.c", "address,undefined"),
    ],
)
def test_c_program(tmp_path: Path, test: str, sanitizers: str):
    program = tmp_path / "program"
    flags = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    flags += [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", f"-I{NATIVE / 'include'}"]
    sources = [NATIVE / "tests" / test, *sorted((NATIVE / "src").glob("*.c"))]
    subprocess.run(["gcc", *flags, *map(str, sources), "-o", str(program)], check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
