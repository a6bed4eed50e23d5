"""Programs of hand-written PTX: they need neither MLIR nor LLVM, which a GPU host may not have."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from nova.artifact.device_image import DeviceImage
from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.format import read_artifact
from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.write import FileSpec, Variant, write_artifact
from nova.core.targets import parse_target
from nova.errors import DriverMissingError
from nova.runtime.devices import open_device
from nova.runtime.gpu_executor import DeviceExecutable
from nova.runtime.model import Model

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
# Every thread has one element: its place is in %rd9, and what is to be done comes in between.
ENTRY = """.visible .entry {name}({params})
{{
  .reg .b32 %r<4>;
  .reg .b64 %rd<16>;
  .reg .f32 %f<8>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r1, %r1, %r2, %r3;
  mul.wide.u32 %rd9, %r1, 4;
{body}
  ret;
}}
"""


@cache
def has_gpu() -> bool:
    """Whether a CUDA driver with a device is here."""
    try:
        open_device("cuda")
    except DriverMissingError:
        return False
    return True


def entry(name: str, count: int, body: str) -> str:
    """A kernel with `count` pointers: those of the thread's elements are %rd1, %rd2, ..."""
    params = ", ".join(f".param .u64 p{i}" for i in range(1, count + 1))
    loads = "".join(
        f"  ld.param.u64 %rd{i}, [p{i}];\n  add.s64 %rd{i}, %rd{i}, %rd9;\n"
        for i in range(1, count + 1)
    )
    return ENTRY.format(name=name, params=params, body=loads + body)


SCALE = entry(
    "scale",
    2,
    """  ld.global.f32 %f1, [%rd1];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd2], %f2;""",
)
ADD = entry(
    "add",
    3,
    """  ld.global.f32 %f1, [%rd1];
  ld.global.f32 %f2, [%rd2];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd3], %f3;""",
)
STEP = entry(
    "step",
    2,
    """  ld.global.f32 %f1, [%rd1];
  ld.global.f32 %f2, [%rd2];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd2], %f3;""",
)
WILD = entry(
    "wild",
    2,
    """  mov.u64 %rd3, 16;
  st.global.u64 [%rd3], %rd1;""",
)
# One thread: counts down from a number, and says whether there is more to do.
COUNT = """.visible .entry {name}(.param .u64 p1, .param .u64 p2, .param .u64 p3)
{{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [p1];
  ld.param.u64 %rd2, [p2];
  ld.param.u64 %rd3, [p3];
  ld.global.s32 %r1, [%rd1];
  sub.s32 %r1, %r1, {step};
  st.global.s32 [%rd2], %r1;
  setp.gt.s32 %p1, %r1, 0;
  selp.u32 %r2, 1, 0, %p1;
  st.global.u8 [%rd3], %r2;
  ret;
}}
"""
COUNTS = COUNT.format(name="start", step=0) + COUNT.format(name="next", step=1)
PTX = HEADER + SCALE + ADD + STEP + WILD + COUNTS
BLOCK = 128


def kernel(name: str, size: int) -> KernelSpec:
    launch = DeviceLaunch((size // BLOCK, 1, 1), (BLOCK, 1, 1))
    return KernelSpec(name, name, 1, "device", 0, 0, "", device=launch)


def make(
    names: list[str],
    size: int,
    launches: list[tuple[int, tuple[int, ...]] | tuple[int, tuple[int, ...], int]],
    buffers: list[tuple[str, int]],
    args: list[TensorSpec],
    outputs: list[TensorSpec],
    workspace: int = 0,
    text: str = PTX,
) -> FileSpec:
    """A file of kernels over arrays of `size` floats."""
    tables = Tables(
        buffers=tuple(BufferSpec(mode, value, 4 * size) for mode, value in buffers),
        kernels=tuple(kernel(name, size) for name in names),
        launches=tuple(LaunchSpec(*launch) for launch in launches),
        workspace_size=workspace,
        work=100,
    )
    variant = Variant(parse_target("cuda:sm_80"), "sm_80", (), tables, b"", {})
    return FileSpec(
        variants=(variant,),
        args=tuple(args),
        outputs=tuple(outputs),
        devices=(DeviceImage("ptx", "sm_80", text.encode()),),
    )


def tensor(name: str, size: int, role: str, **more: object) -> TensorSpec:
    return replace(TensorSpec(name, (size,), "f32", role), **more)


def chain(size: int) -> FileSpec:
    """y = 6 x: three launches, two buffers of workspace."""
    return make(
        ["scale", "add"],
        size,
        [(0, (0, 2), 1), (0, (2, 3), 1), (1, (2, 3, 1), 2)],
        [("arg", 0), ("output", 0), ("workspace", 0), ("workspace", 4 * size)],
        [tensor("x", size, "input")],
        [tensor("y", size, "output")],
        workspace=8 * size,
    )


def training(size: int) -> FileSpec:
    """w += x in place, y = 2 w."""
    return make(
        ["step", "scale"],
        size,
        [(0, (0, 1), 1), (1, (1, 2), 1)],
        [("arg", 0), ("arg", 1), ("output", 0)],
        [tensor("x", size, "input"), tensor("w", size, "param", donated=True)],
        [tensor("y", size, "output"), tensor("w", size, "output", alias=1)],
    )


def looped(size: int) -> FileSpec:
    """w += x, as often as n says: a loop whose condition the device computes."""
    contents = make(
        ["step", "start", "next"],
        size,
        [(1, (2, 3, 4), 1), (3, (4,)), (0, (0, 1), 1), (2, (3, 3, 4))],
        [("arg", 0), ("arg", 2), ("arg", 1), ("workspace", 0), ("workspace", 64)],
        [
            tensor("x", size, "input"),
            TensorSpec("n", (), "i32", "input"),
            tensor("w", size, "param", donated=True),
        ],
        [tensor("w", size, "output", alias=2)],
        workspace=128,
    )
    (variant,) = contents.variants
    step, *counts = variant.tables.kernels
    alone = DeviceLaunch((1, 1, 1), (1, 1, 1))
    loop = KernelSpec("while", "", 2, "while", 0, 0, "")
    sizes = (4 * size, 4 * size, 4, 4, 1)
    tables = replace(
        variant.tables,
        kernels=(step, *(replace(kernel, device=alone) for kernel in counts), loop),
        buffers=tuple(
            replace(buffer, nbytes=nbytes)
            for buffer, nbytes in zip(variant.tables.buffers, sizes, strict=True)
        ),
    )
    return replace(contents, variants=(replace(variant, tables=tables),))


def one(name: str, size: int, text: str = PTX, workspace: int = 0) -> FileSpec:
    """One launch of a kernel of two pointers."""
    return make(
        [name],
        size,
        [(0, (0, 1), 1)],
        [("arg", 0), ("output", 0)],
        [tensor("x", size, "input")],
        [tensor("y", size, "output")],
        text=text,
        workspace=workspace,
    )


def load(contents: FileSpec, device: str = "cuda") -> Model:
    artifact = read_artifact(write_artifact(contents))
    return Model(DeviceExecutable(artifact, open_device(device)), "file")
