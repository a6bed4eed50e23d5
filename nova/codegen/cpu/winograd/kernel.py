"""Kernels that are a Winograd convolution and its epilogue: their tiles and their code.

Input: the schedule of a kernel with the attribute `nova.winograd`, which `pack-constants` and
`pack-operands` set with the weights that they transform. Output: the tile of the kernel's grid, and
the code of a range of tiles. nova/codegen/cpu/schedule.py calls it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.match_contraction import LoopContraction
from nova.codegen.cpu.tile_local_buffers import first_point
from nova.codegen.cpu.winograd.convolution import Block, Images, WinogradConvolution
from nova.codegen.cpu.winograd.plan import WinogradPlan, choose_size, make_plan
from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attributes import WINOGRAD
from nova.ir.bindings import arith, ir, scf
from nova.ir.buffers import buffer_root
from nova.ir.diagnostics import place_of
from nova.ir.index import Index, compare, index, sub
from nova.ir.symbolic.size_table import is_number

if TYPE_CHECKING:
    from nova.codegen.cpu.schedule import KernelSchedule

_A, _B, _C = range(3)


@record
class WinogradKernel:
    """The convolution of a kernel: its op, its contraction, its plan, and the loop over images."""

    op: Any
    contraction: LoopContraction
    plan: WinogradPlan
    images: int | None

    @property
    def is_first_fastest(self) -> bool:
        """Whether tiles are numbered with the first loop, over output channels, fastest."""
        return self.images is None and self.contraction.m < self.contraction.n

    def tile(self, grid: Sequence[int]) -> tuple[int, ...]:
        """The tile of the grid: a block of images or rows, and of output channels.

        The tiles of one block of images follow each other, so that its inputs are transformed once.
        A tile of a part of each of several images has all output channels.
        """
        plan, sizes = self.plan, list(grid)
        if self.images is not None:
            sizes[self.images] = plan.images
        if plan.has_whole_images or self.is_first_fastest:
            sizes[self.contraction.m] = plan.block_outputs
        if not plan.has_whole_images:
            sizes[self.contraction.n] = plan.tile_rows * plan.size * plan.width
        return tuple(min(size, extent) for size, extent in zip(sizes, grid, strict=True))


def find_convolution(schedule: KernelSchedule) -> tuple[Any, LoopContraction, int | None] | None:
    """The op, the contraction and the loop over images of a kernel that is one convolution.

    Ops after it may follow; a grid that is not (images,) outputs, positions has another schedule.
    """
    active = [op for op in schedule.nests if op not in schedule.skipped]
    if len(schedule.contractions) != 1 or not active or active[0] not in schedule.contractions:
        return None
    op, contraction = active[0], schedule.contractions[active[0]]
    loops = schedule.nests[op].loops
    outer = [i for i in contraction.enclosing if not is_number(loops[i].size, 1)]
    if contraction.spec.windows is None or len(outer) > 1 or schedule.overrides.concerns_gemm:
        return None
    if schedule.overrides.tile is not None or not is_number(loops[contraction.m].strides[_B], 0):
        return None
    images = outer[0] if outer else None
    loop_numbers = {contraction.m, contraction.n, *contraction.enclosing}
    if loop_numbers != set(range(len(schedule.grid))):
        return None
    if images is not None and not is_number(loops[images].strides[_A], 0):
        return None
    return op, contraction, images


def find_weights(
    schedule: KernelSchedule, kernel: Any, knob: str, constants: Collection[int] | None = None
) -> tuple[int, WinogradPlan] | None:
    """The argument with weights that a convolution should read transformed, and its plan.

    With `constants`, only these arguments. None where another schedule is faster, or the kernel has
    none of this kind.
    """
    match = find_convolution(schedule)
    if match is None:
        return None
    op, contraction, images = match
    nest, arguments, weights = (
        schedule.nests[op],
        list(kernel.entry_block.arguments),
        op.operands[_A],
    )
    if weights not in arguments or len(list(weights.uses)) != 1 or nest.offsets[_A] != 0:
        return None
    number, spec = arguments.index(weights), contraction.spec
    if constants is not None and number not in constants:
        return None
    if prod(weights.type.shape) != spec.m * spec.k:
        return None
    batch = 1 if images is None else nest.loops[images].size
    size = choose_size(schedule.target, spec, batch, knob, constant=constants is not None)
    plan = None if size is None else make_plan(schedule.target, spec, batch, size)
    return None if plan is None else (number, plan)


def find_winograd(schedule: KernelSchedule, kernel: Any) -> WinogradKernel | None:
    """The convolution of a kernel whose weights are transformed; None for other kernels."""
    rows = WINOGRAD.find(kernel)
    if not rows:
        return None
    [(argument, size)] = rows
    match = find_convolution(schedule)
    if match is not None:
        op, contraction, images = match
        batch = 1 if images is None else schedule.nests[op].loops[images].size
        plan = make_plan(schedule.target, contraction.spec, batch, size)
        weights = kernel.entry_block.arguments[argument]
        if plan is not None and buffer_root(op.operands[_A]) == weights:
            return WinogradKernel(op, contraction, plan, images)
    raise LoweringError(
        f"@{kernel.name.value} has weights transformed for another schedule than its own",
        where=place_of(kernel.location),
        hint=f"run pack-constants for the same target, with the same {WINOGRAD.name}",
    )


def emit_winograd(schedule: KernelSchedule, kernel: WinogradKernel, begin: Any, end: Any) -> None:
    """Emit the code of tiles [begin, end) at the insertion point."""
    nest, contraction = schedule.nests[kernel.op], kernel.contraction
    image, weights, out = (schedule.flat_buffer(kernel.op.operands[i]) for i in (_B, _A, _C))
    epilogue = [op for op in schedule.nests if op not in schedule.skipped and op is not kernel.op]
    tiles = scf.ForOp(begin, end, index(1))
    with ir.InsertionPoint(tiles.body), kernel.op.location:
        tile = tiles.induction_variable
        ranges = schedule.tile_ranges(tile)

        def span(loop: int | None) -> tuple[Index, Index]:
            if loop is None:
                return 0, 1
            return ranges[loop] or (0, nest.loops[loop].size)

        offset: Index = nest.offsets[_C]
        if _C in schedule.tile_local.operands(nest):
            first = first_point(nest, _C, ranges)
            offset = offset if first is None else sub(offset, first)
        convolution = WinogradConvolution(
            schedule.target,
            kernel.plan,
            _images(kernel, nest, _B, image, nest.offsets[_B]),
            weights,
            _images(kernel, nest, _C, out, offset),
        )
        block = Block(span(kernel.images), span(contraction.m), span(contraction.n))
        is_new = arith.ori(
            compare(arith.CmpIPredicate.eq, tile, begin),
            compare(arith.CmpIPredicate.eq, block.outputs[0], 0),
        )

        def emit_epilogue(low: Any, high: Any) -> None:
            part = [(low, high) if i == contraction.m else r for i, r in enumerate(ranges)]
            schedule.emit_epilogue(epilogue, part, ranges)

        convolution.emit(block, is_new, emit_epilogue)
        scf.YieldOp([])


def _images(
    kernel: WinogradKernel, nest: LoopNest, operand: int, buffer: Any, offset: Index
) -> Images:
    """The inputs or the outputs of the convolution in memory."""
    windows, loops = kernel.contraction.spec.windows, nest.loops
    assert windows is not None
    stride = 0 if kernel.images is None else loops[kernel.images].strides[operand]
    if operand == _B:
        return Images(buffer, offset, stride, windows.strides[0], windows.row_stride)
    channels = loops[kernel.contraction.m].strides[operand]
    return Images(buffer, offset, stride, channels, kernel.plan.width)
