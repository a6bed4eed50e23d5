"""`pin-control-flow`: kernels with loops or branches on whole tensors run on the host."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.common.tile_local import is_tile_local_alloca
from nova.core.log import log
from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attributes import DEVICE
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root
from nova.ir.diagnostics import place_of
from nova.ir.walk import every_op, kernels
from nova.passes.base import Pass

_TENSOR_OPS = ("linalg.generic", "memref.alloca", "memref.copy")


@record
class PinControlFlow(Pass):
    """Set `nova.device` to the host on kernels over buffers whose control flow a device cannot run.

    On a device, one thread runs an unstructured op, and it has no memory except the kernel's
    arguments. So loops that load and store elements of those stay there, scatters and sorts, and
    loops over numbers. A branch or loop that computes whole tensors, and one that needs private
    buffers go to the host, with the small ops that share their kernel. `NOVA_LOG=compile` names
    each. Regions of loops on the device, which are modules with a name, have none (see
    `inline-control-flow`).
    """

    name: ClassVar[str] = "pin-control-flow"

    def run(self, module: ir.Module) -> None:
        for kernel in kernels(module):
            if DEVICE.has(kernel):
                continue
            flow = find_host_flow(kernel)
            if flow is not None and "sym_name" in module.operation.attributes:
                raise LoweringError(
                    f"a loop or branch on a device holds {flow.name} that computes whole tensors",
                    where=place_of(flow.location),
                    hint="compile it for the CPU, or keep that op outside of the loop",
                )
            if flow is not None:
                DEVICE.set(kernel, "cpu")
                where = place_of(flow.location)
                at = f" ({where})" if where else ""
                log("compile", f"@{kernel.name.value} runs on the host: it holds {flow.name}{at}")


def find_host_flow(kernel: Any) -> Any | None:
    """The first loop or branch of a kernel that a device cannot run; None where there is none."""
    operations = [op.operation for op in kernel.entry_block.operations]
    flows = [op for op in operations if op.name.startswith("scf.")]
    return next((op for op in flows if _needs_host(op)), None)


def _needs_host(flow: Any) -> bool:
    inside = every_op(flow)
    if any(op.name in _TENSOR_OPS for op in inside):
        return True
    if any(isinstance(r.type, ir.MemRefType) for op in inside for r in op.results):
        return True
    return any(_is_own_buffer(value) for op in inside for value in op.operands)


def _is_own_buffer(value: Any) -> bool:
    """Whether a value is a buffer that the kernel allocates for all of its threads."""
    root = buffer_root(value)
    if not isinstance(root, ir.OpResult) or root.owner.operation.name != "memref.alloca":
        return False
    return not is_tile_local_alloca(root.owner.operation)
