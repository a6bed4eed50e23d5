"""A block of a Winograd convolution: transformed inputs, matmuls, transformed outputs.

Input: a `WinogradPlan`, flat buffers, and the ranges of images, output channels and positions of a
block. Output: calls of functions of the module. nova/codegen/cpu/schedule.py calls it for each tile
of a kernel, and emits the epilogue after each block of output channels.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.codegen.common.builder import loop, splat, store_vector, vector_type
from nova.codegen.cpu.gemm.microkernel import Microkernel
from nova.codegen.cpu.gemm.packed_layout import ELEMENTS
from nova.codegen.cpu.gemm.store_tile import StridedMatrix
from nova.codegen.cpu.gemm.word_dot import WordDot
from nova.codegen.cpu.shared_functions import entry_alloca
from nova.codegen.cpu.winograd.input_transform import InputChannels, transform_inputs
from nova.codegen.cpu.winograd.matrices import TAPS
from nova.codegen.cpu.winograd.output_transform import transform_outputs
from nova.codegen.cpu.winograd.plan import WinogradPlan
from nova.codegen.cpu.winograd.tiles import TileRows
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import ir, scf
from nova.ir.index import Index, add, divide, divide_up, index, mul, sub

_TYPE = "f32"


@record
class Images:
    """Images in a flat buffer; strides in elements."""

    buffer: ir.Value
    offset: Index
    image_stride: Index
    channel_stride: Index
    row_stride: Index


@record
class Block:
    """The ranges of a block: images, output channels, and positions (whole rows of tiles)."""

    images: tuple[Index, Index]
    outputs: tuple[Index, Index]
    positions: tuple[Index, Index]


class WinogradConvolution:
    """Emits the blocks of one convolution; its buffers are allocated once."""

    def __init__(
        self, target: Target, plan: WinogradPlan, inputs: Images, weights: ir.Value, outputs: Images
    ):
        self.target, self.plan = target, plan
        self.inputs, self.weights, self.outputs = inputs, weights, outputs
        self.transformed = entry_alloca(plan.matrices * plan.input_stride, _TYPE)
        self.sums = entry_alloca(plan.matrices * plan.sum_stride, _TYPE)
        self.zeros = entry_alloca(plan.nr, _TYPE)
        with ir.InsertionPoint.after(self.zeros.owner):
            for at in range(0, plan.nr, plan.vl):
                store_vector(splat(vector_type(_TYPE, plan.vl), 0.0), self.zeros, index(at))

    def emit(
        self, block: Block, is_new: ir.Value, epilogue: Callable[[Index, Index], None]
    ) -> None:
        """Emit a block; inputs are transformed where `is_new`, else those of the last block stay.

        `epilogue` emits the ops on a range of output channels, after they are computed.
        """
        branch = scf.IfOp(is_new)
        with ir.InsertionPoint(branch.then_block):
            self._transform_inputs(block)
            scf.YieldOp([])
        low, high = block.outputs
        with loop(low, high, self.plan.block_outputs) as first:
            self._multiply(first)
            self._transform_outputs(block, first)
            epilogue(first, index(add(first, self.plan.block_outputs)))

    def _tile_rows(self, block: Block, images: Images, border: int) -> TileRows:
        """The rows of tiles of a block, in images with a border around their positions."""
        plan = self.plan
        (low, high), (start, end) = block.images, block.positions
        first, last = divide(start, plan.width), divide(end, plan.width)
        of_image = divide_up(sub(last, first), plan.size)
        at = add(mul(low, images.image_stride), mul(first, images.row_stride))
        height, width = sub(plan.height + border, first), plan.width + border
        count = mul(sub(high, low), of_image)
        strides = images.image_stride, images.row_stride
        return TileRows(add(images.offset, at), *strides, count, of_image, height, width)

    def _transform_inputs(self, block: Block) -> None:
        plan, images = self.plan, self.inputs
        rows = self._tile_rows(block, images, TAPS - 1)
        for part in range(plan.channels // plan.depth):
            step = mul(part * plan.depth, images.channel_stride)
            moved = TileRows(add(rows.offset, step), *rows.numbers[1:])
            channels = InputChannels(images.channel_stride, plan.depth)
            start = part * plan.depth * plan.lanes
            transform_inputs(
                self.target, plan, images.buffer, self.transformed, moved, channels, start
            )

    def _multiply(self, first: Index) -> None:
        """Multiply the transformed weights of output channels from `first` on."""
        plan = self.plan
        kernel = Microkernel(self.target, _TYPE, plan.mr, plan.nv, WordDot(ELEMENTS, _TYPE, _TYPE))
        number = divide(first, plan.block_outputs)
        start = mul(number, plan.matrices * plan.weight_stride)
        with loop(0, plan.matrices, 1) as p:
            c = StridedMatrix(self.sums, mul(p, plan.sum_stride), plan.lanes, 1)
            old = StridedMatrix(self.zeros, 0, 0, 0)
            for part in range(plan.channels // plan.depth):
                k = part * plan.depth
                a_at = add(start, add(mul(p, plan.weight_stride), k * plan.block_outputs))
                b_at = add(mul(p, plan.input_stride), k * plan.lanes)
                sizes = plan.block_outputs, plan.lanes, plan.depth
                kernel.multiply(self.weights, self.transformed, c, old, *sizes, b_at, a_at)
                old = c

    def _transform_outputs(self, block: Block, first: Index) -> None:
        images = self.outputs
        rows = self._tile_rows(block, images, 0)
        step = mul(first, images.channel_stride)
        moved = TileRows(add(rows.offset, step), *rows.numbers[1:])
        transform_outputs(
            self.target, self.plan, self.sums, images.buffer, moved, images.channel_stride
        )
