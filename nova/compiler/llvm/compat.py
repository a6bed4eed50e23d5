"""Rewrites LLVM IR text for the older LLVM of the code generator.

MLIR's LLVM prints floating-point constants in a newer syntax (`f0x3F800000`, `+inf`, `+qnan`, and
shortest decimals that are not exact). The LLVM in llvmlite expects the exact double in hexadecimal.
Only this file knows about the difference.

bf16 becomes i16: kernels only load, store and select it, and compute in f32. LLVM would keep a
`bfloat` in a register as a float and convert it back with an instruction that flushes subnormal
numbers to zero. x86's bf16 dot-product instructions take i16 as well, as they did before LLVM had
the type.
"""

from __future__ import annotations

import re
import struct

import numpy as np

from nova.core.dtypes import bf16, converted

_TOKEN = re.compile(
    r"(?P<instruction>llvm\.(?:nvvm|x86)\.[\w.]+|\basm (?:\w+ )*\"[^\"]*\")"
    r"|\b(?P<type>half|bfloat|float|double)\b"
    r"|(?<=[\dv.])(?P<mangled>bf16)\b"
    r"|f0x(?P<bits>[0-9A-Fa-f]+)\b"
    r"|(?<![\w.%@])(?P<special>[+-](?:inf|qnan|snan|nan)(?:\(0x[0-9A-Fa-f]+\))?)"
    r"|(?<![\w.%@])(?P<decimal>[+-]?\d+\.\d*(?:e[+-]?\d+)?)(?![\w.])"
)
# The tokens that must change. Each begins with a letter, which is fast to search for; one combined
# pattern would not be.
_SIGNS = [re.compile(sign) for sign in ("bfloat", "bf16", "f0x", "inf", "nan", r"\.\d")]


def normalise(text: str) -> str:
    """The same module in the older syntax."""
    offsets = sorted(match.start() for sign in _SIGNS for match in sign.finditer(text))
    pieces, end_of_last = [], 0
    for offset in offsets:
        if offset < end_of_last:
            continue  # in a line that has been changed
        start, end = text.rfind("\n", 0, offset) + 1, text.find("\n", offset)
        end = len(text) if end < 0 else end
        line = _line(text[start:end])
        if line.startswith("declare ") and _renamed_to_declared(text[start:end], line, text):
            line = ""
        pieces += [text[end_of_last:start], line]
        end_of_last = end
    return "".join([*pieces, text[end_of_last:]])


def _renamed_to_declared(old: str, new: str, text: str) -> bool:
    """Whether the new name of a function is one that `text` itself declares.

    An intrinsic of bf16 becomes that of i16, which the module may use, too.
    """
    name = _declared_name(new)
    return name != _declared_name(old) and any(
        text.startswith("declare ", text.rfind("\n", 0, use.start()) + 1)
        for use in re.finditer(re.escape(name), text)
    )


def _declared_name(line: str) -> str:
    start = line.index("@")
    return line[start : line.index("(", start) + 1]


def _line(line: str) -> str:
    # A constant has the last floating-point type before it on its line.
    current = "double"

    def replace(match: re.Match[str]) -> str:
        nonlocal current
        if match["instruction"]:
            return match[0]  # keep types in the names of instructions, and in inline assembly
        if match["type"]:
            current = match["type"]
            return "i16" if current == "bfloat" else match[0]
        if match["mangled"]:
            return "i16"
        if match["bits"]:
            return _from_bits(match["bits"], current)
        if match["special"]:
            return _from_value(_special(match["special"]), current)
        return match[0] if current == "double" else _from_value(float(match["decimal"]), current)

    return _TOKEN.sub(replace, line)


def _special(text: str) -> float:
    value = float("inf") if "inf" in text else float("nan")
    return -value if text.startswith("-") else value


def _from_bits(bits: str, float_type: str) -> str:
    if len(bits) == 4:
        return _signed(int(bits, 16)) if float_type == "bfloat" else f"0xH{bits.upper()}"
    raw = bytes.fromhex(bits)
    return _exact(struct.unpack(">f" if len(raw) == 4 else ">d", raw)[0])


def _from_value(value: float, float_type: str) -> str:
    if float_type == "half":
        return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
    if float_type == "bfloat":
        return _signed(int(converted(np.asarray(value, np.float64), bf16).view(np.uint16)))
    return _exact(float(np.float32(value)) if float_type == "float" else value)


def _signed(bits: int) -> str:
    return str(bits - 2**16 if bits >= 2**15 else bits)


def _exact(value: float) -> str:
    return "0x" + struct.pack(">d", value).hex().upper()
