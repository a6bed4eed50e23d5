"""`share-kernels`: kernels with the same code become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nova.mlir.bindings import ir
from nova.mlir.walk import find_function, functions
from nova.passes.base import Pass


@dataclass(frozen=True)
class ShareKernels(Pass):
    """Keep one of several kernels that differ in nothing but their names; calls go to it.

    The layers of a model repeat: each shape of a kernel is then compiled once.
    """

    name: ClassVar[str] = "share-kernels"

    def run(self, module: ir.Module) -> None:
        first: dict[str, str] = {}
        renamed: dict[str, str] = {}
        copies = []
        for kernel in functions(module):
            if "nova.kernel" not in kernel.attributes:
                continue
            name = kernel.name.value
            body = kernel.operation.get_asm(assume_verified=True).replace(f"@{name}(", "@(", 1)
            kept = first.setdefault(body, name)
            if kept != name:
                renamed[name] = kept
                copies.append(kernel.operation)
        main = find_function(module, "main")
        assert main is not None
        for op in main.entry_block.operations:
            if op.operation.name == "func.call" and op.callee.value in renamed:
                op.operation.attributes["callee"] = ir.FlatSymbolRefAttr.get(
                    renamed[op.callee.value]
                )
        # Last: a call of a kernel that is gone would make the module invalid to print.
        for kernel in copies:
            kernel.erase()
