"""Matches structured ops that are contractions, and the roles of loops: batch, m, n and k.

A contraction is `c += a * b` (operands possibly widened) over loops that each appear in exactly two
or all three of a, b and c. The largest loop of each role becomes part of the GEMM; the other loops
are plain loops around it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.overrides import NO_OVERRIDES, ScheduleOverrides
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.linalg.generic import GenericOp
from nova.ir.symbolic.size_table import Extent, is_number, typical
from nova.ir.walk import defining_op


@record
class Contraction:
    """C[m,n] (+)= sum over k of A[m,k] * B[k,n]; strides in elements.

    `overrides` are those of its tiling, which else follows from the sizes. With `packed`,
    B is prepacked into panels (cpu/gemm/prepacked_constants.py), and its strides are those of the
    original layout.
    """

    m: Extent
    n: Extent
    k: Extent
    a_strides: tuple[Extent, Extent]
    b_strides: tuple[Extent, Extent]
    c_strides: tuple[Extent, Extent]
    a_type: str
    b_type: str
    acc_type: str
    accumulate: bool
    overrides: ScheduleOverrides = NO_OVERRIDES
    packed: bool = False

    @property
    def is_static(self) -> bool:
        """Whether all sizes and strides are numbers."""
        strides = (*self.a_strides, *self.b_strides, *self.c_strides)
        return all(isinstance(n, int) for n in (self.m, self.n, self.k, *strides))


@record
class LoopContraction:
    """A contraction matched in a loop nest: loop numbers of m, n, k, and of the enclosing loops."""

    spec: Contraction
    m: int
    n: int
    k: int
    enclosing: tuple[int, ...]


def with_unit_columns(spec: Contraction) -> Contraction:
    """The contraction, transposed if that makes the columns of C contiguous."""
    rows_first = is_number(spec.c_strides[0], 1) and not is_number(spec.m, 0, 1)
    columns_first = is_number(spec.c_strides[1], 1) and not is_number(spec.n, 0, 1)
    if not rows_first or columns_first:
        return spec
    return replace(
        spec,
        m=spec.n,
        n=spec.m,
        a_strides=spec.b_strides[::-1],
        b_strides=spec.a_strides[::-1],
        c_strides=spec.c_strides[::-1],
        a_type=spec.b_type,
        b_type=spec.a_type,
    )


def typical_contraction(spec: Contraction) -> Contraction:
    """The contraction of representative sizes, by which a symbolic one is scheduled."""
    if spec.is_static:
        return spec
    return replace(
        spec,
        m=typical(spec.m),
        n=typical(spec.n),
        k=typical(spec.k),
        a_strides=(typical(spec.a_strides[0]), typical(spec.a_strides[1])),
        b_strides=(typical(spec.b_strides[0]), typical(spec.b_strides[1])),
        c_strides=(typical(spec.c_strides[0]), typical(spec.c_strides[1])),
    )


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
        role = _role(*(not is_number(s, 0) for s in loop.strides), parallel=loop.parallel)
        if is_number(loop.size, 1):
            role = "batch"
        if role is None:
            return None
        roles[role].append(i)
    if not roles["m"]:
        roles["m"] = _rows_of_one(nest)
    if not (roles["m"] and roles["n"] and roles["k"]):
        return None
    m, n, k = (max(roles[r], key=lambda i: typical(nest.loops[i].size)) for r in ("m", "n", "k"))
    enclosing = tuple(i for i in range(len(nest.loops)) if i not in (m, n, k))
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
    return LoopContraction(spec, m, n, k, enclosing)


def _rows_of_one(nest: LoopNest) -> list[int]:
    """A parallel loop of one iteration, as the row loop of a matrix with one row."""
    rows = [i for i, loop in enumerate(nest.loops) if loop.parallel and is_number(loop.size, 1)]
    return rows[-1:]


def _role(in_a: bool, in_b: bool, in_c: bool, *, parallel: bool) -> str | None:
    if parallel and in_c:
        return "batch" if in_a and in_b else "m" if in_a else "n" if in_b else None
    return "k" if in_a and in_b and not in_c and not parallel else None


def is_multiply_add(generic: GenericOp) -> bool:
    """Whether the body yields `c + widen(a) * widen(b)`, in any order, in floats."""
    a, b, c = generic.block.arguments
    *_, last = generic.block.operations
    total = defining_op(last.operands[0], "arith.addf")
    if total is None or c not in list(total.operands):
        return False
    product = defining_op(next((v for v in total.operands if v != c), None), "arith.mulf")
    if product is None:
        return False
    factors = [_narrow(value) for value in product.operands]
    return factors in ([a, b], [b, a])


def _narrow(value: Any) -> Any:
    """The value that `value` widens, if it does."""
    widening = defining_op(value, "arith.extf")
    return value if widening is None else widening.operands[0]


def _body_types(generic: GenericOp) -> tuple[str, str, str] | None:
    """(a, b, accumulator) element types if the body is only a multiply-add in floats."""
    a, b, c = generic.block.arguments
    *body, _ = [op.operation for op in generic.block.operations]
    arithmetic = [op for op in body if op.name != "arith.extf" or op.operands[0] not in (a, b)]
    if len(arithmetic) != 2 or not is_multiply_add(generic):
        return None
    if not isinstance(c.type, ir.F32Type | ir.F64Type):
        return None
    return str(a.type), str(b.type), str(c.type)
