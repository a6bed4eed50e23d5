"""Loops without an end: time-outs and Ctrl-C stop them, and the program runs again after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import errors

SHORT, LARGE = (4,), (160, 160)


def small_body(x: Any) -> Any:
    return nova.while_loop(lambda s: s.sum() < 1, lambda s: s * 1.0, x)


def large_body(x: Any) -> Any:
    return nova.while_loop(lambda s: s.sum() < 1, lambda s: nova.tanh(s @ s), x)


def nested(x: Any) -> Any:
    return nova.fori_loop(0, 3, lambda i, c: small_body(c), x)


def in_a_branch(x: Any) -> Any:
    return nova.cond(x.sum() < 1, lambda: nested(x), lambda: x)


def several_kernels(x: Any) -> Any:
    return large_body(nova.tanh(x)) @ x


CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "small body": (small_body, SHORT),
    "large body": (large_body, LARGE),
    "nested": (nested, SHORT),
    "branch": (in_a_branch, SHORT),
    "several kernels": (several_kernels, LARGE),
}


def make(name: str, folder: Path) -> tuple[Any, tuple[int, ...]]:
    """The program of a case, or one that calls a file, or has symbolic sizes."""
    function, shape = CASES.get(name, (small_body, SHORT))
    x = nova.input((nova.dim("B"),) if name == "symbolic" else shape, name="x")
    y = function(x)
    if name == "called file":
        nova.compile(y, inputs=[x]).save(folder / "loop.nova")
        y = nova.call(nova.load(folder / "loop.nova"), x)
    return nova.compile(y, inputs=[x]), shape


NAMES = [*CASES, "called file", "symbolic"]


@pytest.mark.parametrize("name", NAMES)
def test_a_timeout(name: str, tmp_path: Path):
    program, shape = make(name, tmp_path)
    for _ in range(2):
        with pytest.raises(errors.RunTimeoutError) as raised:
            program.run([np.zeros(shape, "f4")], timeout=0.05)
        assert "test_stopped_loops.py" in str(raised.value)
        ones = np.ones(shape, "f4")
        assert np.isfinite(program(ones)).all()
    if name == "small body":
        np.testing.assert_array_equal(program(ones), ones)


@pytest.mark.parametrize("name", NAMES)
def test_ctrl_c(name: str, tmp_path: Path):
    """A signal of another thread, while this one runs the loop."""
    program, shape = make(name, tmp_path)
    jitted = nova.jit(CASES.get(name, (small_body, SHORT))[0])
    ones = np.ones(shape, "f4")
    expected = [program(ones), jitted(ones)]
    for run, result in zip((program, jitted), expected, strict=True):
        timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(errors.RunInterrupted) as raised:
            run(np.zeros(shape, "f4"))
        timer.join()
        assert isinstance(raised.value, KeyboardInterrupt)
        assert "test_stopped_loops.py" in str(raised.value)
        np.testing.assert_array_equal(run(ones), result)


def test_ctrl_c_while_a_tensor_is_evaluated():
    program = nova.compile(small_body(x := nova.input(SHORT, name="x")), inputs=[x])
    assert program(np.ones(SHORT, "f4")).sum() == 4
    endless = small_body(nova.tensor(np.zeros(SHORT, "f4")))
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises((errors.RunInterrupted, errors.CompileInterrupted)):
        endless.numpy()
    timer.join()
    assert small_body(nova.tensor(np.ones(SHORT, "f4"))).numpy().sum() == 4


def test_cancelled_futures():
    program = nova.compile(small_body(x := nova.input(SHORT, name="x")), inputs=[x])
    future = program.submit(np.zeros(SHORT, "f4"))
    future.cancel()
    with pytest.raises(errors.RunCancelled):
        future.result(timeout=30)
    assert program(np.ones(SHORT, "f4")).sum() == 4


# --- sizes whose workspace does not fit -----------------------------------------------------------


def symbolic_product(**options: Any) -> Any:
    n = nova.dim("n")
    x = nova.input((n, n), name="x")
    return nova.compile(nova.tanh((x @ x) @ x).sum(), inputs=[x], **options)


def test_a_size_over_the_limit():
    program = symbolic_product(max_workspace="1M")
    with pytest.raises(errors.WorkspaceError, match="for n=1000, and max_workspace") as raised:
        program(np.zeros((1000, 1000), "f4"))
    assert "test_stopped_loops.py" in str(raised.value) and "larger max_workspace" in str(
        raised.value
    )
    assert program(np.zeros((10, 10), "f4")) == 0


def test_a_size_beyond_64_bits():
    program = symbolic_product()
    with pytest.raises(errors.WorkspaceError, match="there is no program for n=1073741824"):
        program.workspace_for(n=2**30)
    assert program(np.zeros((3, 3), "f4")) == 0


WITHOUT_MEMORY = """
import resource, numpy as np, nova
n = nova.dim("n")
x = nova.input((n, 1), name="x")
y = nova.scan(lambda c, _: (nova.tanh(c @ c), None), x @ x.T, length=2)[0].sum()
program = nova.compile(y, inputs=[x])
assert program(np.zeros((4, 1), "f4")) == 0
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), hard))
try:
    program(np.zeros((20_000, 1), "f4"))
except nova.errors.RunMemoryError as error:
    print("refused:", error)
assert program(np.zeros((5, 1), "f4")) == 0
"""


def test_a_size_without_memory():
    """A workspace of 3 GB, where a limit leaves a tenth of that; smaller sizes still run."""
    completed = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, timeout=120
    )
    assert completed.returncode == 0, completed.stderr
    assert "refused: " in completed.stdout and "memory" in completed.stdout
