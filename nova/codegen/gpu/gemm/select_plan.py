"""Selects the plan of a GEMM on a GPU by estimated cycles.

Input: a `GpuGemm` and the name of an architecture. Output: the `GemmPlan` with the least estimated
time. Called by the device schedule of kernels.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nova.codegen.common.match_contraction import Contraction
from nova.codegen.gpu.gemm.plan import (
    TENSOR_TYPES,
    TF32_TYPES,
    GemmPlan,
    GpuGemm,
    Shape,
    make_plan,
    transposed,
)
from nova.ir.mathlib.f8_formats import FORMATS
from nova.ir.symbolic.size_table import is_number, typical

_LIMITS = {
    80: (108, 163),
    86: (84, 99),
    87: (16, 163),
    89: (128, 99),
    90: (132, 227),
    100: (148, 227),
}
"""Capability -> multiprocessors, and KiB of shared memory that a block may have."""

# Largest first; all are tried, and the cheapest is used. A warp of the plain kind has 4 x 8
# threads, or fewer along rows and columns where the lanes of a warp share the steps of k: then a
# square tile moves fewer bytes from the L2 cache, whose rate limits the smallest tiles.
TENSOR: tuple[Shape, ...] = (
    Shape(128, 256, 64, (2, 4), 1, 4, 1, 1300),
    Shape(128, 128, 64, (2, 2), 1, 3, 2, 1250),
    Shape(64, 128, 64, (2, 2), 1, 3, 3, 950),
    Shape(128, 64, 64, (2, 2), 1, 3, 3, 950),
    Shape(64, 64, 64, (2, 2), 1, 3, 4, 700),
    Shape(32, 64, 64, (1, 2), 2, 4, 4, 450),
    Shape(32, 32, 128, (1, 1), 4, 3, 4, 300),
    Shape(16, 64, 128, (1, 2), 2, 3, 4, 250),
    Shape(16, 32, 128, (1, 1), 4, 3, 4, 180),
)
# Two words per element take twice the registers: smaller parts of a tile per warp.
SPLIT: tuple[Shape, ...] = (
    Shape(128, 128, 64, (2, 4), 1, 3, 1, 1000),
    *(shape for shape in TENSOR if prod(shape.warp) <= 32 * 64),
)
_PRECISIONS = {"tf32": "tf32", "high": "tf32x3"}
_COSTS = {"tf32": 2, "tf32x3": 6}
"""Matmuls of bf16 that take as long."""
_START, _EXCHANGED = 1500, 4.4
"""Cycles of a block besides its multiply-adds; or, if more, those of so many sums a cycle."""
# 16 x 8 or 8 x 8 accumulators per thread: 128 lanes of a multiprocessor multiply faster than
# shared memory supplies operands for 8 x 8.
WIDE_F32: tuple[Shape, ...] = (Shape(128, 128, 8, (2, 2), 1, 4, 2, 125, transposes=True),)
# 8 x 8 accumulators in smaller tiles, whose k is divided among more warps: shared memory supplies
# operands for 4 x 4 half as fast.
DIVIDED_F32: tuple[Shape, ...] = (
    Shape(64, 64, 32, (2, 1), 4, 4, 1, 105, reach=8),
    Shape(32, 64, 32, (1, 1), 8, 4, 1, 100, reach=8),
    Shape(32, 32, 128, (1, 1), 8, 2, 1, 75, reach=8, lanes=(4, 4)),
)
PLAIN: tuple[Shape, ...] = (
    Shape(128, 128, 8, (4, 2), 1, 4, 2, 115),
    Shape(64, 128, 16, (2, 2), 1, 3, 3, 105),
    Shape(128, 64, 16, (4, 1), 1, 3, 3, 105),
    Shape(64, 64, 16, (4, 2), 1, 3, 3, 80),
    Shape(32, 64, 32, (2, 2), 2, 3, 3, 70),
    Shape(32, 32, 32, (2, 1), 4, 3, 3, 60),
    Shape(16, 32, 64, (1, 1), 8, 3, 3, 50),
    Shape(16, 16, 64, (1, 1), 8, 4, 3, 32.5, lanes=(4, 4)),
    Shape(8, 32, 64, (1, 1), 8, 3, 3, 32),
    Shape(4, 64, 64, (1, 1), 8, 3, 3, 24),
    Shape(4, 16, 256, (1, 1), 8, 2, 3, 12, lanes=(2, 4)),
)


def plan_gemm(gemm: GpuGemm, arch: str, *, precision: str = "highest") -> GemmPlan:
    """The plan of a GEMM for an architecture such as `sm_90a`.

    `precision` is that of f32: `highest` is exact, `high` and `tf32` are for tensor cores.
    """
    processors, shared = limits(arch)
    row, column = gemm.contraction.c_strides
    swapped = is_number(row, 1) and not is_number(column, 1)
    if swapped:
        gemm = transposed(gemm)
    spec = gemm.contraction
    element = _element(spec, precision)
    core_type = "tensor" if element in TENSOR_TYPES else "plain"
    shapes = TENSOR if core_type == "tensor" else PLAIN
    if element == "f32":
        shapes = WIDE_F32 + DIVIDED_F32 + shapes
    if element == "tf32x3":
        shapes = SPLIT
    if element in TF32_TYPES:
        # The same number of bytes of k per stage as for other types.
        shapes = tuple(replace(shape, depth=shape.depth // 2) for shape in shapes)
    plans = [
        plan
        for shape in shapes
        if (plan := make_plan(gemm, core_type, element, shape, swapped)).shared_bytes
        <= shared << 10
        and not (shape.transposes and _has_symbolic_copies(plan))
    ]
    return min(plans, key=lambda plan: estimated_cycles(plan, processors))


def limits(arch: str) -> tuple[int, int]:
    """Multiprocessors of an architecture, and KiB of shared memory of a block."""
    capability = int("".join(c for c in arch if c.isdigit()))
    tabulated = max((c for c in _LIMITS if c <= capability), default=80)
    return _LIMITS[tabulated]


def _element(spec: Contraction, precision: str) -> str:
    if spec.a_type in FORMATS and spec.b_type in FORMATS and spec.acc_type == "f32":
        return "f16"  # it represents every 8-bit float
    if spec.a_type == spec.b_type and spec.acc_type == "f32":
        if spec.a_type in TENSOR_TYPES:
            return spec.a_type
        if spec.a_type == "f32" and precision in _PRECISIONS:
            return _PRECISIONS[precision]
    return spec.acc_type


def _has_symbolic_copies(plan: GemmPlan) -> bool:
    """Whether both operands are copied in small pieces, at addresses computed from sizes.

    These take registers that a thread with 128 sums and the operands of two steps does not have.
    """
    sides = plan.lhs, plan.rhs
    symbolic = (not (isinstance(s.stride, int) and isinstance(s.step, int)) for s in sides)
    return all(symbolic) and all(side.copied < 16 for side in sides)


def estimated_cycles(plan: GemmPlan, processors: int) -> float:
    """Estimated cycles of a GEMM: multiply-adds, the overhead of a block, and wave quantization."""
    shape = plan.shape
    blocks = typical(plan.blocks)
    steps = typical(plan.stages_of_k * plan.gemm.outer_steps) * shape.depth
    work = shape.rows * shape.columns * steps
    slots = processors * shape.blocks
    # A wave that is not full leaves each of its blocks a larger share of the multiprocessor.
    full_waves, last_wave = divmod(blocks, slots)
    share = -(-last_wave // processors) / shape.blocks
    alone = 0.5 + 0.5 * share if last_wave else 0.0
    busy = work * shape.blocks / shape.speed * _COSTS.get(plan.element, 1)
    # Sums of parts of k are written to shared memory and read again.
    exchange = shape.parts * shape.rows * shape.columns / _EXCHANGED if shape.parts > 1 else 0
    return (full_waves + alone) * (busy + max(_START, exchange))
