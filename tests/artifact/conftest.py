"""Objects and artifacts that the tests of this folder link, damage, cache and call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.write import FileSpec, Variant, write_artifact
from nova.core.targets import parse_target

# First object: vector constants, a jump table, calls inside and across objects, addresses of
# functions and data, a table of pointers, a shared name that is local to both objects.
FIRST = """
@pointers = internal constant [2 x ptr] [ptr @scale, ptr @shared]
@bytes = private unnamed_addr constant [6 x i8] c"hello\\00"
@weights = external constant [4 x float]

define internal float @scale(float %x) noinline { %y = fmul float %x, 3.0
  ret float %y }
define internal float @twin(float %x) noinline { %y = fadd float %x, 1.0
  ret float %y }
define ptr @shared() noinline { ret ptr @add_ramp }
declare float @other_object(float)

define void @add_ramp(ptr %buf, i64 %begin, i64 %end) {
  %p = load ptr, ptr %buf
  %v = load <8 x float>, ptr %p, align 4
  %w = fadd <8 x float> %v, <float 1.0, float 2.0, float 3.0, float 4.0,
                             float 5.0, float 6.0, float 7.0, float 8.0>
  store <8 x float> %w, ptr %p, align 4
  %s = load float, ptr %p
  %h = call float @scale(float %s)
  %t = call float @twin(float %h)
  %o = call float @other_object(float %t)
  store float %o, ptr %p
  ret void
}

define void @choose(ptr %buf, i64 %begin, i64 %end) {
entry:
  %p = load ptr, ptr %buf
  switch i64 %begin, label %done [ i64 0, label %c0
    i64 1, label %c1
    i64 2, label %c2
    i64 3, label %c3
    i64 4, label %c4
    i64 5, label %c5 ]
c0:
  %e = load i8, ptr getelementptr ([6 x i8], ptr @bytes, i64 0, i64 1)
  %z = zext i8 %e to i64
  store i64 %z, ptr %p
  br label %done
c1:
  store i64 7, ptr %p
  br label %done
c2:
  %q = getelementptr [2 x ptr], ptr @pointers, i64 0, i64 %end
  %f = load ptr, ptr %q
  store ptr %f, ptr %p
  br label %done
c3:
  %g = call ptr @shared()
  store ptr %g, ptr %p
  br label %done
c4:
  store double 2.5, ptr %p
  br label %done
c5:
  %wp = getelementptr [4 x float], ptr @weights, i64 0, i64 %end
  %wv = load float, ptr %wp
  %wd = fpext float %wv to double
  store double %wd, ptr %p
  br label %done
done:
  ret void
}
"""
SECOND = """
@weights = constant [4 x float] [float 0.5, float 1.5, float 2.5, float 3.5], align 64
define internal float @twin(float %x) noinline { %y = fmul float %x, 10.0
  ret float %y }
define float @other_object(float %x) noinline {
  %y = call float @twin(float %x)
  ret float %y
}
"""
SYMBOLS = ("add_ramp", "choose")


@pytest.fixture(scope="session")
def emit() -> Callable[..., bytes]:
    """LLVM IR text to an object, for x86-64 unless told otherwise."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()

    def emit(text: str, triple: str = "x86_64-unknown-linux-gnu", **options: str) -> bytes:
        settings = {"reloc": "pic", "codemodel": "small", "opt": 2, **options}
        machine = llvm.Target.from_triple(triple).create_target_machine(**settings)
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        return machine.emit_object(module)

    return emit


@pytest.fixture(scope="session")
def sources() -> tuple[str, str]:
    """The LLVM IR of the two objects."""
    return FIRST, SECOND


@pytest.fixture(scope="session")
def objects(emit: Callable[..., bytes]) -> list[bytes]:
    """The two objects above."""
    return [emit(FIRST), emit(SECOND)]


@pytest.fixture(scope="session")
def call() -> Callable[..., bytes]:
    """Call a kernel at an address with one buffer; gives the buffer's bytes after it."""

    def call(address: int, data: bytes, begin: int = 0, end: int = 1) -> bytes:
        buffer = ctypes.create_string_buffer(data, len(data))
        table = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
        kernel(ctypes.addressof(table), begin, end)
        return buffer.raw

    return call


CONSTANTS = bytes(range(100))
STAGES = {"plan": "input X\n", "llvm": "define void @k()\n" * 50}
TABLES = Tables(
    buffers=(
        BufferSpec("arg", 0, 32),
        BufferSpec("output", 1, 32),
        BufferSpec("workspace", 64, 192),
        BufferSpec("constant", 64, 36),
    ),
    kernels=tuple(KernelSpec(s, s, 4, "vector", 8, 64, "model.py:3") for s in SYMBOLS),
    launches=(LaunchSpec(0, (0, 3, 2)), LaunchSpec(1, (2, 1))),
    workspace_size=256,
    work=1234,
)


@pytest.fixture(scope="session")
def contents(objects: list[bytes]) -> FileSpec:
    """A file over the two kernels, with every kind of buffer."""
    variant = Variant(
        target=parse_target("x86_64"),
        cpu="x86-64",
        objects=tuple(objects),
        tables=TABLES,
        constants=CONSTANTS,
        options={"fast_math": "False", "threads": "2"},
    )
    return FileSpec(
        variants=(variant,),
        args=(TensorSpec("X", (2, 4), "f32", "input"), TensorSpec("W", (8,), "f32", "param", True)),
        outputs=(
            TensorSpec("Y", (2, 4), "f32", "output"),
            TensorSpec("W", (8,), "f32", "output", alias=1),
        ),
        stages=STAGES,
        source="plan",
        key={"text": "abc", "target": "x86_64"},
    )


@pytest.fixture(scope="session")
def artifact_bytes(contents: FileSpec) -> bytes:
    """A whole file of all of the above."""
    return write_artifact(contents)
