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

from nova.artifact.check import Buffer, fail

_MOST_BYTES = 1 << 30
# What texts unpack to stays in proportion to the file: a small one cannot ask for gigabytes. Real
# texts shrink to a tenth, and name each constant about once a stage; for others the writer takes
# fewer references, and adds padding that the reader steps over.
_ROOM, _MOST_GROWTH = 4 << 20, 32
# Below this a reference saves nothing worth the search.
_DIGITS = re.compile(r"[0-9a-fA-F]{1024,}")
# Of a run of that many digits, at least this many stand at a multiple of 64.
_SAMPLED = re.compile(r"[0-9a-fA-F]{15}")
# Beyond this level the texts take three times as long and become a fifth smaller.
_LEVEL = 3
_PREFIX, _MOST_TRIES = 256, 64
_REFERENCE = re.compile("\0\0|\0([0-9]{1,19}),([0-9]{1,19}),([lu])\0")


def pack_texts(texts: Mapping[str, str], constants: bytes) -> bytes:
    """The texts, in their order, as one compressed piece."""
    refer = _refer(constants)
    shortened = {name: _shorten(text, refer) for name, text in texts.items()}
    text = json.dumps(shortened).encode()
    packed = zlib.compress(text, _LEVEL)
    return packed.ljust((len(text) - _ROOM) // _MOST_GROWTH + 1, b"\0")


def _shorten(text: str, refer: Callable[[re.Match[str]], str]) -> str:
    doubled = text.replace("\0", "\0\0")
    # The search for digits is slow, and most texts have no large constant.
    return _DIGITS.sub(refer, doubled) if _SAMPLED.search(doubled[::64]) else doubled


def unpack_texts(packed: Buffer, constants: memoryview) -> dict[str, str]:
    """What `pack_texts` was given; ArtifactError for anything else."""
    if not packed:
        return {}
    try:
        texts = json.loads(_decompress(packed))
    except (zlib.error, ValueError, RecursionError) as error:
        fail("stages-text", str(error))
    if type(texts) is not dict or not all(type(text) is str for text in texts.values()):
        fail("stages-text", "the stages are not an object of strings")
    resolve = _resolve(constants)
    return {name: _REFERENCE.sub(resolve, text) for name, text in texts.items()}


def _decompress(packed: Buffer) -> str:
    most = min(_MOST_BYTES, _ROOM + _MOST_GROWTH * len(packed))
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, most)
    if not unpacker.eof:
        fail("stages-size", f"the texts are cut short or exceed {most} bytes")
    return text.decode()


def _refer(constants: bytes) -> Callable[[re.Match[str]], str]:
    left = _most_referred(len(constants))

    def refer(match: re.Match[str]) -> str:
        nonlocal left
        digits = match[0]
        if len(digits) % 2 or (digits != digits.lower() and digits != digits.upper()):
            return digits
        data = bytes.fromhex(digits)
        offset = _find(constants, data)
        if offset < 0 or left < len(data):
            return digits
        left -= len(data)
        return f"\0{offset},{len(data)},{'l' if digits == digits.lower() else 'u'}\0"

    return refer


def _most_referred(size: int) -> int:
    """How many bytes the references to `size` bytes of constants may name in all."""
    return _ROOM + _MOST_GROWTH * size


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
    left = _most_referred(len(constants))

    def resolve(match: re.Match[str]) -> str:
        nonlocal left
        if not match[1]:
            return "\0"
        offset, size = int(match[1]), int(match[2])
        left -= size
        if left < 0:
            fail("stages-size", f"the texts repeat {len(constants)} bytes of constants too often")
        if offset + size > len(constants):
            fail(
                "stages-text", f"a text refers to bytes {offset}..{offset + size} of the constants"
            )
        digits = constants[offset : offset + size].hex()
        return digits if match[3] == "l" else digits.upper()

    return resolve
