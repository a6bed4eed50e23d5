"""Decodes Hopper's asynchronous instructions: mbarrier, bulk copies, wgmma, clusters, setmaxnreg.

Each function takes the statement, the words of its opcode after the first and the kernel's
operands, and returns `Parts`; `decode.py` has the dispatch table.
"""

from __future__ import annotations

import re

from nova.gpusim.operands import Operands
from nova.gpusim.ptx_parser import Statement, split_operands
from nova.gpusim.records import (
    ALIGNED,
    ATOMIC,
    BULK,
    COPY_MULTICAST,
    COPY_OPERATION_AT,
    COPY_TENSOR,
    MBARRIER,
    MBARRIER_DROPS,
    MBARRIER_NO_INCREMENT,
    PROXY_GLOBAL,
    PROXY_MBARRIER_INIT,
    PROXY_SHARED,
    RELEASE,
    TYPE,
    WAIT_ACQUIRES,
    WAIT_PARITY,
    WAIT_POLLS,
    WGMMA_NEGATE_A,
    WGMMA_NEGATE_B,
    WGMMA_REGISTERS_A,
    WGMMA_SATURATE,
    WGMMA_TRANSPOSE_A,
    WGMMA_TRANSPOSE_B,
    Operand,
    Parts,
)

_SPACES = {"shared", "shared::cta", "shared::cluster"}
_SCOPES = {"cta", "cluster"}
_TENSOR = re.compile(r"\[\s*(?P<map>[^,\]]+?)\s*,\s*(?P<coordinates>\{[^}]*\})\s*\]")
_REDUCED = {
    "add": "u32 s32 u64 f16 bf16 f32 f64",
    "min": "u32 s32 u64 s64",
    "max": "u32 s32 u64 s64",
    "inc": "u32",
    "dec": "u32",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
}


# --- mbarrier -------------------------------------------------------------------------------------


def decode_mbarrier(s: Statement, words: list[str], operands: Operands) -> Parts:
    name, *modifiers = words
    if name == "pending_count" and modifiers == ["b64"]:
        operands.expect(2)
        rows = [operands.result(s.operands[0], 32), operands.value(s.operands[1], 64)]
        return Parts("mbarrier", rows, detail=MBARRIER["pending_count"], results=1)
    plain = [w for w in modifiers if w not in _SPACES | _SCOPES]
    if not plain or plain.pop() != "b64":
        raise operands.unknown()
    if name in ("test_wait", "try_wait"):
        return _decode_wait(s, name, plain, operands)
    if name in ("arrive", "arrive_drop"):
        return _decode_arrive(s, name, plain, operands)
    detail = MBARRIER.get(name)
    if detail is None or plain not in ([], ["relaxed"]):
        raise operands.unknown()
    operands.expect(1 if name == "inval" else 2)
    rows = [operands.address(s.operands[0])]
    rows += [operands.value(count, 32) for count in s.operands[1:]]
    return Parts("mbarrier", rows, detail=detail)


def _decode_wait(s: Statement, name: str, plain: list[str], operands: Operands) -> Parts:
    """Operands: p, [address], token or parity [, hint of the time]."""
    parity = plain[:1] == ["parity"]
    sem = plain[int(parity) :]
    if sem not in ([], ["acquire"], ["relaxed"]):
        raise operands.unknown()
    operands.expect(*((3, 4) if name == "try_wait" else (3,)))
    rows = [operands.result(s.operands[0], 1), operands.address(s.operands[1])]
    rows.append(operands.value(s.operands[2], 32 if parity else 64))
    flags = WAIT_PARITY * parity | WAIT_POLLS * (name == "test_wait")
    return Parts("mbarrier_wait", rows, flags=flags | WAIT_ACQUIRES * (sem != ["relaxed"]))


def _decode_arrive(s: Statement, name: str, plain: list[str], operands: Operands) -> Parts:
    """Operands: token, [address] [, count or bytes]."""
    expects = plain[:1] == ["expect_tx"]
    if plain[:1] in (["expect_tx"], ["noComplete"]):
        plain = plain[1:]
    if plain not in ([], ["release"], ["relaxed"]) or (expects and name == "arrive_drop"):
        raise operands.unknown()
    operands.expect(*((3,) if expects else (2, 3)))
    rows = [operands.result(s.operands[0], 64), operands.address(s.operands[1])]
    rows.append(operands.value(s.operands[2] if len(s.operands) > 2 else "1", 32))
    flags = RELEASE * (plain != ["relaxed"]) | MBARRIER_DROPS * (name == "arrive_drop")
    detail = MBARRIER["arrive_expect_tx" if expects else "arrive"]
    return Parts("mbarrier", rows, detail=detail, flags=flags, results=1)


# --- fences and clusters --------------------------------------------------------------------------


def decode_proxy_fence(s: Statement, words: list[str], operands: Operands) -> Parts:
    """fence.proxy.async and fence.mbarrier_init; other proxies have no state here."""
    if words == ["mbarrier_init", "release", "cluster"]:
        return Parts("proxy_fence", flags=PROXY_MBARRIER_INIT)
    proxies = {
        ("async",): PROXY_SHARED | PROXY_GLOBAL,
        ("async", "global"): PROXY_GLOBAL,
        ("async", "shared::cta"): PROXY_SHARED,
        ("async", "shared::cluster"): PROXY_SHARED,
    }
    if (flags := proxies.get(tuple(words[1:]))) is not None:
        return Parts("proxy_fence", flags=flags)
    if words[1:2] == ["alias"] or words[1:2] == ["tensormap::generic"]:
        return Parts("fence")
    raise operands.unknown()


def decode_cluster_barrier(s: Statement, words: list[str], operands: Operands) -> Parts:
    operands.expect(0)
    action, *modifiers = words[1:] or [""]
    aligned = modifiers[-1:] == ["aligned"]
    sem = modifiers[: len(modifiers) - aligned]
    if action == "arrive" and sem in ([], ["release"], ["relaxed"]):
        release = RELEASE * (sem != ["relaxed"])
        return Parts("cluster_arrive", flags=release | (ALIGNED << 8) * aligned)
    if action == "wait" and sem in ([], ["acquire"]):
        return Parts("cluster_wait", flags=(ALIGNED << 8) * aligned)
    raise operands.unknown()


def decode_mapa(s: Statement, words: list[str], operands: Operands) -> Parts:
    """mapa: d, address, rank; getctarank: d, address."""
    maps = s.opcode.startswith("mapa")
    space = "shared" if words[:1] == ["shared::cluster"] else "generic"
    plain = words[1:] if space == "shared" else words
    if plain not in (["u32"], ["u64"]):
        raise operands.unknown()
    operands.expect(3 if maps else 2)
    width = int(plain[0][1:])
    rows = [operands.result(s.operands[0], width if maps else 32)]
    rows.append(operands.value(s.operands[1], width))
    rows += [operands.value(rank, 32) for rank in s.operands[2:]]
    return Parts("map_address" if maps else "cluster_rank", rows, space=space, results=1)


def decode_setmaxnreg(s: Statement, words: list[str], operands: Operands) -> Parts:
    if words[1:] != ["sync", "aligned", "u32"] or words[0] not in ("inc", "dec"):
        raise operands.unknown()
    operands.expect(1)
    count = operands.integer(s.operands[0])
    if not 24 <= count <= 256 or count % 8:
        raise operands.error(f"setmaxnreg of {count}: it is a multiple of 8 from 24 to 256")
    return Parts("set_registers", detail=int(words[0] == "inc"), target=count)


# --- bulk copies ----------------------------------------------------------------------------------


def decode_bulk(s: Statement, words: list[str], operands: Operands) -> Parts:
    """cp.async.bulk, cp.async.bulk.tensor, cp.reduce.async.bulk; `words` begin after `bulk`."""
    if words == ["commit_group"]:
        return Parts("bulk_commit")
    if words[:1] == ["wait_group"] and words[1:] in ([], ["read"]):
        operands.expect(1)
        target = operands.count(s.operands[0])
        return Parts("bulk_wait", target=target, flags=int(words[1:] == ["read"]))
    if words[:1] == ["prefetch"]:
        return Parts("fence")
    reduces = s.opcode.startswith("cp.reduce")
    plain = [w for w in words if w != "tile"]
    dims = 0
    if plain[:1] == ["tensor"]:
        dims = int(plain[1].removesuffix("d")) if plain[1] in ("1d", "2d", "3d", "4d", "5d") else 0
        plain = plain[2:]
        if not dims:
            raise operands.unknown()
    to, source, *modifiers = plain
    texts = list(s.operands)
    flags = COPY_TENSOR if dims else 0
    loads = to in ("shared::cluster", "shared::cta")
    if loads and source == "global" and not reduces:
        return _decode_load(texts, modifiers, flags, dims, operands)
    if to == "shared::cluster" and source == "shared::cta" and not reduces and not dims:
        if modifiers != ["mbarrier::complete_tx::bytes"] or len(texts) != 4:
            raise operands.unknown()
        rows = [operands.address(texts[0]), operands.address(texts[3])]
        rows += [operands.address(texts[1]), operands.value(texts[2], 32)]
        return Parts("bulk_copy", rows, detail=BULK["send"])
    if to == "global" and source == "shared::cta":
        return _decode_store(texts, modifiers, flags, dims, reduces, operands)
    raise operands.unknown()


def _tensor(text: str, dims: int, operands: Operands) -> list[Operand]:
    """Rows of `[map, {coordinates}]`."""
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise operands.error(f"not a tensor: {text}")
    coordinates = split_operands(match["coordinates"][1:-1])
    if len(coordinates) != dims:
        raise operands.error(f"{len(coordinates)} coordinates of {dims} dimensions")
    return [operands.address(f"[{match['map']}]"), *(operands.value(c, 32) for c in coordinates)]


def _decode_load(
    texts: list[str], modifiers: list[str], flags: int, dims: int, operands: Operands
) -> Parts:
    """Operands: [to], [source] and bytes or [map, {..}], [mbarrier] [, mask of ranks]."""
    multicast = modifiers[1:] == ["multicast::cluster"]
    if modifiers[:1] != ["mbarrier::complete_tx::bytes"] or (modifiers[1:] and not multicast):
        raise operands.unknown()
    fixed = 3 if dims else 4
    if len(texts) != fixed + multicast:
        raise operands.error(f"{operands.statement.opcode} with {len(texts)} operands")
    rows = [operands.address(texts[0]), operands.address(texts[fixed - 1])]
    rows += [operands.value(mask, 16) for mask in texts[fixed:]]
    if dims:
        rows += _tensor(texts[1], dims, operands)
    else:
        rows += [operands.address(texts[1]), operands.value(texts[2], 32)]
    flags |= COPY_MULTICAST * multicast
    return Parts("bulk_copy", rows, detail=BULK["load"], flags=flags, count=dims)


def _decode_store(
    texts: list[str],
    modifiers: list[str],
    flags: int,
    dims: int,
    reduces: bool,
    operands: Operands,
) -> Parts:
    """Operands: [to], [source], bytes; or [map, {..}], [source]."""
    plain = [w for w in modifiers if w not in ("bulk_group", "noftz")]
    type_ = "none"
    if "bulk_group" not in modifiers:
        raise operands.unknown()
    if reduces:
        operation = plain.pop(0) if plain else ""
        if operation not in _REDUCED or (not dims and not plain):
            raise operands.unknown()
        flags |= ATOMIC[operation] << COPY_OPERATION_AT
        if not dims:
            type_ = plain.pop(0)
            if type_ not in _REDUCED[operation].split():
                raise operands.unknown()
    if plain:
        raise operands.unknown()
    if len(texts) != (2 if dims else 3):
        raise operands.error(f"{operands.statement.opcode} with {len(texts)} operands")
    rows = [operands.address(texts[1])]
    if dims:
        rows += _tensor(texts[0], dims, operands)
    else:
        rows += [operands.address(texts[0]), operands.value(texts[2], 32)]
    detail = BULK["reduce" if reduces else "store"]
    return Parts("bulk_copy", rows, detail=detail, type=type_, flags=flags, count=dims)


def decode_copy_arrive(s: Statement, words: list[str], operands: Operands) -> Parts:
    """cp.async.mbarrier.arrive; `words` begin after `arrive`."""
    plain = [w for w in words if w not in ("shared", "shared::cta")]
    if plain not in (["b64"], ["noinc", "b64"]):
        raise operands.unknown()
    operands.expect(1)
    flags = RELEASE | MBARRIER_NO_INCREMENT * (plain[0] == "noinc")
    rows = [operands.address(s.operands[0])]
    return Parts("mbarrier", rows, detail=MBARRIER["arrive_copies"], flags=flags)


# --- wgmma ----------------------------------------------------------------------------------------

_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_DEPTHS = {"bf16": 16, "f16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
_SUMS = {
    **dict.fromkeys(("bf16", "tf32"), ("f32",)),
    **dict.fromkeys(("f16", "e4m3", "e5m2"), ("f32", "f16")),
    **dict.fromkeys(("s8", "u8"), ("s32",)),
}
_GROUPS = ({"e4m3", "e5m2"}, {"s8", "u8"})


def decode_wgmma(s: Statement, words: list[str], operands: Operands) -> Parts:
    if words == ["fence", "sync", "aligned"]:
        return Parts("wgmma_fence")
    if words == ["commit_group", "sync", "aligned"]:
        return Parts("wgmma_commit")
    if words == ["wait_group", "sync", "aligned"]:
        operands.expect(1)
        return Parts("wgmma_wait", target=operands.count(s.operands[0]))
    saturates = "satfinite" in words
    plain = [w for w in words if w != "satfinite"]
    if plain[:3] != ["mma_async", "sync", "aligned"] or len(plain) != 7:
        raise operands.unknown()
    shape, to, left, right = plain[3:]
    return _decode_mma_async(s, (shape, to, left, right), saturates, operands)


def _check_wgmma(types: tuple[str, str, str, str], saturates: bool, operands: Operands) -> int:
    """The columns of a shape that PTX has."""
    shape, to, left, right = types
    match = _SHAPE.fullmatch(shape)
    if match is None or to not in _SUMS.get(left, ()):
        raise operands.unknown()
    columns, depth = int(match[1]), int(match[2])
    mixes = left == right or any({left, right} <= group for group in _GROUPS)
    if not mixes or depth != _DEPTHS[left] or (saturates and to != "s32"):
        raise operands.unknown()
    if not 8 <= columns <= 256 or columns % 8 or (to == "s32" and columns > 32 and columns % 16):
        raise operands.unknown()
    return columns


def _decode_mma_async(
    s: Statement, types: tuple[str, str, str, str], saturates: bool, operands: Operands
) -> Parts:
    """Operands: {d}, a or {a}, b, scale-d, then immediates: signs of a, b; transposes of a, b."""
    columns = _check_wgmma(types, saturates, operands)
    _, to, left, right = types
    if len(s.operands) < 4:
        raise operands.error(f"{s.opcode} with {len(s.operands)} operands")
    results = operands.vector(s.operands[0])
    if len(results) != columns // (4 if to == "f16" else 2):
        raise operands.error(f"{s.opcode} with {len(results)} registers of d")
    in_registers = s.operands[1].startswith("{")
    rows = [operands.result(name, 32) for name in results]
    if in_registers:
        names = operands.vector(s.operands[1])
        if len(names) != 4:
            raise operands.error(f"{s.opcode} with {len(names)} registers of a")
        rows += [operands.value(name, 32) for name in names]
    else:
        rows.append(operands.value(s.operands[1], 64))
    rows += [operands.value(s.operands[2], 64), operands.predicate(s.operands[3])]
    flags = _wgmma_flags([operands.integer(o) for o in s.operands[4:]], types, in_registers)
    if flags is None:
        raise operands.error(f"{s.opcode} with the immediates {', '.join(s.operands[4:])}")
    flags |= WGMMA_SATURATE * saturates
    detail = TYPE[right]
    count = len(results)
    return Parts(
        *("wgmma", rows, detail, to, left),
        flags=flags,
        results=count,
        target=columns,
    )


def _wgmma_flags(
    numbers: list[int], types: tuple[str, str, str, str], in_registers: bool
) -> int | None:
    """Flags of the immediates; None if PTX has no such form."""
    flags = WGMMA_REGISTERS_A * in_registers
    if types[1] == "s32":
        return None if numbers else flags
    transposes = {"bf16": 1 if in_registers else 2, "f16": 1 if in_registers else 2}.get(
        types[2], 0
    )
    if len(numbers) != 2 + transposes:
        return None
    signs, turned = numbers[:2], numbers[2:]
    if any(n not in (1, -1) for n in signs) or any(n not in (0, 1) for n in turned):
        return None
    flags |= WGMMA_NEGATE_A * (signs[0] < 0) | WGMMA_NEGATE_B * (signs[1] < 0)
    if turned:
        flags |= WGMMA_TRANSPOSE_B * turned[-1]
    if len(turned) == 2:
        flags |= WGMMA_TRANSPOSE_A * turned[0]
    return flags
