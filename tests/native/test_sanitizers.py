"""The C tests of the runtime, built and run under the sanitizers of gcc.

A test that plays a .nova file defines `nova_self` itself; the others get the one of libnova.a.
"""

from __future__ import annotations

import subprocess

import pytest
from c_build import MEMORY, NATIVE, THREADS, WRAP, build_test


@pytest.mark.parametrize(
    ("test", "sanitizers"),
    [
        ("test_runtime.c", MEMORY),
        ("test_threads.c", THREADS),
        ("test_threads.c", MEMORY),
        ("test_blocks.c", THREADS),
        ("test_blocks.c", MEMORY),
        ("test_executions.c", THREADS),
        ("test_executions.c", MEMORY),
        ("test_many_programs.c", THREADS),
        ("test_many_programs.c", MEMORY),
        ("test_stall.c", THREADS),
        ("test_stall.c", MEMORY),
        ("test_model.c", MEMORY),
        ("test_model.c", THREADS),
        ("test_ciface.c", MEMORY),
        ("test_ciface.c", THREADS),
    ],
)
def test_c_program(test: str, sanitizers: str):
    flags = WRAP if test == "test_executions.c" else ()
    program = build_test(NATIVE / "tests" / test, sanitizers, *flags)
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
