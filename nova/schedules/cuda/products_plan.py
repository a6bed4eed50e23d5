"""How a matrix product runs on a GPU: pure arithmetic, no code.

In: a `DeviceProduct` and the name of an architecture; out: a `ProductPlan`, from which
`products.py` emits the code of one block, and which says the grid, the threads of a block and its
shared memory. Called by the device schedule of kernels.

C is cut into tiles, one a block. Both operands pass by in stages of `depth` steps of k, through a
ring of buffers in shared memory. Warps share the tile, and where there are few tiles also the steps
of a stage (`split`), so that their sums are added at the end, in order: results do not depend on
how the blocks run. Another road to the same result, such as Hopper's, is another `kind` of plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

from nova.schedules.cuda.products_tiles import SharedTile
from nova.schedules.tiling import Contraction
from nova.schedules.words import BITS

TENSOR_TYPES = ("bf16", "f16", "tf32")

_LIMITS = {
    80: (108, 163),
    86: (84, 99),
    87: (16, 163),
    89: (128, 99),
    90: (132, 227),
    100: (148, 227),
}
"""Capability -> multiprocessors, and KiB of shared memory that a block may have."""

_GROUP = 8
"""Rows of tiles that are walked together, so that what they read stays in the L2 cache."""


@dataclass(frozen=True)
class Around:
    """A loop around the product: strides in elements of A, B and C; `parallel`, or a part of k."""

    size: int
    strides: tuple[int, int, int]
    parallel: bool = True


@dataclass(frozen=True)
class DeviceProduct:
    """A contraction with the loops around it, and where its operands begin in their buffers."""

    contraction: Contraction
    around: tuple[Around, ...] = ()
    offsets: tuple[int, int, int] = (0, 0, 0)

    @property
    def batch(self) -> int:
        return prod(loop.size for loop in self.around if loop.parallel)

    @property
    def outer_steps(self) -> int:
        """Points of the loops around that are summed over."""
        return prod(loop.size for loop in self.around if not loop.parallel)


@dataclass(frozen=True)
class Operand:
    """A or B as it is staged: `size` rows (or columns), `steps` of k, strides in elements."""

    size: int
    steps: int
    stride: int
    step: int
    type: str
    tile: SharedTile
    copied: int
    """Bytes of an asynchronous copy; 0 where elements pass through registers."""


@dataclass(frozen=True)
class Shape:
    """A tile of C and who computes it.

    `warps` along rows and along columns; each has `warp` rows and columns. The steps of a stage
    are divided among `split` groups of so many warps.
    """

    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]
    split: int
    stages: int
    blocks: int
    """Blocks that a multiprocessor should have room for."""
    speed: float
    """Multiply-adds of a multiprocessor in a cycle when it has as many blocks as it wants."""

    @property
    def threads(self) -> int:
        return 32 * prod(self.warps) * self.split

    @property
    def warp(self) -> tuple[int, int]:
        return self.rows // self.warps[0], self.columns // self.warps[1]


@dataclass(frozen=True)
class ProductPlan:
    """A product and how it runs; with `swapped`, that of the transposed matrices."""

    kind: str
    product: DeviceProduct
    swapped: bool
    element: str
    """Type of the factors in shared memory."""
    shape: Shape
    left: Operand
    right: Operand
    width: int
    """Columns of C in one fragment of the result."""
    group: int

    @property
    def tiles(self) -> tuple[int, int]:
        spec = self.product.contraction
        return -(-spec.m // self.shape.rows), -(-spec.n // self.shape.columns)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks; one that does nothing where C is empty."""
        return max(1, self.blocks), 1, 1

    @property
    def blocks(self) -> int:
        """Tiles of all products of the batch."""
        return prod(self.tiles) * self.product.batch

    @property
    def block(self) -> tuple[int, int, int]:
        return self.shape.threads, 1, 1

    @property
    def stages_of_k(self) -> int:
        """Stages of one point of the outer loops of k."""
        return -(-self.product.contraction.k // self.shape.depth)

    @property
    def stage_bytes(self) -> int:
        return self.left.tile.nbytes + self.right.tile.nbytes

    @property
    def pitch(self) -> int:
        """Bytes from one row of the tile of sums to the next: its writers hit different banks."""
        return self.shape.columns * BITS[self.product.contraction.acc_type] // 8 + 32

    @property
    def shared_bytes(self) -> int:
        sums = self.shape.split * self.shape.rows * self.pitch
        return max(self.shape.stages * self.stage_bytes, sums)


# Largest first; all are tried, and the cheapest taken. A warp of the plain kind has 4 x 8 threads.
_TENSOR = (
    Shape(128, 256, 64, (2, 4), 1, 4, 1, 1300),
    Shape(128, 128, 64, (2, 2), 1, 3, 2, 1250),
    Shape(64, 128, 64, (2, 2), 1, 3, 3, 950),
    Shape(128, 64, 64, (2, 2), 1, 3, 3, 950),
    Shape(64, 64, 64, (2, 2), 1, 3, 4, 700),
    Shape(32, 64, 64, (1, 2), 2, 4, 4, 450),
    Shape(32, 32, 128, (1, 1), 4, 3, 4, 300),
    Shape(16, 64, 128, (1, 2), 2, 3, 4, 250),
    Shape(16, 32, 128, (1, 1), 4, 3, 4, 180),
)
_PLAIN = (
    Shape(128, 128, 16, (4, 2), 1, 3, 2, 115),
    Shape(64, 128, 16, (2, 2), 1, 3, 4, 105),
    Shape(128, 64, 16, (4, 1), 1, 3, 4, 105),
    Shape(64, 64, 16, (4, 2), 1, 3, 4, 80),
    Shape(32, 64, 32, (2, 2), 2, 3, 4, 70),
    Shape(32, 32, 32, (2, 1), 4, 3, 4, 60),
    Shape(16, 32, 64, (1, 1), 8, 3, 4, 50),
    Shape(8, 32, 64, (1, 1), 8, 3, 4, 32),
    Shape(4, 64, 64, (1, 1), 8, 3, 4, 24),
)


def plan_product(product: DeviceProduct, arch: str, *, tf32: bool = False) -> ProductPlan:
    """The plan of a product for an architecture such as `sm_90a`; f32 is exact unless `tf32`."""
    processors, shared = limits(arch)
    swapped = product.contraction.c_strides[1] != 1 and product.contraction.c_strides[0] == 1
    if swapped:
        product = transposed(product)
    spec = product.contraction
    element = _element(spec, tf32)
    kind = "tensor" if element in TENSOR_TYPES else "plain"
    plans = [
        plan
        for shape in (_TENSOR if kind == "tensor" else _PLAIN)
        if (plan := make_plan(product, kind, element, shape, swapped)).shared_bytes <= shared << 10
    ]
    return min(plans, key=lambda plan: _cycles(plan, processors))


def limits(arch: str) -> tuple[int, int]:
    """Multiprocessors of an architecture, and KiB of shared memory of a block."""
    capability = int("".join(c for c in arch if c.isdigit()))
    known = max((c for c in _LIMITS if c <= capability), default=80)
    return _LIMITS[known]


def make_plan(
    product: DeviceProduct, kind: str, element: str, shape: Shape, swapped: bool = False
) -> ProductPlan:
    """The plan with a given shape; benchmarks try others than `plan_product` takes."""
    spec = product.contraction
    outer = [loop.strides for loop in product.around]
    size = BITS.get(element, 32) // 8

    def operand(which: int, extent: int, rows: int, stride: int, step: int, type_: str) -> Operand:
        along_k = step == 1 or stride != 1
        # Single elements of tf32 are read where those of two bytes are transposed on the way.
        swizzled = 0 if kind == "plain" else 2 if element == "tf32" and not along_k else 1
        tile = SharedTile(rows, shape.depth, size, along_k, swizzled)
        # The direction that is walked a byte after the other, and all other distances.
        inner = step if along_k else stride
        others = [stride if along_k else step, product.offsets[which], *(o[which] for o in outer)]
        unit = gcd(16, *(value * BITS[type_] // 8 for value in others))
        fits = inner == 1 and type_ == ("f32" if element == "tf32" else element) and unit >= 4
        return Operand(extent, spec.k, stride, step, type_, tile, unit if fits else 0)

    left = operand(0, spec.m, shape.rows, *_strides(spec.m, spec.k, *spec.a_strides), spec.a_type)
    (k_stride, n_stride) = spec.b_strides
    strides = _strides(spec.n, spec.k, n_stride, k_stride)
    right = operand(1, spec.n, shape.columns, *strides, spec.b_type)
    widest = 128 // BITS[spec.acc_type]
    width = gcd(widest, spec.n) if spec.c_strides[1] == 1 else 1
    plan = ProductPlan(kind, product, swapped, element, shape, left, right, width, 1)
    return replace(plan, group=min(_GROUP, max(1, plan.tiles[0])))


def transposed(product: DeviceProduct) -> DeviceProduct:
    """The product of the transposed operands, which is the transposed result."""
    c = product.contraction
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
    around = tuple(
        replace(loop, strides=(loop.strides[1], loop.strides[0], loop.strides[2]))
        for loop in product.around
    )
    a, b, result = product.offsets
    return DeviceProduct(flipped, around, (b, a, result))


def _strides(size: int, steps: int, stride: int, step: int) -> tuple[int, int]:
    """Strides where loops of one turn do not matter."""
    if steps == 1 and stride != 1:
        step = 1
    if size == 1 and step != 1:
        stride = 1
    return stride, step


def _element(spec: Contraction, tf32: bool) -> str:
    if spec.a_type == spec.b_type and spec.acc_type == "f32":
        if spec.a_type in TENSOR_TYPES:
            return spec.a_type
        if tf32 and spec.a_type == "f32":
            return "tf32"
    return spec.acc_type


def _cycles(plan: ProductPlan, processors: int) -> float:
    """About what a product takes; what a block does besides, and how full the last wave is."""
    shape = plan.shape
    blocks = plan.blocks
    work = shape.rows * shape.columns * plan.stages_of_k * shape.depth * plan.product.outer_steps
    slots = processors * shape.blocks
    # A wave that is not full leaves each of its blocks a larger part of the multiprocessor.
    whole, rest = divmod(blocks, slots)
    share = -(-rest // processors) / shape.blocks
    alone = 0.5 + 0.5 * share if rest else 0.0
    busy = work * shape.blocks / shape.speed * (2 if plan.element == "tf32" else 1)
    return (whole + alone) * (busy + 1500)
