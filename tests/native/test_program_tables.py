"""Construction of programs: every wrong table is an exception, never a crash later."""

from __future__ import annotations

import numpy as np
import pytest
from machine import (
    ARGUMENT,
    CONSTANT,
    CONSTANT_VADDR,
    F32,
    OUTPUT,
    WORKSPACE,
    build_image,
    refuse,
)

from nova.runtime import _native


def tables(at):
    """A correct set of tables, as keywords, for the tests to break."""
    return {
        "args": [((8,), F32, False), ((8,), F32, True)],
        "outputs": [((8,), F32, -1), ((8,), F32, 1)],
        "buffers": [(ARGUMENT, 0), (ARGUMENT, 1), (OUTPUT, 0), (WORKSPACE, 64)],
        "launches": [(at["add"], 8, (0, 1, 2))],
        "workspace_size": 128,
        "convert": refuse,
        "release_gil": False,
    }


def test_correct_tables_are_taken(kernels):
    program = _native.Program(kernels[0], **tables(kernels[1]))
    assert program.workspace_size == 128


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
        ("buffers", [(ARGUMENT, 2)]),
        ("buffers", [(OUTPUT, 2)]),
        ("buffers", [(WORKSPACE, 129)]),
        ("buffers", [(CONSTANT, 1 << 40)]),
        ("buffers", [(4, 0)]),
        ("buffers", [(-1, 0)]),
        ("buffers", [(ARGUMENT, -1)]),
        ("buffers", [(ARGUMENT, 2**64)]),
        ("buffers", [(ARGUMENT,)]),
        ("buffers", [[ARGUMENT, 0]]),
        ("launches", [(0, 8)]),
        ("launches", [(0, -1, (0,))]),
        ("launches", [(0, 8, [0])]),
        ("launches", [(0, 8, (4,))]),
        ("launches", [(0, 8, (-1,))]),
        ("launches", [(1 << 40, 8, (0,))]),
        ("workspace_size", -1),
        ("workspace_size", 2**63 - 1),
        ("workspace_size", 2**64),
    ],
)
def test_nonsense_is_refused(kernels, table, value):
    arguments = tables(kernels[1]) | {table: value}
    if table == "args":
        # The other tables only fit the arguments that are replaced here.
        arguments |= {"outputs": [], "buffers": [], "launches": []}
    if table == "buffers":
        arguments["launches"] = []
    with pytest.raises(ValueError):
        _native.Program(kernels[0], **arguments)


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("args", None),
        ("args", [((8,), "no type", False)]),
        ("args", [(("8",), F32, False)]),
        ("outputs", [((8,), F32, "0")]),
        ("buffers", {}),
        ("buffers", [("0", 0)]),
        ("launches", "launch"),
        ("launches", [(0, 8, ("0",))]),
        ("workspace_size", "1"),
        ("convert", None),
    ],
)
def test_wrong_types_are_refused(kernels, table, value):
    with pytest.raises(TypeError):
        _native.Program(kernels[0], **(tables(kernels[1]) | {table: value}))


def test_the_image_must_be_one(kernels):
    with pytest.raises(TypeError):
        _native.Program(object(), **tables(kernels[1]))
    with pytest.raises(TypeError):
        _native.Program(kernels[0])


def test_a_kernel_must_lie_in_executable_memory(text):
    image = build_image(text[0], b"constant")
    broken = tables(text[1]) | {"launches": [(CONSTANT_VADDR, 1, (0,))]}
    with pytest.raises(ValueError, match="executable"):
        _native.Program(image, **broken)


def test_types_cannot_be_changed_or_derived_from(kernels):
    with pytest.raises(TypeError):
        type("Derived", (_native.Program,), {})
    with pytest.raises(TypeError):
        _native.Program.run = None
