"""`pack-operands`: an operand of a large matmul is packed once, by a kernel of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

from nova.codegen.common.match_contraction import Contraction
from nova.codegen.common.overrides import write_overrides
from nova.codegen.cpu.gemm.prepacked_constants import (
    PrepackedPanels,
    find_prepacked,
    find_prepacked_rows,
    packed_size,
    view_prepacked,
    write_prepacked,
)
from nova.codegen.cpu.schedule import KernelSchedule
from nova.codegen.cpu.winograd.kernel import find_weights
from nova.codegen.cpu.winograd.plan import WinogradPlan
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.targets import parse_target
from nova.ir.attributes import PREPACKED, SCHEDULE, WINOGRAD
from nova.ir.bindings import func, ir, memref
from nova.ir.buffers import element_bytes, nbytes, view_as
from nova.ir.control_flow.functions import host_functions
from nova.ir.index import index
from nova.ir.kernel import Kernel, Main, set_argument_types
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.linalg.winograd import emit_weight_transform
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import kernels, main_function
from nova.passes.base import Pass

_LEAST_WORK, _LEAST_ROWS = 1 << 29, 512
"""Multiply-adds, and rows that read each panel, from which packing once pays: a smaller matmul
packs while it multiplies, which hides the stores."""

_LEAST_BATCH, _BATCH_WORK = 4, 1 << 26
"""Matmuls of a batch with one left operand, and their multiply-adds in all, from which packing it
once pays."""

_MANY_CORES, _CORES_WORK, _CORES_SIDE = 8, 1 << 32, 1024
"""On so many cores, a smaller matmul with such sides at least has a tile for each core, which packs
its own rows of A and columns of B. Panels that one core wrote are in its cache, and others wait for
each line of them."""

_MOST_BLOCKS = 32
"""Blocks of k: the packing kernel has a loop for each."""

_STEPS = 16
"""Steps of k of a tile of a packing kernel, which has whole rows of B: they are read as streams,
and written in runs of some cache lines."""

_PARTS = 16
"""Tiles of a packing kernel that are enough, so a common server has the same number for each core:
all tiles of the matmul wait for the last of them."""

_SLOTS = 4
"""Buffers that all packed operands share: one is packed while others are read."""

_WEIGHT_WORK = 4
"""Operations for each element of transformed weights."""

_ALIGNMENT = 64


@record
class PackOperands(Pass):
    """Pack operands of large matmuls into panels that all tasks read.

    Without it every task packs the columns of B that it reads, so each column is packed once for
    every range of rows. A left operand that a batch of matmuls shares, such as the weight of a
    convolution, is packed too: a task would pack it for each image. The kernel that packs is an
    elementwise kernel like others: the task graph orders its tiles before the tasks that read them.
    The panels are at the end of the workspace, in `_SLOTS` buffers, one after the other. An operand
    qualifies if its rows are contiguous, and its columns, or the rows of a left operand, fill all
    panels. The layout is that of constants (`pack-constants`), and so is the attribute,
    `nova.packed`. Programs with symbolic sizes, and regions of control flow, stay as they are.
    `cores` are those of the machine that the program is compiled on: where there are many, matmuls
    of medium size get a tile for each core instead, and stay as they are. The weights of a
    convolution for which Winograd's algorithm is faster are transformed by a kernel of their own
    too, as `pack-constants` transforms constants.
    """

    name: ClassVar[str] = "pack-operands"
    target: str = "cpu"
    tile_work: int = 65_536
    cores: int = 1
    winograd: str = "auto"

    def run(self, module: ir.Module) -> None:
        main = main_function(module)
        if SizeTable.of(main) is not None:
            return
        target = parse_target(self.target)
        operands = _PackedOperands(module, main)
        calls = _calls_of_main(module, main)
        for kernel in kernels(module):
            name = kernel.name.value
            is_small = Kernel(kernel).work < 2 * _BATCH_WORK and self.winograd != "on"
            if name not in calls or is_small or PREPACKED.has(kernel) or WINOGRAD.has(kernel):
                continue
            ops = [op.operation for op in kernel.entry_block.operations][:-1]
            schedule = KernelSchedule(kernel, ops, target, self.tile_work)
            transform = find_weights(schedule, kernel, self.winograd)
            if transform is not None:
                number, plan = transform
                view_prepacked(kernel, {number: plan.weight_elements})
                Kernel(kernel).winograd = ((number, plan.size),)
                for call in calls[name]:
                    operands.transform(call, number, plan)
                continue
            candidates = find_prepacked(schedule, kernel)
            packings = {i: p for i, p in candidates.items() if _pays(*p)}
            if not packings:
                candidates = find_prepacked_rows(schedule, kernel)
                work = Kernel(kernel).work
                packings = {i: p for i, p in candidates.items() if _rows_pay(*p, work)}
            if packings and self._has_tile_for_each_core(schedule, packings):
                write_overrides(kernel, replace(schedule.overrides, tiles=self.cores))
            elif packings:
                view_prepacked(kernel, {i: packed_size(*p) for i, p in packings.items()})
                write_prepacked(kernel, {i: panels for i, (_, panels) in packings.items()})
                for call in calls[name]:
                    for number, (spec, panels) in packings.items():
                        operands.pack(call, number, spec, panels)
        operands.finish()

    def _has_tile_for_each_core(
        self, schedule: KernelSchedule, packings: dict[int, tuple[Contraction, PrepackedPanels]]
    ) -> bool:
        """Whether tiles of a matmul alone, one for each core, pack their own operands."""
        specs = [spec for spec, _ in packings.values()]
        return (
            self.cores >= _MANY_CORES
            and schedule.overrides.tile is None
            and not schedule.has_epilogue()
            and all(
                spec.m * spec.n * spec.k < _CORES_WORK and min(spec.m, spec.n) >= _CORES_SIDE
                for spec in specs
            )
        )


def _calls_of_main(module: ir.Module, main: Any) -> dict[str, list[Any]]:
    """The calls of kernels by name, of those that only main calls."""
    calls: dict[str, list[Any]] = {}
    others = set()
    for function in host_functions(module):
        for op in function.entry_block.operations:
            if op.operation.name != "func.call":
                continue
            if function.operation == main.operation:
                calls.setdefault(op.callee.value, []).append(op.operation)
            else:
                others.add(op.callee.value)
    return {name: ops for name, ops in calls.items() if name not in others}


def _pays(spec: Contraction, panels: PrepackedPanels) -> bool:
    large = spec.m >= _LEAST_ROWS and spec.m * spec.n * spec.k >= _LEAST_WORK
    in_rows = spec.b_strides == (spec.n, 1) and spec.n % panels.nr == 0
    return large and in_rows and panels.blocks <= _MOST_BLOCKS


def _rows_pay(spec: Contraction, panels: PrepackedPanels, work: int) -> bool:
    if not spec.is_static or spec.a_strides != (spec.k, 1):
        return False
    batch = work // (2 * spec.m * spec.n * spec.k)
    return batch >= _LEAST_BATCH and spec.m % panels.nr == 0 and spec.k % panels.blocks == 0


class _PackedOperands:
    """The packed operands of one main: their kernels, and their buffers."""

    def __init__(self, module: ir.Module, main: Any):
        self.module = module
        self.main = main
        self.kernels: dict[tuple[Any, ...], str] = {}
        self.count = 0
        self.sizes = [0] * _SLOTS
        self.uses: list[tuple[int, int, Any]] = []
        """Slot, byte, and the `memref.view` at that byte of the slot."""

    def pack(self, call: Any, number: int, spec: Contraction, panels: PrepackedPanels) -> None:
        """Pack operand `number` of a call before it."""
        source, slot = call.operands[number], self.count % _SLOTS
        self.count += 1
        element = source.type.element_type
        lanes = panels.lanes(spec)
        cuts = [spec.k * i // panels.blocks for i in range(panels.blocks + 1)]
        count = lanes // panels.nr

        def view(shape: list[int], first: int) -> Any:
            type_ = ir.MemRefType.get(shape, element)
            return self._view(type_, slot, first * lanes * element_bytes(type_))

        with ir.InsertionPoint(call), call.location:
            if panels.of_rows:
                into = view([panels.blocks, count, cuts[1], panels.nr], 0)
                name = self._rows_kernel(source.type, into.type, call.location)
                func.CallOp([], ir.FlatSymbolRefAttr.get(name), [source, into])
                call.operands[number] = view([spec.k * lanes], 0)
                return
            for k, end in pairwise(cuts):
                block = view([count, end - k, panels.nr], k)
                name = self._kernel(source.type, panels.nr, k, end, call.location)
                func.CallOp([], ir.FlatSymbolRefAttr.get(name), [source, block])
            call.operands[number] = view([spec.k * lanes], 0)

    def _view(self, type_: Any, slot: int, at: int) -> Any:
        """A buffer from byte `at` of a slot on."""
        workspace = list(self.main.entry_block.arguments)[-1]
        op = memref.ViewOp(type_, workspace, index(0), [])
        self.uses.append((slot, at, op))
        self.sizes[slot] = max(self.sizes[slot], at + nbytes(type_))
        return op.result

    def transform(self, call: Any, number: int, plan: WinogradPlan) -> None:
        """Transform the weights of a call before it, for Winograd's algorithm."""
        source, slot = call.operands[number], self.count % _SLOTS
        self.count += 1
        element, blocks = source.type.element_type, plan.outputs // plan.block_outputs
        into = ir.MemRefType.get([blocks, plan.weight_elements // blocks], element)
        flat = ir.MemRefType.get([plan.weight_elements], element)
        with ir.InsertionPoint(call), call.location:
            name = self._weights_kernel(source.type, into, plan, call.location)
            func.CallOp([], ir.FlatSymbolRefAttr.get(name), [source, self._view(into, slot, 0)])
            call.operands[number] = self._view(flat, slot, 0)

    def _weights_kernel(self, source: Any, into: Any, plan: WinogradPlan, location: Any) -> str:
        """The name of the kernel that transforms the weights of a convolution."""
        key = str(source), plan.weights
        if key in self.kernels:
            return self.kernels[key]
        name = self.kernels[key] = f"transform_{len(self.kernels)}"
        blocks = into.shape[0]
        shape = [blocks, plan.block_outputs, prod(source.shape) // plan.outputs]
        with ir.InsertionPoint(self.main), location:
            kernel = func.FuncOp(name, ([source, into], []), visibility="private")
            mark = Kernel.mark(kernel, work=_WEIGHT_WORK * plan.weight_elements, grid=(blocks,))
            mark.ins, mark.outs = 1, 1
            block = kernel.add_entry_block()
            with ir.InsertionPoint(block):
                weights, panels = block.arguments
                view = view_as(weights, ir.MemRefType.get(shape, source.element_type))
                emit_weight_transform(view, panels, plan.weights)
                func.ReturnOp([])
        return name

    def _kernel(self, source: Any, nr: int, first: int, end: int, location: Any) -> str:
        """The name of the kernel that packs steps [first, end) of k of a buffer of this type."""
        key = str(source), nr, first, end
        if key in self.kernels:
            return self.kernels[key]
        name = self.kernels[key] = f"pack_{len(self.kernels)}"
        k, elements = source.shape[0], prod(source.shape)
        count, depth = elements // k // nr, end - first
        type_ = ir.MemRefType.get([count, depth, nr], source.element_type)
        with ir.InsertionPoint(self.main), location:
            kernel = func.FuncOp(name, ([source, type_], []), visibility="private")
            mark = Kernel.mark(kernel, work=elements // k * depth, grid=(count, depth))
            mark.ins, mark.outs = 1, 1
            steps = max(min(depth, _STEPS), -(-depth // _PARTS))
            tile = ir.DenseI64ArrayAttr.get([count, steps])
            SCHEDULE.set(kernel, ir.DictAttr.get({"tile": tile}))
            block = kernel.add_entry_block()
            with ir.InsertionPoint(block):
                rows, into = block.arguments
                # The rows up to the end of the block: the view and its panels agree on k.
                view_type = ir.MemRefType.get([end, count, nr], source.element_type)
                _emit_packing(view_as(rows, view_type), first, into)
                func.ReturnOp([])
        return name

    def _rows_kernel(self, source: Any, into: Any, location: Any) -> str:
        """The name of the kernel that packs the rows of a buffer of this type."""
        key = str(source), str(into)
        if key in self.kernels:
            return self.kernels[key]
        name = self.kernels[key] = f"pack_{len(self.kernels)}"
        blocks, count, depth, nr = into.shape
        with ir.InsertionPoint(self.main), location:
            kernel = func.FuncOp(name, ([source, into], []), visibility="private")
            mark = Kernel.mark(kernel, work=prod(into.shape), grid=(blocks, count))
            mark.ins, mark.outs = 1, 1
            block = kernel.add_entry_block()
            with ir.InsertionPoint(block):
                rows, panels = block.arguments
                shape = [count, nr, blocks, depth]
                view_type = ir.MemRefType.get(shape, source.element_type)
                # into[block, panel, k, row] = rows[panel, row, block, k]
                _emit_copy(view_as(rows, view_type), panels, (1, 3, 0, 2))
                func.ReturnOp([])
        return name

    def finish(self) -> None:
        """Append the slots to the workspace."""
        if not self.uses:
            return
        main = Main(self.main)
        size = main.workspace
        starts = []
        for slot in self.sizes:
            starts.append(round_up(size, _ALIGNMENT))
            size = starts[-1] + slot
        workspace = list(self.main.entry_block.arguments)[-1]
        workspace.set_type(ir.MemRefType.get([size], ir.IntegerType.get_signless(8)))
        for slot, at, op in self.uses:
            with ir.InsertionPoint(op), op.location:
                op.operation.operands[1] = index(starts[slot] + at)
        set_argument_types(self.main, [])
        main.workspace = size


def _emit_packing(rows: Any, first: int, into: Any) -> None:
    """`into[panel, k, column] = rows[first + k, panel, column]`, as a linalg.generic."""
    panel, k, column = (ir.AffineExpr.get_dim(i) for i in range(3))
    _emit_generic(rows, into, ir.AffineMap.get(3, 0, [k + first, panel, column]))


def _emit_copy(source: Any, into: Any, order: tuple[int, ...]) -> None:
    """`into[...] = source[...]`, where axis `i` of the source is axis `order[i]` of the result."""
    dims = [ir.AffineExpr.get_dim(i) for i in order]
    _emit_generic(source, into, ir.AffineMap.get(len(order), 0, dims))


def _emit_generic(source: Any, into: Any, read: Any) -> None:
    rank = len(into.type.shape)
    maps = [read, ir.AffineMap.get_identity(rank)]
    generic = generic_op([], [source], [into], maps, ["parallel"] * rank)
    element = source.type.element_type
    block = generic.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        yield_op([block.arguments[0]])
