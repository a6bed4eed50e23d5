"""Kernels that are one GEMM and its epilogue, by warpgroup matmuls (Hopper, sm_90a).

Input: the match of `nova/codegen/gpu/gemm/kernel.py`. Output: the strategy `WGMMA_GEMM`, which
`schedule.py` tries before `GEMM`. It has a plan where the copy engine can read both operands, and
where it is estimated to be faster than `mma.sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.index_math import at
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.match_contraction import LoopContraction
from nova.codegen.gpu.block_ops import ThreadPosition
from nova.codegen.gpu.device_kernel import DeviceKernel, is_tile_local, is_updated
from nova.codegen.gpu.gemm.kernel import GemmMatch, match_gemm
from nova.codegen.gpu.gemm.select_plan import estimated_cycles, limits, plan_gemm
from nova.codegen.gpu.pointwise.elementwise import ThreadVector, first_positions
from nova.codegen.gpu.ptx_ops import global_base, prefetch, word
from nova.codegen.gpu.strategy import Strategy
from nova.codegen.gpu.tasks.block_tiles import BlockDim, gemm_tiles
from nova.codegen.gpu.wgmma import instructions as ptx
from nova.codegen.gpu.wgmma.boxes import clamped_positions, inner_box
from nova.codegen.gpu.wgmma.epilogue import (
    CHUNK_COLUMNS,
    FragmentCode,
    Output,
    Prefetch,
    TileStore,
    element_size,
)
from nova.codegen.gpu.wgmma.mainloop import TilePosition, aligned_base, emit_block
from nova.codegen.gpu.wgmma.plan import (
    ELEMENTS,
    ROW_BYTES,
    TILES,
    WgmmaPlan,
    parse_tiles,
    plan_wgmma,
    why_not_wgmma,
)
from nova.errors import LoweringError
from nova.ir.bindings import arith, ir
from nova.ir.buffers import buffer_root
from nova.ir.diagnostics import place_of
from nova.ir.index import Index, index
from nova.ir.linalg.generic import shape_of
from nova.ir.symbolic.size_table import Extent, is_number
from nova.ir.tensor_maps import ELEMENTS as MAPPED
from nova.ir.tensor_maps import MOST_RANK, TensorMap, can_map

ARCH = "sm_90a"
"""The architecture with wgmma: its code runs on no other."""
_EARLY_REGISTERS = 32
"""Registers of a thread for operands of 64 columns of the epilogue; it has twice as many."""
_AHEAD_REGISTERS = 48
"""Registers for operands of later columns: those of sums are free as soon as these are stored."""


@dataclass(frozen=True)
class WgmmaKernelPlan:
    """A GEMM kernel, its plan, and its results."""

    match: GemmMatch
    gemm: WgmmaPlan
    outputs: tuple[Output, ...]
    early: tuple[bool, bool] = (False, False)
    """Operands of the plan that no launch writes: copied before the launches before it end."""

    @property
    def is_early(self) -> bool:
        return any(self.early)

    @property
    def blocks(self) -> Extent:
        return self.gemm.blocks

    @property
    def threads(self) -> int:
        return self.gemm.threads

    @property
    def min_blocks_per_sm(self) -> int:
        """Launch bounds: `setmaxnreg` needs to know the registers at entry.

        One consumer needs few, and leaves room for blocks of the launches before and after.
        """
        return 1 if self.gemm.tile.consumers > 1 else 2

    @property
    def cluster(self) -> int:
        return self.gemm.cluster

    @property
    def tensor_maps(self) -> tuple[TensorMap, ...]:
        """The maps of A and B, then those of the results, in the order of the parameters."""
        results = (output.map for output in self.outputs if output.map is not None)
        return (self.gemm.lhs.map, self.gemm.rhs.map, *results)


def plan_wgmma_kernel(kernel: DeviceKernel, match: GemmMatch) -> WgmmaKernelPlan | None:
    """The plan, if the target has wgmma and it is estimated to be faster than `mma.sync`.

    The knob `gpu_gemm` may override the estimate; a matmul of 16-bit floats that the override does
    not apply to is an error.
    """
    if kernel.target.cpu != ARCH:
        return None
    plan = _choose_plan(kernel, match)
    if not isinstance(plan, str):
        return plan
    spec = match.gemm.contraction
    if not kernel.gpu_gemm.startswith("wgmma") or spec.a_type not in ELEMENTS:
        return None
    function = kernel.function
    raise LoweringError(
        f"@{function.name.value}: no warpgroup GEMM ({kernel.gpu_gemm}) of {spec.m} x {spec.n} x "
        f"{spec.k}: {plan}",
        where=place_of(function.location),
        hint="set the knob gpu_gemm to auto or mma",
    )


def _choose_plan(kernel: DeviceKernel, match: GemmMatch) -> WgmmaKernelPlan | str:
    """The plan, or the reason why `mma.sync` computes this GEMM."""
    numbers = {value: i for i, value in enumerate(kernel.function.entry_block.arguments)}
    operands = [buffer_root(value) for value in list(match.op.operands)[:2]]
    if any(root not in numbers for root in operands):
        return "an operand is not an argument of the kernel"
    arguments = numbers[operands[0]], numbers[operands[1]]
    processors, _ = limits(kernel.target.cpu)
    tiles = parse_tiles(kernel.gpu_gemm)
    if _reads_results(kernel):
        tiles = tuple(tile for tile in (TILES if tiles is None else tiles) if tile.split == 1)
    elements = prod(shape_of(operands[0])), prod(shape_of(operands[1]))
    plan = plan_wgmma(match.gemm, arguments, processors, tiles, elements)
    if plan is None:
        return why_not_wgmma(match.gemm, arguments, tiles, elements)
    if kernel.gpu_gemm == "auto":
        other = plan_gemm(match.gemm, kernel.target.cpu, precision=kernel.matmul_precision)
        if estimated_cycles(other, processors) <= plan.cycles:
            return "it is estimated to be slower"
    outputs = _outputs(kernel, match, plan, numbers)
    if outputs is None:
        return "a result is written with two different accesses, or not in boxes"
    values = list(match.op.operands)[:2]
    early = [kernel.is_unwritten(value) and plan.tile.cluster == 1 for value in values]
    if plan.swapped:
        early.reverse()
    return WgmmaKernelPlan(match, plan, outputs, (early[0], early[1]))


def emit_wgmma_kernel(
    kernel: DeviceKernel, plan: WgmmaKernelPlan, position: ThreadPosition
) -> None:
    """Emit the GEMM of a block, with the other ops of the kernel as its epilogue."""
    match, gemm, grid_rank = plan.match, plan.gemm, kernel.grid_rank
    contraction = match.contraction
    flat = kernel.flat_buffers()
    buffers = {op: [flat(v) for v in op.operands] for op in kernel.ops}
    results = {output.root for output in plan.outputs}
    along = contraction.m if gemm.swapped else contraction.n
    early = _early_operands(kernel, match, along)

    def counters_at(tile: TilePosition, row: Index, column: Index) -> list[Any]:
        counters: list[Any] = [None] * grid_rank
        if gemm.swapped:
            row, column = column, row
        counters[contraction.m], counters[contraction.n] = index(row), index(column)
        enclosing: Sequence[Index] = tile.enclosing
        if gemm.boxed is not None:
            enclosing = clamped_positions(gemm.boxed.rows, enclosing, row)
        for number, counter in zip(_enclosing(gemm, contraction), enclosing, strict=True):
            if number < grid_rank:
                counters[number] = index(counter)
        return counters

    def load_early(code: FragmentCode, tile: TilePosition, row: Index, column: Index) -> None:
        counters = counters_at(tile, row, column)
        for op, read in early.items():
            with op.location:
                code.load_early(kernel.nests[op], buffers[op], counters, read)

    def make_prefetch(op: Any, number: int) -> Prefetch:
        nest, buffer = kernel.nests[op], buffers[op][number]

        def emit_prefetch(tile: TilePosition, row: Index, column: Index) -> None:
            position = first_positions(nest, counters_at(tile, row, column))[number]
            prefetch(buffer, at(position), element_size(nest.generic.inputs[number]))

        return emit_prefetch

    def emit_ops(
        code: FragmentCode, tile: TilePosition, row: Index, column: Index, values: list[Any]
    ) -> None:
        counters = counters_at(tile, row, column)
        for op in kernel.ops:
            if match.fill is not None and op == match.fill:
                continue
            with op.location:
                if op == match.op:
                    adds = contraction.spec.accumulate
                    code.store_results(kernel.nests[op], buffers[op], counters, values, adds=adds)
                else:
                    code.emit(kernel.nests[op], buffers[op], counters, {})

    def make_code(width: int) -> FragmentCode:
        vector = ThreadVector(along, width) if width > 1 else None
        return FragmentCode(grid_rank, vector, results)

    a, b = buffers[match.op][:2]
    sides = (b, a) if gemm.swapped else (a, b)
    maps = [_map_address(number, buffer) for number, buffer in enumerate(sides)]
    staged = [output for output in plan.outputs if output.map is not None]
    roots = {output.root: flat(output.root) for output in plan.outputs}
    result_maps = {
        output.root: _map_address(2 + number, roots[output.root])
        for number, output in enumerate(staged)
    }
    pieces = arith.addi(aligned_base(), word(gemm.pieces_offset))
    prefetches = tuple(
        (element_size(kernel.nests[op].generic.inputs[number]), make_prefetch(op, number))
        for op, numbers in early.items()
        for number in numbers
        if gemm.boxed is None and _is_matrix(kernel.nests[op], number, along)
    )
    store = TileStore(
        gemm,
        plan.outputs,
        result_maps,
        roots,
        make_code,
        load_early,
        emit_ops,
        pieces,
        prefetches,
        _chunks_ahead(kernel, early, along),
    )
    emit_block(
        gemm,
        (maps[0], maps[1]),
        store.begin,
        store.finish,
        block=position.block,
        thread=position.thread,
        early=plan.early,
    )
    kernel.shared.size = gemm.shared_bytes


def _tiles(kernel: DeviceKernel, plan: WgmmaKernelPlan) -> list[BlockDim] | None:
    gemm = plan.gemm
    # The blocks of a cluster share a tile, or have tiles of one column.
    if gemm.cluster > 1 or gemm.boxed is not None:
        return None
    return gemm_tiles(gemm, plan.match.contraction, gemm.tile.rows, gemm.tile.columns)


WGMMA_GEMM = Strategy("wgmma_gemm", match_gemm, plan_wgmma_kernel, emit_wgmma_kernel, _tiles)


def _early_operands(kernel: DeviceKernel, match: GemmMatch, along: int) -> dict[Any, list[int]]:
    """The inputs of each op of the epilogue that no op of the kernel writes, or it itself in place.

    As many as fit into the registers that the accumulators leave.
    """
    written = {buffer_root(v) for op in kernel.ops for v in kernel.nests[op].generic.outputs}
    registers, early = 0, {}
    for op in kernel.ops:
        if op in (match.op, match.fill):
            continue
        nest, numbers = kernel.nests[op], []
        for number, value in enumerate(nest.generic.inputs):
            if not isinstance(value.type, ir.MemRefType):
                continue
            if buffer_root(value) in written and not is_updated(kernel, op, number):
                continue
            needed = _chunk_registers(nest, number, along)
            if registers + needed <= _EARLY_REGISTERS:
                registers += needed
                numbers.append(number)
        early[op] = numbers
    return early


def _chunk_registers(nest: LoopNest, number: int, along: int) -> int:
    """The registers of a thread for an input of an op, in 64 columns."""
    across = [loop for i, loop in enumerate(nest.loops) if i != along]
    is_row = all(is_number(loop.strides[number], 0) for loop in across)
    size = element_size(nest.generic.inputs[number])
    return CHUNK_COLUMNS // (4 if is_row else 2) * size // 4


def _chunks_ahead(kernel: DeviceKernel, early: dict[Any, list[int]], along: int) -> int:
    """Chunks of columns whose operands fit into registers while one is computed."""
    registers = sum(
        _chunk_registers(kernel.nests[op], number, along)
        for op, numbers in early.items()
        for number in numbers
    )
    return max(1, _AHEAD_REGISTERS // max(1, registers))


def _is_matrix(nest: LoopNest, number: int, along: int) -> bool:
    """Whether an operand has rows of adjacent elements along C, which differ from row to row."""
    others = (loop for i, loop in enumerate(nest.loops) if i != along)
    is_row = all(is_number(loop.strides[number], 0) for loop in others)
    return is_number(nest.loops[along].strides[number], 1) and not is_row


def _map_address(number: int, buffer: Any) -> ir.Value:
    base = arith.index_cast(ir.IntegerType.get_signless(64), global_base(buffer))
    return ptx.tensor_map(number, base)


def _reads_results(kernel: DeviceKernel) -> bool:
    """Whether an op reads the old contents of a buffer that the kernel writes: updates in place.

    The blocks of a cluster that divide k store their parts of a result at different times.
    """
    written: set[Any] = set()
    for op in kernel.ops:
        generic = kernel.nests[op].generic
        if any(root in kernel.results - written for root in map(buffer_root, generic.inputs)):
            return True
        written.update(map(buffer_root, generic.outputs))
    return False


def _outputs(
    kernel: DeviceKernel, match: GemmMatch, plan: WgmmaPlan, numbers: dict[Any, int]
) -> tuple[Output, ...] | None:
    """The results of the kernel; None if one of them is written with two different accesses."""
    outputs: dict[Any, Output] = {}
    for op in kernel.ops:
        if match.fill is not None and op == match.fill:
            continue
        nest = kernel.global_nests[op]
        first = nest.generic.num_inputs
        for operand, value in enumerate(list(op.operands)[first:], first):
            root = buffer_root(value)
            if is_tile_local(root) or root not in kernel.results:
                continue
            output = _output(kernel, match, plan, op, operand, root, numbers[root])
            if output is None or outputs.setdefault(root, output) != output:
                return None
    return tuple(outputs.values())


def _output(
    kernel: DeviceKernel,
    match: GemmMatch,
    plan: WgmmaPlan,
    op: Any,
    operand: int,
    root: Any,
    argument: int,
) -> Output | None:
    nest, contraction = kernel.global_nests[op], match.contraction
    loops = [contraction.m, contraction.n]
    if plan.swapped:
        loops.reverse()
    row_stride, column_stride = (nest.loops[i].strides[operand] for i in loops)
    strides = tuple(
        nest.loops[i].strides[operand] if i < kernel.grid_rank else 0
        for i in _enclosing(plan, contraction)
    )
    size, element = element_size(root), str(root.type.element_type)
    offset = nest.offsets[operand]
    if plan.boxed is not None and plan.boxed.rows:
        return _boxed_output(plan, root, argument, offset, column_stride, strides)
    dimensions = tuple(
        i
        for i, loop in enumerate(plan.gemm.enclosing)
        if loop.parallel and not is_number(loop.size, 0, 1)
    )
    outer = (row_stride, *(strides[i] for i in dimensions))
    spec = plan.gemm.contraction
    output = Output(root, size, offset, row_stride, column_stride, strides)
    fits = is_number(column_stride, 1) and len(outer) < MOST_RANK and can_map(size, offset, outer)
    has_boxes = size in (2, 4) and plan.part_columns >= ROW_BYTES // size
    if not fits or element not in MAPPED or not has_boxes:
        return output
    tensor = TensorMap(
        argument,
        offset * size,
        element,
        (spec.n, spec.m, *(plan.gemm.enclosing[i].size for i in dimensions)),
        tuple(stride * size for stride in outer),
        (ROW_BYTES // size, 64, *(1,) * len(dimensions)),
    )
    return Output(root, size, offset, row_stride, column_stride, strides, tensor, dimensions)


def _boxed_output(
    plan: WgmmaPlan,
    root: Any,
    argument: int,
    offset: Extent,
    column_stride: Extent,
    strides: tuple[Extent, ...],
) -> Output | None:
    """A result whose rows are boxes of several loops: it is stored in boxes, or not at all."""
    assert plan.boxed is not None
    size, element = element_size(root), str(root.type.element_type)
    axes = plan.boxed.rows
    others = [
        i
        for i, loop in enumerate(plan.gemm.enclosing)
        if loop.parallel and not is_number(loop.size, 1) and i not in {axis.loop for axis in axes}
    ]
    loops = (*(axis.loop for axis in axes), *others)
    outer = tuple(strides[i] for i in loops)
    fits = is_number(column_stride, 1) and len(outer) < MOST_RANK and can_map(size, offset, outer)
    if not fits or element not in MAPPED or size not in (2, 4):
        return None
    tensor = TensorMap(
        argument,
        offset * size,
        element,
        (
            plan.gemm.contraction.n,
            *(axis.size for axis in axes),
            *(plan.gemm.enclosing[i].size for i in others),
        ),
        tuple(stride * size for stride in outer),
        (ROW_BYTES // size, *inner_box(axes, 64), *(1,) * len(others)),
    )
    return Output(root, size, offset, 0, column_stride, strides, tensor, loops)


def _enclosing(plan: WgmmaPlan, contraction: LoopContraction) -> tuple[int, ...]:
    """The loops of the kernel that are the enclosing loops of a plan."""
    if plan.boxed is None:
        return contraction.enclosing
    return (*contraction.enclosing, contraction.m if plan.boxed.rows else contraction.k)
