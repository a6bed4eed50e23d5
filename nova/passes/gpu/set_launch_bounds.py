"""`set-launch-bounds`: device functions get as many registers as leave room for their blocks."""

from __future__ import annotations

from typing import ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.walk import find_ops, kernels
from nova.passes.base import Pass

RESIDENT = "nova.train.device_params"


@record
class SetLaunchBounds(Pass):
    """Tell the assembler how many blocks of a kernel a multiprocessor shall hold.

    Where a kernel's attribute `nova.train.device_params` says a number, the device functions that
    it launches
    get it as `nvvm.minctasm`. Others have all the registers that they can use.
    """

    name: ClassVar[str] = "set-launch-bounds"

    def run(self, module: ir.Module) -> None:
        word = ir.IntegerType.get_signless(32, module.context)
        wanted: dict[tuple[str, ...], int] = {}
        for kernel in kernels(module):
            if RESIDENT in kernel.attributes:
                number = int(kernel.attributes[RESIDENT].value)
                for launch in find_ops(kernel, "gpu.launch_func"):
                    wanted[tuple(launch.attributes["kernel"].value)] = number
        for part in find_ops(module, "gpu.module"):
            for op in part.regions[0].blocks[0].operations:
                if op.operation.name != "gpu.func":
                    continue
                names = (part.attributes["sym_name"].value, op.attributes["sym_name"].value)
                if names in wanted:
                    op.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(word, wanted[names])
