"""GEMM plans for a GPU, as records: pure arithmetic, no code.

Input: a `GpuGemm` and the shape of a tile. Output: a `GemmPlan`, from which `mainloop.py` emits the
code of one block, and which has the grid, the threads of a block and its shared memory.
`select_plan.py` makes plans, with the shape that it estimates to be the fastest.

C is cut into tiles, one per block. Both operands are copied in stages of `depth` steps of k through
a ring of buffers in shared memory (a multistage pipeline, as in CUTLASS). Warps share the tile, and
where there are few tiles also the steps of a stage (`split`; CUTLASS calls it sliced-K). Their sums
are then added at the end, in order: results do not depend on the scheduling of blocks. Another
algorithm, such as Hopper's warpgroup matmuls, is another strategy with the match of `kernel.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd, prod

from nova.codegen.common.builder import BITS
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.gpu.gemm.shared_tile import LANES, WARP, SharedTile, TileMatmul
from nova.core.sizes import ceildiv, common_factor, is_multiple
from nova.ir.symbolic.size_table import Extent, is_number, least_size, typical

TF32_TYPES = ("tf32", "tf32x3")
"""f32 for tensor cores: rounded to 11 bits, or split into two tf32 (3xTF32, as in CUTLASS)."""
TENSOR_TYPES = ("bf16", "f16", *TF32_TYPES)

_GROUP = 8
"""Rows of tiles that are visited together, so that their operands stay in the L2 cache."""


@dataclass(frozen=True)
class EnclosingLoop:
    """A loop around the GEMM: strides in elements of A, B and C; `parallel`, or a part of k."""

    size: Extent
    strides: tuple[Extent, Extent, Extent]
    parallel: bool = True


@dataclass(frozen=True)
class GpuGemm:
    """A contraction with its enclosing loops, and the offsets of its operands in their buffers."""

    contraction: Contraction
    enclosing: tuple[EnclosingLoop, ...] = ()
    offsets: tuple[Extent, Extent, Extent] = (0, 0, 0)

    @property
    def batch(self) -> Extent:
        return prod(loop.size for loop in self.enclosing if loop.parallel)

    @property
    def outer_steps(self) -> Extent:
        """The iteration count of the enclosing loops of k."""
        return prod(loop.size for loop in self.enclosing if not loop.parallel)


@dataclass(frozen=True)
class Operand:
    """A or B as it is staged: `size` rows (or columns), `steps` of k, strides in elements."""

    size: Extent
    steps: Extent
    stride: Extent
    step: Extent
    type: str
    tile: SharedTile
    copied: int
    """Bytes of an asynchronous copy; 0 where elements pass through registers."""
    transposed: bool = False
    """Whether its rows run along k in global memory, and across k in shared memory."""
    may_shift: bool = True
    """Whether tiles may begin at any offset."""

    @property
    def ragged(self) -> bool:
        """Whether the last tile is not full."""
        return not is_multiple(self.size, self.tile.outer)

    @property
    def shifted(self) -> bool:
        """Whether the last tile begins early enough to be full, and overlaps the previous one.

        Its copies then need no bounds checks.
        """
        row_bytes = self.size * (BITS[self.type] // 8)
        across = not self.tile.along_k and not self.transposed
        odd = across and self.copied and not is_multiple(row_bytes, self.copied)
        fits = self.tile.outer <= least_size(self.size) and not odd
        return self.may_shift and self.ragged and fits


@dataclass(frozen=True)
class Shape:
    """A tile of C and its distribution over warps.

    `warps` along rows and along columns; each has `warp` rows and columns. The steps of a stage are
    divided among `split` groups of that many warps.
    """

    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]
    split: int
    stages: int
    blocks: int
    """Blocks that should fit on a multiprocessor concurrently (occupancy)."""
    speed: float
    """Multiply-adds per cycle of a multiprocessor with that many blocks."""
    reach: int = 16
    """Bytes of k that FMA matmuls read together."""
    transposes: bool = False
    """Whether f32 operands that run along k are transposed on the way to shared memory.

    Then a thread reads vectors of rows and columns for each step of k, and the main loop reads
    those of the next step while it multiplies (register double buffering)."""

    lanes: tuple[int, int] = LANES
    """Threads of a warp along rows and columns of an FMA matmul."""

    @property
    def threads(self) -> int:
        return WARP * prod(self.warps) * self.split

    @property
    def parts(self) -> int:
        """Partial sums of each element of the tile: groups of warps, and of lanes, share k."""
        return self.split * (WARP // prod(self.lanes))

    @property
    def warp(self) -> tuple[int, int]:
        return self.rows // self.warps[0], self.columns // self.warps[1]


@dataclass(frozen=True)
class GemmPlan:
    """A GEMM and its plan; with `swapped`, that of the transposed matrices."""

    core_type: str
    gemm: GpuGemm
    swapped: bool
    element: str
    """Type of the operands in shared memory."""
    shape: Shape
    lhs: Operand
    rhs: Operand
    width: int
    """Columns of C in one fragment of the result."""
    group: int

    @property
    def tiles(self) -> tuple[Extent, Extent]:
        spec = self.gemm.contraction
        return ceildiv(spec.m, self.shape.rows), ceildiv(spec.n, self.shape.columns)

    @property
    def grid(self) -> tuple[int, int, int]:
        """The number of blocks; one empty block where C is empty."""
        return max(1, self.blocks), 1, 1

    @property
    def blocks(self) -> Extent:
        """Tiles of all matmuls of the batch."""
        return prod(self.tiles) * self.gemm.batch

    @property
    def block(self) -> tuple[int, int, int]:
        return self.shape.threads, 1, 1

    @property
    def min_blocks_per_sm(self) -> int:
        """Blocks per multiprocessor of the launch bounds, which limit the registers of a thread.

        One fewer where copies are narrow or need bounds checks, and in FMA matmuls where both
        operands run along k, which are read in larger pieces: those have no registers to spare.
        """
        sides = self.lhs, self.rhs
        narrow = any(
            side.copied != 16 or not is_multiple(side.steps, side.tile.depth) for side in sides
        )
        if narrow or (self.core_type == "plain" and all(side.tile.along_k for side in sides)):
            return max(1, self.shape.blocks - 1)
        return self.shape.blocks

    @property
    def tile_matmul(self) -> TileMatmul:
        """The matmul of a stage."""
        shape = self.shape
        tiles = self.lhs.tile, self.rhs.tile
        return TileMatmul(*tiles, self.element, shape.warps, shape.split, shape.reach, shape.lanes)

    def enclosing_strides(self, operand_number: int) -> list[Extent]:
        """The strides of the enclosing loops in A, B or C."""
        return [loop.strides[operand_number] for loop in self.gemm.enclosing]

    @property
    def stages_of_k(self) -> Extent:
        """Stages per iteration of the outer loops of k."""
        return ceildiv(self.gemm.contraction.k, self.shape.depth)

    @property
    def stage_bytes(self) -> int:
        return self.lhs.tile.nbytes + self.rhs.tile.nbytes

    @property
    def pitch(self) -> int:
        """Bytes from one row of the accumulator tile to the next; avoids bank conflicts."""
        return self.shape.columns * BITS[self.gemm.contraction.acc_type] // 8 + 32

    @property
    def shared_bytes(self) -> int:
        sums = self.shape.parts * self.shape.rows * self.pitch
        return max(self.shape.stages * self.stage_bytes, sums)


def make_plan(
    gemm: GpuGemm, core_type: str, element: str, shape: Shape, swapped: bool = False
) -> GemmPlan:
    """The plan with this shape; benchmarks try other shapes than `plan_gemm` does."""
    spec = gemm.contraction
    outer = [loop.strides for loop in gemm.enclosing]
    size = BITS.get(element, 32) // 8

    def operand(
        operand_number: int, extent: Extent, rows: int, stride: Extent, step: Extent, type_: str
    ) -> Operand:
        along_k = is_number(step, 1) or not is_number(stride, 1)
        # tf32 elements are loaded one by one where two-byte elements are transposed by ldmatrix.
        swizzled = 0 if core_type == "plain" else 2 if element in TF32_TYPES and not along_k else 1
        padded = core_type == "plain" and along_k
        transposed = shape.transposes and along_k
        tile = SharedTile(rows, shape.depth, size, along_k and not transposed, swizzled, padded)
        others = gemm.offsets[operand_number], *(o[operand_number] for o in outer)
        copied = copy_bytes(along_k, stride, step, type_, element, others)
        if transposed:
            copied = min(copied, size)  # an element
        return Operand(extent, spec.k, stride, step, type_, tile, copied, transposed)

    lhs = operand(0, spec.m, shape.rows, *_strides(spec.m, spec.k, *spec.a_strides), spec.a_type)
    (k_stride, n_stride) = spec.b_strides
    strides = _strides(spec.n, spec.k, n_stride, k_stride)
    rhs = operand(1, spec.n, shape.columns, *strides, spec.b_type)
    widest = 128 // BITS[spec.acc_type]
    width = gcd(widest, common_factor(spec.n)) if is_number(spec.c_strides[1], 1) else 1
    plan = GemmPlan(core_type, gemm, swapped, element, shape, lhs, rhs, width, 1)
    return replace(plan, group=min(_GROUP, max(1, typical(plan.tiles[0]))))


def copy_bytes(
    along_k: bool,
    stride: Extent,
    step: Extent,
    type_: str,
    element: str,
    others: Iterable[Extent],
) -> int:
    """Bytes per asynchronous copy of an operand of `type_` as `element`; 0 if it needs registers.

    `others` are further offsets of its rows from the start of its buffer, besides `stride`.
    """
    inner, across = (step, stride) if along_k else (stride, step)
    size = BITS[type_] // 8
    unit = gcd(16, *(common_factor(value) * size for value in (across, *others)))
    copied_type = "f32" if element in TF32_TYPES else element
    fits = is_number(inner, 1) and type_ == copied_type and unit >= 4
    return unit if fits else 0


def transposed(gemm: GpuGemm) -> GpuGemm:
    """The matmul of the transposed operands, which computes the transposed result."""
    c = gemm.contraction
    flipped = replace(
        c,
        m=c.n,
        n=c.m,
        a_strides=c.b_strides[::-1],
        b_strides=c.a_strides[::-1],
        c_strides=c.c_strides[::-1],
        a_type=c.b_type,
        b_type=c.a_type,
    )
    enclosing = tuple(
        replace(loop, strides=(loop.strides[1], loop.strides[0], loop.strides[2]))
        for loop in gemm.enclosing
    )
    a, b, result = gemm.offsets
    return GpuGemm(flipped, enclosing, (b, a, result))


def _strides(size: Extent, steps: Extent, stride: Extent, step: Extent) -> tuple[Extent, Extent]:
    """Strides, ignoring loops of one iteration."""
    if is_number(steps, 1) and not is_number(stride, 1):
        step = 1
    if is_number(size, 1) and not is_number(step, 1):
        stride = 1
    return stride, step
