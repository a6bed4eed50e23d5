"""The binary tables: round trip, and the same records in the code, the C header and the spec."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.artifact import device_launch, tables
from nova.artifact.tables import (
    ARRAYS,
    HEADER,
    BufferSpec,
    KernelSpec,
    LaunchSpec,
    Tables,
    TaskSpec,
    kernel_addresses,
    pack_tables,
    patch_code,
    read_header,
    unpack_tables,
)
from nova.errors import ArtifactError

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "docs/nova-format.md").read_text()
C_HEADER = (ROOT / "native/include/nova/tables.h").read_text()

EXAMPLE = Tables(
    buffers=(BufferSpec("arg", 0, 32), BufferSpec("output", 1, 32), BufferSpec("constant", 64, 5)),
    kernels=(
        KernelSpec("add", "k0", 4, "vector", 8, 64, "model.py:3"),
        KernelSpec("größe", "k1", 0, "host", 0, 0, ""),
        KernelSpec("add", "k2", 1 << 40, "matrix", 1 << 60, 1 << 61, "model.py:3"),
    ),
    launches=(LaunchSpec(0, (0, 2, 1)), LaunchSpec(1, ()), LaunchSpec(2, (1,))),
    workspace_size=256,
    work=99,
    tasks=(TaskSpec(0, 0, 0, 2, (1, 2)), TaskSpec(0, 1, 2, 4, (2,)), TaskSpec(2, 2, 0, 1, ())),
)
EMPTY = Tables((), (), (), 0, 0)


@pytest.mark.parametrize("given", [EXAMPLE, EMPTY, dataclasses.replace(EXAMPLE, tasks=())])
def test_round_trip(given):
    block = pack_tables(given)
    assert unpack_tables(block) == given
    assert unpack_tables(memoryview(block)) == given
    assert read_header(block) == (given.workspace_size, given.work)


def test_texts_are_kept_once():
    block = pack_tables(EXAMPLE)
    assert block.count(b"model.py:3\0") == 1
    assert block.count(b"add\0") == 1


def test_addresses_are_filled_in():
    positions = {"k0": 0x1000, "k1": 0x1040, "k2": (1 << 40) + 1, "other": 5}
    block = bytearray(pack_tables(EXAMPLE))
    assert set(kernel_addresses(block).values()) == {0}
    patch_code(block, positions)
    assert kernel_addresses(block) == {"k0": 0x1000, "k1": 0x1040, "k2": (1 << 40) + 1}
    assert bytes(block) == pack_tables(EXAMPLE, positions)
    with pytest.raises(KeyError):
        patch_code(block, {"k0": 1})


def test_renamed():
    renamed = EXAMPLE.renamed(".x86_64-v3")
    assert [k.symbol for k in renamed.kernels] == [f"k{i}.x86_64-v3" for i in range(3)]
    assert [k.name for k in renamed.kernels] == [k.name for k in EXAMPLE.kernels]


def test_odd_texts():
    """A name with a NUL or half a character would cut the text or the file short."""
    kernel = KernelSpec("a\0b", "k0", 1, "host", 0, 0, "\udcff.py:1")
    (back,) = unpack_tables(pack_tables(dataclasses.replace(EMPTY, kernels=(kernel,)))).kernels
    assert (back.name, back.location) == ("a\ufffdb", "\ufffd.py:1")


def test_every_prefix_is_refused():
    block = pack_tables(EXAMPLE)
    for size in range(len(block)):
        with pytest.raises(ArtifactError, match="check 'tables-"):
            unpack_tables(block[:size])


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flip_is_refused_or_read(step: int):
    """A step of 9 flips one bit of each byte, and all eight in turn."""
    block = pack_tables(EXAMPLE)
    for bit in range(0, 8 * len(block), step):
        damaged = bytearray(block)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            unpack_tables(damaged)
        except ArtifactError as error:
            assert "check 'tables-" in str(error)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 99), max_size=5)), max_size=9),
    st.lists(st.text(max_size=8).filter(lambda t: "\0" not in t), max_size=6),
)
def test_any_lengths(launches, names):
    created = dataclasses.replace(
        EMPTY,
        kernels=tuple(
            KernelSpec(n.encode("utf-8", "replace").decode(), f"k{i}", i, "host", 0, 0, "")
            for i, n in enumerate(names)
        ),
        launches=tuple(LaunchSpec(k, tuple(b)) for k, b in launches),
    )
    assert unpack_tables(pack_tables(created)) == created


# --- one record, three places ---------------------------------------------------------------------

NAMES = ("buffers", "kernels", "launches", "operands", "tasks", "successors")
STRUCTS = {
    "buffers": "nova_buffer",
    "kernels": "nova_kernel_record",
    "launches": "nova_launch_record",
    "tasks": "nova_task",
}
LETTERS = {"u32": "I", "u64": "Q", "i64": "q", "uint32_t": "I", "uint64_t": "Q", "int64_t": "q"}


def c_format(struct: str) -> str:
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", C_HEADER, re.DOTALL)[1]
    body = body.replace("char magic[8];", "8s ")
    words = re.findall(r"8s|\bu?int(?:32|64)_t\b", body)
    return "<" + "".join(LETTERS.get(word, word) for word in words)


def flat(text: str) -> str:
    """A format with counts written out: 2I is II."""
    return re.sub(r"(\d+)([IQq])", lambda m: m[2] * int(m[1]), text)


@pytest.mark.parametrize(("name", "record"), list(zip(NAMES, ARRAYS, strict=True)))
def test_records_of_the_spec(name, record):
    row = re.search(rf"^\| {name} \| (.*) \| (\d+) \|$", SPEC, re.MULTILINE)
    fields = "".join(LETTERS[word] for word in re.findall(r"\b[ui](?:32|64)\b", row[1]))
    assert f"<{fields}" == record.format
    assert int(row[2]) == record.size
    if name in STRUCTS:
        assert c_format(STRUCTS[name]) == record.format


def test_header_of_the_spec():
    assert HEADER.size == 64
    assert "A 64-byte header" in SPEC
    assert c_format("nova_tables_header") == flat(HEADER.format)
    for name, magic in (
        ("NOVA_TABLES_MAGIC", tables.OLD_MAGIC),
        ("NOVA_TABLES_DEVICE_MAGIC", tables.OLD_DEVICE_MAGIC),
        ("NOVA_TABLES_CHECKED_MAGIC", tables.MAGIC),
        ("NOVA_TABLES_CHECKED_DEVICE_MAGIC", tables.DEVICE_MAGIC),
    ):
        assert f'#define {name} "{magic.decode()}"' in C_HEADER
        assert magic.decode() in SPEC
    assert c_format("nova_interface") == "<qIIII"
    assert tables.INTERFACE.size == 24
    assert device_launch.TENSOR_MAP.size == 120 and device_launch.DEVICE.size == 32


def test_words_of_the_spec():
    """Numbers of kinds: the position in Python's tuples, the enums of C, the row of the spec."""
    modes = re.search(r"^\| buffers \| kind u32 \((.*?)\)", SPEC, re.MULTILINE)[1]
    assert modes == ("0 argument, 1 output, 2 workspace, 3 constant, 4 sizes, 5 part of an output")
    assert (
        *("arg", "output", "workspace", "constant", "sizes", "output_part"),
    ) == tables.BUFFER_KINDS
    cores = re.search(r"core u32 \((.*?)\)", SPEC)[1]
    assert cores == ", ".join(f"{i} {name}" for i, name in enumerate(tables.CORES))
    enum = ", ".join(f"NOVA_{name.upper()} = {i}" for i, name in enumerate(tables.CORES))
    assert enum in " ".join(C_HEADER.split())
    names = ("ARGUMENT", "OUTPUT", "WORKSPACE", "CONSTANT", "SIZES", "OUTPUT_PART")
    enum = ", ".join(f"NOVA_{name} = {i}" for i, name in enumerate(names))
    assert enum in " ".join(C_HEADER.split())


@pytest.mark.parametrize("field", ["workspace_size", "work", "scratch_size"])
@pytest.mark.parametrize("value", [-1, 1 << 70])
def test_numbers_that_do_not_fit_are_refused(field, value):
    """The text of a stage may be hand-written, and say anything."""
    with pytest.raises(ArtifactError, match="check 'tables-number' failed"):
        pack_tables(dataclasses.replace(EMPTY, **{field: value}))
