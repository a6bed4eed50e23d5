"""The GPU schedule of a kernel: the first strategy that has a plan, and the launch of its code.

Input: a kernel over buffers (stage `buffers`) and a device target. Output: one `gpu.launch` in
place of the kernel's ops. `lower-device-kernels` calls this. A new strategy is one entry of
`STRATEGIES`, before those that would also take its kernels.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from nova.codegen.common.footprint import Footprint
from nova.codegen.gpu.attention.decode import DECODE_ATTENTION, DecodePlan
from nova.codegen.gpu.attention.kernel import ATTENTION
from nova.codegen.gpu.block_ops import WARP, LaunchShape, ThreadPosition
from nova.codegen.gpu.cluster_argreduce import CLUSTER_ARGREDUCE, ClusterArgReducePlan
from nova.codegen.gpu.column_reduce import COLUMN_REDUCE, ColumnReducePlan
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.gemm.kernel import GEMM, GemmKernelPlan
from nova.codegen.gpu.gemv import GEMV, GemvPlan
from nova.codegen.gpu.generic import GENERIC
from nova.codegen.gpu.pointwise.strategy import ELEMENTWISE
from nova.codegen.gpu.ptx_ops import start_dependents, wait_for_launches
from nova.codegen.gpu.row_reduce import ROW_REDUCE
from nova.codegen.gpu.rowwise.kernel import ROWWISE
from nova.codegen.gpu.rowwise.plan import RowwisePlan
from nova.codegen.gpu.rowwise.shared_rows import SHARED_ROWS
from nova.codegen.gpu.scatter.kernel import SCATTER
from nova.codegen.gpu.strategy import SelectedStrategy, Strategy
from nova.codegen.gpu.tasks.block_tiles import block_footprint
from nova.codegen.gpu.transpose_tile import TRANSPOSE_TILE
from nova.codegen.gpu.wgmma.kernel import WGMMA_GEMM, WgmmaKernelPlan
from nova.codegen.gpu.wgmma_attention.kernel import WGMMA_ATTENTION, WgmmaAttentionKernel
from nova.core.targets import Target
from nova.ir.bindings import arith, ir
from nova.ir.gpu_bindings import gpu
from nova.ir.index import index
from nova.ir.symbolic.size_table import active_table, typical
from nova.ir.symbolic.size_values import load_size

STRATEGIES: tuple[Strategy[Any, Any], ...] = (
    GEMV,
    WGMMA_GEMM,
    GEMM,
    DECODE_ATTENTION,
    WGMMA_ATTENTION,
    ATTENTION,
    TRANSPOSE_TILE,
    SCATTER,
    CLUSTER_ARGREDUCE,
    COLUMN_REDUCE,
    ROW_REDUCE,
    SHARED_ROWS,
    ROWWISE,
    ELEMENTWISE,
    GENERIC,
)
"""In order of preference. The last one has a plan for every kernel."""
EARLY_PLANS = (GemvPlan, DecodePlan, GemmKernelPlan, WgmmaKernelPlan, WgmmaAttentionKernel)
"""Plans whose code may wait by itself for the launches before it."""


class DeviceSchedule:
    """The schedule of one kernel: analysed once, emitted once."""

    def __init__(
        self,
        function: Any,
        ops: list[Any],
        target: Target,
        *,
        matmul_precision: str = "highest",
        gpu_gemm: str = "auto",
        gpu_attention: str = "auto",
        is_task: bool = False,
    ):
        self.kernel = DeviceKernel(
            function,
            ops,
            target,
            matmul_precision=matmul_precision,
            gpu_gemm="mma" if is_task else gpu_gemm,
            gpu_attention="mma" if is_task else gpu_attention,
            is_task=is_task,
        )

    @cached_property
    def selected(self) -> SelectedStrategy:
        """The first strategy that has a plan for the kernel, with its plan."""
        strategies = STRATEGIES
        if self.kernel.updates:  # `join_updates.py` made sure that there is a plan
            strategies = (DECODE_ATTENTION,)
        elif self.kernel.prologue:  # the norm of a vector: other strategies have none
            strategies = (GEMV, GENERIC)
        for strategy in strategies:
            if selected := strategy.select(self.kernel):
                return selected
        raise AssertionError("the last strategy has a plan for every kernel")

    def footprint(self) -> Footprint | None:
        """What the blocks of the launch touch; None with symbolic sizes, and without blocks.

        To be called before `emit`, after which the ops are erased.
        """
        if self.kernel.is_empty or active_table() is not None:
            return None
        dims = self.selected.tiles(self.kernel)
        return block_footprint(self.kernel, typical(self.selected.plan.blocks), dims)

    def emit(self) -> LaunchShape:
        """Emit the launch at the insertion point; an empty grid is not launched at all."""
        if self.kernel.is_empty:
            return LaunchShape(0, WARP)
        plan = self.selected.plan
        i32 = ir.IntegerType.get_signless(32)
        size = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, 0))
        launch = gpu.LaunchOp(
            (load_size(plan.blocks), index(1), index(1)),
            (index(plan.threads), index(1), index(1)),
            dynamic_shared_memory_size=size.result,
        )
        body = launch.regions[0].blocks[0]
        with ir.InsertionPoint(body):
            if self.kernel.target.has_clusters:
                # First of all: a launch that starts now is not waited for by its own dependents.
                start_dependents()
                if not (isinstance(plan, EARLY_PLANS) and plan.is_early):
                    wait_for_launches()
            position = ThreadPosition(body.arguments[0], body.arguments[3], plan.threads)
            self.selected.emit(self.kernel, position)
            gpu.TerminatorOp()
        shared_bytes = self.kernel.shared.size
        size.operation.attributes["value"] = ir.IntegerAttr.get(i32, shared_bytes)
        shape = LaunchShape(plan.blocks, plan.threads, shared_bytes, plan.min_blocks_per_sm)
        if isinstance(plan, RowwisePlan | ColumnReducePlan | DecodePlan | ClusterArgReducePlan):
            return replace(shape, cluster=plan.cluster)
        if isinstance(plan, WgmmaKernelPlan):
            return replace(shape, cluster=plan.cluster, tensor_maps=plan.tensor_maps)
        if isinstance(plan, WgmmaAttentionKernel):
            return replace(shape, tensor_maps=plan.tensor_maps)
        return shape
