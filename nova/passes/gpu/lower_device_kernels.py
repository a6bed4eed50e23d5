"""`lower-device-kernels`: kernels become launches on a device, by the schedules of the target."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.core.targets import parse_target
from nova.errors import LoweringError
from nova.ir.attributes import CONTAINER_MODULE, DIMS, LAUNCH
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_root, view_as
from nova.ir.context import load_device_dialects
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.walk import every_op, find_ops, kernels, main_function, require_buffers
from nova.passes.base import Pass
from nova.passes.kernels.bools_as_bytes import store_bools_as_bytes
from nova.passes.kernels.pin_control_flow import find_host_flow


@record
class LowerDeviceKernels(Pass):
    """Write every kernel as one `gpu.launch` over flat buffers, which computes its whole grid.

    The kernel's attribute `nova.launch` has the blocks, the threads of a block and the bytes of
    shared memory, `nova.flops` its floating-point operations, which traces report; a kernel without
    work has no launch, and 0 blocks. `nova.min_blocks_per_sm` is
    the number of blocks per multiprocessor, where that matters (see `set-launch-bounds`). Bools are
    bytes in memory from here on. With `tf32`, matmuls of f32 round their operands, for tensor
    cores. `gpu_gemm` and `gpu_attention` override the choice between `mma.sync` and `wgmma` (knobs
    of the same names).
    """

    name: ClassVar[str] = "lower-device-kernels"
    target: str = "cuda:sm_80"
    tf32: bool = False
    gpu_gemm: str = "auto"
    gpu_attention: str = "auto"

    def run(self, module: ir.Module) -> None:
        from nova.codegen.gpu.schedule import DeviceSchedule  # loads the device dialects

        load_device_dialects(module.context)
        target = parse_target(self.target)
        main = main_function(module)
        if DIMS.has(main):
            raise LoweringError(
                "kernels of a device have static sizes, and the program has symbolic ones: "
                + ", ".join(DIMS.get(main)),
                where=place_of(main.location),
                hint="compile it for a CPU, or for each size",
            )
        require_buffers(module)
        if lowered := [k for k in kernels(module) if LAUNCH.has(k)]:
            name = lowered[0].name.value
            raise LoweringError(f"@{name} is lowered already", where=place_of(lowered[0].location))
        for kernel in kernels(module):
            if flow := find_host_flow(kernel):
                raise LoweringError(
                    f"@{kernel.name.value} holds {flow.name} that computes whole tensors, which a "
                    "device cannot run",
                    where=place_of(flow.location),
                    hint="run pin-control-flow first: it gives the kernel to the host",
                )
        store_bools_as_bytes(module)
        CONTAINER_MODULE.set(module.operation)
        for kernel in kernels(module):
            old = [op.operation for op in kernel.entry_block.operations]
            returned = old.pop()
            schedule = DeviceSchedule(
                kernel,
                old,
                target,
                tf32=self.tf32,
                gpu_gemm=self.gpu_gemm,
                gpu_attention=self.gpu_attention,
            )
            with ir.InsertionPoint(returned), kernel.location:
                shape = schedule.emit()
            flops = sum(GenericOp(op).flops for op in old if is_generic_op(op))
            _sink_views(kernel, old)
            _erase_unused(old)
            view = Kernel(kernel)
            view.flops = flops
            view.launch = (shape.blocks, shape.threads, shape.shared)
            if shape.min_blocks_per_sm:
                view.min_blocks_per_sm = shape.min_blocks_per_sm
            if shape.cluster > 1:
                view.cluster = shape.cluster
            if shape.tensor_maps:
                view.tensor_maps = tuple(tensor_map.row() for tensor_map in shape.tensor_maps)


def _sink_views(kernel: Any, ops: list[Any]) -> None:
    """Move the views that a launch uses into it: outlined, each would be a separate argument.

    Arguments of a device function do not overlap (`mark-noalias`).
    """
    outside = {op.results[0] for op in ops if op.name in VIEWS}
    for launch in find_ops(kernel, "gpu.launch"):
        first = launch.regions[0].blocks[0].operations[0]
        inside: dict[Any, Any] = {}
        for op in every_op(launch)[:-1]:
            for i, value in enumerate(op.operands):
                if value in outside:
                    if value not in inside:
                        with ir.InsertionPoint(first), op.location:
                            inside[value] = view_as(buffer_root(value), value.type)
                    op.operands[i] = inside[value]


def _erase_unused(ops: list[Any]) -> None:
    for op in reversed(ops):
        if not any(True for r in op.results for _ in r.uses):
            op.erase()
