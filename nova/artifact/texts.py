"""Stage texts in an artifact: compressed, and without the program's constants.

`write_artifact` packs, `Artifact.stages` unpacks. A large constant is in hexadecimal in the text of
every stage; the file contains its bytes anyway, so such a run of digits is replaced by a reference
to them: `NUL offset,length,case NUL`. A NUL in the text itself is doubled.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from string import hexdigits

from nova.artifact.check import Buffer, fail
from nova.core.constants import Constants, StageTexts, expand_text

_MOST_BYTES = 1 << 30
# The unpacked size is bounded by the file size: a small file cannot request gigabytes. Real texts
# compress to a tenth, and name each constant about once per stage; for others the writer uses fewer
# references, and adds padding that the reader skips.
_ROOM, _MOST_GROWTH = 4 << 20, 32
# Below this size a reference does not pay for the search.
_LEAST = 1024
_DIGITS = re.compile(rf"[0-9a-fA-F]{{{_LEAST},}}")
# The search for digits is slow. A run of this length has at least 64 digits at multiples of _STEP,
# and the text between two constants usually has other characters there.
_STEP = 16
_SAMPLED = re.compile(r"[0-9a-fA-F]{64,}")
# Beyond this level compression takes three times as long for a fifth less.
_LEVEL = 3
_PREFIX, _MOST_TRIES = 256, 64
_REFERENCE = re.compile("\0\0|\0([0-9]{1,19}),([0-9]{1,19}),([lu])\0")


def pack_texts(texts: Mapping[str, str], constants: bytes) -> bytes:
    """The texts, in their order, as one compressed block."""
    packer = TextPacker()
    for name, text in _shortened(texts, constants).items():
        packer.add(name, text)
    return packer.finish()


class TextPacker:
    """Packs texts one by one: a caller that waits for the next stage packs the last one."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._compressor = zlib.compressobj(_LEVEL)
        self._packed: list[bytes] = []
        self._size = 0

    def add(self, name: str, text: str) -> None:
        """Append a text, in which constants are references already."""
        start = ", " if self.names else "{"
        self._append(f"{start}{json.dumps(name)}: {json.dumps(text)}")
        self.names.append(name)

    def add_plain(self, name: str, text: str) -> None:
        """Append a text without constants."""
        self.add(name, _double_nul(text))

    def finish(self) -> bytes:
        """The block of all texts; nothing may be added afterwards."""
        self._append("}" if self.names else "{}")
        packed = b"".join([*self._packed, self._compressor.flush()])
        return packed.ljust((self._size - _ROOM) // _MOST_GROWTH + 1, b"\0")

    def _append(self, text: str) -> None:
        data = text.encode()
        self._size += len(data)
        self._packed.append(self._compressor.compress(data))


def _shortened(texts: Mapping[str, str], constants: bytes) -> dict[str, str]:
    compact = texts.compact if isinstance(texts, StageTexts) else texts
    table = texts.constants if isinstance(texts, StageTexts) else Constants()
    has_table = any(True for _ in table)
    if not constants and not has_table:  # the search for them takes a third of the time
        return {name: _double_nul(text) for name, text in compact.items()}
    references = _References(constants)
    shortened = {name: _shorten(text, references.digits) for name, text in compact.items()}
    if not has_table:
        return shortened
    return {
        name: expand_text(text, lambda key: references.data(table.get(key)))
        for name, text in shortened.items()
    }


def _double_nul(text: str) -> str:
    return text.replace("\0", "\0\0")


def _shorten(text: str, refer: Callable[[str], str | None]) -> str:
    doubled = _double_nul(text)
    pieces: list[str] = []
    position = 0
    for sampled in _SAMPLED.finditer(doubled[::_STEP]):
        low = max(position, (sampled.start() - 1) * _STEP + 1)
        high = sampled.end() * _STEP
        pieces += [doubled[position:low], _shorten_piece(doubled[low:high], refer)]
        position = high
    return "".join([*pieces, doubled[position:]])


def _shorten_piece(text: str, refer: Callable[[str], str | None]) -> str:
    """Shorten a piece of text that is probably one run of digits with a short prefix and suffix."""
    # Neither end is long enough for another run.
    low = len(text[: _LEAST - 1].rstrip(hexdigits))
    high = len(text) - len(text[1 - _LEAST :].lstrip(hexdigits))
    reference = refer(text[low:high])
    if reference is not None:
        return text[:low] + reference + text[high:]
    return _DIGITS.sub(lambda match: refer(match[0]) or match[0], text)


class PackedTexts(Mapping[str, str]):
    """The texts of an artifact; the constants of a text are expanded when it is read."""

    def __init__(self, texts: Mapping[str, str], constants: memoryview):
        self._texts, self._constants = texts, constants
        allowance = _most_referred(len(constants))
        for text in texts.values():
            for match in _REFERENCE.finditer(text):
                if match[1]:
                    allowance -= int(match[2])
                    _check_reference(int(match[1]), int(match[2]), len(constants), allowance)

    def __getitem__(self, name: str) -> str:
        return _REFERENCE.sub(self._resolve, self._texts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def _resolve(self, match: re.Match[str]) -> str:
        if not match[1]:
            return "\0"
        offset, size = int(match[1]), int(match[2])
        digits = self._constants[offset : offset + size].hex()
        return digits if match[3] == "l" else digits.upper()


def _check_reference(offset: int, size: int, available: int, allowance: int) -> None:
    if allowance < 0:
        fail("stages-size", f"the texts repeat {available} bytes of constants too often")
    if offset + size > available:
        fail("stages-text", f"a text refers to bytes {offset}..{offset + size} of the constants")


def unpack_texts(packed: Buffer, constants: memoryview) -> PackedTexts:
    """Unpack the result of `pack_texts`; ArtifactError for anything else."""
    if not packed:
        return PackedTexts({}, constants)
    try:
        texts = json.loads(_decompress(packed))
    except (zlib.error, ValueError, RecursionError) as error:
        fail("stages-text", str(error))
    if type(texts) is not dict or not all(type(text) is str for text in texts.values()):
        fail("stages-text", "the stages are not an object of strings")
    return PackedTexts(texts, constants)


def _decompress(packed: Buffer) -> str:
    most = min(_MOST_BYTES, _ROOM + _MOST_GROWTH * len(packed))
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, most)
    if not unpacker.eof:
        fail("stages-size", f"the texts are cut short or exceed {most} bytes")
    return text.decode()


class _References:
    """The references that replace constants; they are the same in most texts."""

    def __init__(self, constants: bytes):
        self._constants = constants
        self._allowance = _most_referred(len(constants))
        self._references: dict[str, tuple[str, int]] = {}
        self._offsets: dict[int, int] = {}

    def digits(self, digits: str) -> str | None:
        """The reference for a run of digits; None if it is not one run, or not of bytes."""
        if digits not in self._references:
            reference = _reference(self._constants, digits)
            if reference is None:
                return None
            self._references[digits] = reference
        text, size = self._references[digits]
        return text if self._take(size) else digits

    def data(self, data: memoryview | None) -> str | None:
        """The reference for the digits of bytes: those of one table, which is immutable."""
        if data is None:
            return None
        if id(data) not in self._offsets:
            self._offsets[id(data)] = _find(self._constants, data)
        offset = self._offsets[id(data)]
        if offset < 0 or not self._take(len(data)):
            return data.hex()
        return f"\0{offset},{len(data)},l\0"

    def _take(self, size: int) -> bool:
        if self._allowance < size:
            return False
        self._allowance -= size
        return True


def _reference(constants: bytes, digits: str) -> tuple[str, int] | None:
    """The reference for a run of digits, and the number of constant bytes that it names."""
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
    """The limit on the total bytes of references to `size` bytes of constants."""
    return _ROOM + _MOST_GROWTH * size


def _find(constants: bytes, data: Buffer) -> int:
    """The offset of `data` in the constants, or -1; searches a prefix: Python's search is slow."""
    view = memoryview(constants)
    offset = -1
    for _ in range(_MOST_TRIES):
        offset = constants.find(bytes(data[:_PREFIX]), offset + 1)
        if offset < 0 or view[offset : offset + len(data)] == data:
            return offset
    return -1
