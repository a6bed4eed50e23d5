"""Large constants of a program: kept once, as bytes, and named by their digests in texts.

A text with the values of a large constant is twice as long as the constant, and every stage of a
compile has one. So texts are kept *compact*: a plan has `f32[4096,4096]<@digest>` and a module
`dense_resource<nova_digest>`, and a table has the bytes. `StageTexts` gives the whole text of a
stage when it is read: of a plan with its digits in place, of a module with MLIR's section of
resources behind it. Both parse back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

LEAST = 1 << 16
"""Bytes of a constant that is kept out of texts; smaller ones may be folded and stay readable."""

Buffer: TypeAlias = bytes | bytearray | memoryview
Digits: TypeAlias = Callable[[str], str]
"""What stands in a text for the digits of a constant, given its digest."""

_IN_PLAN = re.compile(r"<@([0-9a-f]{64})>")
_PLAN_DIGITS = re.compile(rf"<x([0-9a-f]{{{2 * LEAST},}})>")
# MLIR puts a number behind a name that a context has already.
_IN_MODULE = re.compile(r"dense_resource<(nova_([0-9a-f]{64})(?:_[0-9]+)?)>")
_ALIGNMENT = "40000000"  # 64, in the four bytes before a resource's values
_NO_RESOURCES = re.compile(r"\n\{-#\s*#-\}\s*\Z")


def digest_of(data: Buffer) -> str:
    """The name of a constant with these bytes."""
    return hashlib.sha256(data).hexdigest()


class Constants:
    """The bytes of large constants, by digest. They are not copied: nobody may change them."""

    def __init__(self) -> None:
        self._data: dict[str, memoryview] = {}

    def add(self, data: Buffer, digest: str | None = None) -> str:
        """Keep a constant; its digest is returned."""
        digest = digest or digest_of(data)
        self._data.setdefault(digest, memoryview(data).cast("B"))
        return digest

    def update(self, others: Constants) -> None:
        """Keep all constants of another table as well."""
        self._data |= others._data

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

    def digits(self, digest: str) -> str:
        """The bytes of a constant in hexadecimal."""
        return self._data[digest].hex()


def expand_text(text: str, digits: Digits) -> str:
    """The whole text of a compact one."""
    text = _IN_PLAN.sub(lambda match: f"<x{digits(match[1])}>", text)
    names = dict(_IN_MODULE.findall(text))
    if not names:
        return text
    lines = [f'      {name}: "0x{_ALIGNMENT}{digits(key)}"' for name, key in names.items()]
    body = ",\n".join(lines)
    section = f"{{-#\n  dialect_resources: {{\n    builtin: {{\n{body}\n    }}\n  }}\n#-}}\n"
    return text.rstrip("\n") + "\n\n" + section


def compact_plan(text: str) -> str:
    """A whole plan text as `expand_text` was given it."""
    return _PLAN_DIGITS.sub(lambda match: f"<@{digest_of(bytes.fromhex(match[1]))}>", text)


def without_resources(text: str) -> str:
    """A module's text without the empty section that is left where resources were elided."""
    return _NO_RESOURCES.sub("\n", text) if text.endswith("#-}\n") else text


class StageTexts(Mapping[str, str]):
    """The texts of stages by name, each expanded when it is read."""

    def __init__(self, compact: Mapping[str, str], constants: Constants):
        self.compact, self.constants = compact, constants

    def __getitem__(self, stage: str) -> str:
        return expand_text(self.compact[stage], self.constants.digits)

    def __iter__(self) -> Iterator[str]:
        return iter(self.compact)

    def __len__(self) -> int:
        return len(self.compact)

    def __repr__(self) -> str:
        return f"StageTexts({', '.join(self.compact)})"
