"""Plans of warpgroup GEMMs (Hopper's wgmma and TMA), as records: pure arithmetic, no code.

Input: the `GemmMatch` of a kernel. Output: a `WgmmaPlan`, or None where `mma.sync` is faster or the
copy engine cannot read an operand. `kernel.py` emits the code of a block from the plan.

C is cut into tiles; one block per multiprocessor computes tile after tile (a persistent kernel, as
in CUTLASS). A producer warp copies boxes of both operands into a ring of stages; two consumer
warpgroups multiply them, each half of the rows of the tile. The smallest tiles have one consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from nova.codegen.common.builder import BITS
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.gpu.gemm.plan import EnclosingLoop, GpuGemm, transposed
from nova.codegen.gpu.wgmma.boxes import (
    BoxedGemm,
    Term,
    are_disjoint,
    box_rows,
    box_steps,
    find_dimensions,
)
from nova.core.sizes import ceildiv, is_static_shape, size_min
from nova.ir.mathlib.f8_formats import FORMATS
from nova.ir.symbolic.size_table import Extent, is_number, typical
from nova.ir.tensor_maps import MOST_BOX, MOST_RANK, TensorMap, can_map

ELEMENTS_16 = ("bf16", "f16")
ELEMENTS_8 = tuple(FORMATS)
"""8-bit floats: both operands run along k, and may have different types."""
ELEMENTS = (*ELEMENTS_16, *ELEMENTS_8)
MOST_CONSUMERS = 2
"""Warpgroups that multiply: each has 64 rows of a tile, or 128."""
ROW_BYTES = 128
"""Bytes of a row of a box: the swizzle permutes chunks within them."""
STEP_BYTES = 32
"""Bytes of k that one instruction multiplies."""
BOX_COLUMNS = 64
"""Columns of a box of an operand that does not run along k: elements of two bytes."""
PIECE_BYTES = 64 * ROW_BYTES
"""Bytes of a box of C in shared memory: 64 rows."""
PIECES = 2
"""Buffers of each consumer for boxes of C."""
_MOST_SHARED = 227 << 10
_RESERVED = 2048
"""Bytes of shared memory for barriers, and to align the stages."""


@dataclass(frozen=True)
class Tile:
    """A tile of C, the stages of its ring, and the blocks of a cluster.

    Blocks of a cluster have tiles with the same columns (`cluster`), or divide the steps of k of
    one tile (`split`), not both.
    """

    rows: int
    columns: int
    stages: int
    cluster: int = 1
    split: int = 1

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return min(MOST_CONSUMERS, self.rows // 64)


# Many widths, so that the tiles of a GEMM with few of them fill the multiprocessors. The smallest
# ones are for GEMMs of one wave: two of their blocks fit on a multiprocessor, so that those of the
# next launch copy their weights before this one ends.
TILES: tuple[Tile, ...] = (
    Tile(128, 256, 4, cluster=2),
    Tile(128, 256, 4),
    Tile(256, 128, 4),
    Tile(128, 192, 4),
    Tile(128, 160, 4),
    Tile(128, 144, 4),
    Tile(128, 128, 6),
    Tile(128, 96, 6),
    Tile(128, 64, 8),
    Tile(128, 256, 4, split=2),
    Tile(128, 256, 4, split=4),
    Tile(128, 192, 4, split=2),
    Tile(128, 192, 4, split=4),
    Tile(128, 128, 6, split=2),
    Tile(128, 128, 6, split=4),
    Tile(128, 64, 8, split=2),
    Tile(128, 64, 8, split=4),
    Tile(64, 64, 5),
    Tile(64, 64, 5, split=2),
    Tile(64, 64, 5, split=4),
)

_CLUSTERS = {1: 132, 2: 66, 4: 28}
"""Blocks of a cluster -> clusters that run concurrently on 132 multiprocessors."""

# Rates in units of the cost model of `mma.sync`, measured on an H200 (benchmarks/gpu/wgmma.py time
# --tiles): multiply-adds per cycle of large tiles, of smaller ones, which read shared memory more
# often, and of those with one consumer, whose matmuls wait for each other; and bytes per cycle of
# the L2 cache, 11 TB/s.
_MULTIPLY_ADDS, _LARGE = {True: 2850, False: 2700}, 128 * 192
_ONE_CONSUMER = 1830
_CACHE_BYTES = 12_300
_LAUNCH, _EXCHANGE = 1800, 1000


@dataclass(frozen=True)
class WgmmaOperand:
    """A or B: rows (or columns) and k of a tile, and the map of its boxes."""

    along_k: bool
    """Whether its rows run along k (K-major), or along the rows or columns of C (MN-major)."""
    outer: int
    """Rows (or columns) of a tile that this block copies, in whole boxes."""
    map: TensorMap
    terms: tuple[tuple[Term, ...], ...]
    """The enclosing loops that move each of its last dimensions."""
    period: int = 0
    """Elements of its first dimension, after which the next position of the second one begins."""

    @property
    def boxes(self) -> int:
        """Boxes of a stage: the map's box is 64 elements wide where rows do not run along k."""
        return self.outer // (prod(self.map.box[1:]) if self.along_k else self.map.box[0])


@dataclass(frozen=True)
class WgmmaPlan:
    """A GEMM and its tiles; with `swapped`, that of the transposed matrices."""

    gemm: GpuGemm
    swapped: bool
    elements: tuple[str, str]
    """The types of A and B, of one size."""
    tile: Tile
    lhs: WgmmaOperand
    rhs: WgmmaOperand
    group: int
    """Rows of tiles that are visited together, so that their operands stay in the L2 cache."""
    processors: int
    boxed: BoxedGemm | None = None
    """Where a tile of rows, or a stage, is a box of several loops."""

    @property
    def depth(self) -> int:
        """Steps of k of a stage."""
        return ROW_BYTES * 8 // BITS[self.elements[0]]

    @property
    def tiles(self) -> tuple[Extent, Extent]:
        """Tiles along rows, of which a cluster has several, and along columns."""
        spec = self.gemm.contraction
        rows = self.tile.rows * self.tile.cluster
        return ceildiv(spec.m, rows), ceildiv(spec.n, self.tile.columns)

    @property
    def work_items(self) -> Extent:
        """Tiles (or pairs of tiles) of all matmuls of the batch."""
        return prod(self.tiles) * self.gemm.batch

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.tile.cluster * self.tile.split

    @property
    def concurrent(self) -> int:
        """Clusters that run concurrently."""
        return self.processors * _CLUSTERS[self.cluster] // _CLUSTERS[1]

    @property
    def clusters(self) -> Extent:
        return size_min(self.work_items, self.concurrent)

    @property
    def has_one_wave(self) -> bool:
        """Whether every block has one tile, or a part of one."""
        items = self.work_items
        return isinstance(items, int) and items <= self.concurrent

    @property
    def blocks(self) -> Extent:
        return self.clusters * self.cluster

    @property
    def threads(self) -> int:
        """Threads of a block: those of the producer, too."""
        return 128 * (1 + self.tile.consumers)

    @property
    def stages_of_k(self) -> int:
        """Stages of an iteration of the outer loops of k."""
        return -(-self.gemm.contraction.k // self.depth)

    @property
    def stages(self) -> int:
        """Stages of a tile."""
        return self.stages_of_k * self.gemm.outer_steps

    @property
    def part_stages(self) -> int:
        """Stages of a tile that one block computes, at most."""
        return -(-self.stages // self.tile.split)

    @property
    def lhs_bytes(self) -> int:
        return self.lhs.outer * ROW_BYTES

    @property
    def stage_bytes(self) -> int:
        return self.lhs_bytes + self.rhs.outer * self.tile.cluster * ROW_BYTES

    @property
    def ring_stages(self) -> int:
        """Stages of the ring: no more than a block needs for its only tile."""
        if not self.has_one_wave:
            return self.tile.stages
        # The sums that the blocks of a cluster exchange take the place of the stages.
        sums = 4 * self.tile.rows * self.tile.columns if self.tile.split > 1 else 0
        needed = max(self.part_stages, -(-sums // self.stage_bytes))
        return min(self.tile.stages, needed)

    @property
    def pieces_offset(self) -> int:
        return self.ring_stages * self.stage_bytes

    @property
    def barriers_offset(self) -> int:
        return self.pieces_offset + self.tile.consumers * PIECES * PIECE_BYTES

    @property
    def shared_bytes(self) -> int:
        return self.barriers_offset + _RESERVED

    @property
    def part_columns(self) -> int:
        """Columns of a tile that one block finishes: a multiple of 16."""
        return self.tile.columns // self.tile.split

    @property
    def cycles(self) -> float:
        """Estimated cycles, comparable with those of `mma.sync` plans."""
        tile = self.tile
        area = tile.rows * tile.columns
        copied = self.lhs_bytes + self.rhs.outer * ROW_BYTES
        rate = _MULTIPLY_ADDS[area >= _LARGE] if tile.consumers > 1 else _ONE_CONSUMER
        rate = rate * 16 // BITS[self.elements[0]]
        blocks, items = typical(self.blocks), typical(self.work_items)
        stage = max(area * self.depth / rate, copied * blocks / _CACHE_BYTES)
        waves = -(-items // typical(self.clusters))
        # With more accumulators than this, a thread has few registers left for the epilogue.
        per_cycle = 18 if area > _LARGE else 24
        store = area / (per_cycle * tile.split)
        exchange = _EXCHANGE + area / 12 if tile.split > 1 else 0
        return waves * (self.part_stages * stage + store) + exchange + _LAUNCH


def plan_wgmma(
    gemm: GpuGemm,
    arguments: tuple[int, int],
    processors: int,
    tiles: Sequence[Tile] | None = None,
    elements: tuple[Extent, Extent] | None = None,
) -> WgmmaPlan | None:
    """The plan with the least estimated time; None where the copy engine cannot read an operand.

    `arguments` are the numbers of A and B among the arguments of the kernel. `tiles` are those to
    choose from, by default all. `elements` are those of the buffers of A and B: without them, no
    operand is read in boxes of several loops.
    """
    row, column = gemm.contraction.c_strides
    swapped = is_number(row, 1) and not is_number(column, 1)
    if swapped:
        gemm, arguments = transposed(gemm), arguments[::-1]
    plans = []
    for tile in TILES if tiles is None else tiles:
        plans.append(make_wgmma_plan(gemm, arguments, tile, swapped, processors))
        if not swapped and elements is not None:
            plans.append(_make_boxed_plan(gemm, arguments, elements, tile, processors))
    chosen = (plan for plan in plans if plan is not None)
    return min(chosen, key=lambda plan: (plan.cycles, typical(plan.work_items)), default=None)


def why_not_wgmma(
    gemm: GpuGemm,
    arguments: tuple[int, int],
    tiles: Sequence[Tile] | None,
    elements: tuple[Extent, Extent] | None = None,
) -> str:
    """The reason why `plan_wgmma` has no plan with these tiles."""
    spec = gemm.contraction
    if tiles is not None and not tiles:
        return "there is no such tile"
    if not _has_instruction(spec):
        return f"operands are {spec.a_type} and {spec.b_type}, with sums of {spec.acc_type}"
    if plan_wgmma(gemm, arguments, 1, None, elements) is None:
        along = " or, with 8 bits, do not run along k" if spec.a_type in ELEMENTS_8 else ""
        return (
            "the copy engine cannot read an operand: rows or offsets are not 16-byte aligned"
            f"{along}, or rows overlap"
        )
    return (
        "the tile does not fit: its cluster does not divide the rows, k is too short to split, "
        "its columns end inside a box of a window, or it is too small for so many rows or columns"
    )


def _has_instruction(spec: Contraction) -> bool:
    """Whether wgmma multiplies operands of these types: equal ones of 16 bits, any of 8 bits."""
    types = {spec.a_type, spec.b_type}
    return spec.acc_type == "f32" and (
        (len(types) == 1 and types <= {*ELEMENTS_16}) or types <= {*ELEMENTS_8}
    )


def parse_tiles(choice: str) -> tuple[Tile, ...] | None:
    """The tiles that the knob `gpu_gemm` allows: none with `mma`; None for all.

    `wgmma-128x256` allows the tiles of this size, `wgmma-128x256x2` those with clusters of two, and
    `wgmma-128x256x1x4` those of which four blocks divide k.
    """
    if choice == "mma":
        return ()
    _, _, size = choice.partition("-")
    if not size:
        return None
    numbers = tuple(int(number) for number in size.split("x"))
    return tuple(
        tile
        for tile in TILES
        if (tile.rows, tile.columns, tile.cluster, tile.split)[: len(numbers)] == numbers
    )


def make_wgmma_plan(
    gemm: GpuGemm, arguments: tuple[int, int], tile: Tile, swapped: bool, processors: int
) -> WgmmaPlan | None:
    """The plan with this tile, if there is one."""
    spec = gemm.contraction
    if not _has_instruction(spec):
        return None
    sizes = spec.m, spec.n, spec.k, gemm.batch, gemm.outer_steps
    if min(map(typical, sizes[:3])) < 2 or any(is_number(size, 0) for size in sizes):
        return None
    if not isinstance(spec.k * gemm.outer_steps, int):
        return None  # an empty sum has no stages
    if not is_static_shape(sizes) and (tile.cluster > 1 or tile.split > 1):
        return None  # blocks of a cluster have tiles of their own, or all of k
    m_stride, a_step = spec.a_strides
    b_step, n_stride = spec.b_strides
    shared_columns = tile.columns // tile.cluster
    if not is_number(b_step, 1):
        shared_columns += -shared_columns % BOX_COLUMNS
    lhs = _operand(gemm, 0, arguments[0], spec.m, tile.rows, m_stride, a_step)
    rhs = _operand(gemm, 1, arguments[1], spec.n, shared_columns, n_stride, b_step)
    return _fitting_plan(gemm, tile, swapped, processors, lhs, rhs)


def _make_boxed_plan(
    gemm: GpuGemm,
    arguments: tuple[int, int],
    elements: tuple[Extent, Extent],
    tile: Tile,
    processors: int,
) -> WgmmaPlan | None:
    """The plan whose tiles of rows, or stages, are boxes of several loops; None if they are not."""
    spec = gemm.contraction
    if not _has_instruction(spec) or spec.a_type not in ELEMENTS_16 or tile.cluster > 1:
        return None
    if tile.consumers == 1:
        return None  # boxes of several loops have the rows of two consumers
    if not is_static_shape((spec.m, spec.n, spec.k, gemm.batch, gemm.outer_steps)):
        return None
    along_k = is_number(spec.a_strides[1], 1), is_number(spec.b_strides[0], 1)
    columns = tile.columns if along_k[1] else tile.columns + -tile.columns % BOX_COLUMNS
    if along_k[0]:
        # Boxes of C are whole pieces: its rows are at no multiple of a stride.
        boxed = None if tile.columns // tile.split % BOX_COLUMNS else box_rows(gemm, tile.rows)
    elif not along_k[1] and is_number(spec.a_strides[0], 1) and is_number(spec.b_strides[1], 1):
        boxed = box_steps(gemm, ROW_BYTES // 2)
    else:
        return None
    if boxed is None:
        return None
    inner = spec.k if along_k[0] else spec.m
    lhs = _boxed_operand(boxed, 0, arguments[0], elements[0], inner, tile.rows)
    if boxed.rows:
        n_stride, b_step = spec.b_strides[1], spec.b_strides[0]
        rhs = _operand(boxed.gemm, 1, arguments[1], spec.n, columns, n_stride, b_step)
    else:
        rhs = _boxed_operand(boxed, 1, arguments[1], elements[1], spec.n, columns)
        if rhs is not None and rhs.period and tile.columns % BOX_COLUMNS:
            return None  # a box of the second tile would begin in one window and end in the next
    return _fitting_plan(boxed.gemm, tile, False, processors, lhs, rhs, boxed)


def _boxed_operand(
    boxed: BoxedGemm, number: int, argument: int, elements: Extent, inner: Extent, outer: int
) -> WgmmaOperand | None:
    """A or B in boxes: 64 elements of its contiguous loop, and positions of the other axes."""
    element, depth = boxed.gemm.contraction.a_type, ROW_BYTES // 2
    if not isinstance(inner, int):
        return None
    dims = find_dimensions(boxed, number, inner, MOST_RANK - 1, depth)
    offset = boxed.gemm.offsets[number]
    if dims is None or not can_map(2, offset, tuple(dim.stride for dim in dims.others)):
        return None
    if not is_static_shape((offset, elements)) or typical(offset) + dims.extent > typical(elements):
        return None  # positions between windows that are not in the buffer
    tensor = TensorMap(
        argument,
        offset * 2,
        element,
        (dims.inner, *(dim.size for dim in dims.others)),
        tuple(dim.stride * 2 for dim in dims.others),
        (depth, *(dim.box for dim in dims.others)),
    )
    terms = tuple(dim.terms for dim in dims.others)
    return WgmmaOperand(bool(boxed.rows), outer, tensor, terms, dims.period)


def _fitting_plan(
    gemm: GpuGemm,
    tile: Tile,
    swapped: bool,
    processors: int,
    lhs: WgmmaOperand | None,
    rhs: WgmmaOperand | None,
    boxed: BoxedGemm | None = None,
) -> WgmmaPlan | None:
    """The plan with these operands, if it fits."""
    spec = gemm.contraction
    if lhs is None or rhs is None:
        return None
    row_tiles = typical(ceildiv(spec.m, tile.rows))
    if tile.cluster > 1 and row_tiles % tile.cluster:
        return None
    wide = tile.columns >= 192
    group = min(max(1, row_tiles // tile.cluster), (8 if wide else 16) // tile.cluster)
    elements = spec.a_type, spec.b_type
    plan = WgmmaPlan(gemm, swapped, elements, tile, lhs, rhs, group, processors, boxed)
    if tile.split > 1:
        # The sums of a block take the place of its stages, so it has one tile, and some of k.
        some_of_k = plan.part_stages * (tile.split - 1) < plan.stages
        if not some_of_k or not plan.has_one_wave:
            return None
    if tile.consumers == 1 and (typical(spec.m) < tile.rows or not plan.has_one_wave):
        return None  # smaller tiles of `mma.sync`, or larger ones, are faster
    return plan if plan.shared_bytes <= _MOST_SHARED else None


def _operand(
    gemm: GpuGemm,
    number: int,
    argument: int,
    extent: Extent,
    outer: int,
    stride: Extent,
    step: Extent,
) -> WgmmaOperand | None:
    """A or B, with rows (or columns) at `stride` and steps of k at `step`; None if not mappable."""
    spec = gemm.contraction
    element = (spec.a_type, spec.b_type)[number]
    size = BITS[element] // 8
    depth = ROW_BYTES // size
    if not is_number(stride, 1) and not is_number(step, 1):
        return None
    along_k = is_number(step, 1)
    if element in ELEMENTS_8 and not along_k:
        return None  # the instruction does not transpose bytes
    inner, across = (spec.k, extent) if along_k else (extent, spec.k)
    loops = [i for i, loop in enumerate(gemm.enclosing) if _is_dimension(loop, number)]
    strides = (
        stride if along_k else step,
        *(gemm.enclosing[i].strides[number] for i in loops),
    )
    rank = 1 + len(strides)
    if rank > MOST_RANK or not can_map(size, gemm.offsets[number], strides):
        return None
    sizes = (across, *(gemm.enclosing[i].size for i in loops))
    if is_static_shape((inner, *sizes, *strides)):
        dims = list(zip(map(typical, sizes), map(typical, strides), strict=True))
        if not are_disjoint(typical(inner), dims):
            return None  # windows
    box = (depth, min(outer, MOST_BOX)) if along_k else (depth, depth)
    ones = (1,) * (rank - 2)
    tensor = TensorMap(
        argument,
        gemm.offsets[number] * size,
        element,
        (inner, across, *(gemm.enclosing[i].size for i in loops)),
        tuple(value * size for value in strides),
        (*box, *ones),
    )
    return WgmmaOperand(along_k, outer, tensor, tuple((Term(loop),) for loop in loops))


def _is_dimension(loop: EnclosingLoop, number: int) -> bool:
    return not is_number(loop.size, 0, 1) and not is_number(loop.strides[number], 0)
