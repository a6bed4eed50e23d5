"""Decodes instructions of several threads: branches, barriers, shuffles, votes, mma (matmul).

Each function takes the statement, the words of its opcode after the first and the kernel's
operands, and returns `Parts`; `decode.py` has the dispatch table.
"""

from __future__ import annotations

from nova.gpusim.async_ops import decode_cluster_barrier
from nova.gpusim.operands import Operands
from nova.gpusim.ptx_parser import Statement
from nova.gpusim.records import (
    ALIGNED,
    ARRIVE,
    MATCH,
    REDUCTION,
    SHUFFLE,
    VOTE,
    Parts,
)

# Shape and types of d, a, b, c -> number of registers of each of them.
_MMA_SHAPES = {
    ("m16n8k16", "f32", "bf16"): (4, 4, 2),
    ("m16n8k16", "f32", "f16"): (4, 4, 2),
    ("m16n8k16", "f16", "f16"): (2, 4, 2),
    ("m16n8k8", "f32", "bf16"): (4, 2, 1),
    ("m16n8k8", "f32", "f16"): (4, 2, 1),
    ("m16n8k8", "f16", "f16"): (2, 2, 1),
    ("m16n8k8", "f32", "tf32"): (4, 4, 2),
    ("m16n8k4", "f32", "tf32"): (4, 2, 1),
    ("m8n8k4", "f64", "f64"): (2, 1, 1),
}


def decode_bra(s: Statement, words: list[str], operands: Operands) -> Parts:
    operands.expect(1)
    if words not in ([], ["uni"]):
        raise operands.unknown()
    if s.operands[0] not in operands.kernel.labels:
        raise operands.error(f"there is no label {s.operands[0]}")
    return Parts("branch", target=operands.kernel.labels[s.operands[0]])


def decode_exit(s: Statement, words: list[str], operands: Operands) -> Parts:
    if words not in ([], ["uni"]):
        raise operands.unknown()
    return Parts("trap" if s.opcode == "trap" else "exit")


def decode_bar(s: Statement, words: list[str], operands: Operands) -> Parts:
    """Barriers of a block, of all its threads or of some; `bar` is always aligned."""
    if words == ["warp", "sync"]:
        operands.expect(1)
        return Parts("warp_barrier", [operands.value(s.operands[0], 32)])
    if words[:1] == ["cluster"]:
        return decode_cluster_barrier(s, words, operands)
    plain = [w for w in words if w != "cta"]
    aligned = s.opcode.startswith("bar.") or plain[1:] == ["aligned"]
    if plain[:1] not in (["sync"], ["arrive"]) or plain[1:] not in ([], ["aligned"]):
        raise operands.unknown()
    arrives = plain[0] == "arrive"
    operands.expect(*((2,) if arrives else (1, 2)))
    rows = [operands.value(o, 32) for o in s.operands]
    return Parts("barrier", rows, flags=ALIGNED * aligned | ARRIVE * arrives)


def decode_shfl(s: Statement, words: list[str], operands: Operands) -> Parts:
    if len(words) != 3 or words[0] != "sync" or words[1] not in SHUFFLE or words[2] != "b32":
        raise operands.unknown()
    operands.expect(5)
    first, *second = operands.pair(s.operands[0])
    results = [operands.result(first, 32), *(operands.result(p, 1) for p in second)]
    values = [operands.value(o, 32) for o in s.operands[1:]]
    detail = SHUFFLE[words[1]]
    return Parts("shuffle", [*results, *values], detail=detail, results=len(results))


def decode_vote(s: Statement, words: list[str], operands: Operands) -> Parts:
    accepted = (["sync", mode, "b32" if mode == "ballot" else "pred"] for mode in VOTE)
    if words not in accepted:
        raise operands.unknown()
    operands.expect(3)
    result = operands.result(s.operands[0], 32 if words[1] == "ballot" else 1)
    rows = [result, operands.predicate(s.operands[1]), operands.value(s.operands[2], 32)]
    return Parts("vote", rows, detail=VOTE[words[1]])


def decode_redux(s: Statement, words: list[str], operands: Operands) -> Parts:
    if len(words) != 3 or words[0] != "sync" or words[1] not in REDUCTION:
        raise operands.unknown()
    if words[2] not in (("b32",) if words[1] in ("and", "or", "xor") else ("s32", "u32")):
        raise operands.unknown()
    operands.expect(3)
    values = [operands.value(o, 32) for o in s.operands[1:]]
    rows = [operands.result(s.operands[0], 32), *values]
    return Parts("reduce", rows, detail=REDUCTION[words[1]], type=words[2])


def decode_match(s: Statement, words: list[str], operands: Operands) -> Parts:
    if len(words) != 3 or words[0] not in MATCH or words[1] != "sync":
        raise operands.unknown()
    if words[2] not in ("b32", "b64"):
        raise operands.unknown()
    operands.expect(3)
    first, *second = operands.pair(s.operands[0])
    if second and words[0] == "any":
        raise operands.error(f"{s.opcode} has one result")
    results = [operands.result(first, 32), *(operands.result(p, 1) for p in second)]
    rows = [operands.value(s.operands[1], int(words[2][1:])), operands.value(s.operands[2], 32)]
    return Parts("match", [*results, *rows], detail=MATCH[words[0]], results=len(results))


def decode_elect(s: Statement, words: list[str], operands: Operands) -> Parts:
    first, *second = operands.pair(s.operands[0])
    if words != ["sync"] or len(second) != 1:
        raise operands.unknown()
    operands.expect(2)
    results = [operands.result(first, 32), operands.result(second[0], 1)]
    return Parts("elect", [*results, operands.value(s.operands[1], 32)], results=2)


def decode_activemask(s: Statement, words: list[str], operands: Operands) -> Parts:
    operands.expect(1)
    return Parts("active", [operands.result(s.operands[0], 32)])


def decode_mma(s: Statement, words: list[str], operands: Operands) -> Parts:
    if len(words) != 9 or words[:2] != ["sync", "aligned"] or words[3:5] != ["row", "col"]:
        raise operands.unknown()
    shape, (to, left, right, total) = words[2], words[5:]
    counts = _MMA_SHAPES.get((shape, to, left))
    if counts is None or left != right or to != total:
        raise operands.unknown()
    operands.expect(4)
    width = 64 if to == "f64" else 32
    groups = [operands.vector(text) for text in s.operands]
    if tuple(map(len, groups)) != (counts[0], counts[1], counts[2], counts[0]):
        raise operands.error(f"{s.opcode} with {[len(g) for g in groups]} registers")
    rows = [operands.result(name, width) for name in groups[0]]
    rows += [operands.value(name, width) for group in groups[1:] for name in group]
    depth = int(shape.split("k")[1])
    return Parts("multiply", rows, type=to, source=left, count=depth)
