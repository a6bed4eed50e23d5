"""Decodes arithmetic instructions: lane functions with modifiers, cvt, setp, selp, mov, predicates.

Each function takes the statement, the words of its opcode after the first and the kernel's
operands, and returns `Parts`; `decode.py` has the dispatch table.
"""

from __future__ import annotations

import re
from functools import cache

from nova import _native
from nova.gpusim.operands import Operands
from nova.gpusim.ptx_parser import Statement
from nova.gpusim.records import (
    COMPARE_COMBINED,
    COMPARE_FLUSH,
    COMPARE_UNORDERED,
    COMPARISON,
    CONVERT_FINITE,
    CONVERT_FLUSH,
    CONVERT_INTEGRAL,
    CONVERT_RELU,
    CONVERT_SATURATE,
    FLUSH,
    LOGIC,
    MOVE_PREDICATE,
    RELU,
    ROUNDING,
    SATURATE,
    TYPE,
    Parts,
    bits_of,
)

# Modifiers that an instruction may have by type, in their order; the rest of its name is that of a
# lane function. `+`: one of them is required.
_ROUND = r"(?:(rn|rz|rm|rp)\.)"
_FORMS = [
    ("add sub mul", "f32", rf"{_ROUND}?(ftz\.)?(sat\.)?"),
    ("add sub mul", "f64", rf"{_ROUND}?"),
    ("fma", "f32", rf"{_ROUND}(ftz\.)?(sat\.)?"),
    ("fma", "f64", _ROUND),
    ("add sub mul fma", "f32x2", r"(?:(rn)\.)(ftz\.)?"),
    ("div", "f32", rf"(?:{_ROUND}|approx\.|full\.)(ftz\.)?"),
    ("rcp sqrt", "f32", rf"(?:{_ROUND}|approx\.)(ftz\.)?"),
    ("div rcp sqrt", "f64", _ROUND),
    ("rsqrt ex2 lg2 sin cos", "f32", r"approx\.(ftz\.)?"),
    ("rsqrt", "f64", r"approx\."),
    ("tanh", "f32 f16 f16x2 bf16 bf16x2", r"approx\."),
    ("ex2", "f16 f16x2", r"approx\."),
    ("ex2", "bf16 bf16x2", r"approx\.(ftz\.)"),
    ("add sub mul", "f16 f16x2", r"(?:(rn)\.)?(ftz\.)?(sat\.)?"),
    ("add sub mul", "bf16 bf16x2", r"(?:(rn)\.)?"),
    ("fma", "f16 f16x2", r"(?:(rn)\.)(ftz\.)?(sat\.|relu\.)?"),
    ("fma", "bf16 bf16x2", r"(?:(rn)\.)(relu\.)?"),
    ("min max", "f32 f16 f16x2", r"(ftz\.)?(NaN\.)?(xorsign\.abs\.)?"),
    ("min max", "bf16 bf16x2", r"(NaN\.)?(xorsign\.abs\.)?"),
    ("neg abs", "f32 f16 f16x2", r"(ftz\.)?"),
]


@cache
def lanes() -> dict[str, tuple[int, tuple[int, ...]]]:
    """Number and widths (of the result, then of the operands) of each lane function."""
    return {
        name: (number, tuple(width for width in widths if width))
        for number, (name, widths) in enumerate(_native.sim_lanes())
    }


@cache
def _forms() -> dict[tuple[str, str], re.Pattern[str]]:
    return {
        (head, type_): re.compile(modes)
        for heads, types, modes in _FORMS
        for head in heads.split()
        for type_ in types.split()
    }


def decode_lanes(s: Statement, words: list[str], operands: Operands) -> Parts:
    """Arithmetic: its name without modifiers is a lane function."""
    head, type_ = s.opcode.split(".")[0], words[-1] if words else ""
    modes = "".join(f"{word}." for word in words[:-1])
    flags, modifiers = 0, modes
    if form := _forms().get((head, type_)):
        if form.fullmatch(modes) is None:
            raise operands.unknown()
        modifiers = "".join(f"{w}." for w in words[:-1] if w in ("NaN", "xorsign", "abs"))
        flags = next((ROUNDING[w] for w in words if w in ROUNDING), 0)
        flags |= FLUSH * ("ftz" in words) | SATURATE * ("sat" in words) | RELU * ("relu" in words)
    row = lanes().get(f"{head}.{modifiers}{type_}")
    if row is None:
        raise operands.unknown()
    detail, (width, *widths) = row
    operands.expect(1 + len(widths))
    values = [operands.value(o, w) for o, w in zip(s.operands[1:], widths, strict=True)]
    result = operands.result(s.operands[0], width)
    lane_type = type_ if type_ in TYPE else "none"
    return Parts("lanes", [result, *values], detail=detail, type=lane_type, flags=flags, results=1)


CLOCKS = ("%globaltimer", "%clock64")
"""Special registers that count the instructions of all warps of the launch."""


def decode_mov(s: Statement, words: list[str], operands: Operands) -> Parts:
    operands.expect(2)
    to, source = s.operands
    if len(words) != 1 or words[0] not in TYPE:
        raise operands.unknown()
    if words[0] == "pred":
        results = [operands.result(to, 1), operands.predicate(source)]
        return Parts("predicate", results, detail=MOVE_PREDICATE)
    bits = bits_of(words[0])
    if source in CLOCKS and bits == 64:
        return Parts("clock", [operands.result(to, bits)])
    vector = operands.vector(source if source.startswith("{") else to)
    if len(vector) == 1:
        return Parts("move", [operands.result(to, bits), operands.value(source, bits)])
    if bits % len(vector) or (each := bits // len(vector)) < 8:
        raise operands.unknown()
    width = max(each, 16)
    if source.startswith("{"):
        values = [operands.value(v, width) for v in vector]
        return Parts("pack", [operands.result(to, bits), *values], count=len(vector), flags=each)
    results = [operands.result(v, width) for v in vector]
    return Parts("unpack", [*results, operands.value(source, bits)], count=len(vector), flags=each)


def decode_predicate(s: Statement, words: list[str], operands: Operands) -> Parts:
    """and, or, xor, not of predicates."""
    head = s.opcode.split(".")[0]
    operands.expect(2 if head == "not" else 3)
    sources = [operands.predicate(o) for o in s.operands[1:]]
    return Parts("predicate", [operands.result(s.operands[0], 1), *sources], detail=LOGIC[head])


def decode_setp(s: Statement, words: list[str], operands: Operands) -> Parts:
    flags, type_ = 0, words[-1]
    names = [w for w in words[:-1] if w != "ftz"]
    if len(names) == 2 and names[1] in COMPARE_COMBINED:
        flags |= COMPARE_COMBINED[names.pop()]
    if len(names) != 1 or type_ not in TYPE or type_ in ("pred", "none", "tf32"):
        raise operands.unknown()
    name, is_float = names[0], "f" in type_
    if "ftz" in words[:-1]:
        if type_ != "f32":
            raise operands.unknown()
        flags |= COMPARE_FLUSH
    unsigned = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    if name in unsigned and type_.startswith("u"):
        name = unsigned[name]
    elif is_float and name not in ("num", "nan") and name.endswith("u"):
        name, flags = name[:-1], flags | COMPARE_UNORDERED
    if name not in COMPARISON or (name in ("num", "nan") and not is_float):
        raise operands.unknown()
    operands.expect(4 if len(words) - ("ftz" in words) > 2 else 3)
    results = [operands.result(p, 1) for p in operands.pair(s.operands[0])]
    if type_.endswith("x2") and len(results) != 2:
        raise operands.error(f"{s.opcode} needs two results")
    bits = bits_of(type_)
    sources = [operands.value(o, bits) for o in s.operands[1:3]]
    sources += [operands.predicate(o) for o in s.operands[3:]]
    flags |= COMPARISON[name]
    return Parts("compare", [*results, *sources], type=type_, flags=flags, results=len(results))


def decode_selp(s: Statement, words: list[str], operands: Operands) -> Parts:
    operands.expect(4)
    if len(words) != 1 or words[0] not in TYPE or words[0] == "pred":
        raise operands.unknown()
    bits = bits_of(words[0])
    values = [operands.value(o, bits) for o in s.operands[1:3]]
    result, predicate = operands.result(s.operands[0], bits), operands.predicate(s.operands[3])
    return Parts("select", [result, *values, predicate])


def decode_cvt(s: Statement, words: list[str], operands: Operands) -> Parts:
    to, source = words[-2:] if len(words) > 1 else ("", "")
    modes = words[:-2]
    if len(set(modes)) != len(modes):
        raise operands.unknown()
    if "e4m3x2" in (to, source) or "e5m2x2" in (to, source):
        return _decode_fp8(s, words, operands)
    flags = CONVERT_FLUSH * ("ftz" in modes) | CONVERT_RELU * ("relu" in modes)
    flags |= CONVERT_SATURATE * ("sat" in modes) | CONVERT_FINITE * ("satfinite" in modes)
    rounding = [m for m in modes if m not in ("ftz", "relu", "sat", "satfinite")]
    if rounding not in _roundings(to, source) or not _has_modes(to, source, modes):
        raise operands.unknown()
    for mode in rounding:
        integral = mode.endswith("i")
        flags |= ROUNDING[mode.removesuffix("i")] | CONVERT_INTEGRAL * integral
    if to in ("f16x2", "bf16x2"):
        operands.expect(3)
        values = [operands.value(o, 32) for o in s.operands[1:]]
        result = operands.result(s.operands[0], 32)
        return Parts("convert_pair", [result, *values], type=to[:-2], source=source, flags=flags)
    operands.expect(2)
    result = operands.result(s.operands[0], *_widths(to))
    value = operands.value(s.operands[1], *_widths(source))
    return Parts("convert", [result, value], type=to, source=source, flags=flags)


def _decode_fp8(s: Statement, words: list[str], operands: Operands) -> Parts:
    """Pairs of fp8: from two f32 (the first to the upper one) or two f16, and to two f16."""
    *modes, to, source = words
    flags = CONVERT_RELU * (modes[-1:] == ["relu"])
    narrows = to in ("e4m3x2", "e5m2x2") and source in ("f32", "f16x2")
    if modes[: len(modes) - bool(flags)] != (["rn", "satfinite"] if narrows else ["rn"]):
        raise operands.unknown()
    if not narrows and (to != "f16x2" or source not in ("e4m3x2", "e5m2x2")):
        raise operands.unknown()
    operands.expect(3 if source == "f32" else 2)
    result = operands.result(s.operands[0], 16 if narrows else 32)
    values = [operands.value(o, 32 if narrows else 16) for o in s.operands[1:]]
    type_, from_ = to.removesuffix("x2"), source.removesuffix("x2")
    return Parts("convert_pair", [result, *values], type=type_, source=from_, flags=flags)


def _widths(type_: str) -> list[int]:
    """The register widths that may hold a type: integers also fit into wider registers."""
    bits = bits_of(type_)
    if "f" in type_:
        return [bits]
    return [width for width in (16, 32, 64) if width >= bits]


def _has_modes(to: str, source: str, modes: list[str]) -> bool:
    """Whether a conversion can have these modifiers, in addition to its rounding."""
    narrow = to in ("f16", "bf16", "f16x2", "bf16x2", "tf32") and source == "f32"
    if "sat" in modes and (_holds_all(to, source) or "bf16" in to or "bf16" in source):
        return False
    if "ftz" in modes and ("f32" not in (to, source) or "bf16" in to or to == "tf32"):
        return False
    return narrow or not {"relu", "satfinite"} & set(modes)


def _holds_all(to: str, source: str) -> bool:
    """Whether an integer type has all values of another: then there is nothing to clamp."""
    if "f" in to or "f" in source:
        return False
    bits, more = bits_of(to), bits_of(source)
    if to[0] == source[0]:
        return bits >= more
    return to[0] == "s" and bits > more


def _roundings(to: str, source: str) -> list[list[str]]:
    """The allowed roundings of a conversion; empty if the conversion does not exist."""
    floats, integral = ("f16", "bf16", "f32", "f64"), [["rni"], ["rzi"], ["rmi"], ["rpi"]]
    integers = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    modes = [["rn"], ["rz"], ["rm"], ["rp"]]
    if to in ("f16x2", "bf16x2") and source == "f32":
        return modes[:2]
    if to == "tf32" and source == "f32":
        return [["rna"], *modes[:2]]
    if to in integers and source in integers:
        return [[]]
    if {to, source} & {"u8", "s8"} and "bf16" in (to, source):
        return []
    if to in integers and source in floats:
        return integral
    if to in floats and source in integers:
        return modes
    if to not in floats or source not in floats:
        return []
    if to == source:
        return [[], *integral]
    return modes if bits_of(to) < bits_of(source) else [[]] if bits_of(to) > bits_of(source) else []
