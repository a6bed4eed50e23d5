"""Files that run on several threads without Python's runtime: through their own C functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from task_counts import count_tasks

import nova

_SCRIPT = """
import ctypes, os, sys, threading, time
import numpy as np

def count_threads():
    return len(os.listdir("/proc/self/task"))

before = count_threads()

path, folder = sys.argv[1:]
x = np.load(folder + "/x.npy")
code = ctypes.CDLL(path)
code.nova_close.argtypes = [ctypes.c_void_p]
model, error = ctypes.c_void_p(), ctypes.create_string_buffer(516)
status = code.nova_open(None, ctypes.byref(model), error)
if status:
    print(error.raw[44:].split(b"\\0")[0].decode())
    sys.exit(0)

def run(out):
    arguments = (ctypes.c_void_p * 1)(x.ctypes.data)
    outputs = (ctypes.c_void_p * 1)(out.ctypes.data)
    status = code.nova_run(model, arguments, outputs, None, error)
    assert status == 0, error.raw

outs = [np.zeros_like(x) for _ in range(6)]
threads = [threading.Thread(target=run, args=(out,)) for out in outs]
for thread in threads:
    thread.start()
time.sleep(0.001)
{end}
for thread in threads:
    thread.join()
expected = np.load(folder + "/expected.npy")
assert all(np.array_equal(out, expected) for out in outs)
import _ctypes
until = time.monotonic() + 5
while count_threads() > before + {workers} and time.monotonic() < until:
    time.sleep(0.01)  # a thread is listed until it has left the kernel
workers = count_threads() - before
_ctypes.dlclose(code._handle)
time.sleep(0.1)
print("same", workers)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("threads")
    x = np.random.default_rng(0).random((384, 384), "f4")
    a = nova.tensor(x)
    program = nova.compile(nova.tanh(a @ a * 0.01) @ a, inputs=[a])
    assert count_tasks(program) >= 4
    program.save(folder / "m.nova")
    np.save(folder / "x.npy", x)
    np.save(folder / "expected.npy", program(x))
    return folder


def call(folder: Path, threads: str, workers: int = 0, end: str = "") -> str:
    script = _SCRIPT.format(end=end, workers=workers)
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "m.nova"), str(folder)],
        env={"NOVA_THREADS": threads, "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_file_gives_the_same_bits_with_every_thread_count(saved, threads):
    """The caller works too; more threads than the program has use for are not started."""
    word, workers = call(saved, str(threads), threads - 1).split()
    assert word == "same" and min(threads, 2) - 1 <= int(workers) <= threads - 1


def test_close_waits_for_runs_and_ends_the_threads(saved):
    end = "while not all(out.any() for out in outs): pass\ncode.nova_close(model)"
    assert call(saved, "4", 0, end) == "same 0\n"


@pytest.mark.parametrize("threads", ["0", "two", "257", "-1", "99999999999999999999"])
def test_a_wrong_number_of_threads_is_refused(saved, threads):
    assert "NOVA_THREADS is '" in call(saved, threads)
