"""Tiny machine code for the tests of the runtime: C text comes in, an Image and vaddrs come out.

gcc compiles the text to position-independent code without calls or constants, so that `.text` needs
no relocation and can be mapped as it is.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nova import _native
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables, TaskSpec, pack_tables

READ, WRITE, EXECUTE = 4, 2, 1
ARGUMENT, OUTPUT, WORKSPACE, CONSTANT = "arg", "output", "workspace", "constant"
PART = "output_part"
F32 = np.dtype("f4")
# Vaddr of the constants that `build_image` puts behind the code.
CONSTANT_VADDR = 1 << 16

KERNELS = """
#include <stdint.h>
typedef void *const *B;
void add(B b, int64_t lo, int64_t hi) {
    float *x = b[0], *y = b[1], *z = b[2];
    for (int64_t i = lo; i < hi; i++) z[i] = x[i] + y[i];
}
void scale(B b, int64_t lo, int64_t hi) {
    float *x = b[0], *y = b[1];
    for (int64_t i = lo; i < hi; i++) y[i] = x[i] + x[i];
}
void accumulate(B b, int64_t lo, int64_t hi) {
    float *x = b[0], *y = b[1];
    for (int64_t i = lo; i < hi; i++) y[i] += x[i];
}
void pointers(B b, int64_t lo, int64_t hi) {
    int64_t *out = b[0];
    for (int64_t i = lo; i < hi; i++) out[i] = (int64_t)b[i];
}
void spin(B b, int64_t lo, int64_t hi) {
    volatile float *x = b[0], *t = b[1], *y = b[2];
    for (int64_t n = 0; n < 200; n++)
        for (int64_t i = lo; i < hi; i++) t[i] = x[i] + (float)n;
    for (int64_t i = lo; i < hi; i++) y[i] = t[i];
}
int32_t refuse_negative(B b, int64_t lo, int64_t hi) {
    float *x = b[0], *y = b[1];
    for (int64_t i = lo; i < hi; i++) {
        if (x[i] < 0) return 7;
        y[i] = x[i];
    }
    return 0;
}
void held(B b, int64_t lo, int64_t hi) { /* ends when the test opens the gate */
    volatile float *gate = b[1];
    float *x = b[0], *y = b[2];
    while (*gate == 0) {}
    for (int64_t i = lo; i < hi; i++) y[i] = x[i] + *gate;
}
void slow(B b, int64_t lo, int64_t hi) { /* a tenth of a millisecond to one, by the processor */
    float *x = b[0], *y = b[1];
    for (int64_t i = lo; i < hi; i++) {
        volatile int one = 1; /* not a constant, which would need a relocation */
        for (int64_t n = 0; n < 400000; n++) one = one;
        y[i] = x[i] + (float)one;
    }
}
"""


def compile_text(folder: Path, source: str = KERNELS) -> tuple[bytes, dict[str, int]]:
    """The `.text` bytes of `source`, and the offset of each function in it."""
    (folder / "k.c").write_text(source)
    flags = ["-std=c11", "-O2", "-c", "-fPIC", "-fno-builtin", "-fcf-protection=none"]
    subprocess.run(["gcc", *flags, "k.c", "-o", "k.o"], cwd=folder, check=True)
    elf = (folder / "k.o").read_bytes()
    table, entry_size, count, names_index = struct.unpack_from("<Q10xHHH", elf, 0x28)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry_size) for i in range(count)]

    def body(header: tuple[int, ...]) -> bytes:
        return elf[header[4] : header[4] + header[5]]

    def text_at(strings: bytes, at: int) -> str:
        return strings[at : strings.index(b"\0", at)].decode()

    sections = {text_at(body(headers[names_index]), h[0]): h for h in headers}
    assert ".rela.text" not in sections, "the kernel needs a relocation"
    symbols, strings = body(sections[".symtab"]), body(sections[".strtab"])
    functions = {}
    for name, info, _, _, value, _ in struct.iter_unpack("<IBBHQQ", symbols):
        if info & 15 == 2:
            functions[text_at(strings, name)] = value
    return body(sections[".text"]), functions


def build_image(text: bytes, constants: bytes = b"") -> _native.Image:
    """Maps the code at vaddr 0 and, when there are any, the constants at CONSTANT_VADDR."""
    segments = [(0, len(text), 0, len(text), READ | EXECUTE)]
    if constants:
        segments.append((len(text), len(constants), CONSTANT_VADDR, len(constants), READ))
    return _native.Image(text + constants, segments)


class Refused(Exception):
    """What the tests' `convert` raises; `args` are those it was called with."""


def refuse(index: int, obj: object, is_output: bool) -> np.ndarray:
    """A `convert` that takes nothing."""
    raise Refused(index, obj, is_output)


def make_tables(
    args: Sequence[tuple[Any, ...]],
    outputs: Sequence[tuple[Any, ...]],
    buffers: Sequence[tuple[Any, ...]] = (),
    launches: Sequence[tuple[int, int, tuple[int, ...]]] = (),
    workspace_size: int = 0,
    tasks: Sequence[TaskSpec] = (),
    flops: int = 0,
    reports: bool = False,
) -> bytes:
    """A block of tables from short rows.

    Args and outputs are the rows of Program; a buffer is (kind, value), where the bytes of an
    argument or output are known, (kind, value, nbytes), or (kind, value, nbytes, output); a launch
    is (code vaddr, grid, buffers) and gets a kernel of its own, of `flops` operations. `reports` is
    of all kernels.
    """
    rows = {ARGUMENT: args, OUTPUT: outputs}
    specs = []
    for kind, value, *others in buffers:
        if not others:
            shape, dtype, _ = rows[kind][value]
            others = [int(np.prod(shape)) * dtype.itemsize]
        specs.append(BufferSpec(kind, value, *others))
    kernels = [
        KernelSpec(f"k{i}", f"k{i}", grid, "vector", flops, 0, f"user.py:{i + 1}", reports)
        for i, (_, grid, _) in enumerate(launches)
    ]
    tables = Tables(
        buffers=tuple(specs),
        kernels=tuple(kernels),
        launches=tuple(LaunchSpec(i, operands) for i, (_, _, operands) in enumerate(launches)),
        workspace_size=workspace_size,
        work=0,
        tasks=tuple(tasks),
    )
    return pack_tables(tables, {f"k{i}": code for i, (code, _, _) in enumerate(launches)})


def make_program(
    image: _native.Image,
    args: Sequence[tuple[Any, ...]],
    outputs: Sequence[tuple[Any, ...]],
    buffers: Sequence[tuple[Any, ...]] = (),
    launches: Sequence[tuple[int, int, tuple[int, ...]]] = (),
    workspace_size: int = 0,
    convert: Callable[..., Any] = refuse,
    release_gil: bool = False,
    tasks: Sequence[TaskSpec] = (),
    flops: int = 0,
    reports: bool = False,
    report: Callable[..., BaseException] | None = None,
) -> _native.Program:
    """A program whose constants are those of `build_image`."""
    tables = make_tables(args, outputs, buffers, launches, workspace_size, tasks, flops, reports)
    return _native.Program(
        image, tables, CONSTANT_VADDR, args, outputs, convert, release_gil, report
    )


def make_add(
    kernels: tuple[_native.Image, dict[str, int]],
    shape: tuple[int, ...] = (8,),
    convert: Callable[..., Any] = refuse,
    release_gil: bool = False,
) -> _native.Program:
    """z = x + y over f32 arrays of one shape."""
    image, at = kernels
    return make_program(
        image,
        [(shape, F32, False), (shape, F32, False)],
        [(shape, F32, -1)],
        [(ARGUMENT, 0), (ARGUMENT, 1), (OUTPUT, 0)],
        [(at["add"], int(np.prod(shape)), (0, 1, 2))],
        convert=convert,
        release_gil=release_gil,
    )
