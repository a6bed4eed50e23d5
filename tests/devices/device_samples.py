"""A libcuda that is a C file of this folder, and programs for it that are made by hand.

The kernels are functions of that file; see `fake_cuda.c` for what they do.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nova import _native
from nova.artifact.device_image import DeviceImage
from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.format import read_artifact
from nova.artifact.manifest import TensorSpec
from nova.artifact.symbolic import Placeholders, SymbolicSizes
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.write import FileSpec, Variant, write_artifact
from nova.core.sizes import Dim, ceildiv, size_of
from nova.core.targets import parse_target
from nova.errors import DriverMissingError
from nova.runtime import devices
from nova.runtime.gpu_executor import DeviceExecutable
from nova.runtime.model import Model
from nova.runtime.weights import read_values

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 .ptr x, .param .u64 .ptr y) { ret; }
.visible .entry add(.param .u64 .ptr x, .param .u64 .ptr y, .param .u64 .ptr z) { ret; }
.visible .entry step(.param .u64 .ptr x, .param .u64 .ptr w) { ret; }
.visible .entry masked(.param .u64 .ptr x, .param .u64 .ptr y, .param .u64 n) { ret; }
"""
SIZE = 96
NBYTES = 4 * SIZE
SHAPE = DeviceLaunch((3, 1, 1), (32, 1, 1))


def has_driver() -> bool:
    """Whether this machine has a CUDA driver of its own."""
    try:
        devices.open_cuda()
    except DriverMissingError:
        return False
    return True


without_driver = pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver")


class FakeCuda:
    """The controls of the library."""

    def __init__(self, path: Path):
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_count.restype = ctypes.c_long
        self.library.fake_used.restype = ctypes.c_size_t
        self.library.fake_history.restype = ctypes.c_char_p
        self.library.fake_memory.argtypes = [ctypes.c_size_t]

    def reset(self) -> None:
        self.library.fake_reset()

    def count(self, name: str) -> int:
        return self.library.fake_count(name.encode())

    def fail(self, name: str, result: int, after: int = 1) -> None:
        """Have the call give `result` from its `after`-th time on; 0 ends that."""
        self.library.fake_fail(name.encode(), ctypes.c_long(after), result)

    def forget(self) -> None:
        """Count calls from now on."""
        self.library.fake_forget()

    @property
    def history(self) -> list[str]:
        return self.library.fake_history().decode().split()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody who waits for the device gets to an end in the block; programs of other tests,
        which would, are freed before it."""
        gc.collect()
        gc.disable()
        self.library.fake_hold(1)
        try:
            yield
        finally:
            self.library.fake_hold(0)
            gc.enable()

    def device(self, ordinal: int = 0) -> _native.Device:
        return devices.make_device(devices.open_cuda(self.path), ordinal)


def model_of(contents: FileSpec, device: _native.Device) -> Model:
    """The program of a file on a device."""
    artifact = read_artifact(write_artifact(contents))
    return Model(
        DeviceExecutable(artifact, device), "file", values=read_values(artifact, None, None)
    )


def kernel(name: str, shape: DeviceLaunch = SHAPE) -> KernelSpec:
    return KernelSpec(name, name, 1, "device", 0, 0, "model.py:3", device=shape)


def make_contents(tables: Tables, args: list[TensorSpec], outputs: list[TensorSpec]) -> FileSpec:
    variant = Variant(parse_target("cuda:sm_80"), "sm_80", (), tables, CONSTANTS, {})
    return FileSpec(
        variants=(variant,),
        args=tuple(args),
        outputs=tuple(outputs),
        devices=(DeviceImage("ptx", "sm_80", PTX.encode()),),
    )


CONSTANTS = b"".join(i.to_bytes(4, "little") for i in range(SIZE))


def chain_contents() -> FileSpec:
    """y = 2 (2 x) + (2 x), by three launches and a workspace."""
    tables = Tables(
        buffers=(
            BufferSpec("arg", 0, NBYTES),
            BufferSpec("output", 0, NBYTES),
            BufferSpec("workspace", 0, NBYTES),
            BufferSpec("workspace", 512, NBYTES),
        ),
        kernels=(kernel("scale"), kernel("add")),
        launches=(
            LaunchSpec(0, (0, 2), 1),
            LaunchSpec(0, (2, 3), 1),
            LaunchSpec(1, (2, 3, 1), 2),
        ),
        workspace_size=1024,
        work=100,
    )
    args = [TensorSpec("x", (SIZE,), "f32", "input")]
    return make_contents(tables, args, [TensorSpec("y", (SIZE,), "f32", "output")])


def step_contents() -> FileSpec:
    """w += x in place, y = 2 w: a step of training."""
    tables = Tables(
        buffers=(
            BufferSpec("arg", 0, NBYTES),
            BufferSpec("arg", 1, NBYTES),
            BufferSpec("output", 0, NBYTES),
        ),
        kernels=(kernel("step"), kernel("scale")),
        launches=(LaunchSpec(0, (0, 1), 1), LaunchSpec(1, (1, 2), 1)),
        workspace_size=0,
        work=100,
    )
    args = [
        TensorSpec("x", (SIZE,), "f32", "input"),
        TensorSpec("w", (SIZE,), "f32", "param", True),
    ]
    outputs = [
        TensorSpec("y", (SIZE,), "f32", "output"),
        TensorSpec("w", (SIZE,), "f32", "output", alias=1),
    ]
    return make_contents(tables, args, outputs)


def sized_contents() -> FileSpec:
    """y = 2 (2 x) of vectors of any length B, by two launches and a workspace."""
    dim = Dim("B", 1, 4096)
    size, representative = size_of(dim), 4099
    places = Placeholders((str(size),))
    nbytes, blocks = places.of(size * 4), places.short(ceildiv(size, 32))
    tables = Tables(
        buffers=(
            BufferSpec("arg", 0, nbytes),
            BufferSpec("output", 0, nbytes),
            BufferSpec("workspace", 0, nbytes),
            BufferSpec("sizes", 0, 8),
        ),
        kernels=(kernel("masked", DeviceLaunch((blocks, 1, 1), (32, 1, 1))),),
        launches=(LaunchSpec(0, (0, 2, 3), 1), LaunchSpec(0, (2, 1, 3), 1)),
        workspace_size=4 * representative,
        work=100,
    )
    numbers = {representative: places.number(size)}
    sizes = SymbolicSizes((dim,), {"B": representative}, 1, places.expressions, numbers)
    shape = (representative,)
    args, outputs = TensorSpec("x", shape, "f32", "input"), TensorSpec("y", shape, "f32", "output")
    contents = make_contents(tables, [args], [outputs])
    return replace(contents, variants=(replace(contents.variants[0], sizes=sizes),))
