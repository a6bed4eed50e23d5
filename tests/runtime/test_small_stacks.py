"""Threads with small stacks run everything: what a tile needs is not on the stack."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from processors import runnable

import nova

SCRIPT = """
import sys, threading
import numpy as np
import nova
target, count = sys.argv[1], int(sys.argv[2])
n = 512
a = np.random.default_rng(0).standard_normal((n, n)).astype("f4")
A = nova.tensor(a, name="a")
y = nova.softmax(nova.gelu(A @ A.T) @ A) @ A
with nova.knobs.override(threads=count):
    program = nova.compile(y, inputs=[A], target=target)
expected = program(a)
found = []
def work():
    with nova.knobs.override(threads=count):
        found.append(program(a))
        found.append(program.submit(a).result())
threading.stack_size(64 << 10)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
assert len(found) == 6 and all((f == expected).all() for f in found)
print("done")
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", runnable("cpu", "x86_64-v3"))
def test_a_small_stack_is_enough(target: str, threads: int) -> None:
    command = [sys.executable, "-c", SCRIPT, target, str(threads)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (completed.returncode, completed.stdout) == (0, "done\n"), completed.stderr


@pytest.mark.parametrize("target", runnable("cpu", "x86_64-v3", "x86_64"))
def test_packed_panels_are_in_scratch_memory(target: str) -> None:
    a = np.ones((512, 512), np.float32)
    x = nova.tensor(a, name="x")
    program = nova.compile(x @ x, inputs=[x], target=target)
    (kernel,) = program.kernels
    tables = program._executable.tables
    assert kernel.takes_scratch and tables.scratch_size >= 64 << 10
    # Functions that kernels share keep their small ones.
    body = program.stages["loops"].partition("@kernel_0(")[2].partition("\n  }")[0]
    on_stack = re.findall(r"memref.alloca\(\).*: memref<(\d+)xf32>", body)
    placed = sum(-(-4 * int(n) // 64) * 64 for n in on_stack if 4 * int(n) >= 1024)
    assert placed == tables.scratch_size
    np.testing.assert_array_equal(program(a), a @ a)
