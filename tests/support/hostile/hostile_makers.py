"""How the hostile files of `hostile_rows.py` are made: each function gives what writes one file.

In: the folder to write into, and the bytes of a sound file. Out: the path of the hostile one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from surgery import END, MAGIC, RECORD, Surgery, canonical

Make = Callable[[Path, bytes], Path]
DT_FLAGS = 0x1E


def write(folder: Path, data: bytes) -> Path:
    path = folder / "hostile.nova"
    path.write_bytes(data)
    return path


def other_bytes(change: Callable[[bytes], bytes]) -> Make:
    """Other bytes than those of the sound file."""
    return lambda folder, sound: write(folder, change(sound))


def edit(change: Callable[[Surgery], object]) -> Make:
    """The sound file after `change`, with right hashes."""

    def make(folder: Path, sound: bytes) -> Path:
        file = Surgery(sound)
        change(file)
        return write(folder, file.seal())

    return make


def segment(kind: int, number: int, offset: int, modes: str, *values: int) -> Make:
    """Fields of the program header that is the `number`-th of its kind."""
    return edit(lambda file: file.put(modes, file.segment(kind, number) + offset, *values))


def header(offset: int, modes: str, *values: int) -> Make:
    return edit(lambda file: file.put(modes, offset, *values))


def section(name: str, offset: int, modes: str, *values: int) -> Make:
    return edit(lambda file: file.put(modes, file.sections[name].header + offset, *values))


def inside(name: str, offset: int, modes: str, *values: int) -> Make:
    return edit(lambda file: file.put(modes, file.sections[name].offset + offset, *values))


def tag(tag: int, value: int) -> Make:
    """Another entry of the dynamic section, in place of one that a file may leave out."""
    return edit(lambda file: file.put("QQ", file.tag(DT_FLAGS), tag, value))


def rename(name: str, other: str) -> Make:
    """Another name of a symbol or section, of the same length, wherever it stands."""
    return edit(lambda file: substitute(file, name, other))


def substitute(file: Surgery, name: str, other: str) -> None:
    assert len(name) == len(other)
    changed = file.data.replace(b"\0" + name.encode() + b"\0", b"\0" + other.encode() + b"\0")
    assert changed != file.data
    file.data[:] = changed


def manifest(change: Callable[[dict[str, Any]], object]) -> Make:
    """A manifest with other values."""

    def replace(file: Surgery) -> None:
        result = file.manifest
        result["key"] = {}  # makes room
        change(result)
        file.set_manifest(canonical(result))

    return edit(replace)


def manifest_text(change: Callable[[bytes], bytes]) -> Make:
    """A manifest with another text, which may be no JSON."""

    def replace(file: Surgery) -> None:
        result = file.manifest
        result["key"] = {}
        file.set_manifest(change(canonical(result)))

    return edit(replace)


def first(name: str, **changes: Any) -> Make:
    """Other values in the first record of a list of the manifest."""
    return manifest(lambda result: result[name][0].update(changes))


def table(array: str, offset: int, modes: str, *values: int, number: int = 0) -> Make:
    """Fields of a record of the tables."""
    return edit(lambda file: file.put(modes, file.table(array, number) + offset, *values))


def tables_header(offset: int, modes: str, *values: int) -> Make:
    return inside(".nova.tables", offset, modes, *values)


def operand_less(file: Surgery) -> None:
    """One operand of the first launch goes to the second."""
    for number, change in ((0, -1), (1, 1)):
        at = file.table("launch", number)
        file.put("I", at + 8, file.get("I", at + 8) + change)
    at = file.table("launch", 1) + 4
    file.put("I", at, file.get("I", at) - 1)


def later_code(file: Surgery) -> None:
    at = file.table("kernel", 0)
    file.put("Q", at, file.get("Q", at) + 4)


def _buffers(file: Surgery, kind: int) -> list[int]:
    count = file.get("I", file.table("buffer") - 64 + 32)
    positions = [file.table("buffer", number) for number in range(count)]
    return [at for at in positions if file.get("I", at) == kind]


def written_constant(file: Surgery) -> None:
    """A constant and a value of the workspace of the same size change places."""
    for constant in _buffers(file, 3):
        for second in _buffers(file, 2):
            if file.get("Q", constant + 16) == file.get("Q", second + 16):
                rows = [bytes(file.data[at : at + 24]) for at in (constant, second)]
                file.put("24s", constant, rows[1])
                file.put("24s", second, rows[0])
                return
    raise AssertionError("the file has no such buffers")


def moved_workspace(file: Surgery) -> None:
    """A value that is read where another one is written begins in the middle of that."""
    first, second = [at for at in _buffers(file, 2) if file.get("Q", at + 16) > 1000][:2]
    file.put("Q", second + 8, file.get("Q", first + 8) + 64)


def exchanged_launches(file: Surgery) -> None:
    """The kernels of two launches change places."""
    first, last = file.table("launch", 1), file.table("launch", 2)
    kernels = file.get("I", first), file.get("I", last)
    file.put("I", first, kernels[1])
    file.put("I", last, kernels[0])


def stages(packed: bytes) -> Make:
    return edit(lambda file: file.set_stages(packed))


def text(plan: str) -> bytes:
    return canonical({"plan": plan})


def references(reference: str, count: int) -> Make:
    """A text of references to the bytes of constants."""
    return stages(zlib.compress(text(f"\x00{reference}\x00" * count)))


def gcc(folder: Path, *options: str) -> Path:
    source, path = folder / "foreign.c", folder / "foreign.nova"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", *options, str(source), "-o", str(path)], check=True)
    return path


def symbolic_link(folder: Path, sound: bytes) -> Path:
    """A link to itself; links that lead to a file are followed."""
    (folder / "link.nova").symlink_to(folder / "link.nova")
    return folder / "link.nova"


def named_pipe(folder: Path, _: bytes) -> Path:
    os.mkfifo(folder / "pipe.nova")
    return folder / "pipe.nova"


def unix_socket(folder: Path, _: bytes) -> Path:
    with socket.socket(socket.AF_UNIX) as created:
        local = os.open(".", os.O_RDONLY)
        os.chdir(folder)  # names of sockets are short
        try:
            created.bind("socket.nova")
        finally:
            os.fchdir(local)
            os.close(local)
    return folder / "socket.nova"


def sparse(folder: Path, _: bytes) -> Path:
    path = write(folder, b"")
    os.truncate(path, 2 << 40)
    return path


def string_without_end(file: Surgery) -> None:
    """The last string of the first block runs into the padding behind it."""
    offset, size = file.manifest["variants"][0]["tables"]
    file.put("B", file.sections[".nova.tables"].offset + offset + size - 1, ord("x"))


def name_twice(file: Surgery) -> None:
    """The weights under the name of the manifest."""
    name = file.get("I", file.sections[".nova.manifest"].header)
    file.put("I", file.sections[".nova.weights"].header, name)


def endless_name(file: Surgery) -> None:
    """A name over many others, of which the ends are gone."""
    names = file.sections[".shstrtab"]
    inside = slice(names.offset + 1, names.offset + names.size - 1)
    file.data[inside] = file.data[inside].replace(b"\0", b"-")


def swap_arguments(result: dict[str, Any]) -> None:
    result["args"][0], result["args"][1] = result["args"][1], result["args"][0]


def relocate_code(file: Surgery) -> None:
    file.put("Q", file.sections[".rela.dyn"].offset, file.sections[".text"].offset)


def move_manifest(file: Surgery) -> None:
    code = file.sections[".text"].offset
    file.put("QQ", file.sections[".nova.manifest"].header + 16, code, code)


def change_code(sound: bytes) -> bytes:
    at = Surgery(sound).sections[".text"].offset
    return sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]


def gap(sound: bytes) -> bytes:
    """A seal that leaves the first region out."""
    body = bytes(Surgery(sound).data)
    seal = sound[len(body) :]
    records = seal[RECORD.size : -END.size]
    return body + records + ending(records)


def sealed_as_one(sound: bytes) -> bytes:
    """All sections of Nova under one hash."""
    body = bytes(Surgery(sound).data)
    record = RECORD.pack(0, len(body), sha256(body).digest())
    return body + record + ending(record)


def ending(records: bytes) -> bytes:
    return END.pack(sha256(records).digest(), len(records), 0, MAGIC)


def share_tables(result: dict[str, Any]) -> None:
    result["variants"][1]["tables"] = result["variants"][0]["tables"]


def nested(depth: int) -> Callable[[bytes], bytes]:
    return lambda _: b'{"a":' * depth + b"1" + b"}" * depth


def no_such_cpu(result: dict[str, Any]) -> None:
    for variant in result["variants"]:
        variant["features"] = ["warp-drive"]


def another_cpu(result: dict[str, Any]) -> None:
    """Features of the other architecture, which this CPU cannot have."""
    for variant in result["variants"]:
        variant["features"] = ["amx-bf16", "neon"]
