"""Loops and branches of the simulated driver, under sanitizers: native/tests/gpusim/test_flow.c."""

from __future__ import annotations

import subprocess

import pytest
from c_build import MEMORY, NATIVE, build_program, build_runtime, sanitized


@pytest.mark.slow
def test_flows_run_and_misuse_is_refused() -> None:
    sources = sorted((NATIVE / "src" / "gpusim").rglob("*.c"))
    test = NATIVE / "tests" / "gpusim" / "test_flow.c"
    # The flags of test_sim_sanitized.py, whose objects these are.
    flags = [*sanitized(MEMORY), "-ffp-contract=off"]
    libraries = [build_runtime(MEMORY), "-lm", "-lpthread", "-ldl"]
    program = build_program([test, *sources], flags, libraries)
    completed = subprocess.run([program], capture_output=True, text=True, timeout=240)
    assert completed.returncode == 0, completed.stdout + completed.stderr
