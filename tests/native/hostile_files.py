"""Hostile files: tiny files with one lie each, hashes recomputed, and the check that names it.

`cases` gives (name, expected check, bytes); the tests of the Python type and those of the C reader
under the sanitizers go through the same list.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import hostile_symbolic
from tiny_file import AARCH64, Block, Layout, build, canonical, make_seal, manifest

Edit = Callable[[Layout], object]
HUGE = 2**64 - 1


def _field(name: str, offset: int, layout: str, *values: Any) -> Edit:
    """Overwrites fields of a header, record or section of the file."""
    return lambda file: file.put(layout, file.at[name] + offset, *values)


def _symbol(number: int, offset: int, layout: str, value: int) -> Edit:
    return lambda file: file.put(layout, file.at[".dynsym"] + 24 * number + offset, value)


def _segments(count: int) -> Edit:
    """As if there were `count` program headers."""
    return _field("ehdr", 56, "H", count)


def _extra_tag(tag: int, value: int) -> Edit:
    """Another entry in place of the last one, DT_RELACOUNT, which a file may leave out."""
    return _field("tag1879048185", 0, "qQ", tag, value)


def _needed(file: Layout) -> None:
    at = file.at[".dynstr"] + file.data[file.at[".dynstr"] :].index(b"libc.so.6")
    file.data[at : at + 9] = b"evil.so.6"


# Name, check, change. Offsets are those of ELF-64.
EDITS: list[tuple[str, str, Edit]] = [
    ("magic", "elf-magic", _field("ehdr", 0, "4s", b"\x7fELG")),
    ("32 bit", "elf-magic", _field("ehdr", 4, "B", 1)),
    ("big endian", "elf-magic", _field("ehdr", 5, "B", 2)),
    ("another system", "elf-magic", _field("ehdr", 7, "B", 3)),
    ("executable", "elf-type", _field("ehdr", 16, "H", 2)),
    ("another machine", "elf-machine", _field("ehdr", 18, "H", 40)),
    ("entry point", "elf-header", _field("ehdr", 24, "Q", 4096)),
    ("header size", "elf-header", _field("ehdr", 54, "H", 57)),
    ("no segments", "elf-segments", _segments(0)),
    ("many segments", "elf-segments", _segments(65535)),
    ("segments outside", "elf-segments", _field("ehdr", 32, "Q", HUGE - 10)),
    ("no sections", "elf-sections", _field("ehdr", 60, "H", 0)),
    ("many sections", "elf-sections", _field("ehdr", 60, "H", 65535)),
    ("sections outside", "elf-sections", _field("ehdr", 40, "Q", HUGE - 63)),
    ("names index", "section-names", _field("ehdr", 62, "H", 99)),
    ("names elsewhere", "section-names", _field("ehdr", 62, "H", 5)),
    ("interpreter", "segment-kind", _field("phdr6", 0, "I", 3)),
    ("thread-local", "segment-kind", _field("phdr6", 0, "I", 7)),
    ("two dynamic headers", "segment-kind", _field("phdr6", 0, "I", 2)),
    ("executable stack", "segment-flags", _field("phdr6", 4, "I", 7)),
    ("writable code", "segment-flags", _field("phdr1", 4, "I", 7)),
    ("unreadable code", "segment-flags", _field("phdr1", 4, "I", 1)),
    ("unknown flag", "segment-flags", _field("phdr1", 4, "I", 13)),
    ("segment outside", "segment-bounds", _field("phdr3", 8, "QQQ", *[2**63] * 3)),
    ("segment too long", "segment-bounds", _field("phdr3", 32, "QQ", HUGE, HUGE)),
    ("segment wraps", "segment-bounds", _field("phdr3", 8, "QQQQ", *[HUGE - 4095] * 3, 8192)),
    ("shrinking segment", "segment-size", _field("phdr1", 40, "Q", 1)),
    ("endless zeros", "segment-size", _field("phdr2", 40, "Q", 2**40)),
    ("zeros in code", "segment-flags", _field("phdr1", 40, "Q", 4096)),
    ("moved segment", "segment-address", _field("phdr1", 16, "Q", 8192)),
    ("inside of a page", "segment-alignment", _field("phdr1", 48, "Q", 8)),
    ("alignment of 3 pages", "segment-alignment", _field("phdr1", 48, "Q", 3 * 4096)),
    ("segments overlap", "segment-order", _field("phdr2", 8, "QQQ", *[4096] * 3)),
    ("zeros overlap", "segment-order", _field("phdr2", 40, "Q", 4097)),
    ("relro of code", "segment-inside", _field("phdr5", 8, "QQQQQ", *[4096] * 3, 16, 16)),
    ("dynamic outside", "segment-inside", _field("phdr4", 16, "Q", HUGE - 7)),
    ("dynamic too long", "segment-inside", _field("phdr4", 40, "Q", HUGE)),
    ("initializers", "section-kind", _field("shdr.got", 4, "I", 14)),
    ("finalizers", "section-kind", _field("shdr.got", 4, "I", 15)),
    ("empty manifest section", "section-kind", _field("shdr.nova.manifest", 4, "I", 8)),
    ("thread-local section", "section-flags", _field("shdr.got", 8, "Q", 0x403)),
    ("writable tables", "section-flags", _field("shdr.nova.tables", 8, "Q", 3)),
    ("unloaded tables", "section-flags", _field("shdr.nova.tables", 8, "Q", 0)),
    ("section outside", "section-bounds", _field("shdr.text", 24, "Q", HUGE)),
    ("section too long", "section-bounds", _field("shdr.nova.stages", 32, "Q", HUGE)),
    ("crooked constants", "section-alignment", _field("shdr.nova.const", 16, "QQ", 12296, 12296)),
    ("section of another segment", "section-segment", _field("shdr.text", 16, "QQ", 8192, 8192)),
    ("section with another address", "section-segment", _field("shdr.got", 16, "Q", 8200)),
    ("unloaded section with address", "section-segment", _field("shdr.nova.stages", 16, "Q", 64)),
    ("sections overlap", "section-overlap", _field("shdr.dynsym", 32, "Q", 96)),
    ("section over the header", "section-overlap", _field("shdr.hash", 16, "QQ", 0, 0)),
    ("name outside", "section-names", _field("shdr.text", 0, "I", 2**31)),
    ("two of a name", "section-names", lambda f: f.put("I", f.at["shdr.text"], 1)),
    ("no tables", "section-missing", _field("shdr.nova.tables", 0, "I", 0)),
    ("another library", "dynamic-needed", _needed),
    ("library without a name", "dynamic-needed", _field("tag1", 8, "Q", HUGE)),
    ("second library", "dynamic-needed", _extra_tag(1, 1)),
    ("run path", "dynamic-runpath", _extra_tag(29, 1)),
    ("old run path", "dynamic-runpath", _extra_tag(15, 1)),
    ("initializer", "dynamic-initializer", _extra_tag(12, 4096)),
    ("list of initializers", "dynamic-initializer", _extra_tag(25, 4096)),
    ("finalizer", "dynamic-initializer", _extra_tag(13, 4096)),
    ("audit library", "dynamic-tag", _extra_tag(0x6FFFFEFC, 1)),
    ("filter library", "dynamic-tag", _extra_tag(0x7FFFFFFF, 1)),
    ("relocated code", "dynamic-tag", _extra_tag(22, 0)),
    ("other relocations", "dynamic-tag", _extra_tag(23, 576)),
    ("flags", "dynamic-tables", _extra_tag(30, 16)),
    ("other symbols", "dynamic-tables", _field("tag6", 8, "Q", 64)),
    ("other names", "dynamic-tables", _field("tag5", 8, "Q", 64)),
    ("longer names", "dynamic-tables", _field("tag10", 8, "Q", 2**32)),
    ("a table left out", "dynamic-tables", _field("tag6", 0, "qQ", 24, 0)),
    ("endless dynamic section", "dynamic-tables", _field(".dynamic", 160, "qQ", 24, 0)),
    ("partial symbols", "dynamic-tables", _field("shdr.dynsym", 32, "Q", 71)),
    ("hash of another kind", "dynamic-tables", _field("shdr.hash", 4, "I", 1)),
    ("first symbol", "symbol-table", _symbol(0, 8, "Q", 1)),
    ("symbol without a name", "symbol-name", _symbol(1, 0, "I", 0)),
    ("symbol name outside", "symbol-name", _symbol(1, 0, "I", 2**32 - 1)),
    ("names without an end", "symbol-name", _field(".dynstr", 20, "B", 65)),
    ("indirect function", "symbol-kind", _symbol(1, 4, "B", 0x1A)),
    ("thread-local symbol", "symbol-kind", _symbol(1, 4, "B", 0x16)),
    ("local symbol", "symbol-kind", _symbol(1, 4, "B", 0x02)),
    ("symbol outside", "symbol-address", _symbol(1, 8, "Q", HUGE)),
    ("symbol too long", "symbol-address", _symbol(1, 16, "Q", HUGE)),
    ("absolute symbol", "symbol-address", _symbol(1, 6, "H", 0xFFF1)),
    ("hash of no buckets", "symbol-hash", _field(".hash", 0, "I", 0)),
    ("hash with a circle", "symbol-hash", _field(".hash", 20, "I", 1)),
    ("hash outside", "symbol-hash", _field(".hash", 8, "I", 2**32 - 1)),
    ("copy relocation", "relocation-kind", _field(".rela.dyn", 32, "Q", 2 << 32 | 5)),
    ("indirect relocation", "relocation-kind", _field(".rela.dyn", 8, "Q", 37)),
    ("relative behind the count", "relocation-kind", _field("tag1879048185", 8, "Q", 2)),
    ("relocated headers", "relocation-place", _field(".rela.dyn", 0, "Q", 0)),
    ("relocated text", "relocation-place", _field(".rela.dyn", 0, "Q", 4096)),
    ("relocation outside", "relocation-place", _field(".rela.dyn", 0, "Q", HUGE - 3)),
    ("relocation to the outside", "relocation-target", _field(".rela.dyn", 16, "Q", HUGE)),
    ("import with addend", "relocation-target", _field(".rela.dyn", 40, "Q", 8)),
    ("slot of an export", "relocation-target", _field(".rela.dyn", 32, "Q", 1 << 32 | 6)),
    ("slot of no symbol", "relocation-target", _field(".rela.dyn", 32, "Q", 99 << 32 | 6)),
]


def _tensor(**changes: Any) -> dict[str, Any]:
    return {**manifest()["args"][0], **changes}


def _variant(**changes: Any) -> dict[str, Any]:
    return {**manifest()["variants"][0], **changes}


def _weights(*tensors: tuple[int, int, int], **changes: Any) -> dict[str, Any]:
    rows = [{"arg": a, "offset": o, "nbytes": n} for a, o, n in tensors]
    return manifest(weights={"kind": "embedded", "sha256": "", "tensors": rows, **changes})


def _output(**changes: Any) -> dict[str, Any]:
    return manifest(outputs=[{**manifest()["outputs"][0], **changes}])


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in manifest().items() if key != name}


SHARD = {"kind": "ptx", "arch": "sm_90", "offset": 0, "size": 10}
MANIFESTS: list[tuple[str, str, dict[str, Any] | bytes]] = [
    ("newer version", "format-version", manifest(format_version=6, surprise=1)),
    ("older version", "format-version", manifest(format_version=1)),
    ("version as text", "manifest-fields", manifest(format_version="2")),
    ("no version", "manifest-fields", _without("format_version")),
    ("field left out", "manifest-fields", _without("source")),
    ("unknown field", "manifest-fields", manifest(surprise=1)),
    ("last unknown field", "manifest-fields", manifest(zebra=1)),
    ("field of a tensor", "manifest-fields", manifest(args=[_tensor(zebra=1)])),
    ("empty tensor", "manifest-fields", manifest(args=[{}])),
    ("list of numbers", "manifest-type", manifest(args=[1])),
    ("args as object", "manifest-type", manifest(args={})),
    ("shape of texts", "manifest-type", manifest(args=[_tensor(shape=["2"])])),
    ("donated number", "manifest-type", manifest(args=[_tensor(donated=1)])),
    ("feature number", "manifest-type", manifest(variants=[_variant(features=[1])])),
    ("options", "manifest-type", manifest(variants=[_variant(options={"a": 1})])),
    ("range of three", "manifest-type", manifest(variants=[_variant(tables=[0, 64, 1])])),
    ("negative extent", "manifest-range", manifest(args=[_tensor(shape=[-1])])),
    ("alias of an argument", "manifest-alias", manifest(args=[_tensor(alias=0)])),
    ("alias below -1", "manifest-range", _output(alias=-2)),
    ("alias outside", "manifest-alias", _output(alias=2)),
    ("alias of a kept argument", "manifest-alias", _output(alias=0)),
    ("alias of another shape", "manifest-alias", _output(alias=1)),
    ("donated output", "manifest-alias", _output(donated=True)),
    ("huge shape", "manifest-shape", manifest(args=[_tensor(shape=[2**62, 2**62])])),
    ("65 axes", "manifest-shape", manifest(args=[_tensor(shape=[1] * 65)])),
    ("unknown dtype", "manifest-word", manifest(args=[_tensor(dtype="f8")])),
    ("unknown role", "manifest-word", manifest(args=[_tensor(role="state")])),
    ("output among inputs", "manifest-role", manifest(args=[_tensor(role="output")])),
    ("input among outputs", "manifest-role", _output(role="input")),
    ("another arch", "manifest-arch", manifest(arch="aarch64")),
    ("unknown arch", "manifest-word", manifest(arch="riscv64")),
    ("no variants", "manifest-variants", manifest(variants=[])),
    ("65 variants", "manifest-variants", manifest(variants=[_variant()] * 65)),
    ("unsorted features", "manifest-order", manifest(variants=[_variant(features=["b", "a"])])),
    ("doubled feature", "manifest-order", manifest(variants=[_variant(features=["a", "a"])])),
    ("tables outside", "manifest-range", manifest(variants=[_variant(tables=[0, 2**62])])),
    ("crooked tables", "manifest-alignment", manifest(variants=[_variant(tables=[8, 64])])),
    ("constants outside", "manifest-range", manifest(variants=[_variant(constants=[64, 1])])),
    ("weight of an input", "manifest-weights", _weights((0, 0, 32))),
    ("weight of nothing", "manifest-weights", _weights((9, 0, 32))),
    ("weight twice", "manifest-weights", _weights((1, 0, 32), (1, 64, 32))),
    ("weight of another size", "manifest-weights", _weights((1, 0, 31))),
    ("weight outside", "manifest-range", _weights((1, 64, 32))),
    ("crooked weight", "manifest-alignment", _weights((1, 8, 32))),
    ("weights of no kind", "manifest-weights", _weights((1, 0, 32), kind="none")),
    ("external without hash", "manifest-weights", _weights((1, 0, 32), kind="external")),
    ("hash of other digits", "manifest-weights", _weights(sha256="X" * 64)),
    ("device outside", "manifest-range", manifest(devices=[{**SHARD, "size": 2**40}])),
    ("unknown device", "manifest-word", manifest(devices=[{**SHARD, "kind": "exe"}])),
    (
        "device without code",
        "manifest-devices",
        manifest(variants=[_variant(target="cuda:sm_80", cpu="sm_80")]),
    ),
    ("no JSON", "manifest-json", b"\0\1\2"),
    ("only a number", "manifest-json", b"12"),
    ("deep", "manifest-json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ("deep lists", "manifest-json", b'{"a":' + b"[" * 1_000_000),
    ("spaces", "manifest-json", canonical(manifest()).replace(b",", b", ")),
    ("unsorted keys", "manifest-json", b'{"b":1,"a":2}'),
    ("key twice", "manifest-json", b'{"a":1,"a":2}'),
    ("fraction", "manifest-json", b'{"a":1.5}'),
    ("exponent", "manifest-json", b'{"a":1e9}'),
    ("null", "manifest-json", b'{"a":null}'),
    ("NaN", "manifest-json", b'{"a":NaN}'),
    ("2**63", "manifest-json", b'{"a":9223372036854775808}'),
    ("20 digits", "manifest-json", b'{"a":99999999999999999999}'),
    ("leading zero", "manifest-json", b'{"a":01}'),
    ("minus zero", "manifest-json", b'{"a":-0}'),
    ("lone surrogate", "manifest-json", b'{"a":"\\ud800"}'),
    ("NUL", "manifest-json", b'{"a":"\\u0000"}'),
    ("raw UTF-8", "manifest-json", '{"a":"\u00fc"}'.encode()),
    ("open string", "manifest-json", b'{"a":"b'),
    ("open object", "manifest-json", b'{"a":1'),
    ("two values", "manifest-json", b'{"a":1}{}'),
]

TOP = 2**32 - 1
BLOCKS: list[tuple[str, str, Block | bytes]] = [
    ("no block", "tables-size", b""),
    ("half a header", "tables-size", b"NOVATBL1" + bytes(40)),
    ("block magic", "tables-magic", Block(magic=b"NOVATBL9")),
    ("unaligned scratch", "tables-scratch", Block(scratch=1)),
    ("huge scratch", "tables-scratch", Block(scratch=2**32 - 64)),
    (
        "scratch without a size",
        "tables-scratch",
        Block(kernels=[(0, 4, 8, 64, 0x201, 1, 1, 4), (0, 2, 8, 64, 0, 1, 1, 0)]),
    ),
    (
        "two flags",
        "tables-kernel-core",
        Block(scratch=64, kernels=[(0, 4, 8, 64, 0x301, 1, 1, 4), (0, 2, 8, 64, 0, 1, 1, 0)]),
    ),
    (
        "no strings",
        "tables-strings",
        Block(strings=b"", kernels=[], launches=[], operands=[], tasks=[], successors=[]),
    ),
    ("strings without an end", "tables-strings", Block(strings=b"\0k0\0k")),
    ("strings without a start", "tables-strings", Block(strings=b"k0\0k\0")),
    ("strings that are no text", "tables-strings", Block(strings=b"\0k0\0\xff\xfe\0")),
    ("overlong text", "tables-strings", Block(strings=b"\0k0\0\xc0\x80\0")),
    ("huge workspace", "tables-workspace", Block(workspace=2**63)),
    ("buffer kind", "tables-buffer-kind", Block(buffers=[(6, 0, 0, 0)] * 4)),
    ("sizes at an offset", "tables-sizes", Block(buffers=[(4, 0, 8, 8)] * 4)),
    ("crooked sizes", "tables-sizes", Block(buffers=[(4, 0, 0, 9)] * 4)),
    ("huge sizes", "tables-sizes", Block(buffers=[(4, 0, 0, 2**40)] * 4)),
    ("output of an argument", "tables-buffer-kind", Block(buffers=[(0, 1, 0, 32)] * 4)),
    ("part of no output", "tables-buffer-bounds", Block(buffers=[(5, 2, 0, 32)] * 4)),
    ("crooked part", "tables-buffer-alignment", Block(buffers=[(5, 0, 8, 8)] * 4)),
    ("part outside", "tables-buffer-bounds", Block(buffers=[(5, 0, 64, 1)] * 4)),
    ("part too long", "tables-buffer-bounds", Block(buffers=[(5, 0, 0, 33)] * 4)),
    ("part wraps", "tables-buffer-bounds", Block(buffers=[(5, 0, 64, HUGE)] * 4)),
    ("part far outside", "tables-buffer-bounds", Block(buffers=[(5, 0, HUGE & ~63, 64)] * 4)),
    ("argument outside", "tables-buffer-bounds", Block(buffers=[(0, 0, 2, 32)] * 4)),
    ("argument far outside", "tables-buffer-bounds", Block(buffers=[(0, 0, HUGE, 32)] * 4)),
    ("output outside", "tables-buffer-bounds", Block(buffers=[(1, 0, 2, 32)] * 4)),
    ("argument size", "tables-buffer-size", Block(buffers=[(0, 0, 0, 33)] * 4)),
    ("output size", "tables-buffer-size", Block(buffers=[(1, 0, 0, HUGE)] * 4)),
    ("crooked workspace", "tables-buffer-alignment", Block(buffers=[(2, 0, 8, 8)] * 4)),
    ("workspace outside", "tables-buffer-bounds", Block(buffers=[(2, 0, 128, 1)] * 4)),
    ("workspace wraps", "tables-buffer-bounds", Block(buffers=[(2, 0, 64, HUGE)] * 4)),
    ("constant outside", "tables-buffer-bounds", Block(buffers=[(3, 0, 64, 1)] * 4)),
    ("core", "tables-kernel-core", Block(kernels=[(0, 4, 0, 0, 7, 1, 1, 0)] * 2)),
    ("loop without a device", "tables-device", Block(kernels=[(0, 4, 0, 0, 6, 1, 1, 0)] * 2)),
    ("copy without a device", "tables-device", Block(kernels=[(0, 4, 0, 0, 4, 1, 1, 0)] * 2)),
    ("device kernel, no launch", "tables-device", Block(kernels=[(0, 4, 0, 0, 3, 1, 1, 0)] * 2)),
    ("negative grid", "tables-kernel-grid", Block(kernels=[(0, -1, 0, 0, 0, 1, 1, 0)] * 2)),
    (
        "kernel name outside",
        "tables-kernel-strings",
        Block(kernels=[(0, 4, 0, 0, 0, TOP, 1, 0)] * 2),
    ),
    ("name inside", "tables-kernel-strings", Block(kernels=[(0, 4, 0, 0, 0, 2, 1, 0)] * 2)),
    ("symbol", "tables-kernel-strings", Block(kernels=[(0, 4, 0, 0, 0, 1, 999, 0)] * 2)),
    (
        "long name",
        "tables-kernel-strings",
        Block(strings=b"\0" + b"k" * 20000 + b"\0a\0", kernels=[(0, 4, 0, 0, 0, 1, 1, 0)] * 2),
    ),
    (
        "code in data",
        "tables-kernel-code",
        Block(kernels=[(64, 4, 0, 0, 0, 1, 1, 0), (0, 2, 0, 0, 0, 1, 1, 0)]),
    ),
    (
        "code outside",
        "tables-kernel-code",
        Block(kernels=[(HUGE, 4, 0, 0, 0, 1, 1, 0), (0, 2, 0, 0, 0, 1, 1, 0)]),
    ),
    ("kernel of a launch", "tables-launch-kernel", Block(launches=[(2, 0, 2, 0), (1, 2, 3, 0)])),
    ("reads of a launch", "tables-launch-reads", Block(launches=[(0, 0, 2, 3), (1, 2, 3, 0)])),
    ("operands twice", "tables-launch-operands", Block(launches=[(0, 0, 2, 0), (1, 0, 3, 0)])),
    ("operands outside", "tables-launch-operands", Block(launches=[(0, 0, 2, 0), (1, 2, TOP, 0)])),
    ("operands left", "tables-launch-operands", Block(launches=[(0, 0, 2, 0), (1, 2, 2, 0)])),
    ("operand", "tables-operand", Block(operands=[0, 2, 4, 3, 1])),
    (
        "tile left out",
        "tables-task-range",
        Block(tasks=[(0, 0, 0, 1, 0, 1), (0, 0, 2, 4, 1, 1), (1, 2, 0, 2, 2, 0)]),
    ),
    (
        "tile twice",
        "tables-task-range",
        Block(tasks=[(0, 0, 0, 3, 0, 1), (0, 0, 2, 4, 1, 1), (1, 2, 0, 2, 2, 0)]),
    ),
    (
        "too many tiles",
        "tables-task-range",
        Block(tasks=[(0, 0, 0, 2, 0, 1), (0, 0, 2, 5, 1, 1), (1, 2, 0, 2, 2, 0)]),
    ),
    (
        "fewer than no tiles",
        "tables-task-range",
        Block(tasks=[(0, 0, 0, 4, 0, 1), (0, 0, 4, 3, 1, 1), (1, 2, 0, 2, 2, 0)]),
    ),
    ("tiles left", "tables-task-range", Block(tasks=[(0, 0, 0, 2, 0, 0)], successors=[])),
    (
        "launches mixed",
        "tables-task-range",
        Block(tasks=[(1, 0, 0, 2, 0, 0), (0, 0, 0, 4, 0, 0)], successors=[]),
    ),
    (
        "task of no launch",
        "tables-task-launch",
        Block(tasks=[(0, 0, 0, 4, 0, 0), (1, 0, 0, 2, 0, 0), (2, 0, 0, 2, 0, 0)], successors=[]),
    ),
    (
        "cycle",
        "tables-task-successors",
        Block(
            tasks=[(0, 1, 0, 2, 0, 1), (0, 0, 2, 4, 1, 1), (1, 1, 0, 2, 2, 0)], successors=[2, 0]
        ),
    ),
    (
        "own successor",
        "tables-task-successors",
        Block(
            tasks=[(0, 0, 0, 2, 0, 1), (0, 1, 2, 4, 1, 1), (1, 1, 0, 2, 2, 0)], successors=[2, 1]
        ),
    ),
    ("successor outside", "tables-task-successors", Block(successors=[2, 3])),
    (
        "successor twice",
        "tables-task-successors",
        Block(tasks=[(0, 0, 0, 2, 0, 2), (0, 0, 2, 4, 2, 0), (1, 2, 0, 2, 2, 0)]),
    ),
    (
        "successors shared",
        "tables-task-successors",
        Block(tasks=[(0, 0, 0, 2, 0, 1), (0, 0, 2, 4, 0, 1), (1, 2, 0, 2, 1, 0)]),
    ),
    (
        "many successors",
        "tables-task-successors",
        Block(tasks=[(0, 0, 0, 2, 0, 1), (0, 0, 2, 4, 1, TOP), (1, 2, 0, 2, 2, 0)]),
    ),
    (
        "successors left",
        "tables-task-successors",
        Block(tasks=[(0, 0, 0, 2, 0, 1), (0, 0, 2, 4, 1, 0), (1, 1, 0, 2, 1, 0)]),
    ),
    ("successors without tasks", "tables-task-successors", Block(tasks=[])),
    (
        "waits",
        "tables-task-waits",
        Block(tasks=[(0, 0, 0, 2, 0, 1), (0, 0, 2, 4, 1, 1), (1, 1, 0, 2, 2, 0)]),
    ),
]


def _seals() -> Iterator[tuple[str, str, bytes]]:
    file = build()
    body, sound = bytes(file.data), file.seal()
    bounds = file.regions()
    yield "one byte of code", "seal-region", body[:4097] + b"\xcc" + sound[4098:]
    yield "one byte of padding", "seal-region", body[:3000] + b"\1" + sound[3001:]
    yield "one byte of a hash", "seal-hash", sound[:-80] + bytes([sound[-80] ^ 1]) + sound[-79:]
    yield "last byte left out", "seal-magic", sound[:-1]
    yield "no seal", "seal-magic", body
    yield "one byte more", "seal-magic", sound + b"\0"
    yield "format 1", "seal-magic", sound[:-1] + b"1"
    yield "no regions", "seal-cover", body + make_seal(body, [])
    yield "bytes left out", "seal-cover", body + make_seal(body, bounds[:-1])
    yield "start left out", "seal-cover", body + make_seal(body, bounds[1:])
    yield "sections in one region", "seal-cover", body + make_seal(body, [0, len(body)])
    yield "signature of 95 bytes", "seal-size", body + make_seal(body, bounds, bytes(95))
    end = struct.pack("<32sQQ8s", bytes(32), 2**64 - 48, 0, b"NOVAEND2")
    yield "endless records", "seal-size", body + end
    yield (
        "record over the headers",
        "seal-size",
        body + end.replace(struct.pack("<Q", 2**64 - 48), struct.pack("<Q", 48)),
    )
    yield (
        "partial record",
        "seal-size",
        body + bytes(47) + end.replace(struct.pack("<Q", 2**64 - 48), struct.pack("<Q", 47)),
    )


def _others() -> Iterator[tuple[str, str, bytes]]:
    sound = build().seal()
    yield "empty", "open-empty", b""
    yield "one byte", "elf-header", b"\x7f"
    yield "text", "elf-magic", b"#!/bin/sh\nrm -rf /\n" * 20
    yield "headers only", "segment-bounds", sound[:1000]
    yield "cut in two", "segment-bounds", sound[: len(sound) // 2]
    yield "cut before the section headers", "elf-sections", sound[:12584]
    yield "unknown import", "symbol-import", build(imports=("system",)).seal()
    yield "import of execve", "symbol-import", build(imports=("memcpy", "execve")).seal()
    yield "ARM relocations", "relocation-kind", _arm_with_x86_relocations()


def _arm_with_x86_relocations() -> bytes:
    file = build(manifest(arch="aarch64"), machine=AARCH64)
    file.put("Q", file.at[".rela.dyn"] + 8, 8)
    return file.seal()


def cases() -> Iterator[tuple[str, str, bytes]]:
    """Name, check and bytes of every hostile file."""
    for name, check, edit in EDITS:
        file = build()
        edit(file)
        yield name, check, file.seal()
    for name, check, description in MANIFESTS:
        yield name, check, build(description).seal()
    for name, check, block in [*BLOCKS, *hostile_symbolic.BLOCKS]:
        yield name, check, build(None, block).seal()
    yield from _seals()
    yield from _others()
