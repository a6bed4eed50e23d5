"""The weights of Winograd convolutions, G g G^T, in the panels that the microkernel reads.

The layout: for each block of output channels the matrices follow each other, each cut into blocks
of input channels, and these into micropanels `[input channel][output channel]`. The compiler
transforms constants (`transform_array`), in f64, which rounds them once. Other weights are
transformed in each run (`transform_weights`), by the kernels of `pack-operands`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nova.codegen.common.builder import load_vector, loop, store_vector, vector_type
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.gemm.packing import Block, pack
from nova.codegen.cpu.loops import Range
from nova.codegen.cpu.shared_functions import call_shared, entry_alloca
from nova.codegen.cpu.winograd.matrices import TAPS, emit_product, matrices
from nova.codegen.cpu.winograd.plan import WinogradPlan
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import ir
from nova.ir.index import Index, add, index, mul
from nova.ir.linalg.winograd import WeightSpec

_TYPE = "f32"


def transform_array(flat: np.ndarray, plan: WinogradPlan) -> np.ndarray:
    """The transformed weights of a constant, whose elements are (output, input, y, x)."""
    blocks = plan.outputs // plan.block_outputs, plan.block_outputs // plan.mr, plan.mr
    taps = flat.reshape(*blocks, plan.channels // plan.depth, plan.depth, TAPS**2)
    # The taps first: the rest of the elements have the order of a matrix of the result.
    columns = taps.transpose(0, 5, 3, 1, 4, 2).reshape(blocks[0], TAPS**2, -1)
    factors = np.array(matrices(plan.size).weights, dtype=np.float64)
    padded = np.zeros((blocks[0], plan.matrices, plan.weight_stride), flat.dtype)
    # Block after block: numbers in f64 stay in a cache.
    for block, into in zip(columns, padded, strict=True):
        into[:, : block.shape[-1]] = np.kron(factors, factors) @ block
    return padded.reshape(-1)


def transform_weights(
    target: Target,
    spec: WeightSpec,
    nest: LoopNest,
    buffers: Sequence[ir.Value],
    ranges: Sequence[Range | None],
) -> None:
    """Emit the transform of blocks of output channels; `ranges` are those of the grid.

    The rows of a micropanel are packed as those of a matmul, `[input channel, tap][output
    channel]`: then vectors run over output channels.
    """
    weights, into = buffers
    low, high = (ranges[0] if ranges else None) or (0, nest.loops[0].size)
    taps, side = TAPS**2, spec.size + TAPS - 1
    row = spec.channels * taps
    packed = entry_alloca(spec.depth * taps * spec.mr + target.lanes(32), _TYPE)
    panels = spec.block_outputs // spec.mr, spec.channels // spec.depth
    with loop(low, high, 1) as b, loop(0, panels[0], 1) as i, loop(0, panels[1], 1) as part:
        first = mul(add(mul(b, spec.block_outputs), mul(i, spec.mr)), row)
        offset = add(nest.offsets[0], add(first, mul(part, spec.depth * taps)))
        depth = spec.depth * taps
        block = Block(weights, _TYPE, offset, row, 1, spec.mr, depth)
        pack(target, _TYPE, block, spec.mr, depth, packed)
        at = add(mul(b, side**2 * spec.stride), mul(part, spec.depth * spec.block_outputs))
        at = add(nest.offsets[1], add(at, mul(i, spec.depth * spec.mr)))
        _call_transform(target, spec, packed, into, at)


def _call_transform(
    target: Target, spec: WeightSpec, packed: ir.Value, into: ir.Value, at: Index
) -> None:
    """Transform a packed micropanel to micropanels of all matrices, from `at` on."""

    def body(source: ir.Value, out: ir.Value, *numbers: ir.Value) -> None:
        start, step, depth = numbers
        with loop(0, depth, 1) as c:
            transform = _WeightTransform(target, spec, source, out, step)
            transform.emit(mul(c, TAPS**2 * spec.mr), add(start, mul(c, spec.mr)))

    name = f"nova_winograd_weights_{spec.size}_{spec.mr}"
    numbers = [index(n) for n in (at, spec.stride, spec.depth)]
    call_shared(name, (packed, into), numbers, 2, body)


@record
class _WeightTransform:
    """The body of the function: the taps of one input channel."""

    target: Target
    spec: WeightSpec
    source: ir.Value
    out: ir.Value
    stride: Index

    def emit(self, at: Index, into: Index) -> None:
        matrix, mr = matrices(self.spec.size).weights, self.spec.mr
        type_ = vector_type(_TYPE, mr)
        rows = []
        for y in range(TAPS):
            places = [index(add(at, (y * TAPS + x) * mr)) for x in range(TAPS)]
            taps = [load_vector(type_, self.source, place) for place in places]
            rows.append(emit_product(self.target, matrix, taps))
        for j in range(len(matrix)):
            column = emit_product(self.target, matrix, [row[j] for row in rows])
            for i, value in enumerate(column):
                place = add(into, mul(i * len(matrix) + j, self.stride))
                store_vector(value, self.out, index(place))
