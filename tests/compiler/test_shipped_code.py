"""`--emit asm` and `--emit obj` print the code that a file contains, for several CPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

import nova
from nova.artifact.elf import defs as elf
from nova.artifact.format import read_artifact
from nova.artifact.tables import kernel_addresses
from nova.compiler.llvm.bindings import binding as llvm
from nova.compiler.llvm.machine_code import initialise
from nova.core.targets import llvm_cpu, parse_target

TARGETS = ("x86_64", "x86_64-v3", "x86_64-v4", "aarch64")
HERE = parse_target("cpu").arch  # LLVM has the assembler of this machine only


@pytest.fixture(scope="module")
def program() -> nova.Compiled:
    """Several units: shared functions of matmuls, a kernel with scalar loops, a tiny kernel."""
    x = nova.tensor(np.ones((64, 96), "f4"), name="x")
    w = nova.tensor(np.ones((96, 130), "f4"), name="w", requires_grad=True)
    v = nova.tensor(np.ones((130, 7), "f4"), name="v", requires_grad=True)
    rows = nova.tensor(np.zeros((64,), "i8"), name="rows")
    y = nova.softmax(nova.tanh(nova.take(x, rows, axis=0) @ w) @ v)
    return nova.compile((y * y).sum(), inputs=[x, rows], params=[w, v], include_backward=True)


def assemble(text: str, target: str) -> bytes:
    """The object of an assembly text, which LLVM takes as the inline assembly of a module."""
    initialise()
    llvm.initialize_native_asmparser()
    lines = text.replace("\\", "\\\\").splitlines()
    quoted = "\n".join('module asm "' + line.replace('"', "\\22") + '"' for line in lines)
    # The processor chooses between equivalent padding instructions.
    machine = llvm.Target.from_triple(parse_target(target).triple).create_target_machine(
        cpu=llvm_cpu(parse_target(target)), features=parse_target(target).llvm_features()
    )
    module = llvm.parse_assembly(
        f'target triple = "{parse_target(target).triple}"\n{quoted}', llvm.create_context()
    )
    data: bytes = machine.emit_object(module)
    return data


@dataclass
class Object:
    """The code of an object; bytes that relocations change are zero in it."""

    text: bytes
    functions: dict[str, bytes]
    relocated: dict[str, set[int]]


def section_of(data: bytes, name: str) -> bytes:
    header = elf.EHDR.unpack_from(data)
    start, count, names_at = int(header[6]), int(header[12]), int(header[13])
    rows = list(elf.SHDR.iter_unpack(data[start : start + count * elf.SHDR.size]))
    names = data[rows[names_at][4] :][: rows[names_at][5]]
    [row] = [row for row in rows if elf.cut_string(names, row[0]) == name.encode()]
    return data[row[4] : row[4] + row[5]]


def read_object(data: bytes) -> Object:
    header = elf.EHDR.unpack_from(data)
    start, count = int(header[6]), int(header[12])
    rows = list(elf.SHDR.iter_unpack(data[start : start + count * elf.SHDR.size]))
    bodies = [data[row[4] : row[4] + row[5]] for row in rows]
    code = {i: bytearray(bodies[i]) for i, row in enumerate(rows) if row[2] & elf.SHF_EXECINSTR}
    patched: dict[int, set[int]] = {i: set() for i in code}
    for row, body in zip(rows, bodies, strict=True):
        if row[1] == elf.SHT_RELA and row[7] in code:
            for offset in np.frombuffer(body, elf.RELA)["offset"].tolist():
                patched[row[7]].update(range(offset, offset + 4))
                code[row[7]][offset : offset + 4] = bytes(4)
    functions, relocated = {}, {}
    for row, body in zip(rows, bodies, strict=True):
        if row[1] != elf.SHT_SYMTAB:
            continue
        for symbol in np.frombuffer(body, elf.SYM):
            section, value, size = (int(symbol[f]) for f in ("section", "value", "size"))
            if section in code and size:
                name = (elf.cut_string(bodies[row[6]], int(symbol["name"])) or b"").decode()
                functions[name] = bytes(code[section][value : value + size])
                relocated[name] = {
                    at - value for at in patched[section] if value <= at < value + size
                }
    return Object(b"".join(code.values()), functions, relocated)


@pytest.mark.parametrize("target", [t for t in TARGETS if parse_target(t).arch == HERE])
def test_assembling_the_assembly_gives_the_code_of_the_object(
    program: nova.Compiled, target: str
) -> None:
    text = nova.translate(program, targets=target).stages["ll"]
    assert text.count("; ModuleID") > 2, "several units"
    listing = nova.translate(program, targets=target, emit="asm").data.decode()
    emitted = read_object(nova.translate(text, targets=target, start_from="ll", emit="obj").data)
    assembled = read_object(assemble(listing, target))
    names = {re.sub(r"\.\d+$", "", name): code for name, code in assembled.functions.items()}
    assert names == emitted.functions and len(names) > 4


def check_linked(emitted: Object, image: bytes, target: str) -> None:
    """The kernels of a file are those of the object, but for the bytes that the linker fills in."""
    file = read_artifact(image)
    offset, size = file.manifest.variants[0].tables
    kernels = kernel_addresses(file.section(".nova.tables")[offset : offset + size])
    assert len(kernels) > 2
    for symbol, address in kernels.items():
        name = symbol.removesuffix(f".{target}")
        code, patched = emitted.functions[name], emitted.relocated[name]
        linked = image[address : address + len(code)]
        differ = {i for i, (a, b) in enumerate(zip(code, linked, strict=True)) if a != b}
        assert differ <= patched, name


@pytest.mark.parametrize("target", TARGETS)
def test_the_object_has_the_code_of_the_file(program: nova.Compiled, target: str) -> None:
    """An object of LLVM IR has the units; that of a program has the linked file in a section."""
    shipped = nova.translate(program, targets=target)
    text = shipped.stages["ll"]
    units = read_object(nova.translate(text, targets=target, start_from="ll", emit="obj").data)
    check_linked(units, shipped.data, target)
    data = nova.translate(program, targets=target, emit="obj").data
    check_linked(units, section_of(data, ".text.nova"), target)


def test_local_names_of_units_differ(program: nova.Compiled) -> None:
    listing = nova.translate(program, targets="x86_64-v3", emit="asm").data.decode()
    labels = re.findall(r"^([\w.$]+):", listing, re.MULTILINE)
    assert len(labels) == len(set(labels))
