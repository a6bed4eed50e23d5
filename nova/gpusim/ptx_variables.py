"""PTX variables: shared, local, global and constant memory, with initializers.

In: a declaration, as text; out: a `Variable` after the existing ones. Called by `ptx_parser.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nova.core.rounding import round_up
from nova.errors import PtxError

_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?P<space>shared|local|global|const)\s+"
    r"(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?P<name>[\w$]+)\s*"
    r"(?P<array>(?:\[\d*\]\s*)*)(?:=\s*(?P<initial>.*))?",
    re.DOTALL,
)
BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4}
BYTES |= {"u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}


_MOST_BYTES = 1 << 30
_MOST_ALIGN = 1 << 12


@dataclass(frozen=True)
class Variable:
    """Memory that a kernel or the module declares; `offset` is its offset in its space."""

    name: str
    space: str
    offset: int
    size: int
    align: int
    initial: bytes | None = None


def check_align(text: str | None, usual: int) -> int:
    """The declared or default alignment; PtxError unless it is a power of two."""
    align = int(text or usual)
    if align < 1 or align & (align - 1) or align > _MOST_ALIGN:
        raise PtxError(f"an alignment of {align} bytes", hint="it is a power of two")
    return align


def place_variable(text: str, variables: Mapping[str, Variable]) -> Variable | None:
    """The variable of a declaration, after those of its space; None if it declares none."""
    match = _VARIABLE.fullmatch(text.strip())
    if match is None or match["type"] not in BYTES:
        return None
    element_bytes = BYTES[match["type"]]
    size = element_bytes
    for extent in re.findall(r"\[(\d*)\]", match["array"]):
        size *= int(extent or 0)
    align = check_align(match["align"], element_bytes)
    same_space = (v for v in variables.values() if v.space == match["space"])
    offset = round_up(max((v.offset + v.size for v in same_space), default=0), align)
    if offset + size > _MOST_BYTES:
        raise PtxError(f"{match['name']} ends at byte {offset + size}", hint="no device has that")
    initial = None
    if match["initial"]:
        initial = _initial(match["name"], match["initial"], element_bytes).ljust(size, b"\0")
    return Variable(match["name"], match["space"], offset, size, align, initial)


def _initial(name: str, text: str, element_bytes: int) -> bytes:
    out = b""
    for part in filter(None, re.split(r"[\s,{}]+", text)):
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", part):
            value = int(part[2:], 16)
        elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", part):
            digits = part.rstrip("U")
            value = int(digits, 16 if "x" in digits.lower() else 10)
        else:
            raise PtxError(f"{name} begins with {part!r}", hint="only numbers can be put there")
        out += (value % (1 << 8 * element_bytes)).to_bytes(element_bytes, "little")
    return out
