"""The overhead of a run per kernel: 200 kernels in sequence, and the same kernels in a C loop."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness.case import Case

TITLE = "A chain of 200 small kernels"
MODE = "loop"
UNIT = "us"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1, 2)
TOLERANCE = 1e-4

COUNT = 200
_LOOP = """
#include <stdint.h>
typedef void (*kernel)(void *const *, int64_t, int64_t);
void loop(kernel *kernels, void **operands, int64_t *first, int64_t *grids, int64_t count) {
    for (int64_t i = 0; i < count; i++) kernels[i](operands + first[i], 0, grids[i]);
}
"""

Arrays = list[np.ndarray]


def arrays() -> Arrays:
    return [np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32)]


def oracle(data: Arrays) -> Arrays:
    x = data[0].astype(np.float64)
    for _ in range(COUNT):
        x = np.tanh(x @ x)
    return [x]


def _program() -> Any:
    import nova

    # One kernel a step: such small ones are put together otherwise.
    with nova.knobs.override(serial_work=1):
        x = nova.tensor(arrays()[0])
        y = x
        for _ in range(COUNT):
            y = nova.tanh(y @ y)
        program = nova.compile(y, inputs=[x])
    assert len(program._executable.tables.launches) == COUNT
    return program


def nova_call(data: Arrays) -> Case:
    return Case(_program(), data)


def c_loop(data: Arrays) -> Case:
    """The same machine code, called by a loop in C on pointers that were bound before."""
    executable = _program()._executable
    tables = executable.tables
    folder = Path(tempfile.mkdtemp())
    (folder / "loop.c").write_text(_LOOP)
    (folder / "code.nova").write_bytes(executable.artifact.data)
    command = ["gcc", "-O2", "-shared", "-fPIC", "loop.c", "-o", "loop.so"]
    subprocess.run(command, cwd=folder, check=True)
    code, driver = ctypes.CDLL(folder / "code.nova"), ctypes.CDLL(folder / "loop.so")
    out = np.empty_like(data[0])
    workspace = np.empty(tables.workspace_size + 64, np.uint8)
    base = workspace.ctypes.data + -workspace.ctypes.data % 64
    at = {"arg": data[0].ctypes.data, "output": out.ctypes.data}

    def address(index: int) -> int:
        buffer = tables.buffers[index]
        return base + buffer.value if buffer.kind == "workspace" else at[buffer.kind]

    operands = [address(b) for launch in tables.launches for b in launch.buffers]
    first = np.cumsum([0, *(len(launch.buffers) for launch in tables.launches)][:-1])
    symbols = [tables.kernels[launch.kernel].symbol for launch in tables.launches]
    kernels = [ctypes.cast(getattr(code, s), ctypes.c_void_p).value for s in symbols]
    grids = [tables.kernels[launch.kernel].grid for launch in tables.launches]
    table = [np.array(values, np.int64) for values in (kernels, operands, first, grids)]
    pointers = [ctypes.c_void_p(t.ctypes.data) for t in table]
    keep = (table, code, driver, workspace, data)
    return Case(
        driver.loop,
        [*pointers, ctypes.c_int64(COUNT)],
        read=lambda _: [out.copy()] if keep else [],
    )


CONTENDERS = {"Nova": ("nova", nova_call), "the kernels in a C loop": ("nova", c_loop)}
