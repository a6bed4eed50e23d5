"""Hostile files made by hand from a real one: name, the check that must refuse it, how it is made.

Each row lies in one place and has right hashes, unless the hashes are the lie. The tests of loading
and of inspecting go through the same list.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import hostile_makers as by
from surgery import END, MAGIC, Surgery

HUGE = 2**64 - 1
LOAD, DYNAMIC, INTERP, TLS, STACK, RELRO = 1, 2, 3, 7, 0x6474E551, 0x6474E552


@dataclass(frozen=True)
class Row:
    """A hostile file: `make` writes it into a folder, from the sound file `base`.

    `check` is a pattern where it depends on the compiler that made a foreign file.
    """

    name: str
    check: str
    make: by.Make
    base: str = "full"


FILES = [
    Row("symbolic links in a circle", "open-link", by.symbolic_link),
    Row("named pipe", "open-kind", by.named_pipe),
    Row("socket", "open-kind", by.unix_socket),
    Row("device", "open-kind", lambda *_: Path("/dev/zero")),
    Row("folder", "open-kind", lambda folder, _: folder),
    Row("empty", "open-empty", by.other_bytes(lambda _: b"")),
    Row("two terabytes", "open-size", by.sparse),
    Row("text", "elf-magic", by.other_bytes(lambda _: b"#!/bin/sh\necho hello\n" * 50)),
    Row("executable", "elf-type", lambda folder, _: by.gcc(folder, "-no-pie")),
    Row("object", "elf-type", lambda folder, _: by.gcc(folder, "-c")),
    Row(
        "shared object of gcc",
        "(elf|segment)-.*",
        lambda folder, _: by.gcc(folder, "-shared", "-fPIC"),
    ),
    Row("cut in two", "segment-bounds", by.other_bytes(lambda sound: sound[: len(sound) // 2])),
]
ELF = [
    Row("32 bit", "elf-magic", by.header(4, "B", 1)),
    Row("big-endian", "elf-magic", by.header(5, "B", 2)),
    Row("another system", "elf-magic", by.header(7, "B", 9)),
    Row("RISC-V", "elf-machine", by.header(18, "H", 243)),
    Row("another machine that Nova knows", "manifest-arch", by.header(18, "H", 183)),
    Row("entry point", "elf-header", by.header(24, "Q", 4096)),
    Row("65535 program headers", "elf-segments", by.header(56, "H", 65535)),
    Row("program headers outside", "elf-segments", by.header(32, "Q", HUGE - 100)),
    Row("65535 section headers", "elf-sections", by.header(60, "H", 65535)),
    Row("writable code", "segment-flags", by.segment(LOAD, 1, 4, "I", 7)),
    Row("segments overlap", "segment-order", by.segment(LOAD, 2, 8, "QQQ", 0, 0, 0)),
    Row("segment outside", "segment-bounds", by.segment(LOAD, 1, 8, "QQQ", *[2**62] * 3)),
    Row("segment wraps around", "segment-bounds", by.segment(LOAD, 1, 32, "QQ", HUGE, HUGE)),
    Row("exabytes of zeros", "segment-size", by.segment(LOAD, 3, 40, "Q", 2**60)),
    Row("code loaded elsewhere", "segment-address", by.segment(LOAD, 1, 16, "Q", 2**20)),
    Row("thread-local storage", "segment-kind", by.segment(RELRO, 0, 0, "I", TLS)),
    Row("interpreter", "segment-kind", by.segment(RELRO, 0, 0, "I", INTERP)),
    Row("executable stack", "segment-flags", by.segment(STACK, 0, 4, "I", 7)),
    Row(
        "dynamic section elsewhere", "segment-inside", by.segment(DYNAMIC, 0, 8, "QQ", 2**30, 2**30)
    ),
    Row("section outside", "section-bounds", by.section(".nova.stages", 32, "Q", 2**40)),
    Row("section wraps around", "section-bounds", by.section(".strtab", 24, "Q", HUGE)),
    Row("initializers", "section-kind", by.section(".data", 4, "I", 14)),
    Row("names without an end", "section-names", by.section(".shstrtab", 32, "Q", 40)),
    Row("no manifest", "section-missing", by.rename(".nova.manifest", ".nova.novifest")),
    Row("no tables", "section-missing", by.rename(".nova.tables", ".nova.cables")),
    Row("manifest twice", "section-names", by.edit(by.name_twice)),
    Row("endless name", "section-names", by.edit(by.endless_name)),
    Row(
        "manifest over the code",
        "section-segment",
        by.edit(by.move_manifest),
    ),
]
LINKING = [
    Row("DT_INIT", "dynamic-initializer", by.tag(12, 0x5000)),
    Row("DT_FINI", "dynamic-initializer", by.tag(13, 0x5000)),
    Row("DT_INIT_ARRAY", "dynamic-initializer", by.tag(25, 0x11000)),
    Row("DT_FINI_ARRAY", "dynamic-initializer", by.tag(26, 0x11000)),
    Row("DT_PREINIT_ARRAY", "dynamic-initializer", by.tag(32, 0x11000)),
    Row("DT_RPATH", "dynamic-runpath", by.tag(15, 1)),
    Row("DT_RUNPATH", "dynamic-runpath", by.tag(29, 1)),
    Row("DT_NEEDED twice", "dynamic-needed", by.tag(1, 1)),
    Row("DT_NEEDED evil.so", "dynamic-needed", by.rename("libc.so.6", "evil.so.6")),
    Row("DT_AUDIT", "dynamic-tag", by.tag(0x6FFFFEFC, 1)),
    Row("DT_DEPAUDIT", "dynamic-tag", by.tag(0x6FFFFEFB, 1)),
    Row("DT_FILTER", "dynamic-tag", by.tag(0x7FFFFFFF, 1)),
    Row("DT_TEXTREL", "dynamic-tag", by.tag(22, 0)),
    Row("DT_JMPREL", "dynamic-tag", by.tag(23, 0x1000)),
    Row("other relocations", "dynamic-tables", by.edit(lambda f: f.put("Q", f.tag(7) + 8, 4096))),
    Row("import of system", "symbol-import", by.rename("strlen", "system")),
    Row("import of execve", "symbol-import", by.rename("malloc", "execve")),
    Row(
        "indirect function",
        "symbol-kind",
        by.edit(lambda f: f.put("B", f.symbol("nova_run") + 4, 0x1A)),
    ),
    Row(
        "symbol outside",
        "symbol-address",
        by.edit(lambda f: f.put("Q", f.symbol("nova_run") + 8, 2**40)),
    ),
    Row("endless chain of symbols", "symbol-hash", by.inside(".hash", 8, "I", 2**32 - 1)),
    Row("IRELATIVE relocation", "relocation-kind", by.inside(".rela.dyn", 8, "Q", 37)),
    Row("COPY relocation", "relocation-kind", by.inside(".rela.dyn", 8, "Q", 1 << 32 | 5)),
    Row("relocation in the code", "relocation-place", by.edit(by.relocate_code)),
    Row("relocation outside", "relocation-place", by.inside(".rela.dyn", 0, "Q", HUGE - 3)),
    Row("relocation to the outside", "relocation-target", by.inside(".rela.dyn", 16, "Q", 2**62)),
]
MANIFEST = [
    Row("no JSON", "manifest-json", by.manifest_text(lambda _: b"\0\1\2\3")),
    Row("deeply nested", "manifest-json", by.manifest_text(by.nested(400))),
    Row(
        "key twice", "manifest-json", by.manifest_text(lambda text: b'{"arch":"x86_64",' + text[1:])
    ),
    Row(
        "fraction",
        "manifest-json",
        by.manifest_text(lambda text: text.replace(b":-1", b":-1.0", 1)),
    ),
    Row("spaces", "manifest-json", by.manifest_text(lambda text: text.replace(b",", b", ", 1))),
    Row("number beyond 63 bits", "manifest-json", by.first("args", alias=2**63)),
    Row("older version", "format-version", by.manifest(lambda m: m.update(format_version=1))),
    Row(
        "newer version",
        "format-version",
        by.manifest(lambda m: m.update(format_version=6, zebra=[])),
    ),
    Row("unknown field", "manifest-fields", by.manifest(lambda m: m.update(zebra=1))),
    Row("missing field", "manifest-fields", by.manifest(lambda m: m.pop("source"))),
    Row("unknown field of a variant", "manifest-fields", by.first("variants", zebra=1)),
    Row("shape of text", "manifest-type", by.first("args", shape=["2", "4"])),
    Row("negative shape", "manifest-range", by.first("args", shape=[-1, 160])),
    Row("shape that overflows", "manifest-shape", by.first("args", shape=[2**40, 2**40])),
    Row("65 axes", "manifest-shape", by.first("args", shape=[1] * 65)),
    Row("unknown type", "manifest-word", by.first("args", dtype="f8")),
    Row("alias outside", "manifest-alias", by.first("outputs", alias=99)),
    Row("alias of a kept argument", "manifest-alias", by.first("outputs", alias=0)),
    Row("alias of an argument", "manifest-alias", by.first("args", alias=0)),
    Row("input after a param", "manifest-role", by.manifest(by.swap_arguments)),
    Row("features out of order", "manifest-order", by.first("variants", features=["b", "a"])),
    Row("feature without a name", "manifest-word", by.first("variants", features=[""])),
    Row("no variants", "manifest-variants", by.manifest(lambda m: m.update(variants=[]))),
    Row("feature that no CPU has", "cpu-features", by.manifest(by.no_such_cpu)),
    Row("features of two CPUs", "cpu-features", by.manifest(by.another_cpu)),
    Row("variants share tables", "manifest-order", by.manifest(by.share_tables)),
    Row("tables outside", "manifest-range", by.first("variants", tables=[0, 2**62])),
    Row("constants outside", "manifest-range", by.first("variants", constants=[64, 2**40])),
    Row(
        "weights outside",
        "manifest-range",
        by.manifest(lambda m: m["weights"]["tensors"][-1].update(offset=2**40)),
    ),
    Row(
        "weights overlap",
        "manifest-weights",
        by.manifest(lambda m: m["weights"]["tensors"][1].update(offset=0)),
    ),
    Row(
        "weights out of order",
        "manifest-weights",
        by.manifest(lambda m: m["weights"]["tensors"].reverse()),
    ),
    Row(
        "weight of an input",
        "manifest-weights",
        by.manifest(lambda m: m["weights"]["tensors"][0].update(arg=0)),
    ),
    Row(
        "device image outside",
        "manifest-range",
        by.manifest(
            lambda m: m.update(
                devices=[{"arch": "sm_90a", "kind": "ptx", "offset": 0, "size": 2**40}]
            )
        ),
    ),
]
TABLES = [
    Row(
        "tables cut short",
        "tables-size",
        by.manifest(lambda m: m["variants"][0].update(tables=[0, 64])),
    ),
    Row("tables of another kind", "tables-magic", by.tables_header(0, "Q", 0)),
    Row("counts that overflow", "tables-size", by.tables_header(32, "6I", *[2**32 - 1] * 6)),
    Row("workspace of 2^63", "tables-workspace", by.tables_header(16, "Q", 2**63)),
    Row("code in the data", "tables-kernel-code", by.table("kernel", 0, "Q", 64)),
    Row("code outside", "tables-kernel-code", by.table("kernel", 0, "Q", 2**40)),
    Row("negative grid", "tables-kernel-grid", by.table("kernel", 8, "q", -1)),
    Row("more tiles than the code has", "tables-interface", by.table("kernel", 8, "q", 2**40)),
    Row("more dimensions than there are", "tables-tiling", by.table("tiling", 4, "I", 17)),
    Row("byte ranges without an end", "tables-tiling", by.table("tiling", 8, "I", 2**16)),
    Row("words of another kernel", "tables-tiling", by.table("tiling", 0, "I", 1)),
    Row("tasks of no time", "tables-tiling", by.table("tiling", 12, "I", 0)),
    Row("words after the block", "tables-size", by.table("words", 0, "Q", 2**61)),
    Row("words that no tiling has", "tables-(size|tiling)", by.table("words", 0, "Q", 0)),
    Row("a larger tile grid", "tables-tiling", by.table("word", 0, "q", 2**40)),
    Row("a negative tile grid", "tables-tiling", by.table("word", 0, "q", -1)),
    Row("code of another interface", "tables-interface", by.table("interface", 8, "I", 0)),
    Row("code for another core", "tables-interface", by.table("interface", 20, "I", 2)),
    Row("fewer operands", "tables-interface", by.edit(by.operand_less)),
    Row("operand of another size", "tables-interface", by.table("size", 0, "Q", 4096)),
    Row("sizes without an end", "tables-size", by.table("interface", 16, "I", 2**32 - 1)),
    Row("code from its middle", "tables-kernel-code", by.edit(by.later_code)),
    Row("a constant is written", "tables-(write|interface)", by.edit(by.written_constant)),
    Row("buffers on each other", "tables-flow", by.edit(by.moved_workspace)),
    Row("read before it is written", "tables-(flow|interface)", by.edit(by.exchanged_launches)),
    Row("unknown core", "tables-kernel-core", by.table("kernel", 32, "I", 7)),
    Row("name outside", "tables-kernel-strings", by.table("kernel", 36, "I", 2**31)),
    Row("string without an end", "tables-strings", by.edit(by.string_without_end)),
    Row("unknown kind of buffer", "tables-buffer-kind", by.table("buffer", 0, "I", 9)),
    Row(
        "buffer of no argument", "tables-buffer-bounds", by.table("buffer", 0, "IIQQ", 0, 0, 99, 8)
    ),
    Row(
        "buffer beyond the workspace",
        "tables-buffer-bounds",
        by.table("buffer", 0, "IIQQ", 2, 0, 0, 2**40),
    ),
    Row(
        "buffer beyond the constants",
        "tables-buffer-bounds",
        by.table("buffer", 0, "IIQQ", 3, 0, 2**20, 64),
    ),
    Row(
        "buffer that wraps around",
        "tables-buffer-bounds",
        by.table("buffer", 0, "IIQQ", 2, 0, 64, HUGE),
    ),
    Row("argument of another size", "tables-buffer-size", by.table("buffer", 16, "Q", 2**20)),
    Row("operand outside", "tables-operand", by.table("operand", 0, "I", 10**6)),
    Row("launch of no kernel", "tables-launch-kernel", by.table("launch", 0, "I", 10**6)),
    Row(
        "launches share operands", "tables-launch-operands", by.table("launch", 4, "I", 0, number=1)
    ),
    Row("tasks in a circle", "tables-task-successors", by.table("successor", 0, "I", 0), "tasks"),
    Row(
        "successor outside",
        "tables-task-successors",
        by.table("successor", 0, "I", 2**32 - 1),
        "tasks",
    ),
    Row("task that waits for ever", "tables-task-waits", by.table("task", 4, "I", 1), "tasks"),
    Row("tiles left out", "tables-task-range", by.table("task", 8, "qq", 1, 2), "tasks"),
    Row("task of another launch", "tables-task-range", by.table("task", 0, "I", 3), "tasks"),
]
SEAL = [
    Row("no seal", "seal-magic", by.other_bytes(lambda sound: bytes(Surgery(sound).data))),
    Row("one byte more", "seal-magic", by.other_bytes(lambda sound: sound + b"\0")),
    Row("changed code", "seal-region", by.other_bytes(by.change_code)),
    Row(
        "changed hash",
        "seal-hash",
        by.other_bytes(lambda sound: sound[:-100] + b"\xcc\xcc" + sound[-98:]),
    ),
    Row("region left out", "seal-cover", by.other_bytes(by.gap)),
    Row("one hash for all", "seal-cover", by.other_bytes(by.sealed_as_one)),
    Row(
        "signature of 95 bytes",
        "seal-size",
        by.other_bytes(lambda sound: Surgery(sound).seal(bytes(95))),
    ),
    Row(
        "endless seal",
        "seal-size",
        by.other_bytes(lambda s: s[: -END.size] + END.pack(bytes(32), 2**64 - 48, 0, MAGIC)),
    ),
]
# Found when somebody asks for the texts.
STAGES = [
    Row("texts that are none", "stages-text", by.stages(b"no zlib")),
    Row("texts that are a list", "stages-text", by.stages(zlib.compress(b"[1]"))),
    Row("texts cut short", "stages-size", by.stages(zlib.compress(by.text("plan"))[:-6])),
    Row("texts that explode", "stages-size", by.stages(zlib.compress(by.text("x" * (9 << 20)), 9))),
    Row("texts that repeat", "stages-size", by.references("0,9999,l", 999)),
    Row("text of other bytes", "stages-text", by.references("1,999999,l", 1)),
]
ROWS = [*FILES, *ELF, *LINKING, *MANIFEST, *TABLES, *SEAL, *STAGES]
