"""Stage texts as they stand in an artifact: compressed, and without the program's constants.

`write_artifact` packs, `Artifact.stages` unpacks. A large constant is in hexadecimal in the text of
every stage; the file holds its bytes anyway, so that such a run of digits is kept as a reference
into them: `NUL offset,length,case NUL`. A NUL of the text itself is doubled.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping

from nova.artifact.elf_shared import Buffer, fail

_MOST_BYTES = 1 << 30
# Below this a reference saves nothing worth the search.
_DIGITS = re.compile(r"[0-9a-fA-F]{1024,}")
_PREFIX, _MOST_TRIES = 256, 64
_REFERENCE = re.compile("\0\0|\0(\\d+),(\\d+),([lu])\0")


def pack_texts(texts: Mapping[str, str], constants: bytes) -> bytes:
    """The texts, in their order, as one compressed piece."""
    packed = {
        name: _DIGITS.sub(_refer(constants), text.replace("\0", "\0\0"))
        for name, text in texts.items()
    }
    return zlib.compress(json.dumps(packed).encode(), 6)


def unpack_texts(packed: Buffer, constants: memoryview) -> dict[str, str]:
    """What `pack_texts` was given; ArtifactError for anything else."""
    if not packed:
        return {}
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, _MOST_BYTES)
        if not unpacker.eof:
            fail("stages-size", f"the texts are cut short or exceed {_MOST_BYTES} bytes")
        texts = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        fail("stages-text", str(error))
    if type(texts) is not dict or not all(type(text) is str for text in texts.values()):
        fail("stages-text", "the stages are not an object of strings")
    return {name: _REFERENCE.sub(_resolve(constants), text) for name, text in texts.items()}


def _refer(constants: bytes) -> Callable[[re.Match[str]], str]:
    def refer(match: re.Match[str]) -> str:
        digits = match[0]
        if len(digits) % 2 or (digits != digits.lower() and digits != digits.upper()):
            return digits
        data = bytes.fromhex(digits)
        offset = _find(constants, data)
        if offset < 0:
            return digits
        return f"\0{offset},{len(data)},{'l' if digits == digits.lower() else 'u'}\0"

    return refer


def _find(constants: bytes, data: bytes) -> int:
    """Where `data` is in the constants, or -1; by its beginning, as Python's own search is slow."""
    view = memoryview(constants)
    offset = -1
    for _ in range(_MOST_TRIES):
        offset = constants.find(data[:_PREFIX], offset + 1)
        if offset < 0 or view[offset : offset + len(data)] == data:
            return offset
    return -1


def _resolve(constants: memoryview) -> Callable[[re.Match[str]], str]:
    def resolve(match: re.Match[str]) -> str:
        if not match[1]:
            return "\0"
        offset, size = int(match[1]), int(match[2])
        if offset + size > len(constants):
            fail(
                "stages-text", f"a text refers to bytes {offset}..{offset + size} of the constants"
            )
        digits = constants[offset : offset + size].hex()
        return digits if match[3] == "l" else digits.upper()

    return resolve
