"""Damaged files by number: the same number gives the same file.

`mutate` takes sound files and a number, and gives a `Mutant`. Half of them are damaged anywhere and
keep their old hashes; in the other half the damage is in the structure of the file, and the hashes
are made right again. Called by `child.py` only.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from surgery import (
    BUFFER,
    HEADER,
    KERNEL,
    LAUNCH,
    Field,
    Surgery,
    canonical,
    record_size,
    seal_again,
)

NUMBERS = [0, 1, 2, 3, 7, 8, 24, 63, 64, 4095, 4096, 2**16 - 1, 2**20, 2**31, 2**40, 2**46]
# Bytes that a file may change without any check being able to tell: the program itself.
PROGRAM = (
    *(".text", ".rodata", ".eh_frame", ".data.rel.ro", ".data", ".nova.const", ".nova.weights"),
    ".nova.device",
)


# The way to damage a file that changes what its code does.
CODE = "change data"


@dataclass(frozen=True)
class Mutant:
    """A damaged file: made from `seed` by `how`; `sealed` when its hashes are right."""

    number: int
    seed: str
    how: str
    sealed: bool
    data: bytes


def mutate(seeds: Mapping[str, bytes], number: int) -> Mutant:
    """The damaged file of a number."""
    rng = random.Random(number)
    name, second = rng.choice(list(seeds)), rng.choice(list(seeds))
    sealed = number % 2 == 1
    changes = SEALED if sealed else UNSEALED
    how = rng.choice(list(changes))
    return Mutant(number, name, how, sealed, changes[how](rng, seeds[name], seeds[second]))


Change = Callable[[random.Random, bytes, bytes], bytes]

# --- anywhere, with the old hashes ----------------------------------------------------------------


def _flip_bits(rng: random.Random, data: bytes, _: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(rng: random.Random, data: bytes, _: bytes) -> bytes:
    changed, at = bytearray(data), rng.randrange(len(data))
    size = min(rng.choice([1, 4, 8, 64, 4096]), len(data) - at)
    changed[at : at + size] = rng.choice([bytes(size), b"\xff" * size, rng.randbytes(size)])
    return bytes(changed)


def _truncate(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.choice([rng.randrange(len(data)), len(data) - rng.randrange(1, 200)])]


def _extend(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return data + rng.choice([b"\0", rng.randbytes(rng.randrange(1, 5000)), data[-56:], data])


def _insert(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.choice([1, 8, 64, 4096])) + data[at:]


def _cut(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice([1, 8, 64, 4096]) :]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one file and the end of another."""
    at = rng.randrange(min(len(data), len(other)))
    return data[:at] + other[rng.choice([at, len(other) - (len(data) - at)]) :]


def _transplant(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A piece of another file, at the same place or somewhere else."""
    source = rng.randrange(len(other))
    piece = other[source : source + rng.choice([64, 1024, 16384])]
    at = rng.choice([source, rng.randrange(len(data))])
    return (data[:at] + piece + data[at + len(piece) :])[: max(len(data), len(other))]


def _swap_blocks(rng: random.Random, data: bytes, _: bytes) -> bytes:
    size = rng.choice([8, 64, 512, 4096])
    first, second = sorted(rng.randrange(len(data) // size) * size for _ in range(2))
    changed = bytearray(data)
    changed[first : first + size] = data[second : second + size]
    changed[second : second + size] = data[first : first + size]
    return bytes(changed)


def _swap_sections(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Two sections in each other's place, the headers as they were."""
    file = Surgery(data)
    first, second = rng.sample(list(file.sections.values()), 2)
    size = min(first.size, second.size)
    changed = bytearray(data)
    changed[first.offset : first.offset + size] = data[second.offset : second.offset + size]
    changed[second.offset : second.offset + size] = data[first.offset : first.offset + size]
    return bytes(changed)


def _damage_seal(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Numbers of the seal, which no hash covers."""
    changed = bytearray(data)
    seal = len(data) - len(Surgery(data).data)
    at = len(data) - seal + rng.randrange(seal // 8) * 8
    struct.pack_into("<Q", changed, at, rng.choice([*NUMBERS, 2**63, 2**64 - 1, 2**64 - 48]))
    return bytes(changed)


UNSEALED: dict[str, Change] = {
    "flip bits": _flip_bits,
    "overwrite": _overwrite,
    "truncate": _truncate,
    "extend": _extend,
    "insert": _insert,
    "cut": _cut,
    "splice": _splice,
    "transplant": _transplant,
    "swap blocks": _swap_blocks,
    "swap sections": _swap_sections,
    "damage seal": _damage_seal,
}

# --- in the structure, with the hashes made right -------------------------------------------------


@cache
def _fields_of(data: bytes) -> dict[str, list[Field]]:
    """The numbers of a sound file by the kind of record that they are in."""
    result: dict[str, list[Field]] = {}
    for field in Surgery(data).fields():
        result.setdefault(field.group, []).append(field)
    return result


@cache
def _records_of(data: bytes) -> dict[str, list[tuple[int, int]]]:
    """Place and size of the records of a sound file, of kinds that it has several of."""
    result = {}
    for group, fields in _fields_of(data).items():
        spans: dict[str, tuple[int, int]] = {}
        for field in fields:
            record = field.name.partition(".")[0]
            start, _ = spans.get(record, (field.at, 0))
            spans[record] = (start, field.at + field.bits // 8 - start)
        if len(spans) > 1:
            result[group] = list(spans.values())
    return result


def _other_number(rng: random.Random, file: Surgery, field: Field, like: list[Field]) -> int:
    old = file.get(field.kind, field.at)
    choices = (
        lambda: rng.choice(NUMBERS),
        lambda: old + rng.choice([-64, -8, -1, 1, 8, 64, 4096]),
        lambda: old ^ 1 << rng.randrange(field.bits),
        lambda: (1 << field.bits) - rng.choice([1, 2, 8, 64, 4096]),
        lambda: 1 << (field.bits - 1),
        lambda: file.get(field.kind, rng.choice([f for f in like if f.kind == field.kind]).at),
        lambda: rng.randrange(len(file.data)),
        lambda: old * 2,
    )
    return rng.choice(choices)() % (1 << field.bits)


def _change_fields(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """One or a few numbers of headers, symbols, relocations or tables."""
    file, groups = Surgery(data), _fields_of(data)
    group = rng.choice(list(groups))
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        field = rng.choice(groups[group])
        file.put(field.kind, field.at, _other_number(rng, file, field, groups[group]))
        if rng.random() < 0.2:
            group = rng.choice(list(groups))
    return file.seal()


def _swap_records(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Two whole headers, entries or records in each other's place."""
    file = Surgery(data)
    (a, size), (b, _) = rng.sample(rng.choice(list(_records_of(data).values())), 2)
    file.put(f"{size}s", a, data[b : b + size])
    file.put(f"{size}s", b, data[a : a + size])
    return file.seal()


def _change_manifest(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """One or a few values of the manifest, or its fields."""
    file = Surgery(data)
    result = file.manifest
    if rng.random() < 0.7:  # else there is no room for longer values, and most stay as they are
        result["key"] = {}
    for _ in range(rng.choice([1, 1, 2, 3])):
        holder, name = rng.choice(_places(result))
        mode = rng.randrange(4)
        if mode == 0 and isinstance(holder, dict):
            holder[rng.choice(["zebra", "alias", "arg", "shape"])] = holder.pop(name)
        elif mode == 1 and isinstance(holder, list):
            holder.insert(name, json.loads(json.dumps(holder[name])))
        elif mode == 1:
            del holder[name]
        else:
            holder[name] = _other_value(rng, holder[name], result)
    text = canonical(result)
    if len(text) > file.sections[".nova.manifest"].size:
        text = text[: file.sections[".nova.manifest"].size]
    file.set_manifest(text)
    return file.seal()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (object or list, key or index) below a value."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    result: list[tuple[Any, Any]] = []
    for key in keys:
        result.append((value, key))
        if isinstance(value[key], dict | list):
            result += _places(value[key])
    return result


def _other_value(rng: random.Random, old: Any, manifest: Any) -> Any:
    holder, name = rng.choice(_places(manifest))
    text = old if isinstance(old, str) else "w"
    number = old if type(old) is int else 64
    return rng.choice(
        [
            rng.choice([0, -1, 1, 64, 2**31, 2**32, 2**46, 2**62, 2**63 - 1]),
            number + rng.choice([-64, -1, 1, 64]),
            number * 2,
            rng.choice([2**63, 2**64, -(2**63), 1.5, None, True, False, [], {}, [[]], ""]),
            rng.choice(["f64", "bool", "param", "input", "none", "embedded", "aarch64", "cubin"]),
            text + rng.choice(["\0", "\ud800", "\u20ac", '"', "\\", "x" * 500, "\x1b[2J"]),
            text[: len(text) // 2],
            json.loads(json.dumps(holder[name])),
        ]
    )


def _change_manifest_text(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Characters of the manifest, wherever they stand."""
    file = Surgery(data)
    section = file.sections[".nova.manifest"]
    text = bytearray(file.data[section.offset : section.offset + section.size])
    at = rng.randrange(len(text))
    size = rng.choice([1, 1, 2, 8, 64])
    pieces = [
        b'{"',
        b"[[",
        b'":',
        b"-",
        b"1e9",
        b"\\u00",
        b"\0",
        b"\xff",
        b" ",
        b'"',
        b"}",
        b"9" * 20,
    ]
    mode = rng.randrange(3)
    if mode == 0:
        text[at : at + size] = rng.choice(pieces)
    elif mode == 1:
        del text[at : at + size]
    else:
        text[at] ^= 1 << rng.randrange(8)
    file.set_manifest(bytes(text)[: section.size])
    return file.seal()


def _flip_structure(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Bits anywhere but in the program itself."""
    file = Surgery(data)
    for _ in range(rng.choice([1, 1, 4, 16])):
        at = rng.randrange(len(file.data))
        if not any(
            name in PROGRAM and s.offset <= at < s.offset + s.size
            for name, s in file.sections.items()
        ):
            file.data[at] ^= 1 << rng.randrange(8)
    return file.seal()


def _resize(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Bytes in or out before the hashes are made."""
    file = Surgery(data)
    at = rng.randrange(len(file.data))
    if rng.random() < 0.5:
        del file.data[at : at + rng.choice([1, 8, 64, 4096, len(file.data)])]
    else:
        file.data[at:at] = bytes(rng.choice([1, 8, 64, 4096]))
    return seal_again(bytes(file.data), file.sections)


def _exchange_section(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A section of another file in the place of this file's own."""
    file, source = Surgery(data), Surgery(other)
    name = rng.choice([n for n in source.sections if n in file.sections and n not in PROGRAM])
    local, present = file.sections[name], source.sections[name]
    size = min(local.size, present.size)
    file.data[local.offset : local.offset + size] = source.data[
        present.offset : present.offset + size
    ]
    file.put("Q", local.header + 32, size)
    return file.seal()


def _change_data(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Bytes of the program itself: nobody can tell but by what it computes."""
    file = Surgery(data)
    names = (".text", ".rodata", ".nova.const", ".nova.weights")
    section = file.sections[rng.choice([n for n in names if n in file.sections])]
    for _ in range(rng.choice([1, 4, 16])):
        file.data[section.offset + rng.randrange(section.size)] ^= 1 << rng.randrange(8)
    return file.seal()


def _change_tables(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Numbers of the tables, so that they still fit: more memory, less work, another place."""
    file = Surgery(data)
    variant = rng.randrange(len(file.manifest["variants"]))
    header, buffer, kernel, launch = (
        file.table(array, variant=variant) for array in ("buffer", "buffer", "kernel", "launch")
    )
    header -= record_size(HEADER)
    counts = [file.get("I", header + 32 + 4 * i) for i in range(3)]
    mode = rng.randrange(4)
    if mode == 0:
        file.put("Q", header + 16, file.get("Q", header + 16) + 64 * rng.randrange(1, 100))
    elif mode == 1:
        at = kernel + rng.randrange(counts[1]) * record_size(KERNEL) + 8
        file.put("Q", at, max(1, file.get("Q", at) // 2))
    elif mode == 2:  # a value of the workspace somewhere else in it
        rows = [buffer + i * record_size(BUFFER) for i in range(counts[0])]
        at = rng.choice([row for row in rows if file.get("I", row) == 2] or rows)
        room = file.get("Q", header + 16) - file.get("Q", at + 16)
        file.put("Q", at + 8, rng.randrange(max(1, room // 64)) * 64)
    else:  # two operands of a launch exchanged
        at = launch + rng.randrange(counts[2]) * record_size(LAUNCH)
        first, many = file.get("I", at + 4), file.get("I", at + 8)
        words = file.table("operand", first, variant)
        local, present = (words + 4 * rng.randrange(many) for _ in range(2))
        old = file.get("I", local), file.get("I", present)
        file.put("I", local, old[1])
        file.put("I", present, old[0])
    return file.seal()


def _sign(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """A signature that nobody made, of a right or a wrong size."""
    return Surgery(data).seal(rng.randbytes(rng.choice([96, 96, 95, 97, 1, 192])))


SEALED: dict[str, Change] = {
    "change fields": _change_fields,
    "change more fields": _change_fields,
    "change fields again": _change_fields,
    "swap records": _swap_records,
    "change manifest": _change_manifest,
    "change manifest again": _change_manifest,
    "change manifest text": _change_manifest_text,
    "flip structure": _flip_structure,
    "resize": _resize,
    "exchange section": _exchange_section,
    CODE: _change_data,
    "change tables": _change_tables,
    "sign": _sign,
}
