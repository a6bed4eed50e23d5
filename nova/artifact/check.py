"""Shared by all of `nova/artifact`: the error of a failed check, and storable strings."""

from __future__ import annotations

from typing import NoReturn

from nova.errors import ArtifactError

Buffer = bytes | bytearray | memoryview


def fail(check: str, detail: str) -> NoReturn:
    """Raise the ArtifactError of a check of docs/nova-format.md."""
    raise ArtifactError(f"check '{check}' failed: {detail}")


def storable(text: str) -> str:
    """`text` as C and UTF-8 can represent it: a NUL or a lone surrogate becomes U+FFFD.

    Names of tensors and of the user's files may contain either.
    """
    if text.isprintable():
        return text
    return (
        text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
