"""The overhead of a call: an add of 8 floats, whose arithmetic takes no time."""

from __future__ import annotations

import ctypes
import tempfile
from typing import Any

import numpy as np
from harness.case import Case
from harness.peers import iree_case, torch_tensors

TITLE = "A call: add of 8 floats"
MODE = "loop"
UNIT = "us"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1,)
TOLERANCE = 1e-7

Arrays = list[np.ndarray]


def arrays() -> Arrays:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(8).astype(np.float32) for _ in range(2)]


def oracle(data: Arrays) -> Arrays:
    # One rounded addition of two f32 is exact to the last bit in f32.
    return [(data[0] + data[1]).astype(np.float64)]


def _nova_program() -> Any:
    import nova

    x, y = (nova.tensor(a, name=name) for a, name in zip(arrays(), "xy", strict=True))
    return nova.compile(x + y, inputs=[x, y])


def nova_call(data: Arrays) -> Case:
    return Case(_nova_program(), data)


def nova_jit(data: Arrays) -> Case:
    import nova

    @nova.jit
    def add(x: Any, y: Any) -> Any:
        return x + y

    return Case(add, data)


def nova_run(data: Arrays) -> Case:
    return Case(_nova_program().run, [data])


def nova_out(data: Arrays) -> Case:
    return Case(_nova_program(), data, {"out": np.empty(8, np.float32)})


def raw_ctypes(data: Arrays) -> Case:
    """Nova's machine code for the same program, called with addresses worked out beforehand."""
    program = _nova_program()
    executable = program._executable
    tables = executable.tables
    (launch,) = tables.launches
    spec = tables.kernels[launch.kernel]
    code = _opened(executable.artifact.data)
    kernel = getattr(code, spec.symbol)
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    kernel.restype = None
    out = np.empty(8, np.float32)
    pointers = {"arg": [a.ctypes.data for a in data], "output": [out.ctypes.data]}
    table = (ctypes.c_void_p * len(launch.buffers))(
        *(pointers[b.kind][b.value] for b in (tables.buffers[i] for i in launch.buffers))
    )
    address = ctypes.addressof(table)
    keep = (table, code)
    return Case(kernel, [address, 0, spec.grid], read=lambda _: [out.copy()] if keep else [])


def _opened(data: Any) -> ctypes.CDLL:
    """A library from bytes; the file may go once it is mapped."""
    with tempfile.NamedTemporaryFile(suffix=".nova") as file:
        file.write(data)
        file.flush()
        return ctypes.CDLL(file.name)


def numpy_add(data: Arrays) -> Case:
    return Case(np.add, data)


def numba_add(data: Arrays) -> Case:
    import numba

    @numba.njit
    def add(x: Any, y: Any) -> Any:
        return x + y

    return Case(add, data)


def numba_out(data: Arrays) -> Case:
    import numba

    @numba.njit
    def add(x: Any, y: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = x[i] + y[i]

    out = np.empty(8, np.float32)
    return Case(add, [*data, out], read=lambda _: [out])


def jax_jit(data: Arrays) -> Case:
    import jax

    add = jax.jit(lambda x, y: x + y)
    return Case(lambda x, y: add(x, y).block_until_ready(), [jax.device_put(a) for a in data])


def jax_numpy(data: Arrays) -> Case:
    import jax

    add = jax.jit(lambda x, y: x + y)
    return Case(lambda x, y: np.asarray(add(x, y)), data)


def torch_eager(data: Arrays) -> Case:
    import torch

    return Case(torch.add, torch_tensors(data))


def torch_compiled(data: Arrays) -> Case:
    import torch

    tensors = torch_tensors(data)
    return Case(torch.compile(lambda x, y: x + y), tensors)


def iree(data: Arrays) -> Case:
    return iree_case(lambda x, y: x + y, data)


CONTENDERS = {
    "Nova, Compiled()": ("nova", nova_call),
    "Nova, nova.jit": ("nova", nova_jit),
    "Nova, Compiled.run": ("nova", nova_run),
    "Nova, out=": ("nova", nova_out),
    "raw ctypes, same code": ("nova", raw_ctypes),
    "numpy": ("numpy", numpy_add),
    "numba": ("numba", numba_add),
    "numba, out=": ("numba", numba_out),
    "torch": ("torch", torch_eager),
    "torch.compile": ("torch", torch_compiled),
    "jax.jit": ("jax", jax_jit),
    "jax.jit, numpy in and out": ("jax", jax_numpy),
    "IREE": ("iree", iree),
}
