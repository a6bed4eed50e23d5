"""Large constants of a program: stored once, as bytes, and named by their digests in texts.

A text with the values of a large constant is twice as long as the constant, and every stage of a
compile has one. So texts are kept *compact*: a plan has `f32[4096,4096]<@digest>`, a module has
`dense_resource<nova_digest>`, and a table has the bytes. `StageTexts` expands the text of a stage
when it is read: a plan with its digits inline, a module followed by MLIR's resource section. Both
parse back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from nova.core.location import user_location
from nova.core.suggest import did_you_mean
from nova.errors import UnknownStageError

LEAST = 1 << 16
_BLOCK = 1 << 18  # bytes that are compared at once
"""Bytes of a constant that is kept out of texts; smaller ones may be folded and stay readable."""

Buffer: TypeAlias = bytes | bytearray | memoryview
Digits: TypeAlias = Callable[[str], str | None]
"""Maps a digest to the text that replaces the digits of the constant; None if unknown."""

_IN_PLAN = re.compile(r"<@([0-9a-f]{64})>")
_PLAN_DIGITS = re.compile(rf"<x([0-9a-f]{{{2 * LEAST},}})>")
# MLIR appends a number to a name that the context already has.
_IN_MODULE = re.compile(r"dense_resource<(nova_([0-9a-f]{64})(?:_[0-9]+)?)>")
_SECTION_BEGIN = "\n\n{-#\n  dialect_resources: {\n    builtin: {\n"
_SECTION_END = "\n    }\n  }\n#-}"
_ALIGNMENT = "40000000"  # 64, in the four bytes before a resource's values


def digest_of(data: Buffer) -> str:
    """The name of a constant with these bytes."""
    return hashlib.sha256(data).hexdigest()


class Constants:
    """The bytes of large constants, by digest. They are not copied: they must not change."""

    def __init__(self) -> None:
        self._data: dict[str, memoryview] = {}

    def add(self, data: Buffer, digest: str | None = None) -> str:
        """Store a constant and return its digest."""
        digest = digest or digest_of(data)
        self._data.setdefault(digest, memoryview(data).cast("B"))
        return digest

    def update(self, others: Constants) -> None:
        """Store all constants of another table as well."""
        self._data |= others._data

    def move_into(self, data: memoryview) -> None:
        """Refer to the copies of constants inside `data`, and drop the others."""
        for digest, values in self._data.items():
            offset = find_bytes(data, values)
            if offset >= 0:
                self._data[digest] = data[offset : offset + values.nbytes]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __contains__(self, digest: str) -> bool:
        return digest in self._data

    def __getitem__(self, digest: str) -> memoryview:
        return self._data[digest]

    def get(self, digest: str) -> memoryview | None:
        """The bytes of a constant, or None."""
        return self._data.get(digest)

    @property
    def nbytes(self) -> int:
        return sum(data.nbytes for data in self._data.values())

    def digits(self, digest: str) -> str | None:
        """The bytes of a constant in hexadecimal, or None."""
        data = self._data.get(digest)
        return None if data is None else data.hex()


def find_bytes(data: memoryview, pattern: memoryview) -> int:
    """The offset of the bytes `pattern` in `data`, a multiple of 64; -1 if they are not there.

    A pattern has 64 bytes or more.
    """
    if len(pattern) > len(data):
        return -1
    lines = np.frombuffer(data[: len(data) // 64 * 64], np.uint64).reshape(-1, 8)
    count = len(pattern) // 64
    ends = np.frombuffer(pattern[: 64 * count], np.uint64).reshape(-1, 8)[[0, -1]]
    # By one word first, which few lines pass; runs of zeros do, and their last lines differ.
    rows = np.flatnonzero(lines[: len(lines) - count + 1, 0] == ends[0, 0])
    for first, line in ((0, ends[0]), (count - 1, ends[1])):
        rows = rows[(lines[rows + first] == line).all(axis=1)]
    for row in rows:
        offset = 64 * int(row)
        if _is_equal(data[offset : offset + len(pattern)], pattern):
            return offset
    return -1


def _is_equal(data: memoryview, other: memoryview) -> bool:
    """Whether views of bytes are equal; `==` compares one byte after the other."""
    a, b = np.frombuffer(data, np.uint8), np.frombuffer(other, np.uint8)
    blocks = range(0, max(len(a), len(b)), _BLOCK)
    return all(np.array_equal(a[i : i + _BLOCK], b[i : i + _BLOCK]) for i in blocks)


def expand_text(text: str, digits: Digits) -> str:
    """Expand a compact text."""

    def in_plan(match: re.Match[str]) -> str:
        hex_digits = digits(match[1])
        return match[0] if hex_digits is None else f"<x{hex_digits}>"

    text = _IN_PLAN.sub(in_plan, text)
    lines = [
        f'      {name}: "0x{_ALIGNMENT}{hex_digits}"'
        for name, digest in dict(_IN_MODULE.findall(text)).items()
        if (hex_digits := digits(digest)) is not None
    ]
    if not lines:
        return text
    head = text.rstrip("\n")
    if head.endswith(_SECTION_END):  # MLIR printed small resources
        head = head.removesuffix(_SECTION_END) + ",\n"
    else:
        head += _SECTION_BEGIN
    return head + ",\n".join(lines) + _SECTION_END + "\n"


def compact_plan(text: str) -> str:
    """A whole plan text made compact again: the inverse of `expand_text`."""
    return _PLAN_DIGITS.sub(lambda match: f"<@{digest_of(bytes.fromhex(match[1]))}>", text)


class StageTexts(Mapping[str, str]):
    """The texts of stages by name, each expanded when it is read."""

    def __init__(self, compact: Mapping[str, str], constants: Constants):
        self.compact, self.constants = compact, constants

    def __getitem__(self, stage: str) -> str:
        if stage not in self.compact:
            raise UnknownStageError(
                f"there is no text of a stage {stage!r}",
                where=str(user_location()),
                hint=did_you_mean(str(stage), self.compact, "the stages are {}"),
            )
        return expand_text(self.compact[stage], self.constants.digits)

    def __iter__(self) -> Iterator[str]:
        return iter(self.compact)

    def __len__(self) -> int:
        return len(self.compact)

    def __repr__(self) -> str:
        return f"StageTexts({', '.join(self.compact)})"
