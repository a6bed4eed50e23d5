"""The plan of attention on a GPU: pure arithmetic, no code.

Input: the sizes and types of an attention and the name of an architecture. Output: an
`AttentionPlan`. `kernel.py` makes one for each attention kernel.

A block of threads has some rows of q (for the gradients of k and v: some rows of those), and
iterates over blocks of the other rows in shared memory. All tiles there have the rows of the
tensors as their rows. Weights of a block of rows and keys are written to shared memory once, as
operands of the next matmuls; scores exist in registers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from nova.codegen.common.builder import BITS
from nova.codegen.gpu.gemm.select_plan import limits
from nova.codegen.gpu.gemm.shared_tile import SharedTile, TileMatmul
from nova.core.sizes import ceildiv, is_multiple
from nova.ir.symbolic.size_table import Extent, typical

_TENSOR_TYPES = ("bf16", "f16")
_MAX_SUMS, _MAX_SUMS_64 = 144, 96
"""Registers of a thread for accumulators; with f64, all other values take two each, too."""

_FILLED = 7 / 8
"""Of the multiprocessors: so many blocks of FMA are better than more blocks with smaller tiles."""
_CACHE = 16 << 20
"""Bytes of the L2 cache that concurrent blocks should use."""


@dataclass(frozen=True)
class AttentionSizes:
    """Rows of q, rows of k and v, features of q and k, features of v; points of the batch."""

    batch: Extent
    i: Extent
    j: Extent
    e: int
    f: int

    def of(self, role: str) -> Extent:
        return {"i": self.i, "j": self.j, "e": self.e, "f": self.f}[role]


@dataclass(frozen=True)
class AttentionPlan:
    """Tiles of `rows` rows of q and `keys` rows of k and v, with padded features."""

    sizes: AttentionSizes
    core_type: str
    element: str
    """Type of the matmul operands in shared memory."""
    rows: int
    keys: int
    warps: tuple[int, int]
    stages: int
    results: tuple[str, ...]

    @property
    def threads(self) -> int:
        return 32 * prod(self.warps)

    def extent(self, role: str) -> int:
        """Rows or features of a tile."""
        if role in "ij":
            return self.rows if role == "i" else self.keys
        size = self.sizes.of(role)
        # A power of two, so that threads divide the rows of a tile evenly; a warp has 32 columns of
        # FMA accumulators, or 16 of a tensor core.
        least = (32 if self.core_type == "plain" else 16) * self.warps[1]
        return least << (-(-size // least) - 1).bit_length()

    def tile(self, role: str, feature: str) -> SharedTile:
        """Rows `role` of a tensor with features `feature`, or with keys."""
        size = BITS[self.element] // 8
        tensor = self.core_type == "tensor"
        sides = self.extent(role), self.extent(feature)
        return SharedTile(*sides, size, True, 1 if tensor else 0, not tensor)

    def tile_matmul(self, lhs: SharedTile, rhs: SharedTile) -> TileMatmul:
        return TileMatmul(lhs, rhs, self.element, self.warps)

    # --- blocks of a launch, and their memory ---------------------------------------------------

    @property
    def roles(self) -> tuple[str, ...]:
        """The rows of each block, which are those of the results; a launch may have both roles."""
        if self.is_forward:
            return ("i",)
        both = ("j" if {"k", "v"} & set(self.results) else "", "i" if "q" in self.results else "")
        return tuple(role for role in both if role)

    def row_blocks(self, role: str) -> Extent:
        """Blocks of one point of the batch."""
        return ceildiv(self.sizes.of(role), self.extent(role))

    def blocks_of(self, role: str) -> Extent:
        return self.sizes.batch * self.row_blocks(role)

    @property
    def blocks(self) -> Extent:
        return sum(self.blocks_of(role) for role in self.roles)

    @property
    def points_together(self) -> int:
        """Points of the batch whose keys and values fit in the L2 cache together."""
        sizes = self.sizes
        each = max(1, typical(sizes.j) * (sizes.e + sizes.f) * BITS[self.element] // 8)
        most = max(1, _CACHE // each)
        most = min(most, typical(sizes.batch))
        return next(n for n in range(most, 0, -1) if is_multiple(sizes.batch, n))

    @property
    def weights(self) -> int:
        """Bytes of one block of weights."""
        return self.tile("i", "j").nbytes

    def pair(self, role: str) -> int:
        """Bytes of the tiles of all tensors with these rows: q alone in the forward pass."""
        first, second = self.tile(role, "e").nbytes, self.tile(role, "f").nbytes
        return first if role == "i" and self.is_forward else first + second

    @property
    def is_forward(self) -> bool:
        return "out" in self.results or "logsumexp" in self.results

    @property
    def fragment_registers(self) -> int:
        """Registers of a thread for its fragments of q as tensor-core operands."""
        return self.rows // self.warps[0] * self.extent("e") * BITS[self.element] // 32 // 32

    def shared_of(self, role: str) -> int:
        loop_role = "j" if role == "i" else "i"
        weight_tiles = 2 if role == "j" else 1
        if self.is_forward and self.core_type == "tensor":
            weight_tiles = 0  # weights stay in registers
        return self.pair(role) + self.stages * self.pair(loop_role) + weight_tiles * self.weights

    @property
    def sums(self) -> int:
        """Maximum of 32-bit values that a thread carries in registers over iterations."""
        counts = []
        for role in self.roles:
            columns = {"q": "e", "k": "e", "v": "f"}
            columns_of_results = [
                columns[n] for n in self.results if n in ("kv" if role == "j" else "q")
            ]
            rows = self.extent(role) * sum(
                map(self.extent, ["f"] if self.is_forward else columns_of_results)
            )
            scores = self.rows * self.keys * (1 if self.is_forward else 2)
            counts.append((rows + scores) // self.threads)
        return max(counts) * (2 if self.element == "f64" else 1)

    @property
    def shared_bytes(self) -> int:
        return max(self.shared_of(role) for role in self.roles)


def plan_attention(
    sizes: AttentionSizes, types: tuple[str, ...], sums: str, results: tuple[str, ...], arch: str
) -> AttentionPlan | None:
    """The plan for operands of `types` and an accumulator type; None where no tiles fit."""
    processors, shared = limits(arch)
    uniform = len(set(types)) == 1 and sums == "f32"
    element = types[0] if uniform and types[0] in _TENSOR_TYPES else sums
    core_type = "tensor" if element in _TENSOR_TYPES else "plain"
    forward = "out" in results or "logsumexp" in results
    wide = max(sizes.e, sizes.f) > 64 and not forward
    fitting = []
    for rows, keys in ((64, 64), (32, 64), (32, 32), (16, 32)):
        for stages in (2, 1):
            warps = _warps(core_type, rows, keys, forward, wide)
            plan = AttentionPlan(sizes, core_type, element, rows, keys, warps, stages, results)
            if plan.shared_bytes <= shared << 10:
                fitting.append(plan)
                break
    most = _MAX_SUMS_64 if element == "f64" else _MAX_SUMS
    light = [plan for plan in fitting if plan.sums <= most] or fitting[-1:]
    least = processors * (_FILLED if core_type == "plain" else 1)
    full = [plan for plan in light if typical(plan.blocks) >= least]
    if not full:
        # Half as many rows if the blocks would not fill every multiprocessor; but with FMA not with
        # half as many threads, which would have twice as much to copy.
        smaller = [p for p in light[1:2] if core_type == "tensor" or p.threads == light[0].threads]
        full = smaller or light
    return full[0] if full else None


def _warps(core_type: str, rows: int, keys: int, forward: bool, wide: bool) -> tuple[int, int]:
    """Warps along rows and columns of all matmuls: the maximum of a row is found within a warp."""
    least = 16 if core_type == "tensor" else 8
    row_warps = max(1, min(4, min(rows, keys if not forward else rows) // least))
    column_warps = 2 if wide and keys >= 32 and min(rows, keys) >= 32 else 1
    return row_warps, column_warps
