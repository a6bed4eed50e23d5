"""The C tests of the runtime, built and run under the sanitizers of gcc.

A test that plays a .nova file defines `nova_enclosing_file` itself; the others link the one of
libnova.a.
"""

from __future__ import annotations

import subprocess

import pytest
from c_build import MEMORY, NATIVE, THREADS, WRAP, build_test


@pytest.mark.parametrize(
    ("test", "sanitizers"),
    [
        ("exec/test_runtime.c", MEMORY),
        ("exec/test_threads.c", THREADS),
        ("exec/test_threads.c", MEMORY),
        ("base/test_caching_allocator.c", THREADS),
        ("base/test_caching_allocator.c", MEMORY),
        ("exec/test_executions.c", THREADS),
        ("exec/test_executions.c", MEMORY),
        ("exec/test_many_programs.c", THREADS),
        ("exec/test_many_programs.c", MEMORY),
        ("exec/test_task_plan.c", THREADS),
        ("exec/test_task_plan.c", MEMORY),
        ("exec/test_loop_threads.c", MEMORY),
        ("exec/test_stall.c", THREADS),
        ("exec/test_stall.c", MEMORY),
        ("api/test_model.c", MEMORY),
        ("api/test_model.c", THREADS),
        ("api/test_ciface.c", MEMORY),
        ("api/test_ciface.c", THREADS),
    ],
)
def test_c_program(test: str, sanitizers: str):
    flags = WRAP if test == "exec/test_executions.c" else ()
    program = build_test(NATIVE / "tests" / test, sanitizers, *flags)
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
