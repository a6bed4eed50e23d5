"""`dedup-kernels`: kernels with the same code become one."""

from __future__ import annotations

from typing import ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.context import function_texts, print_op
from nova.ir.control_flow.functions import host_functions, is_call
from nova.ir.walk import kernels
from nova.passes.base import Pass


@record
class DedupKernels(Pass):
    """Keep one of several kernels that differ only in their names; calls go to it.

    The layers of a model repeat: each distinct kernel is then compiled once.
    """

    name: ClassVar[str] = "dedup-kernels"

    def run(self, module: ir.Module) -> None:
        first: dict[str, str] = {}
        renamed: dict[str, str] = {}
        copies = []
        texts = function_texts(print_op(module.operation))
        for kernel in kernels(module):
            name = kernel.name.value
            text = texts.get(name) or print_op(kernel.operation)
            body = text.replace(f"@{name}(", "@(", 1)
            representative = first.setdefault(body, name)
            if representative != name:
                renamed[name] = representative
                copies.append(kernel.operation)
        for function in host_functions(module):
            for op in function.entry_block.operations:
                if is_call(op.operation) and op.callee.value in renamed:
                    op.operation.attributes["callee"] = ir.FlatSymbolRefAttr.get(
                        renamed[op.callee.value]
                    )
        # Last: a call of an erased kernel would make the module invalid to print.
        for kernel in copies:
            kernel.erase()
