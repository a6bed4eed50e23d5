"""Matches structured ops that are contractions, and the roles of loops: batch, m, n and k.

A contraction is `c += a * b` (operands possibly widened) over loops that each appear in exactly two
or all three of a, b and c. The largest loop of each role becomes part of the GEMM; the other loops
are plain loops around it.
"""

from __future__ import annotations

from typing import Any

from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.gemm.packed_gemm import Contraction
from nova.core.records import record
from nova.ir.bindings import ir

_WIDENINGS = {"arith.extf"}


@record
class LoopContraction:
    """A contraction matched in a loop nest: loop numbers of m, n, k, and of the enclosing loops."""

    spec: Contraction
    m: int
    n: int
    k: int
    around: tuple[int, ...]


def match_contraction(nest: LoopNest, accumulate: bool) -> LoopContraction | None:
    """Match `nest` as a contraction; None if it is not one."""
    generic = nest.generic
    if generic.num_inputs != 2 or generic.num_outputs != 1 or nest.indexed:
        return None
    types = _body_types(generic)
    if types is None:
        return None
    roles: dict[str, list[int]] = {"m": [], "n": [], "k": [], "batch": []}
    for i, loop in enumerate(nest.loops):
        role = _role(*(s != 0 for s in loop.strides), parallel=loop.parallel)
        if loop.size == 1:
            role = "batch"
        if role is None:
            return None
        roles[role].append(i)
    if not roles["m"]:
        roles["m"] = _rows_of_one(nest)
    if not (roles["m"] and roles["n"] and roles["k"]):
        return None
    m, n, k = (max(roles[r], key=lambda i: nest.loops[i].size) for r in ("m", "n", "k"))
    around = tuple(i for i in range(len(nest.loops)) if i not in (m, n, k))
    several_k = len(roles["k"]) > 1
    lm, ln, lk = nest.loops[m], nest.loops[n], nest.loops[k]
    spec = Contraction(
        lm.size,
        ln.size,
        lk.size,
        (lm.strides[0], lk.strides[0]),
        (lk.strides[1], ln.strides[1]),
        (lm.strides[2], ln.strides[2]),
        *types,
        accumulate or several_k,
    )
    return LoopContraction(spec, m, n, k, around)


def _rows_of_one(nest: LoopNest) -> list[int]:
    """A parallel loop of one iteration, as the row loop of a matrix with one row."""
    return [i for i, loop in enumerate(nest.loops) if loop.parallel and loop.size == 1][-1:]


def _role(in_a: bool, in_b: bool, in_c: bool, *, parallel: bool) -> str | None:
    if parallel and in_c:
        return "batch" if in_a and in_b else "m" if in_a else "n" if in_b else None
    return "k" if in_a and in_b and not in_c and not parallel else None


def _body_types(generic: Any) -> tuple[str, str, str] | None:
    """(a, b, accumulator) element types if the body is `c + widen(a) * widen(b)` in floats."""
    block = generic.block
    a, b, c = block.arguments
    value_of: dict[Any, Any] = {a: a, b: b}
    operations = [op.operation for op in block.operations]
    total = None
    product = None
    for op in operations[:-1]:
        if op.name in _WIDENINGS and op.operands[0] in (a, b):
            value_of[op.results[0]] = op.operands[0]
        elif op.name == "arith.mulf" and product is None:
            factors = [value_of.get(o) for o in op.operands]
            if any(f is None for f in factors) or set(factors) != {a, b}:
                return None
            product = op.results[0]
        elif op.name == "arith.addf" and product is not None and total is None:
            if set(op.operands) != {c, product}:
                return None
            total = op.results[0]
        else:
            return None
    if total is None or operations[-1].operands[0] != total:
        return None
    if not isinstance(c.type, ir.F32Type | ir.F64Type):
        return None
    return str(a.type), str(b.type), str(c.type)
