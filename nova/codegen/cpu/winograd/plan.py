"""How a 3x3 convolution is computed by Winograd's algorithm: its blocks, and whether it pays.

Input: the contraction of a convolution (`Contraction.windows`), the images of its batch, and the
target. Output: a `WinogradPlan`, which the packing of weights (weights.py) and the code of the
convolution (convolution.py) share; `pack-constants` and `pack-operands` call `choose_size`.

A block of tiles is transformed, multiplied and transformed back before the next, so that its data
stay in the L2 cache. Vectors run over tiles: `group` tiles next to each other in a row of tiles,
and `vl / group` rows of tiles, of one or several images.
"""

from __future__ import annotations

import functools

from nova.codegen.common.builder import BITS
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.cpu.gemm.blocking import rank_register_tiles
from nova.codegen.cpu.vectorize import has_masks
from nova.codegen.cpu.winograd.matrices import SIZES, TAPS
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.targets import Target
from nova.ir.linalg.winograd import WeightSpec

_TYPE = "f32"
_LANES, _FAR_LANES, _FAR = 32, 64, 16 << 20
"""Tiles of a block, whose transformed inputs and sums should stay in L2: each transformed
weight, which comes from a cache that cores share, is multiplied with so many inputs. With more
bytes of weights than the last number, they come from memory: then the second."""

_MOST_ROWS = 64
"""Output channels that are multiplied before their outputs are transformed."""

_MOST_DEPTH = 128
"""Input channels of a panel, which stays in L1: sums of longer panels have larger errors."""

_PAD = 80
"""Elements between matrices, so that elements of all matrices at one place are in different sets of
a cache: five lines, and whole ones."""

_GAIN = 0.85
"""The share of the time of one matmul below which the algorithm is worth its rounding errors."""

_ELEMENT, _READ, _TRANSFORM, _STEP = 6.5, 7.0, 12.0, 0.5
"""Multiply-adds that take as long as the transform of an element of inputs or sums, reading an
element of weights from memory for a block of tiles, transforming one, and the instructions around
the multiply-adds of a row of a register tile. Measured with AVX-512 on one core."""


@record
class WinogradPlan:
    """The blocks of a convolution of `batch` images with `height` by `width` outputs.

    A tile has `size` by `size` outputs. A block has `tile_rows` rows of tiles of each of `images`
    images, which are all rows of an image if there are several. Register tiles of the matmuls are
    `mr` output channels by `nv` vectors of tiles.
    """

    size: int
    batch: int
    channels: int
    outputs: int
    height: int
    width: int
    vl: int
    group: int
    images: int
    tile_rows: int
    block_outputs: int
    depth: int
    mr: int
    nv: int

    @property
    def side(self) -> int:
        """Inputs of a side of a tile."""
        return self.size + TAPS - 1

    @property
    def matrices(self) -> int:
        """Matmuls of a block."""
        return self.side**2

    @property
    def nr(self) -> int:
        return self.nv * self.vl

    @property
    def groups(self) -> int:
        """Vectors that cover a row of tiles."""
        return -(-self.width // (self.size * self.group))

    @property
    def rows_of_vector(self) -> int:
        """Rows of tiles of a vector."""
        return self.vl // self.group

    @property
    def vectors(self) -> int:
        """Vectors of tiles of a block."""
        return _vectors(self.vl, self.group, self.groups, self.images * self.tile_rows)

    @property
    def lanes(self) -> int:
        """Columns of the matmuls: the tiles of a block, in whole panels."""
        return round_up(self.vectors * self.vl, self.nr)

    @property
    def image_rows(self) -> int:
        """Rows of tiles of an image."""
        return -(-self.height // self.size)

    @property
    def has_whole_images(self) -> bool:
        return self.tile_rows >= self.image_rows

    @property
    def input_stride(self) -> int:
        """Elements from one matrix of transformed inputs to the next."""
        return self.channels * self.lanes + _PAD

    @property
    def sum_stride(self) -> int:
        """Elements from one matrix of sums to the next."""
        return self.block_outputs * self.lanes + _PAD

    @property
    def weight_elements(self) -> int:
        """Elements of the transformed weights."""
        return self.matrices * self.weight_stride * (self.outputs // self.block_outputs)

    @property
    def weight_stride(self) -> int:
        """Elements from one matrix of weights, of a block of output channels, to the next."""
        return self.block_outputs * self.channels + _PAD

    @property
    def weights(self) -> WeightSpec:
        """The layout of the transformed weights."""
        sizes = self.size, self.channels, self.block_outputs, self.depth, self.mr
        return WeightSpec(*sizes, self.weight_stride)

    @property
    def blocks(self) -> int:
        """Blocks of tiles of all images."""
        return -(-self.batch // self.images) * -(-self.image_rows // self.tile_rows)

    @property
    def multiplications(self) -> int:
        """Multiply-adds of all matmuls."""
        return self.blocks * self.lanes * self.matrices * self.channels * self.outputs


def _vectors(vl: int, group: int, groups: int, rows: int) -> int:
    return groups * -(-rows // (vl // group))


@functools.cache
def make_plan(target: Target, spec: Contraction, batch: int, size: int) -> WinogradPlan | None:
    """The plan with tiles of this size; None for contractions that are not 3x3 convolutions."""
    windows = spec.windows
    if windows is None or not _is_plain(spec) or size not in SIZES:
        return None
    channels, height = spec.k // TAPS**2, spec.n // windows.row
    vl = target.lanes(BITS[_TYPE])
    depth = _largest_divisor(channels, _MOST_DEPTH)
    rows = _largest_divisor(spec.m, _MOST_ROWS)
    image_rows, width = -(-height // size), -(-windows.row // size)
    group = _choose_group(vl, width, image_rows, batch)
    is_far = 4 * (size + TAPS - 1) ** 2 * channels * spec.m > _FAR
    most = _FAR_LANES if is_far else _LANES
    groups = -(-width // group)
    of_row = groups * group
    if of_row * image_rows <= most:
        images, tile_rows = min(batch, most // (of_row * image_rows)), image_rows
    else:
        unit = vl // group
        images, tile_rows = 1, min(max(most // of_row // unit, 1) * unit, image_rows)
    lanes = _vectors(vl, group, groups, images * tile_rows) * vl
    tiles = [t for t in rank_register_tiles(target, rows, lanes, vl) if rows % t[0] == 0]
    mr, nv = tiles[0]
    sizes = spec.m, height, windows.row, vl, group, images, tile_rows, rows, depth
    return WinogradPlan(size, batch, channels, *sizes, mr, nv)


def _is_plain(spec: Contraction) -> bool:
    """Whether the windows are those of a 3x3 kernel with stride 1 and dilation 1, in f32."""
    windows = spec.windows
    assert windows is not None
    _, y_stride, x_stride = windows.strides
    return (
        windows.taps == (TAPS, TAPS)
        and windows.step == x_stride == 1
        and y_stride == windows.row_stride
        and {spec.a_type, spec.b_type, spec.acc_type} == {_TYPE}
        and spec.is_static
        and not spec.accumulate
        and spec.a_strides == (spec.k, 1)
        and spec.c_strides[1] == 1
    )


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in range(1, min(number, most) + 1) if number % n == 0)


def _choose_group(vl: int, width: int, rows: int, batch: int) -> int:
    """The tiles of a row in a vector that waste the fewest lanes; the most of those."""
    powers = [1 << i for i in range(1, vl.bit_length())]

    def lanes(group: int) -> int:
        return _vectors(vl, group, -(-width // group), rows * min(batch, _LANES))

    return min(powers, key=lambda group: (lanes(group), -group))


def choose_size(
    target: Target, spec: Contraction, batch: int, knob: str, *, constant: bool
) -> int | None:
    """The tiles with which a convolution is faster than as one matmul; None if there are none.

    `knob` is that of the name `winograd`; `constant` says that the weights are transformed by the
    compiler.
    """
    if knob == "off" or spec.windows is None:
        return None
    plans = [plan for size in SIZES if (plan := make_plan(target, spec, batch, size))]
    if not plans:
        return None
    costs = {plan.size: estimate(plan, constant=constant) for plan in plans}
    best = min(costs, key=lambda size: costs[size])
    if knob == "on":
        return best
    pays = costs[best] < _GAIN * batch * spec.m * spec.n * spec.k
    return best if pays and has_masks(target, BITS[_TYPE]) else None


def estimate(plan: WinogradPlan, *, constant: bool) -> float:
    """The cost of a convolution, in multiply-adds of the matmul that it replaces."""
    elements = plan.blocks * plan.lanes * plan.matrices * (plan.channels + plan.outputs)
    of_weights = _READ * plan.blocks + (0 if constant else _TRANSFORM)
    return (
        plan.multiplications * (1 + _STEP / plan.mr)
        + _ELEMENT * elements
        + of_weights * plan.weight_elements
    )
