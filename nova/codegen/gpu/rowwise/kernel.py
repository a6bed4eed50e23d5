"""The strategy of row programs: softmax, norms, losses and their gradients.

Input: a kernel whose ops run along rows. Output: the strategy `ROWWISE`, which `schedule.py` tries.
"""

from __future__ import annotations

from typing import Any

from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import ThreadPosition
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.rowwise.code import RowwiseCode
from nova.codegen.gpu.rowwise.persistent import PersistentRows
from nova.codegen.gpu.rowwise.plan import RowwisePlan, match_rows, plan_rows
from nova.codegen.gpu.strategy import Strategy
from nova.codegen.gpu.tasks.block_tiles import BlockDim, adjacent_points


def emit_rows(kernel: DeviceKernel, plan: RowwisePlan, position: ThreadPosition) -> None:
    """Emit all ops for the part of a row of one thread."""
    flat = kernel.flat_buffers(lambda value: value)
    code_class = PersistentRows if plan.prefetched else RowwiseCode
    code = code_class(plan, position, kernel.grid, kernel.shared)
    code.reserve(kernel.loop_nests)
    mapping: dict[Any, Any] = {}

    def emit_nest(nest: LoopNest, buffers: list[Any]) -> None:
        code.emit(nest, buffers, mapping)

    def emit_ops() -> None:
        for op in kernel.ops:
            kernel.emit_op(op, flat, mapping, emit_nest)

    if isinstance(code, PersistentRows):
        operands = [[flat(v) for v in o.nest.generic.op.operands] for o in plan.prefetched]
        code.loop_over_rows(operands, emit_ops)
    else:
        emit_ops()
    code.finish()


def _tiles(kernel: DeviceKernel, plan: RowwisePlan) -> list[BlockDim] | None:
    if plan.prefetched:
        return None  # a cluster has rows at equal distances
    return adjacent_points(kernel.grid, plan.rows_per_block)


ROWWISE = Strategy("rowwise", match_rows, plan_rows, emit_rows, _tiles)
