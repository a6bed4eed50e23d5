"""`mark-noalias`: marks the arguments of device functions as not overlapping."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attributes import LAUNCH, noalias_dictionaries
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS
from nova.ir.walk import contains_op, device_modules, find_ops, kernels
from nova.passes.base import Pass

_LOADS = ("memref.load", "vector.load")
_STORES = ("memref.store", "vector.store")


@record
class MarkNoalias(Pass):
    """Mark buffers of device functions that Nova's kernels launch as `noalias`.

    An argument that a kernel writes does not overlap with another. So read-only arguments are
    loaded through the non-coherent cache, and as early as registers allow. Arguments that are both
    written and read stay unmarked: threads may read what others wrote before a barrier, and LLVM
    assumes that a barrier does not access `noalias` memory.

    A kernel that may start before the launches before it have ended (`griddepcontrol.wait`) marks
    only arguments that it writes: the non-coherent cache is for memory that nothing writes while
    the kernel runs, and those launches still write.
    """

    name: ClassVar[str] = "mark-noalias"

    def run(self, module: ir.Module) -> None:
        launched = {
            tuple(launch.attributes["kernel"].value)
            for kernel in kernels(module)
            if LAUNCH.has(kernel)  # launches that a user wrote may share buffers
            for launch in find_ops(kernel, "gpu.launch_func")
        }
        with module.context:
            for part in device_modules(module):
                for op in part.regions[0].blocks[0].operations:
                    op = op.operation
                    if op.name != "gpu.func":
                        continue
                    names = (part.attributes["sym_name"].value, op.attributes["sym_name"].value)
                    if names in launched:
                        is_separate = partial(_is_separate, written=_starts_early(op))
                        arguments = op.regions[0].blocks[0].arguments
                        op.attributes["arg_attrs"] = ir.ArrayAttr.get(
                            noalias_dictionaries(list(map(is_separate, arguments)))
                        )


def _starts_early(function: Any) -> bool:
    """Whether a device function waits by itself for the launches before it."""
    return contains_op(
        function,
        lambda op: (
            op.name == "llvm.inline_asm"
            and op.attributes["asm_string"].value.startswith("griddepcontrol.wait")
        ),
    )


def _is_separate(argument: Any, written: bool) -> bool:
    """Whether an argument is a buffer that is only read, or only written; or only the latter."""
    if not isinstance(argument.type, ir.MemRefType):
        return False
    reads, writes = _accesses(argument)
    return not reads if written else not (reads and writes)


def _accesses(buffer: Any) -> tuple[bool, bool]:
    """Whether a buffer or a view of it is read, and whether it is written."""
    reads = writes = False
    for use in buffer.uses:
        op = use.owner.operation
        if op.name in VIEWS:
            access = _accesses(op.results[0])
        elif op.name in _LOADS:
            access = (True, False)
        elif op.name in _STORES and use.operand_number > 0:
            access = (False, True)
        else:
            access = (True, True)  # its address escapes, and may be used for anything
        reads, writes = reads or access[0], writes or access[1]
    return reads, writes
