"""Matches structured ops that are contractions, and the roles of loops: batch, m, n and k.

A contraction is `c += a * b` (operands possibly widened, floats or integers) over loops that each
appear in exactly two or all three of a, b and c. The largest loop of each role becomes part of the
GEMM; the other loops are plain loops around it.
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

WINDOW_STEPS = (1, 2)
"""Elements from one position in a row to the next that packing of windows has vector code for."""


@record
class WindowOperand:
    """The matrix of all windows of an image: where its row (c, ky, kx), column (y, x) is.

    The element is at `strides . (c, ky, kx) + row_stride * y + step * x`; `taps` are the numbers of
    ky and kx, and `row` that of x. `extent` are the elements from the first to the last of an
    image.
    """

    taps: tuple[int, int]
    strides: tuple[int, int, int]
    row: int
    row_stride: int
    step: int
    extent: int


@record
class Contraction:
    """C[m,n] (+)= sum over k of A[m,k] * B[k,n]; strides in elements.

    `overrides` are those of its tiling, which else follows from the sizes. With `packed`,
    B is prepacked into panels (cpu/gemm/prepacked_constants.py), and its strides are those of the
    original layout; with `packed_rows`, A is. With `windows`, B is the matrix of the windows of an
    image, which is not in memory (cpu/gemm/window_operand.py), and its strides are those of it.
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
    packed_rows: bool = False
    windows: WindowOperand | None = None

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
    a, b, _ = generic.block.arguments
    factors = _factors(generic, "arith.addf", "arith.mulf")
    narrow = [_widened_by(value, _WIDER_FLOAT)[0] for value in factors]
    return narrow in ([a, b], [b, a])


def is_integer_contraction(generic: GenericOp) -> bool:
    """Whether the body does that in i32, with integers up to 32 bits, and sums over a loop."""
    return "reduction" in generic.iterators and _integer_types(generic) is not None


def reads_windows(generic: GenericOp) -> bool:
    """Whether the op is a multiply-add in floats that reads an operand at sums of loops."""
    if "reduction" not in generic.iterators or not is_multiply_add(generic):
        return False
    rows = [row for access in generic.accesses[:2] for row in access.coefficients]
    return any(sum(1 for c in row if c) > 1 for row in rows)


_WIDER_FLOAT = ("arith.extf",)
_WIDER_INTEGER = ("arith.extsi", "arith.extui")
_INTEGER_BITS = (8, 16, 32)


def _factors(generic: GenericOp, add: str, multiply: str) -> list[Any]:
    """x and y if the body yields `c + x * y`, in any order; nothing for another body."""
    if len(generic.block.arguments) != 3:
        return []
    c = generic.block.arguments[2]
    *_, last = generic.block.operations
    total = defining_op(last.operands[0], add) if len(last.operands) == 1 else None
    if total is None or c not in list(total.operands):
        return []
    product = defining_op(next((v for v in total.operands if v != c), None), multiply)
    return [] if product is None else list(product.operands)


def _widened_by(value: Any, names: tuple[str, ...]) -> tuple[Any, str]:
    """The value that `value` widens, and by which op; itself and nothing if it does not."""
    for name in names:
        widening = defining_op(value, name)
        if widening is not None:
            return widening.operands[0], name
    return value, ""


def _body_types(generic: GenericOp) -> tuple[str, str, str] | None:
    """(a, b, accumulator) element types if the body is only a multiply-add."""
    a, b, c = generic.block.arguments
    *body, _ = [op.operation for op in generic.block.operations]
    wider = (*_WIDER_FLOAT, *_WIDER_INTEGER)
    arithmetic = [op for op in body if op.name not in wider or op.operands[0] not in (a, b)]
    if len(arithmetic) != 2:
        return None
    if isinstance(c.type, ir.IntegerType):
        return _integer_types(generic)
    if not isinstance(c.type, ir.F32Type | ir.F64Type) or not is_multiply_add(generic):
        return None
    return str(a.type), str(b.type), str(c.type)


def _integer_types(generic: GenericOp) -> tuple[str, str, str] | None:
    """(a, b, accumulator) of a multiply-add in i32; zero-extended operands are unsigned."""
    types: dict[Any, str] = {}
    factors = _factors(generic, "arith.addi", "arith.muli")
    for value in factors:
        source, name = _widened_by(value, _WIDER_INTEGER)
        is_integer = isinstance(source.type, ir.IntegerType)
        if not is_integer or source.type.width not in _INTEGER_BITS:
            return None
        types[source] = f"{'u' if name == 'arith.extui' else 'i'}{source.type.width}"
    if not factors:
        return None
    a, b, c = generic.block.arguments
    if len(types) != 2 or set(types) != {a, b} or str(c.type) != "i32":
        return None
    return types[a], types[b], "i32"
