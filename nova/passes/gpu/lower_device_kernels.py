"""`lower-device-kernels`: kernels become launches on a device, by the schedules of the target."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from nova.codegen.common.footprint import store_footprint
from nova.codegen.common.size_loads import (
    check_constants,
    computes_size,
    guard_empty_buffers,
    load_sizes,
    moved_sizes,
    size_texts,
    symbolic_numbers,
)
from nova.core.records import record
from nova.core.sizes import Size
from nova.core.targets import Target, parse_target
from nova.errors import LoweringError, SymbolicSizeError
from nova.ir.attributes import CONTAINER_MODULE, DEPENDENT, LAUNCH, SYMBOLIC
from nova.ir.bindings import func, ir, memref
from nova.ir.buffers import VIEWS, buffer_root, view_as
from nova.ir.context import load_device_dialects
from nova.ir.control_flow.functions import control_functions, host_functions, name_of
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel, set_argument_types
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.symbolic.size_table import SizeTable, active_table, typical
from nova.ir.symbolic.size_values import SizeValues, declare_sizes
from nova.ir.walk import every_op, find_ops, kernels, main_function, require_buffers
from nova.passes.base import Pass
from nova.passes.kernels.bools_as_bytes import store_bools_as_bytes
from nova.passes.kernels.pin_control_flow import find_host_flow

if TYPE_CHECKING:
    from nova.codegen.gpu.size_classes import SizeClass


@record
class LowerDeviceKernels(Pass):
    """Write every kernel as one `gpu.launch` over flat buffers, which computes its whole grid.

    The kernel's attribute `nova.launch` has the blocks, the threads of a block and the bytes of
    shared memory, `nova.flops` its floating-point operations, which traces report; a kernel without
    work has no launch, and 0 blocks. `nova.core` says whether its code has matrix instructions, and
    `nova.loops`, `nova.tile`, `nova.reads` and `nova.writes` what each block touches: a tile is a
    block. On Hopper and later every thread begins with `griddepcontrol`, so that a launch may start
    before the one before it has ended (`nova.dependent`). `nova.min_blocks_per_sm` is
    the number of blocks per multiprocessor, where that matters (see `set-launch-bounds`). Bools are
    bytes in memory from here on. With `tf32`, or `matmul_precision=tf32`, matmuls of f32 round
    their operands, for tensor cores; with `matmul_precision=high` they split them. `gpu_gemm` and
    `gpu_attention` override the choice between `mma.sync` and `wgmma` (knobs of the same names).
    With `launch` "persistent" the kernels are tasks of one resident kernel: they use neither
    clusters nor `wgmma`, and at most 256 threads.

    In a program with symbolic sizes, the kernel gains the buffer of their values; those that the
    launch uses are loaded before it, and become parameters of the device function. `nova.symbolic`
    has its blocks, flops and bytes as expressions.
    """

    name: ClassVar[str] = "lower-device-kernels"
    target: str = "cuda:sm_80"
    tf32: bool = False
    gpu_gemm: str = "auto"
    gpu_attention: str = "auto"
    matmul_precision: str = "highest"
    launch: str = "graph"

    @property
    def f32_precision(self) -> str:
        """How matmuls of f32 multiply."""
        return "tf32" if self.tf32 else self.matmul_precision

    def run(self, module: ir.Module) -> None:
        load_device_dialects(module.context)
        target = parse_target(self.target)
        main = main_function(module)
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
        table = SizeTable.of(main)
        numbers: dict[str, int] | None = None if table is None else {}
        classes = {} if table is None else self._make_classes(module, table, target)
        for kernel in kernels(module):
            size_class = classes.get(kernel.name.value)
            with size_class.table.active() if size_class is not None else nullcontext():
                self._lower(kernel, target, numbers)
                if size_class is not None:
                    _limit_to_class(kernel, size_class.indicator)
        if numbers is not None:
            sizes = declare_sizes(module, main, numbers)
            for function in host_functions(module):
                _pass_sizes(module, function, sizes)

    def _make_classes(
        self, module: ir.Module, table: SizeTable, target: Target
    ) -> dict[str, SizeClass]:
        """Copy kernels that are compiled for several classes of sizes; the class of each, by name.

        The callers call all of them, and the sizes of a call leave one of them with blocks.
        """
        from nova.codegen.gpu.size_classes import find_classes  # loads the device dialects

        options = {
            "target": target,
            "matmul_precision": self.f32_precision,
            "gpu_gemm": self.gpu_gemm,
            "is_task": self.launch == "persistent",
        }
        classes: dict[str, SizeClass] = {}
        for kernel in kernels(module):
            *others, last = find_classes(kernel, table, options)
            name = kernel.name.value
            classes[name] = last
            for number, size_class in enumerate(others):
                copy = kernel.operation.clone(ir.InsertionPoint(kernel.operation))
                copy.attributes["sym_name"] = ir.StringAttr.get(f"{name}_class{number}")
                classes[f"{name}_class{number}"] = size_class
            hosts = host_functions(module) if others else ()
            for call in [op for f in hosts for op in f.entry_block.operations if _calls(op, name)]:
                for number in range(len(others)):
                    with ir.InsertionPoint(call.operation), call.location:
                        callee = ir.FlatSymbolRefAttr.get(f"{name}_class{number}")
                        func.CallOp([], callee, list(call.operation.operands))
        return classes

    def _lower(self, kernel: Any, target: Target, numbers: dict[str, int] | None) -> None:
        """Lower a kernel; `numbers` are the positions of the sizes that kernels take."""
        if numbers is None:
            self._emit_launch(kernel, target)
            return
        try:
            check_constants(kernel)
            values = SizeValues(kernel, numbers, by_terms=True)
            load_sizes(kernel, values)
            with values.active():
                self._emit_launch(kernel, target)
                guard_empty_buffers(kernel)
        except SymbolicSizeError as error:
            raise LoweringError(
                f"@{kernel.name.value} has symbolic sizes that no schedule of a device supports: "
                f"{error.what}",
                where=place_of(kernel.location),
                hint="keep this size static",
            ) from None
        _sink_arithmetic(kernel)
        set_argument_types(kernel, [])

    def _emit_launch(self, kernel: Any, target: Target) -> None:
        # they load the device dialects
        from nova.codegen.gpu.schedule import DeviceSchedule
        from nova.codegen.gpu.tasks.block_tiles import uses_tensor_cores

        old = [op.operation for op in kernel.entry_block.operations]
        returned = old.pop()
        ops = [op for op in old if not computes_size(op)]
        schedule = DeviceSchedule(
            kernel,
            ops,
            target,
            matmul_precision=self.f32_precision,
            gpu_gemm=self.gpu_gemm,
            gpu_attention=self.gpu_attention,
            is_task=self.launch == "persistent",
        )
        footprint = schedule.footprint()
        with ir.InsertionPoint(returned), kernel.location:
            shape = schedule.emit()
        flops = sum(GenericOp(op).flops for op in ops if is_generic_op(op))
        _sink_views(kernel, ops)
        _erase_unused(ops)
        view = Kernel(kernel)
        view.flops = typical(flops)
        view.launch = (typical(shape.blocks), shape.threads, shape.shared)
        DEPENDENT.set(kernel, target.has_clusters)
        view.core = "matrix" if uses_tensor_cores(kernel) else "vector"
        if footprint is not None:
            store_footprint(kernel, footprint)
        if shape.min_blocks_per_sm:
            view.min_blocks_per_sm = shape.min_blocks_per_sm
        if shape.cluster > 1:
            view.cluster = shape.cluster
        if shape.tensor_maps:
            view.tensor_maps = tuple(tensor_map.row() for tensor_map in shape.tensor_maps)
        if active_table() is not None:
            numbers = {"blocks": shape.blocks, "flops": flops, "bytes": moved_sizes(kernel)}
            texts = {name: size_texts([size]) for name, size in numbers.items()}
            view.symbolic = ir.DictAttr.get(texts)


def _calls(op: Any, name: str) -> bool:
    return op.operation.name == "func.call" and op.callee.value == name


def _limit_to_class(kernel: Any, indicator: Size) -> None:
    """Let a kernel have no blocks for sizes of another class, where `indicator` is 0."""
    entries = {
        entry.name: size_texts([symbolic_numbers(kernel, entry.name)[0] * indicator])
        for entry in SYMBOLIC.get(kernel)
    }
    SYMBOLIC.set(kernel, ir.DictAttr.get(entries))


def _pass_sizes(module: ir.Module, function: Any, sizes: Any) -> None:
    """Let the calls of kernels in `main` or a region pass the buffer of sizes, too."""
    controls = {name_of(f) for f in control_functions(module)}
    for op in list(function.entry_block.operations):
        if op.operation.name != "func.call" or op.callee.value in controls:
            continue
        with ir.InsertionPoint(op.operation), op.location:
            buffer = memref.get_global(sizes.type_.value, sizes.sym_name.value)
            operands = [*op.operation.operands, buffer]
            func.CallOp([], ir.FlatSymbolRefAttr.get(op.callee.value), operands)
        op.operation.erase()


def _sink_arithmetic(kernel: Any) -> None:
    """Move arithmetic on sizes into the launch: only the sizes themselves are its arguments."""
    launches = find_ops(kernel, "gpu.launch")
    if not launches:
        return
    inside = set(every_op(launches[0])[:-1])
    first = launches[0].regions[0].blocks[0].operations[0].operation
    for op in reversed([op.operation for op in kernel.entry_block.operations]):
        users = {use.owner.operation for result in op.results for use in result.uses}
        if op.name.startswith("arith.") and users and users <= inside:
            op.move_before(first)
            inside.add(op)
            first = op


def _sink_views(kernel: Any, ops: list[Any]) -> None:
    """Move the views that a launch uses into it: outlined, each would be a separate argument.

    Arguments of a device function do not overlap (`mark-noalias`).
    """
    outside = {op.results[0] for op in ops if op.name in VIEWS}
    users = {use.owner.operation for value in outside for use in value.uses}
    if not users:
        return
    for launch in find_ops(kernel, "gpu.launch"):
        first = launch.regions[0].blocks[0].operations[0]
        inside: dict[Any, Any] = {}
        for op in [op for op in every_op(launch)[:-1] if op in users]:
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
