"""Statements of PTX to the records that the simulator executes.

The record layouts are those of native/src/sim/sim.h. An opcode is taken apart at its dots; what
is left of it names a row of a table here or one of the simulator's lane functions. An instruction
that is in neither is a `PtxError` that names it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nova.errors import PtxError
from nova.runtime.sim.ptx import PtxKernel, Statement

OPERAND = np.dtype(
    [
        ("kind", "u1"),
        ("width", "u1"),
        ("negated", "u1"),
        ("unused", "u1"),
        ("at", "u4"),
        ("offset", "i8"),
    ]
)
INSTRUCTION = np.dtype(
    [
        ("op", "u2"),
        ("detail", "u2"),
        ("type", "u1"),
        ("from", "u1"),
        ("space", "u1"),
        ("count", "u1"),
    ]
    + [("flags", "u4"), ("guard", "i4"), ("unless", "u1"), ("results", "u1"), ("unused", "u2")]
    + [("first", "u4"), ("operands", "u4"), ("target", "u4"), ("line", "u4")]
)

TYPES = "none pred b8 u8 s8 b16 u16 s16 f16 bf16 b32 u32 s32 f32 f16x2 bf16x2 tf32 b64 u64 s64 f64".split()
_TYPE = {name: number for number, name in enumerate(TYPES)}
_SPACE = {"generic": 0, "param": 1, "global": 2, "shared": 3, "local": 4, "const": 2}
OPS = (
    "lanes move pack unpack convert compare select predicate load store atomic address branch exit barrier "
    "warp_barrier fence trap shuffle vote reduce match active copy copy_commit copy_wait load_matrix multiply"
).split()
_OP = {name: number for number, name in enumerate(OPS)}
_NONE, _REGISTER, _CONSTANT, _SINK = range(4)

SPECIALS = (
    "%tid.x %tid.y %tid.z %ntid.x %ntid.y %ntid.z %ctaid.x %ctaid.y %ctaid.z %nctaid.x %nctaid.y %nctaid.z "
    "%laneid %warpid %nwarpid %smid %lanemask_lt %clock"
).split()

_ROUNDING = {"rn": 0, "rz": 1, "rm": 2, "rp": 3, "rna": 4, "rni": 8, "rzi": 9, "rmi": 10, "rpi": 11}
_COMPARISONS = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5, "num": 6, "nan": 7}
_COMPARISONS |= {"lo": 2, "ls": 3, "hi": 4, "hs": 5}
_COMPARISONS |= {
    name + "u": _COMPARISONS[name] | 16 for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_COMBINED = {"and": 32, "or": 64, "xor": 128}
_ATOMICS = {n: i for i, n in enumerate("add min max and or xor exch cas inc dec".split())}
_REDUCTIONS = {n: i for i, n in enumerate("add min max and or xor".split())}
_SHUFFLES = {n: i for i, n in enumerate("up down bfly idx".split())}
_VOTES = {n: i for i, n in enumerate("all any uni ballot".split())}
_LOGIC = {n: i for i, n in enumerate("and or xor not".split())}

# Words of an opcode that change how memory is cached or ordered, not what is read or written.
_HINTS = {
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "volatile",
    "weak",
    "relaxed",
    "acquire",
    "release",
}
_HINTS |= {"acq_rel", "sc", "cta", "gpu", "sys", "cluster", "cache_hint", "noftz", "mmio"}


@dataclass(frozen=True)
class Decoded:
    """A kernel for the simulator: arrays of records, and what a block needs."""

    name: str
    code: np.ndarray[Any, Any]
    operands: np.ndarray[Any, Any]
    constants: np.ndarray[Any, Any]
    register_words: int
    shared_bytes: int
    local_bytes: int
    param_bytes: int
    most_threads: int | None
    required: tuple[int, ...] | None
    opcodes: frozenset[str]


def decode(kernel: PtxKernel, lanes: Mapping[str, int], addresses: Mapping[str, int]) -> Decoded:
    """Decode a kernel; `lanes` are the simulator's lane functions, `addresses` those of globals."""
    return _Decoder(kernel, lanes, addresses).run()


@dataclass
class _Parts:
    """What a statement becomes."""

    op: str
    operands: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    detail: int = 0
    type: str = "none"
    source: str = "none"
    space: str = "generic"
    count: int = 1
    flags: int = 0
    results: int = 0
    target: int = 0


class _Decoder:
    def __init__(self, kernel: PtxKernel, lanes: Mapping[str, int], addresses: Mapping[str, int]):
        self.kernel, self.lanes, self.addresses = kernel, lanes, addresses
        self.places: dict[str, int] = {name: i for i, name in enumerate(SPECIALS)}
        words = len(SPECIALS)
        for name, width in kernel.registers.items():
            words += words % 2 if width == 64 else 0
            self.places[name] = words
            words += 2 if width == 64 else 1
        self.words = words
        self.constants: dict[int, int] = {}
        self.rows: list[tuple[int, int, int, int, int]] = []
        self.seen: set[str] = set()

    def run(self) -> Decoded:
        kernel = self.kernel
        code = np.zeros(len(kernel.statements) + 1, INSTRUCTION)
        for number, statement in enumerate(kernel.statements):
            self.statement = statement
            parts = self._decode(statement)
            row = code[number]
            row["op"], row["detail"] = _OP[parts.op], parts.detail
            row["type"], row["from"] = _TYPE[parts.type], _TYPE[parts.source]
            row["space"], row["count"], row["flags"] = _SPACE[parts.space], parts.count, parts.flags
            row["guard"] = -1
            if statement.guard is not None:
                row["guard"], row["unless"] = self._place(statement.guard), statement.unless
            row["results"], row["target"], row["line"] = parts.results, parts.target, statement.line
            row["first"], row["operands"] = len(self.rows), len(parts.operands)
            self.rows += parts.operands
        code[-1]["op"], code[-1]["guard"] = _OP["exit"], -1  # whoever falls off the end has ended
        operands = np.array(
            self.rows, dtype=[(n, OPERAND[n]) for n in ("kind", "width", "negated", "at", "offset")]
        )
        packed = np.zeros(max(1, len(self.rows)), OPERAND)
        for name in ("kind", "width", "negated", "at", "offset"):
            packed[name][: len(self.rows)] = operands[name]
        return Decoded(
            kernel.name,
            code,
            packed,
            np.array([*self.constants, 0], np.uint64),
            self.words,
            kernel.space_bytes("shared"),
            kernel.space_bytes("local"),
            kernel.param_bytes,
            kernel.most_threads,
            kernel.required,
            frozenset(self.seen),
        )

    # --- operands -------------------------------------------------------------------------------

    def _fail(self, what: str) -> PtxError:
        return PtxError(f"{self.kernel.name}: {what}", line=self.statement.line)

    def _place(self, name: str) -> int:
        if name not in self.places:
            raise self._fail(f"no register {name}")
        return self.places[name]

    def _constant(self, value: int) -> int:
        return self.constants.setdefault(value % (1 << 64), len(self.constants))

    def _number(self, text: str) -> int | None:
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", text):
            return int(text[2:], 16)
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
            return int(text.rstrip("U"), 0)
        if text in self.kernel.variables:
            return self.kernel.variables[text].offset
        if text in self.kernel.params:
            return self.kernel.params[text].offset
        return self.addresses.get(text)

    def _operand(self, text: str) -> tuple[int, int, int, int, int]:
        negated = text.startswith("!")
        text = text.lstrip("!").strip()
        if text == "_":
            return (_SINK, 32, 0, 0, 0)
        if text in ("WARP_SZ", "WARPSIZE"):
            return (_CONSTANT, 32, 0, self._constant(32), 0)
        if text.startswith("%"):
            width = self.kernel.registers.get(text, 32)
            return (_REGISTER, width, negated, self._place(text), 0)
        if (value := self._number(text)) is None:
            raise self._fail(f"what is {text!r}?")
        return (_CONSTANT, 64, negated, self._constant(value), 0)

    def _address(self, text: str) -> tuple[int, int, int, int, int]:
        inner = re.fullmatch(r"\[\s*([^\]+]+?)\s*(?:\+\s*(-?\w+))?\s*\]", text)
        if inner is None:
            raise self._fail(f"not an address: {text}")
        offset = int(inner[2], 0) if inner[2] else 0
        if inner[1].startswith("%"):
            return (
                _REGISTER,
                self.kernel.registers.get(inner[1], 32),
                0,
                self._place(inner[1]),
                offset,
            )
        if (value := self._number(inner[1])) is None:
            raise self._fail(f"what is {inner[1]!r}?")
        return (_NONE, 64, 0, 0, value + offset)

    def _list(self, text: str) -> list[tuple[int, int, int, int, int]]:
        """A vector's operands, or the one operand."""
        if text.startswith("{"):
            return [self._operand(part.strip()) for part in text[1:-1].split(",")]
        return [self._operand(text)]

    # --- opcodes --------------------------------------------------------------------------------

    def _decode(self, s: Statement) -> _Parts:
        head, *words = s.opcode.split(".")
        special: dict[str, Callable[[Statement, list[str]], _Parts]] = {
            "mov": self._mov,
            "ld": self._ld,
            "ldu": self._ld,
            "st": self._st,
            "atom": self._atom,
            "red": self._atom,
            "cvta": self._cvta,
            "setp": self._setp,
            "selp": self._selp,
            "bra": self._bra,
            "bar": self._bar,
            "barrier": self._bar,
            "shfl": self._shfl,
            "vote": self._vote,
            "redux": self._redux,
            "cp": self._cp,
            "ldmatrix": self._ldmatrix,
            "mma": self._mma,
            "lop3": self._lop3,
        }
        self.seen.add(s.opcode)
        if head in special:
            return special[head](s, words)
        if head in ("ret", "exit"):
            return _Parts("exit")
        if head in ("membar", "fence", "nanosleep", "prefetch", "griddepcontrol"):
            return _Parts("fence")
        if head == "trap":
            return _Parts("trap")
        if head == "activemask":
            return _Parts("active", [self._operand(s.operands[0])])
        if words[-1:] == ["pred"] and head in _LOGIC:
            return _Parts("predicate", [self._operand(o) for o in s.operands], detail=_LOGIC[head])
        if head == "cvt" and words[-2] not in ("f16x2", "bf16x2"):
            return self._cvt(s, words)
        return self._lane(s, head, words)

    def _lane(self, s: Statement, head: str, words: list[str]) -> _Parts:
        """Arithmetic: modes that the simulator computes exactly anyway are dropped."""
        kept = [w for w in words if w not in ("rn", "approx", "ftz", "full", "xorsign")]
        name = ".".join([head, *kept])
        if head == "mul24" or name not in self.lanes:
            raise self._fail(f"the simulator does not know the instruction {s.opcode}")
        return _Parts(
            "lanes", [self._operand(o) for o in s.operands], detail=self.lanes[name], results=1
        )

    def _mov(self, s: Statement, words: list[str]) -> _Parts:
        to, source = s.operands
        if words[-1] == "pred":
            return _Parts("predicate", [self._operand(to), self._operand(source)], detail=4)
        if source.startswith("{"):
            parts = self._list(source)
            bits = self._bits(words[-1]) // len(parts)
            return _Parts("pack", [self._operand(to), *parts], count=len(parts), flags=bits)
        if to.startswith("{"):
            parts = self._list(to)
            bits = self._bits(words[-1]) // len(parts)
            return _Parts("unpack", [*parts, self._operand(source)], count=len(parts), flags=bits)
        return _Parts("move", [self._operand(to), self._operand(source)])

    def _bits(self, type_: str) -> int:
        return int(re.sub(r"\D", "", type_))

    def _memory(self, words: list[str]) -> tuple[str, int, str]:
        """Space, elements and type of an access."""
        space, count, type_ = "generic", 1, ""
        for word in words:
            word = word.split("::")[0] if word.startswith(("shared", "param")) else word
            if word in _SPACE:
                space = word
            elif word in ("v2", "v4", "v8"):
                count = int(word[1:])
            elif word in _TYPE:
                type_ = word
            elif word not in _HINTS and not word.startswith(("L1", "L2", "level")):
                raise self._fail(f"the simulator does not know {self.statement.opcode}")
        return space, count, type_

    def _ld(self, s: Statement, words: list[str]) -> _Parts:
        space, count, type_ = self._memory(words)
        results = self._list(s.operands[0])
        return _Parts(
            "load", [*results, self._address(s.operands[1])], type=type_, space=space, count=count
        )

    def _st(self, s: Statement, words: list[str]) -> _Parts:
        space, count, type_ = self._memory(words)
        values = self._list(s.operands[1])
        return _Parts(
            "store", [self._address(s.operands[0]), *values], type=type_, space=space, count=count
        )

    def _atom(self, s: Statement, words: list[str]) -> _Parts:
        operation = next((w for w in words if w in _ATOMICS), None)
        if operation is None:
            raise self._fail(f"the simulator does not know {s.opcode}")
        space, _, type_ = self._memory([w for w in words if w != operation])
        returns = s.opcode.startswith("atom")
        texts = list(s.operands)
        results = [self._operand(texts.pop(0))] if returns else []
        operands = [*results, self._address(texts[0]), *map(self._operand, texts[1:])]
        return _Parts(
            "atomic",
            operands,
            detail=_ATOMICS[operation],
            type=type_,
            space=space,
            results=len(results),
        )

    def _cvta(self, s: Statement, words: list[str]) -> _Parts:
        space = next(w.split("::")[0] for w in words if w.split("::")[0] in _SPACE)
        operands = [self._operand(o) for o in s.operands]
        return _Parts("address", operands, space=space, flags=int("to" in words))

    def _cvt(self, s: Statement, words: list[str]) -> _Parts:
        to, source = words[-2:]
        flags = 0
        for word in words[:-2]:
            if word in _ROUNDING:
                flags |= _ROUNDING[word]
            elif word in ("sat", "satfinite"):
                flags |= 16
            elif word == "relu":
                flags |= 32
            elif word != "ftz":
                raise self._fail(f"the simulator does not know {s.opcode}")
        if to not in _TYPE or source not in _TYPE:
            raise self._fail(f"the simulator does not know {s.opcode}")
        return _Parts(
            "convert", [self._operand(o) for o in s.operands], type=to, source=source, flags=flags
        )

    def _setp(self, s: Statement, words: list[str]) -> _Parts:
        words = [w for w in words if w != "ftz"]
        flags = _COMPARISONS[words[0]] | (_COMBINED[words[1]] if len(words) > 2 else 0)
        results = [self._operand(p.strip()) for p in s.operands[0].split("|")]
        operands = [*results, *map(self._operand, s.operands[1:])]
        return _Parts("compare", operands, type=words[-1], flags=flags, results=len(results))

    def _selp(self, s: Statement, words: list[str]) -> _Parts:
        return _Parts("select", [self._operand(o) for o in s.operands])

    def _bra(self, s: Statement, words: list[str]) -> _Parts:
        if s.operands[0] not in self.kernel.labels:
            raise self._fail(f"no label {s.operands[0]}")
        return _Parts("branch", target=self.kernel.labels[s.operands[0]])

    def _bar(self, s: Statement, words: list[str]) -> _Parts:
        if words[0] == "warp":
            return _Parts("warp_barrier", [self._operand(s.operands[0])])
        plain = set(words) <= {"sync", "cta", "aligned"} and s.operands in (("0",), ())
        if not plain:
            raise self._fail(
                f"the simulator knows barrier 0 of a whole block only, not {s.opcode} {s.operands}"
            )
        return _Parts("barrier")

    def _shfl(self, s: Statement, words: list[str]) -> _Parts:
        mode = next((w for w in words if w in _SHUFFLES), None)
        if mode is None or "sync" not in words:
            raise self._fail(f"the simulator does not know {s.opcode}")
        results = [self._operand(p.strip()) for p in s.operands[0].split("|")]
        operands = [*results, *map(self._operand, s.operands[1:])]
        return _Parts("shuffle", operands, detail=_SHUFFLES[mode], results=len(results))

    def _vote(self, s: Statement, words: list[str]) -> _Parts:
        mode = next((w for w in words if w in _VOTES), None)
        if mode is None or "sync" not in words:
            raise self._fail(f"the simulator does not know {s.opcode}")
        return _Parts("vote", [self._operand(o) for o in s.operands], detail=_VOTES[mode])

    def _redux(self, s: Statement, words: list[str]) -> _Parts:
        operation = next((w for w in words if w in _REDUCTIONS), None)
        if operation is None or words[-1] not in ("s32", "u32", "b32"):
            raise self._fail(f"the simulator does not know {s.opcode}")
        operands = [self._operand(o) for o in s.operands]
        return _Parts("reduce", operands, detail=_REDUCTIONS[operation], type=words[-1])

    def _lop3(self, s: Statement, words: list[str]) -> _Parts:
        raise self._fail("the simulator does not know lop3")

    def _cp(self, s: Statement, words: list[str]) -> _Parts:
        if words[0] != "async":
            raise self._fail(f"the simulator does not know {s.opcode}")
        if words[1] == "commit_group":
            return _Parts("copy_commit")
        if words[1] == "wait_all":
            return _Parts("copy_wait", flags=0xFFFFFFFF)
        if words[1] == "wait_group":
            return _Parts("copy_wait", flags=int(s.operands[0], 0))
        if words[1] not in ("ca", "cg"):
            raise self._fail(f"the simulator does not know {s.opcode}")
        operands = [self._address(s.operands[0]), self._address(s.operands[1])]
        operands += [self._operand(o) for o in s.operands[2:]]
        return _Parts("copy", operands, count=int(s.operands[2], 0))

    def _ldmatrix(self, s: Statement, words: list[str]) -> _Parts:
        results = self._list(s.operands[0])
        flags = int("trans" in words)
        operands = [*results, self._address(s.operands[1])]
        return _Parts("load_matrix", operands, count=len(results), flags=flags, space="shared")

    def _mma(self, s: Statement, words: list[str]) -> _Parts:
        shape = re.fullmatch(
            r"m(\d+)n(\d+)k(\d+)", next((w for w in words if re.match(r"m\d", w)), "")
        )
        types = words[-4:]
        known = shape is not None and (
            (shape[1], shape[2]) == ("16", "8")
            and types[1] in ("f16", "bf16", "tf32")
            and types[0] in ("f32", "f16")
            or shape[0] == "m8n8k4"
            and types[0] == "f64"
        )
        if not known or shape is None:
            raise self._fail(f"the simulator does not know {s.opcode}")
        operands = [operand for text in s.operands for operand in self._list(text)]
        return _Parts("multiply", operands, type=types[0], source=types[1], count=int(shape[3]))


def pack_params(values: list[int | float | bytes], formats: str) -> bytes:
    """Kernel arguments as one buffer; for tests."""
    return struct.pack(formats, *values)
