"""Decodes PTX statements to the records that the simulator executes.

The first word of an opcode selects the decoder; any other opcode is a lane function of the
simulator, or unknown: a `PtxError` that names the instruction and its line. Called by `module.py`,
and by the driver that runs embedded PTX.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nova.errors import PtxError
from nova.gpusim import arithmetic, async_ops, transfers, warp_ops
from nova.gpusim.operands import Operands
from nova.gpusim.ptx_parser import PtxKernel, Statement
from nova.gpusim.records import (
    INSTRUCTION,
    LOGIC,
    OP,
    OPERAND,
    SPACE,
    STRONG,
    TYPE,
    Parts,
)

PackedLayout = Callable[[Statement, list[str], Operands], Parts]

_FORMS: dict[str, PackedLayout] = {
    "mov": arithmetic.decode_mov,
    "cvt": arithmetic.decode_cvt,
    "setp": arithmetic.decode_setp,
    "selp": arithmetic.decode_selp,
    "ld": transfers.decode_ld,
    "ldu": transfers.decode_ld,
    "st": transfers.decode_st,
    "atom": transfers.decode_atom,
    "red": transfers.decode_atom,
    "membar": transfers.decode_fence,
    "fence": transfers.decode_fence,
    "prefetch": transfers.decode_hint,
    "nanosleep": transfers.decode_hint,
    "griddepcontrol": transfers.decode_hint,
    "cvta": transfers.decode_cvta,
    "cp": transfers.decode_cp,
    "ldmatrix": transfers.decode_matrix,
    "stmatrix": transfers.decode_matrix,
    "bra": warp_ops.decode_bra,
    "ret": warp_ops.decode_exit,
    "exit": warp_ops.decode_exit,
    "trap": warp_ops.decode_exit,
    "bar": warp_ops.decode_bar,
    "barrier": warp_ops.decode_bar,
    "shfl": warp_ops.decode_shfl,
    "vote": warp_ops.decode_vote,
    "redux": warp_ops.decode_redux,
    "match": warp_ops.decode_match,
    "elect": warp_ops.decode_elect,
    "activemask": warp_ops.decode_activemask,
    "mma": warp_ops.decode_mma,
    "mbarrier": async_ops.decode_mbarrier,
    "mapa": async_ops.decode_mapa,
    "getctarank": async_ops.decode_mapa,
    "setmaxnreg": async_ops.decode_setmaxnreg,
    "wgmma": async_ops.decode_wgmma,
    "createpolicy": transfers.decode_policy,
}


_NAME = re.compile(r"%[\w$]+")


@dataclass(frozen=True)
class Decoded:
    """A kernel for the simulator: arrays of records, and the resources of a block."""

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
    thread_registers: int
    cluster: tuple[int, ...] | None
    opcodes: frozenset[str]


def decode(kernel: PtxKernel, addresses: Mapping[str, int]) -> Decoded:
    """Decode a kernel; `addresses` are those of the module's global variables."""
    operands = Operands(kernel, addresses)
    code = np.zeros(len(kernel.statements) + 1, INSTRUCTION)
    rows: list[tuple[int, ...]] = []
    swaps = [s for s in kernel.statements if re.match(r"atom\..*cas", s.opcode)]
    swapped = {s.operands[1] for s in swaps if len(s.operands) > 1}
    named = Counter(
        n for s in kernel.statements for text in s.operands for n in _NAME.findall(text)
    )
    for number, statement in enumerate(kernel.statements):
        operands.statement = statement
        try:
            parts = _decode(statement, operands)
        except PtxError:
            raise
        except (LookupError, ValueError, TypeError, OverflowError):  # invalid operands
            raise operands.unknown() from None
        if parts.op == "load" and statement.operands[1] in swapped:
            parts.flags |= STRONG  # the first load of a compare-and-swap loop: not a race
        guard = -1 if statement.guard is None else operands.predicate(statement.guard)[3]
        code[number] = (
            OP[parts.op],
            parts.detail,
            TYPE[parts.type],
            TYPE[parts.source],
            SPACE[parts.space],
            parts.count,
            parts.flags,
            guard,
            statement.unless,
            parts.results,
            _ignored(statement, named) if parts.op == "load" and parts.count > 1 else 0,
            len(rows),
            len(parts.operands),
            parts.target,
            statement.line,
        )
        rows += [
            (storage, width, no, 0, at, offset) for storage, width, no, at, offset in parts.operands
        ]
    code[-1]["op"], code[-1]["guard"] = OP["exit"], -1  # falling off the end exits
    return Decoded(
        kernel.name,
        code,
        np.array(rows or [(0,) * 6], OPERAND),
        np.array([*operands.constants, 0], np.uint64),
        operands.words,
        kernel.space_bytes("shared"),
        kernel.space_bytes("local"),
        kernel.param_bytes,
        kernel.most_threads,
        kernel.required,
        kernel.thread_registers,
        kernel.cluster,
        frozenset(statement.opcode for statement in kernel.statements),
    )


def _ignored(statement: Statement, named: Counter[str]) -> int:
    """A bit for each element of a vector load whose register is never read.

    LLVM loads whole aligned vectors where a program reads most of one: the other elements may be
    uninitialized or out of bounds.
    """
    names = _NAME.findall(statement.operands[0])
    return sum(1 << i for i, name in enumerate(names) if named[name] == 1)


def _decode(statement: Statement, operands: Operands) -> Parts:
    head, *words = statement.opcode.split(".")
    if "L2::cache_hint" in words:  # the last operand is a policy, which does not change values
        operands.value(statement.operands[-1], 64)
        words.remove("L2::cache_hint")
        statement = replace(statement, operands=statement.operands[:-1])
        operands.statement = statement
    if form := _FORMS.get(head):
        return form(statement, words, operands)
    if words == ["pred"] and head in LOGIC:
        return arithmetic.decode_predicate(statement, words, operands)
    return arithmetic.decode_lanes(statement, words, operands)
