"""Decodes data movement: ld, st, atom, red, fences, cvta, cp.async, ldmatrix, stmatrix.

Each function takes the statement, the words of its opcode after the first and the kernel's
operands, and returns `Parts`; `decode.py` has the dispatch table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from nova.gpusim.async_ops import decode_bulk, decode_copy_arrive, decode_proxy_fence
from nova.gpusim.operands import Operands
from nova.gpusim.ptx_parser import Statement
from nova.gpusim.records import (
    ACQUIRE,
    ALL_GROUPS,
    ATOMIC,
    HOST,
    RELEASE,
    SPACE,
    STRONG,
    TYPE,
    Parts,
    bits_of,
)

# Cache hints, which do not change the accessed data.
_CACHED = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak", "noftz"}
_ORDERED = {"volatile": STRONG, "relaxed": STRONG, "mmio": STRONG, "acquire": STRONG | ACQUIRE}
_ORDERED |= {"release": STRONG | RELEASE, "acq_rel": STRONG | ACQUIRE | RELEASE}
_SCOPES = {"cta", "cluster", "gpu", "sys"}
_ATOMIC_TYPES = {
    "add": "u32 s32 u64 s64 f32 f64 f16 f16x2 bf16 bf16x2",
    "min": "u32 s32 u64 s64",
    "max": "u32 s32 u64 s64",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
    "exch": "b32 b64",
    "cas": "b16 b32 b64",
    "inc": "u32",
    "dec": "u32",
}


@dataclass(frozen=True)
class _Access:
    space: str = "generic"
    count: int = 1
    type: str = ""
    flags: int = 0


def _access(words: Iterable[str], operands: Operands) -> _Access:
    """Space, elements, type and memory order of an access."""
    if (access := _read_access(tuple(words))) is None:
        raise operands.unknown()
    return access


@cache
def _read_access(words: tuple[str, ...]) -> _Access | None:
    space, count, type_, flags = "generic", 1, "", 0
    for word in words:
        state_space = _space(word)
        if state_space in SPACE and state_space != "generic":
            space = state_space
        elif word in ("v2", "v4", "v8"):
            count = int(word[1:])
        elif word in TYPE and word not in ("none", "pred", "tf32"):
            type_ = word
        elif word in _ORDERED:
            flags |= _ORDERED[word]
        elif word not in _CACHED | _SCOPES and not _is_hint(word):
            return None
    if "sys" in words and flags & (ACQUIRE | RELEASE):
        flags |= HOST
    if not type_ or count * bits_of(type_) > 256:
        return None
    return _Access(space, count, type_, flags)


def _space(word: str) -> str:
    """A state space without its part; addresses of shared::cluster contain those of a block."""
    return word.removesuffix("::cta").removesuffix("::cluster").removesuffix("::entry")


def _is_hint(word: str) -> bool:
    """Whether a word is a prefetch or eviction hint."""
    return word.startswith(("L1::", "L2::"))


@cache
def _widths(type_: str) -> list[int]:
    """The register widths that may hold an element: its bits, or more."""
    return [width for width in (16, 32, 64) if width >= bits_of(type_)]


def decode_ld(s: Statement, words: list[str], operands: Operands) -> Parts:
    access = _access(words, operands)
    operands.expect(2)
    results = [operands.result(r, *_widths(access.type)) for r in operands.vector(s.operands[0])]
    if len(results) != access.count or access.flags & RELEASE:
        raise operands.error(f"{s.opcode} {s.operands[0]}")
    rows = [*results, operands.address(s.operands[1])]
    return Parts("load", rows, **vars(access))


def decode_st(s: Statement, words: list[str], operands: Operands) -> Parts:
    access = _access(words, operands)
    operands.expect(2)
    values = [operands.value(v, *_widths(access.type)) for v in operands.vector(s.operands[1])]
    if len(values) != access.count or access.flags & ACQUIRE or access.space in ("param", "const"):
        raise operands.error(f"{s.opcode} {s.operands[1]}")
    rows = [operands.address(s.operands[0]), *values]
    return Parts("store", rows, **vars(access))


def decode_atom(s: Statement, words: list[str], operands: Operands) -> Parts:
    """Operands: d, [a], b (, c) of atom; [a], b of red."""
    operation = next((w for w in words if w in ATOMIC), "")
    access = _access((w for w in words if w != operation), operands)
    if access.type not in _ATOMIC_TYPES.get(operation, "").split():
        raise operands.unknown()
    returns = s.opcode.startswith("atom")
    operands.expect(2 + returns + (operation == "cas"))
    bits = bits_of(access.type)
    results = [operands.result(r, bits) for r in operands.vector(s.operands[0]) if returns]
    texts = s.operands[1:] if returns else s.operands
    values = [operands.value(v, bits) for text in texts[1:] for v in operands.vector(text)]
    if len(values) != access.count + (operation == "cas"):
        raise operands.error(f"{s.opcode} {texts[1]}")
    rows = [*results, operands.address(texts[0]), *values]
    access = replace(access, flags=access.flags | STRONG)
    return Parts("atomic", rows, detail=ATOMIC[operation], results=len(results), **vars(access))


def decode_fence(s: Statement, words: list[str], operands: Operands) -> Parts:
    if words[:1] in (["proxy"], ["mbarrier_init"]):
        return decode_proxy_fence(s, words, operands)
    accepted = [["cta"], ["gl"], ["sys"]]
    if s.opcode.startswith("fence"):
        accepted = [[sem, scope] for sem in ("sc", "acq_rel") for scope in _SCOPES]
    if words not in accepted:
        raise operands.unknown()
    return Parts("fence", flags=0 if words[-1] == "cta" else ACQUIRE | RELEASE)


def decode_hint(s: Statement, words: list[str], operands: Operands) -> Parts:
    """Instructions without effect on values: prefetch, nanosleep, griddepcontrol.

    Launches run in order; but memory that an earlier one writes is not touched before
    `griddepcontrol.wait` by one that may start before its end.
    """
    return Parts("launch_wait" if words == ["wait"] else "fence")


def decode_policy(s: Statement, words: list[str], operands: Operands) -> Parts:
    """createpolicy: an eviction policy, which does not change the accessed data."""
    if words[:1] not in (["fractional"], ["range"]) or words[-1:] != ["b64"]:
        raise operands.unknown()
    return Parts("move", [operands.result(s.operands[0], 64), operands.constant(0, 64)])


def decode_cvta(s: Statement, words: list[str], operands: Operands) -> Parts:
    operands.expect(2)
    space = next((_space(w) for w in words), "")
    towards = space == "to"
    if towards:
        space = _space(words[1])
    if space not in SPACE or space == "generic" or words[-1] != "u64":
        raise operands.unknown()
    rows = [operands.result(s.operands[0], 64), operands.value(s.operands[1], 64)]
    return Parts("address", rows, space=space, flags=int(towards))


def decode_cp(s: Statement, words: list[str], operands: Operands) -> Parts:
    """cp.async: each thread commits and waits for its own groups; bulk copies: see async_ops."""
    if words[:2] == ["async", "bulk"]:
        return decode_bulk(s, words[2:], operands)
    if words[:3] == ["reduce", "async", "bulk"]:
        return decode_bulk(s, words[3:], operands)
    if words[:3] == ["async", "mbarrier", "arrive"]:
        return decode_copy_arrive(s, words[3:], operands)
    if words == ["async", "commit_group"]:
        return Parts("copy_commit")
    if words == ["async", "wait_all"]:
        return Parts("copy_wait", target=ALL_GROUPS)
    if words == ["async", "wait_group"]:
        return Parts("copy_wait", target=operands.count(s.operands[0]))
    spaces = [w.removesuffix("::cta") for w in words[2:4]]
    if words[0] != "async" or words[1] not in ("ca", "cg") or spaces != ["shared", "global"]:
        raise operands.unknown()
    if not all(map(_is_hint, words[4:])):
        raise operands.unknown()
    operands.expect(3, 4)
    count = operands.integer(s.operands[2])
    if count not in ((16,) if words[1] == "cg" else (4, 8, 16)):
        raise operands.error(f"{s.opcode} of {count} bytes")
    rows = [operands.address(o) for o in s.operands[:2]]
    for text in s.operands[3:]:
        is_predicate = operands.kernel.registers.get(text.lstrip("! ")) == 1
        rows.append(operands.predicate(text) if is_predicate else operands.value(text, 32))
    return Parts("copy", rows, count=count)


def decode_matrix(s: Statement, words: list[str], operands: Operands) -> Parts:
    """ldmatrix and stmatrix of 8x8 elements of 16 bits."""
    is_load = s.opcode.startswith("ldmatrix")
    transposed = "trans" in words
    plain = [w.removesuffix("::cta") for w in words if w != "trans"]
    accepted = [["sync", "aligned", "m8n8", f"x{count}", "shared", "b16"] for count in (1, 2, 4)]
    if plain not in accepted:
        raise operands.unknown()
    operands.expect(2)
    registers, pointer = s.operands if is_load else reversed(s.operands)
    names = operands.vector(registers)
    if len(names) != int(plain[3][1:]):
        raise operands.error(f"{s.opcode} {registers}")
    address = operands.address(pointer)
    if is_load:
        rows = [*(operands.result(name, 32) for name in names), address]
    else:
        rows = [address, *(operands.value(name, 32) for name in names)]
    op = "load_matrix" if is_load else "store_matrix"
    return Parts(op, rows, count=len(names), detail=int(transposed), space="shared")
