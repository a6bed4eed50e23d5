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
from string import hexdigits

from nova.artifact.check import Buffer, fail

_MOST_BYTES = 1 << 30
# What texts unpack to stays in proportion to the file: a small one cannot ask for gigabytes. Real
# texts shrink to a tenth, and name each constant about once a stage; for others the writer takes
# fewer references, and adds padding that the reader steps over.
_ROOM, _MOST_GROWTH = 4 << 20, 32
# Below this a reference saves nothing worth the search.
_LEAST = 1024
_DIGITS = re.compile(rf"[0-9a-fA-F]{{{_LEAST},}}")
# The search for digits is slow. Of a run of that many, at least 64 stand at a multiple of _STEP,
# and what stands between two constants has, as a rule, something else there.
_STEP = 16
_SAMPLED = re.compile(r"[0-9a-fA-F]{64,}")
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


def _shorten(text: str, refer: Callable[[str], str | None]) -> str:
    doubled = text.replace("\0", "\0\0")
    pieces: list[str] = []
    done = 0
    for sampled in _SAMPLED.finditer(doubled[::_STEP]):
        low = max(done, (sampled.start() - 1) * _STEP + 1)
        high = sampled.end() * _STEP
        pieces += [doubled[done:low], _shorten_piece(doubled[low:high], refer)]
        done = high
    return "".join([*pieces, doubled[done:]])


def _shorten_piece(text: str, refer: Callable[[str], str | None]) -> str:
    """A piece of text that is likely to be one run of digits and a little before and behind."""
    # Neither end is long enough for another run.
    low = len(text[: _LEAST - 1].rstrip(hexdigits))
    high = len(text) - len(text[1 - _LEAST :].lstrip(hexdigits))
    reference = refer(text[low:high])
    if reference is not None:
        return text[:low] + reference + text[high:]
    return _DIGITS.sub(lambda match: refer(match[0]) or match[0], text)


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


def _refer(constants: bytes) -> Callable[[str], str | None]:
    """What is to stand for a run of digits: a function that knows what it has seen.

    Constants are the same in most texts. None is for what is not one run, or not of bytes.
    """
    left = _most_referred(len(constants))
    known: dict[str, tuple[str, int]] = {}

    def refer(digits: str) -> str | None:
        nonlocal left
        if digits not in known:
            reference = _reference(constants, digits)
            if reference is None:
                return None
            known[digits] = reference
        text, size = known[digits]
        if left < size:
            return digits
        left -= size
        return text

    return refer


def _reference(constants: bytes, digits: str) -> tuple[str, int] | None:
    """What stands for a run of digits, and how many bytes of the constants it names."""
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        return None
    written = data.hex()
    case = "l" if written == digits else "u"
    if len(digits) < _LEAST or (case == "u" and written.upper() != digits):
        return None
    offset = _find(constants, data)
    return (f"\0{offset},{len(data)},{case}\0", len(data)) if offset >= 0 else (digits, 0)


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
