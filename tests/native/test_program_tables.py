"""Construction of programs: every wrong table is an exception, never a crash later.

native/tests/loader/test_file.c has a case for each check of the tables; here are those that need an
image or a signature, and the ways in which Python can hand over a block.
"""

from __future__ import annotations

import gc
import struct
from dataclasses import replace

import numpy as np
import pytest
from machine import (
    ARGUMENT,
    CONSTANT,
    CONSTANT_VADDR,
    F32,
    OUTPUT,
    PART,
    WORKSPACE,
    build_image,
    make_program,
    make_tables,
    refuse,
)

from nova import _native
from nova.artifact.tables import pack_tables, unpack_tables

ARGS = [((8,), F32, False), ((8,), F32, True)]
OUTPUTS = [((8,), F32, -1), ((8,), F32, 1)]
BUFFERS = [(ARGUMENT, 0), (ARGUMENT, 1), (OUTPUT, 0), (WORKSPACE, 64, 32)]


def rows(at):
    """Correct rows, for the tests to break."""
    return {
        "args": ARGS,
        "outputs": OUTPUTS,
        "buffers": BUFFERS,
        "launches": [(at["add"], 8, (0, 1, 2))],
        "workspace_size": 128,
    }


def construct(kernels, **changes):
    """Program(...) with correct parts but for `changes`."""
    parts = {
        "tables": make_tables(**rows(kernels[1])),
        "constants_vaddr": 0,
        "args": ARGS,
        "outputs": OUTPUTS,
        "convert": refuse,
        "release_gil": False,
    }
    return _native.Program(kernels[0], **(parts | changes))


def test_correct_tables_are_taken(kernels):
    program = construct(kernels)
    assert program.workspace_size == 128
    x, w = np.arange(8, dtype="f4"), np.ones(8, "f4")
    first, second = program(x, w)
    np.testing.assert_array_equal(first, x + 1)
    assert second is w


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("args", [((8,), F32)]),
        ("args", [(8, F32, False), ((8,), F32, True)]),
        ("args", [((-1,), F32, False), ((8,), F32, True)]),
        ("args", [((2**64,), F32, False), ((8,), F32, True)]),
        ("args", [((2**40, 2**40), F32, False), ((8,), F32, True)]),
        ("args", [((0, 2**40, 2**40), F32, False), ((8,), F32, True)]),
        ("args", [((1,) * 65, F32, False), ((8,), F32, True)]),
        ("args", [((8,), np.dtype(object), False), ((8,), F32, True)]),
        ("args", [((8,), np.dtype("V0"), False), ((8,), F32, True)]),
        ("args", [((8,), np.dtype("(2,)f4"), False), ((8,), F32, True)]),
        ("outputs", [((8,), F32, 2)]),
        ("outputs", [((8,), F32, -2)]),
        ("outputs", [((8,), F32, 0)]),
        ("outputs", [((4,), F32, 1)]),
        ("outputs", [((8, 1), F32, 1)]),
        ("outputs", [((8,), np.dtype("i4"), 1)]),
        ("outputs", [((8,), F32, 2**63)]),
    ],
)
def test_a_wrong_signature_is_refused(kernels, table, value):
    signature = {"args": [], "outputs": []}
    if table == "outputs":
        signature["args"] = ARGS
    with pytest.raises(ValueError):
        construct(kernels, tables=make_tables([], []), **(signature | {table: value}))


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("buffers", [(ARGUMENT, 2, 32)]),
        ("buffers", [(ARGUMENT, 0, 36)]),
        ("buffers", [(OUTPUT, 2, 32)]),
        ("buffers", [(OUTPUT, 0, 4)]),
        ("buffers", [(WORKSPACE, 128, 1)]),
        ("buffers", [(WORKSPACE, 4, 4)]),
        ("buffers", [(WORKSPACE, 2**64 - 64, 64)]),
        ("buffers", [(PART, 0, 32, 2)]),
        ("buffers", [(PART, 0, 33, 0)]),
        ("buffers", [(PART, 4, 4, 0)]),
        ("buffers", [(PART, 64, 4, 0)]),
        ("buffers", [(PART, 2**64 - 64, 64, 0)]),
        ("buffers", [(CONSTANT, 0, 4)]),
        ("buffers", [(CONSTANT, 2**64 - 64, 128)]),
        ("launches", [(0, -1, (0,))]),
        ("launches", [(0, 8, (4,))]),
        ("launches", [(1 << 40, 8, (0,))]),
        ("launches", [(2**64 - 1, 8, (0,))]),
        ("workspace_size", 2**64 - 1),
        ("workspace_size", 64),
    ],
)
def test_wrong_tables_are_refused(kernels, table, value):
    parts = rows(kernels[1]) | {table: value}
    if table == "buffers":
        parts["launches"] = []
    image = build_image(b"\xc3" * 64)
    with pytest.raises(ValueError):
        construct((image, kernels[1]), tables=make_tables(**parts), constants_vaddr=CONSTANT_VADDR)


@pytest.mark.parametrize("size", [0, 1, 8, 63, 64, 100])
def test_a_cut_block_is_refused(kernels, size):
    block = make_tables(**rows(kernels[1]))
    with pytest.raises(ValueError):
        construct(kernels, tables=block[:size])
    with pytest.raises(ValueError):
        construct(kernels, tables=block + bytes(8))


@pytest.mark.parametrize(
    "part", [{"constants_vaddr": -1}, {"constants_vaddr": 2**64}], ids=["negative", "large"]
)
def test_numbers_must_fit(kernels, part):
    with pytest.raises(ValueError):
        construct(kernels, **part)


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("tables", None),
        ("tables", "text"),
        ("tables", np.zeros((4, 4))[:, 0]),
        ("constants_vaddr", "0"),
        ("args", None),
        ("args", [((8,), "no type", False)]),
        ("args", [(("8",), F32, False)]),
        ("outputs", [((8,), F32, "0")]),
        ("convert", None),
    ],
)
def test_wrong_types_are_refused(kernels, table, value):
    error = ValueError if isinstance(value, np.ndarray) else TypeError
    with pytest.raises(error):
        construct(kernels, **{table: value})


def test_the_image_must_be_one(kernels):
    with pytest.raises(TypeError):
        construct((object(), kernels[1]))
    with pytest.raises(TypeError):
        _native.Program(kernels[0])


def test_a_kernel_must_lie_in_executable_memory(text):
    image = build_image(text[0], b"constant")
    with pytest.raises(ValueError, match="executable"):
        make_program(image, [], [], [], [(CONSTANT_VADDR, 1, ())])


def test_constants_must_lie_in_the_image(text):
    image, at = build_image(text[0], bytes(64)), text[1]
    for nbytes, vaddr in [(64, CONSTANT_VADDR), (0, CONSTANT_VADDR + 64)]:
        tables = make_tables([], [], [(CONSTANT, 0, nbytes)], [(at["add"], 0, (0,))])
        _native.Program(image, tables, vaddr, [], [], refuse, False)
    for nbytes, vaddr in [(65, CONSTANT_VADDR), (64, CONSTANT_VADDR + 1), (1, 2**64 - 1)]:
        tables = make_tables([], [], [(CONSTANT, 0, nbytes)], [(at["add"], 0, (0,))])
        with pytest.raises(ValueError, match="constants"):
            _native.Program(image, tables, vaddr, [], [], refuse, False)


def test_the_block_is_kept_alive_and_cannot_be_changed(kernels):
    block = make_tables(**rows(kernels[1]))
    changing = bytearray(block)
    aligned = np.frombuffer(b"12345678" + block, "u1")[8:]
    programs = [
        construct(kernels, tables=tables)
        for tables in (
            memoryview(bytes(block)),
            changing,
            memoryview(b"x" + block)[1:],
            aligned,
        )
    ]
    changing[:] = bytes(len(changing))
    del aligned
    gc.collect()
    x = np.arange(8, dtype="f4")
    for program in programs:
        np.testing.assert_array_equal(program(x, np.ones(8, "f4"))[0], x + 1)


def test_launches_take_their_operands_in_order(kernels):
    image, at = kernels
    args, outputs = [((8,), F32, False)], [((8,), F32, -1)]
    launches = [(at["scale"], 8, (0, 1)), (at["accumulate"], 8, (0, 1))]
    block = bytearray(make_tables(args, outputs, [(ARGUMENT, 0), (OUTPUT, 0)], launches))
    program = _native.Program(image, block, 0, args, outputs, refuse, False)
    x = np.arange(8, dtype="f4")
    np.testing.assert_array_equal(program(x), 3 * x)
    # The second launch record: kernel u32, first operand u32.
    second = 64 + 2 * 24 + 2 * 48 + 16
    assert struct.unpack_from("<II", block, second) == (1, 2)
    struct.pack_into("<I", block, second + 4, 0)
    with pytest.raises(ValueError, match="operands"):
        _native.Program(image, block, 0, args, outputs, refuse, False)


def of_output(kernels, launches):
    """A program of one argument and one output, of 8 and 32 numbers, that has two parts.

    A launch is the kernel, its buffers and how many of those it only reads.
    """
    image, at = kernels
    args, outputs = [((8,), F32, False)], [((32,), F32, -1)]
    buffers = [(ARGUMENT, 0), (OUTPUT, 0), (PART, 64, 32, 0), (PART, 0, 32, 0)]
    rows = [(at[name], 8, operands) for name, operands, _ in launches]
    tables = unpack_tables(make_tables(args, outputs, buffers, rows))
    specs = [replace(s, reads=r) for s, (*_, r) in zip(tables.launches, launches, strict=True)]
    code = {kernel.symbol: row[0] for kernel, row in zip(tables.kernels, rows, strict=True)}
    block = pack_tables(replace(tables, launches=tuple(specs)), code)
    return _native.Program(image, block, 0, args, outputs, refuse, False)


def test_parts_of_an_output_are_in_its_memory(kernels):
    program = of_output(kernels, [("scale", (0, 2), 1), ("scale", (2, 3), 1), ("scale", (2, 1), 0)])
    x, out = np.arange(8, dtype="f4"), np.zeros(32, "f4")
    program(x, out=[out])
    np.testing.assert_array_equal(out[16:24], 2 * x)
    np.testing.assert_array_equal(out[:8], 4 * x)
    assert not out[8:16].any() and not out[24:].any()


@pytest.mark.parametrize(
    "launches",
    [
        [("scale", (2, 1), 1)],
        [("scale", (0, 2), 1), ("scale", (3, 1), 1)],
        [("scale", (0, 2), 1), ("scale", (2, 1), 1)],
        [("scale", (0, 2), 1)],
    ],
    ids=["undefined part", "another part", "a part and its output", "no output"],
)
def test_parts_of_an_output_have_values_where_they_are_read(kernels, launches):
    with pytest.raises(ValueError, match=r"no value|overlaps"):
        of_output(kernels, launches)


def test_types_cannot_be_changed_or_derived_from(kernels):
    with pytest.raises(TypeError):
        type("Derived", (_native.Program,), {})
    with pytest.raises(TypeError):
        _native.Program.run = None
