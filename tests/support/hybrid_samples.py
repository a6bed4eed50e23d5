"""A program made by hand of kernels on both sides, in PTX and C: it needs neither MLIR nor LLVM.

    w0 = 2 x            device, which the island needs
    w1 = 2 w0           device, which it does not
    w2 = w1 + w0        device
    w3 = w0             host; a negative number is error 7
    w4 = w3 + x         host
    w5 = w2 + w4        device
    y = 2 w5            device: 18 x

The libcuda for tests knows the kernels by their names, and does the same.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from fixed_hybrid_tasks import join_tasks

from nova.artifact.device_image import DeviceImage
from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables, TaskSpec
from nova.artifact.write import FileSpec, Variant
from nova.core.targets import parse_target

SIZE = 96
NBYTES = 4 * SIZE
HOST = """
#include <stdint.h>
typedef void *const *B;
static void wait_a_bit(int times) { for (volatile int n = 0; n < times; n++) {} }
int32_t refuse_negative(B b, int64_t lo, int64_t hi) {
    const float *x = b[0];
    float *y = b[1];
    for (int64_t i = lo; i < hi; i++) {
        if (x[i] < 0) return 7;
        y[i] = x[i];
    }
    return 0;
}
void sum(B b, int64_t lo, int64_t hi) {
    const float *x = b[0], *y = b[1];
    float *z = b[2];
    for (int64_t i = lo; i < hi; i++) z[i] = x[i] + y[i];
}
#ifdef MEETING
void meet(B b, int64_t lo, int64_t hi) { /* what refuse_negative does, once the device is there */
    uint32_t *words = (uint32_t *)MEETING;
    const float *x = b[0];
    float *y = b[1];
    __atomic_store_n(&words[0], 1, __ATOMIC_RELEASE);
    uint64_t left = UINT64_C(20000000000); /* a minute or so */
    while (left > 0 && __atomic_load_n(&words[1], __ATOMIC_ACQUIRE) == 0) left--;
    for (int64_t i = lo; i < hi; i++) y[i] = left > 0 ? x[i] : -1;
}
#endif
void slower(B b, int64_t lo, int64_t hi) { /* what refuse_negative does, with time to stop it */
    const float *x = b[0];
    float *y = b[1];
    for (int64_t i = lo; i < hi; i++) {
        wait_a_bit(20000000);
        y[i] = x[i];
    }
}
void stacks(B b, int64_t lo, int64_t hi) { /* says by which stack: threads have different ones */
    float *z = b[1];
    for (int64_t i = lo; i < hi; i++) {
        wait_a_bit(60000);
        z[i] = (float)((uintptr_t)__builtin_frame_address(0) >> 20 & 0xffffff);
    }
}
"""
ROWS = """{{
  .reg .b32 %r<4>;
  .reg .b64 %rd<8>;
  .reg .f32 %f<4>;
  .reg .pred %p<2>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r1, %r1, %r2, %r3;
  mul.wide.u32 %rd7, %r1, 4;
{body}
  ret;
}}
"""
SCALE = """  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  add.s64 %rd1, %rd1, %rd7;
  add.s64 %rd2, %rd2, %rd7;
  ld.global.f32 %f1, [%rd1];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd2], %f2;"""
ADD = """  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  add.s64 %rd1, %rd1, %rd7;
  add.s64 %rd2, %rd2, %rd7;
  add.s64 %rd3, %rd3, %rd7;
{meet}
  ld.global.f32 %f1, [%rd1+{first}];
  ld.global.f32 %f2, [%rd2];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd3], %f3;"""


MEET = """  mov.u64 %rd4, {meeting};
  mov.u32 %r2, 1;
  st.release.sys.global.u32 [%rd4+4], %r2;
  mov.u64 %rd5, %globaltimer;
  add.s64 %rd5, %rd5, 60000000000;
AGAIN:
  ld.acquire.sys.global.u32 %r2, [%rd4];
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra MET;
  mov.u64 %rd6, %globaltimer;
  setp.lt.u64 %p1, %rd6, %rd5;
  @%p1 bra AGAIN;
  mov.f32 %f3, 0fBF800000;
  st.global.f32 [%rd3], %f3;
  ret;
MET:"""
"""Waits for the host for a minute; then the result is -1."""


def make_ptx(first: int = 0, meeting: int = 0) -> str:
    """PTX of `scale` and `add`; the second reads so many bytes behind where it should.

    With the address of a `meeting`, two words of pinned memory, `add` waits for the host.
    """
    pointer = ".param .u64 .ptr"
    return (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        f".visible .entry scale({pointer} a, {pointer} b)\n"
        + ROWS.format(body=SCALE)
        + f".visible .entry add({pointer} a, {pointer} b, {pointer} c)\n"
        + ROWS.format(
            body=ADD.format(first=first, meet=MEET.format(meeting=meeting) if meeting else "")
        )
    )


def compile_host(folder: Path, meeting: int = 0) -> bytes:
    """The object of the kernels of the host; `meet` needs the address of a meeting."""
    (folder / "host.c").write_text(HOST)
    flags = ["-std=c11", "-O2", "-c", "-fPIC", "-fno-builtin", "-fcf-protection=none"]
    flags += ["-fno-asynchronous-unwind-tables", "-fno-ident"]
    flags += [f"-DMEETING=UINT64_C({meeting})"] if meeting else []
    subprocess.run(["gcc", *flags, "host.c", "-o", "host.o"], cwd=folder, check=True)
    return (folder / "host.o").read_bytes()


def device_kernel(name: str) -> KernelSpec:
    shape = DeviceLaunch((3, 1, 1), (32, 1, 1))
    return KernelSpec(name, name, 1, "device", 0, 0, "model.py:3", device=shape)


def host_kernel(name: str, *, reports: bool = False) -> KernelSpec:
    return KernelSpec(name, name, SIZE, "vector", 10**7, 0, "model.py:9", reports=reports)


def cut(launch: int, pieces: int, after: tuple[int, ...]) -> list[TaskSpec]:
    """Tasks of a launch; `after` is how much larger the numbers of their successors are."""
    step = SIZE // pieces
    waits = 0 if after else 1
    return [
        TaskSpec(launch, waits, i * step, (i + 1) * step, tuple(i + n for n in after))
        for i in range(pieces)
    ]


def hybrid_contents(host: bytes, ptx: str = "", first: str = "refuse_negative") -> FileSpec:
    """The file; `ptx` is another than the usual one, `first` the first kernel of the host."""
    workspace = tuple(BufferSpec("workspace", 384 * n, NBYTES) for n in range(6))
    buffers = (BufferSpec("arg", 0, NBYTES), BufferSpec("output", 0, NBYTES), *workspace)
    x, y, w0, w1, w2, w3, w4, w5 = range(8)
    scale, add, checked, summed, to_host, to_device = range(6)
    kernels = (
        device_kernel("scale"),
        device_kernel("add"),
        host_kernel(first, reports=first == "refuse_negative"),
        host_kernel("sum"),
        *(KernelSpec(f"copy_{n}", "", 1, n, 0, 0, "") for n in ("to_host", "to_device")),
    )
    launches = (
        LaunchSpec(to_host, (x,)),
        LaunchSpec(scale, (x, w0), 1),
        LaunchSpec(to_host, (w0,)),
        LaunchSpec(scale, (w0, w1), 1),
        LaunchSpec(add, (w1, w0, w2), 2),
        LaunchSpec(checked, (w0, w3), 1),
        LaunchSpec(summed, (w3, x, w4), 2),
        LaunchSpec(to_device, (w4,)),
        LaunchSpec(add, (w2, w4, w5), 2),
        LaunchSpec(scale, (w5, y), 1),
    )
    tasks = (*cut(0, 8, (8,)), *cut(1, 8, ()))
    tables = Tables(
        buffers, kernels, launches, 384 * 6, 1000, join_tasks(tasks, (5, 6), len(launches))
    )
    variant = Variant(parse_target("cuda:sm_80"), "sm_80", (host,), tables, b"", {})
    return FileSpec(
        variants=(variant,),
        args=(TensorSpec("x", (SIZE,), "f32", "input"),),
        outputs=(TensorSpec("y", (SIZE,), "f32", "output"),),
        devices=(DeviceImage("ptx", "sm_80", (ptx or make_ptx()).encode()),),
    )
