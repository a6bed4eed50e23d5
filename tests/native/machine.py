"""Tiny machine code for the tests of the runtime: C text comes in, an Image and vaddrs come out.

gcc compiles the text to position-independent code without calls or constants, so that `.text` needs
no relocation and can be mapped as it is.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nova.runtime import _native

READ, WRITE, EXECUTE = 4, 2, 1
ARGUMENT, OUTPUT, WORKSPACE, CONSTANT = 0, 1, 2, 3
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


def make_add(
    kernels: tuple[_native.Image, dict[str, int]],
    shape: tuple[int, ...] = (8,),
    convert: Callable[..., Any] = refuse,
    release_gil: bool = False,
) -> _native.Program:
    """z = x + y over f32 arrays of one shape."""
    image, at = kernels
    size = int(np.prod(shape))
    return _native.Program(
        image,
        [(shape, F32, False), (shape, F32, False)],
        [(shape, F32, -1)],
        [(ARGUMENT, 0), (ARGUMENT, 1), (OUTPUT, 0)],
        [(at["add"], size, (0, 1, 2))],
        0,
        convert,
        release_gil,
    )
