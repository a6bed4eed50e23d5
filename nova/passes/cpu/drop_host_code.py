"""`drop-host-code`: keeps only the kernels and their shared functions, for code generation."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attributes import SHARED
from nova.ir.bindings import ir
from nova.ir.kernel import is_kernel, set_argument_types
from nova.ir.walk import kernels, require_buffers
from nova.passes.base import Pass


@record
class DropHostCode(Pass):
    """Erase `main` and the constants.

    At this point the host code has become the launch table and the constant section of the artifact
    (`nova/compiler/tables.py`); kernels access constants through their arguments. An argument
    without elements, which no op reads any more, becomes one-dimensional: upstream's lowering
    computes no strides for empty buffers of higher rank.
    """

    name: ClassVar[str] = "drop-host-code"

    def run(self, module: ir.Module) -> None:
        require_buffers(module)
        for op in list(module.body.operations):
            op = op.operation
            code = is_kernel(op) or SHARED.has(op)
            if op.name == "memref.global" or (op.name == "func.func" and not code):
                op.erase()
        for kernel in kernels(module):
            _flatten_empty_arguments(kernel)


def _flatten_empty_arguments(kernel: Any) -> None:
    arguments = kernel.entry_block.arguments
    for argument in arguments:
        type_ = argument.type
        if isinstance(type_, ir.MemRefType) and 0 in type_.shape:
            argument.set_type(ir.MemRefType.get([0], type_.element_type))
    set_argument_types(kernel, [])
