"""LLVM IR text as the code generator's older LLVM reads it.

MLIR's LLVM prints floating-point constants in a newer syntax (`f0x3F800000`, `+inf`, `+qnan`, and
shortest decimals that are not exact). The LLVM behind llvmlite wants the exact double in
hexadecimal. This is the one place that knows about the difference.
"""

from __future__ import annotations

import re
import struct

import numpy as np
from ml_dtypes import bfloat16

_TOKEN = re.compile(
    r"\b(?P<type>half|bfloat|float|double)\b"
    r"|f0x(?P<bits>[0-9A-Fa-f]+)\b"
    r"|(?<![\w.%@])(?P<special>[+-](?:inf|qnan|snan|nan)(?:\(0x[0-9A-Fa-f]+\))?)"
    r"|(?<![\w.%@])(?P<decimal>[+-]?\d+\.\d*(?:e[+-]?\d+)?)(?![\w.])"
)
_CANDIDATE = re.compile(r"f0x|[+-](?:inf|[qs]?nan)|\d\.\d")


def normalise(text: str) -> str:
    """The same module in the older syntax."""
    return "\n".join(_line(line) if _CANDIDATE.search(line) else line for line in text.split("\n"))


def _line(line: str) -> str:
    # A constant has the floating-point type named last before it on its line.
    current = "double"

    def replace(match: re.Match[str]) -> str:
        nonlocal current
        if match["type"]:
            current = match["type"]
            return match[0]
        if match["bits"]:
            return _from_bits(match["bits"], current)
        if match["special"]:
            return _from_value(_special(match["special"]), current)
        return match[0] if current == "double" else _from_value(float(match["decimal"]), current)

    return _TOKEN.sub(replace, line)


def _special(text: str) -> float:
    value = float("inf") if "inf" in text else float("nan")
    return -value if text.startswith("-") else value


def _from_bits(bits: str, kind: str) -> str:
    if len(bits) == 4:
        return f"0x{'R' if kind == 'bfloat' else 'H'}{bits.upper()}"
    raw = bytes.fromhex(bits)
    return _exact(struct.unpack(">f" if len(raw) == 4 else ">d", raw)[0])


def _from_value(value: float, kind: str) -> str:
    if kind == "half":
        return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
    if kind == "bfloat":
        return f"0xR{int(np.asarray(value).astype(bfloat16).view(np.uint16)):04X}"
    return _exact(float(np.float32(value)) if kind == "float" else value)


def _exact(value: float) -> str:
    return "0x" + struct.pack(">d", value).hex().upper()
