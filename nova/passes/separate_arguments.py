"""`separate-arguments`: device functions know that their arguments do not overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nova.mlir.bindings import ir
from nova.mlir.walk import find_ops, kernels
from nova.passes.base import Pass
from nova.passes.lower_device_kernels import LAUNCH


@dataclass(frozen=True)
class SeparateArguments(Pass):
    """Mark the buffers of device functions that Nova's kernels launch as `noalias`.

    No two arguments of a kernel overlap in what is written. So what a kernel only reads is loaded
    past the coherent cache, and as early as its registers allow.
    """

    name: ClassVar[str] = "separate-arguments"

    def run(self, module: ir.Module) -> None:
        launched = {
            tuple(launch.attributes["kernel"].value)
            for kernel in kernels(module)
            if LAUNCH in kernel.attributes  # launches that somebody wrote may share buffers
            for launch in find_ops(kernel, "gpu.launch_func")
        }
        with module.context:
            noalias = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
            nothing = ir.DictAttr.get({})
            for part in find_ops(module, "gpu.module"):
                for op in part.regions[0].blocks[0].operations:
                    op = op.operation
                    if op.name != "gpu.func":
                        continue
                    names = (part.attributes["sym_name"].value, op.attributes["sym_name"].value)
                    if names in launched:
                        kinds = op.attributes["function_type"].value.inputs
                        op.attributes["arg_attrs"] = ir.ArrayAttr.get(
                            [noalias if isinstance(k, ir.MemRefType) else nothing for k in kinds]
                        )
