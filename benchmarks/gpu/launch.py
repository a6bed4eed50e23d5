"""A launch of one piece of device code, by itself: from its emitter to PTX.

In: the types of a kernel's buffers and a function that emits its body; out: PTX, and which buffer
each of the kernel's parameters is. Tests of device schedules and benchmarks of them use it; the
compiler makes launches in `lower-device-kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nova.codegen.common.builder import element_type
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.gpu.gemm.epilogue import store_epilogue
from nova.codegen.gpu.gemm.mainloop import emit_gemm
from nova.codegen.gpu.gemm.plan import GemmPlan
from nova.compiler.gpu.emit_ptx import compile_ptx, device_ir
from nova.core.targets import parse_target
from nova.ir.bindings import arith, func, ir
from nova.ir.context import load_device_dialects, make_context
from nova.ir.gpu_bindings import gpu
from nova.ir.index import index
from nova.ir.kernel import Kernel
from nova.passes.base import run_pipeline
from nova.passes.pipelines import device_to_outlined, outlined_to_nvvm

KERNEL = "kernel_0_kernel"
"""The name of the kernel in the PTX."""

Body = Callable[[Sequence[ir.Value], ir.Value, ir.Value], None]
"""Emits the code of a thread, given buffers, the number of its block, and its own in the block."""


@dataclass(frozen=True)
class Buffer:
    type: str
    size: int


def launch_ptx(
    buffers: Sequence[Buffer],
    body: Body,
    blocks: int,
    threads: int,
    shared: int,
    *,
    min_blocks_per_sm: int = 1,
    arch: str = "sm_90a",
) -> tuple[str, list[int]]:
    """The PTX of a launch, and for each parameter of its kernel the number of a buffer."""
    with make_context() as context, ir.Location.unknown():
        load_device_dialects(context)
        module = ir.Module.create()
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
        word = ir.IntegerType.get_signless(32)
        types = [ir.MemRefType.get([b.size], element_type(b.type)) for b in buffers]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("kernel_0", ir.FunctionType.get(types, []), visibility="private")
            Kernel.mark(function, work=0).min_blocks_per_sm = min_blocks_per_sm
            with ir.InsertionPoint(function.add_entry_block()):
                launch = gpu.LaunchOp(
                    (index(blocks), index(1), index(1)),
                    (index(threads), index(1), index(1)),
                    dynamic_shared_memory_size=arith.constant(word, shared),
                )
                block = launch.regions[0].blocks[0]
                arguments = list(function.entry_block.arguments)
                with ir.InsertionPoint(block):
                    body(arguments, block.arguments[0], block.arguments[3])
                    gpu.TerminatorOp()
                func.ReturnOp([])
        module.operation.verify()
        run_pipeline(module, device_to_outlined())
        (launch,) = (o for o in function.entry_block if o.operation.name == "gpu.launch_func")
        data = list(launch.operation.operands)[7:]
        run_pipeline(module, outlined_to_nvvm())
        ptx = compile_ptx(device_ir(module), parse_target(f"cuda:{arch}"))
        return ptx, [arguments.index(value) for value in data]


def gemm_ptx(plan: GemmPlan, spec: Contraction, arch: str = "sm_90a") -> tuple[str, list[int]]:
    """The PTX of a GEMM of matrices a and b that stores c."""
    buffers = [
        Buffer(spec.a_type, max(1, spec.m * spec.k)),
        Buffer(spec.b_type, max(1, spec.k * spec.n)),
        Buffer(spec.acc_type, max(1, spec.m * spec.n)),
    ]

    def body(data: Sequence[ir.Value], block: ir.Value, thread: ir.Value) -> None:
        a, b, c = data
        emit_gemm(plan, a, b, store_epilogue(plan, c), block=block, thread=thread)

    shape = plan.grid[0], plan.block[0], plan.shared_bytes
    return launch_ptx(buffers, body, *shape, min_blocks_per_sm=plan.min_blocks_per_sm, arch=arch)
