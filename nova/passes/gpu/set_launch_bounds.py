"""`set-launch-bounds`: limits the registers of device functions for the desired occupancy."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attributes import CLUSTER, MIN_BLOCKS_PER_SM, NVVM_CLUSTER, NVVM_MIN_BLOCKS
from nova.ir.bindings import ir
from nova.ir.walk import device_modules, find_ops, kernels
from nova.passes.base import Pass


@record
class SetLaunchBounds(Pass):
    """Set the minimum number of blocks of a kernel per multiprocessor.

    Where a kernel has the attribute `nova.min_blocks_per_sm`, the device functions that it
    launches get it as `nvvm.minctasm` (launch bounds). Others may use all registers. Where it has
    `nova.cluster`, they get the cluster size as `nvvm.cluster_dim`.
    """

    name: ClassVar[str] = "set-launch-bounds"

    def run(self, module: ir.Module) -> None:
        launching: dict[tuple[str, ...], Any] = {
            tuple(launch.attributes["kernel"].value): kernel
            for kernel in kernels(module)
            for launch in find_ops(kernel, "gpu.launch_func")
        }
        for part in device_modules(module):
            for op in part.regions[0].blocks[0].operations:
                if op.operation.name != "gpu.func":
                    continue
                names = (part.attributes["sym_name"].value, op.attributes["sym_name"].value)
                kernel = launching.get(names)
                if kernel is None:
                    continue
                if (min_blocks := MIN_BLOCKS_PER_SM.find(kernel)) is not None:
                    NVVM_MIN_BLOCKS.set(op, min_blocks)
                if (cluster := CLUSTER.find(kernel)) is not None:
                    NVVM_CLUSTER.set(op, (cluster, 1, 1))
