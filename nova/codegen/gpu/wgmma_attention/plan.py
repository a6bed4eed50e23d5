"""Plans of warpgroup attention (Hopper's wgmma and TMA), as records: pure arithmetic, no code.

Input: an `Attention` of a kernel. Output: a `ForwardPlan` (or the plan of `backward_plan.py`), or
the reason why there is none: `mma.sync` computes the others. The design is that of FlashAttention-3
(Shah et al.): a producer warpgroup copies blocks of keys and values into rings of stages, consumer
warpgroups have 64 rows of q each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from nova.codegen.common.builder import BITS
from nova.codegen.common.match_attention import Attention
from nova.codegen.gpu.attention.plan import AttentionSizes
from nova.codegen.gpu.wgmma_attention.balance import Work, balanced_work
from nova.ir.attention_ops import AXES
from nova.ir.tensor_maps import MOST_BOX, MOST_RANK, TensorMap, can_map

ROW_BYTES = 128
"""Bytes of a row of a box: the swizzle permutes chunks within them."""
BOX_FEATURES = 64
"""Features of a box: elements of two bytes."""
GROUP_ROWS = 64
"""Rows of a warpgroup."""
ELEMENTS = ("bf16", "f16")
MOST_FEATURES = 256
MOST_SHARED = 227 << 10
RESERVED = 2048
"""Bytes of shared memory for barriers, and to align the tiles."""

_TILE_OVERHEAD = 1.0
"""The time to begin and end a tile of rows, in blocks of keys."""
_MERGE_OVERHEAD = 0.5
"""The time to add the results of the consumers of a tile, in blocks of keys."""
_ALONE = 0.3
"""The part of the time of a block of keys that does not depend on how many consumers have rows."""
_CACHE_BYTES = 32 << 20
"""Bytes of keys and values that tiles of several points share in the L2 cache."""
_SLOWNESS = {2: 1.2, 3: 1.0}
"""Consumer warpgroups -> time of a score, measured on an H200 (benchmarks/gpu/attention.py)."""

REGISTERS = {2: (40, 232), 3: (32, 160)}
"""Consumer warpgroups -> registers of a thread of the producer, and of a consumer."""


@dataclass(frozen=True)
class Tile:
    """Consumer warpgroups, keys of a block, and whether consumers take turns to multiply.

    Each consumer has 64 rows; with `split`, all have the same ones, and divide the blocks of keys.
    """

    consumers: int
    keys: int
    ordered: bool = True
    split: bool = False

    @property
    def rows(self) -> int:
        return GROUP_ROWS if self.split else self.consumers * GROUP_ROWS


def forward_tiles(
    features: int,
    *,
    keys: int = 0,
    long: bool = False,
    has_segments: bool = False,
    has_mask: bool = False,
) -> tuple[Tile, ...]:
    """The tiles for heads of so many features, those of the largest throughput first.

    A consumer has 64 x keys scores, the same weights in 16 bits, and 64 x features sums in its
    registers. With `long` rows of scores, and none hidden, more keys are faster. So few `keys` that
    they are one block of a tile are two of a tile of 64 rows. The ranges and ids of segments take
    registers, too.
    """
    if features <= 64:
        tiles = (Tile(3, 128), Tile(2, 128))
        # Few heads have few tiles, whose time is that of the one with the most keys.
        splits = [Tile(consumers, 128, ordered=False, split=True) for consumers in (2, 3)]
        if 0 < keys <= splits[0].keys:
            splits.append(replace(splits[0], keys=splits[0].keys // 2))
        return tiles if has_segments or has_mask else (*tiles, *splits)
    if features <= 128:
        return (Tile(2, 176 if long else 128),)
    if features <= 192:
        return (Tile(2, 112),)
    return (Tile(2, 64 if has_segments else 80),)


@dataclass(frozen=True)
class MappedOperand:
    """Rows of an operand in shared memory: boxes of 64 features, one after the other."""

    map: TensorMap
    loops: tuple[int, ...]
    """The batch loops, by their number among those, that are further dimensions of the map."""
    rows: int
    boxes: int

    @property
    def nbytes(self) -> int:
        return self.rows * ROW_BYTES * self.boxes


@dataclass(frozen=True)
class ForwardPlan:
    """Tiles of 64 rows of q per consumer; the maps of q, k and v."""

    sizes: AttentionSizes
    element: str
    causal: bool
    masked: bool
    has_segments: bool
    tile: Tile
    operands: dict[str, MappedOperand]
    q_slots: int
    stages: int
    processors: int

    @property
    def rows(self) -> int:
        return self.tile.rows

    @property
    def keys(self) -> int:
        return self.tile.keys

    @property
    def threads(self) -> int:
        return 128 * (1 + self.tile.consumers)

    @property
    def value_columns(self) -> int:
        """Columns of the result that are computed: a multiple of 16."""
        return -(-self.sizes.f // 16) * 16

    @property
    def row_tiles(self) -> int:
        return -(-self.sizes.i // self.rows)

    @property
    def work_items(self) -> int:
        return self.sizes.batch * self.row_tiles

    @property
    def blocks(self) -> int:
        return min(self.work_items, self.processors)

    def visited_blocks(self, tile: int) -> int:
        """Blocks of keys that a tile of rows visits."""
        count = -(-self.sizes.j // self.keys)
        if self.causal:
            count = min(count, -(-(tile + 1) * self.rows // self.keys))
        return count

    def busy_consumers(self, tile: int) -> int:
        """Consumers with rows of q in a tile: the last one may have fewer rows."""
        if self.tile.split:
            return self.tile.consumers
        rows = self.sizes.i - tile * self.rows
        return min(self.tile.consumers, -(-rows // GROUP_ROWS))

    @property
    def has_idle_consumers(self) -> bool:
        return self.busy_consumers(self.row_tiles - 1) < self.tile.consumers

    def _tile_cost(self, tile: int) -> float:
        if self.tile.split:
            visits = -(-self.visited_blocks(tile) // self.tile.consumers)
            return visits + _TILE_OVERHEAD + _MERGE_OVERHEAD
        busy = self.busy_consumers(tile) / self.tile.consumers
        return self.visited_blocks(tile) * (_ALONE + (1 - _ALONE) * busy) + _TILE_OVERHEAD

    @cached_property
    def work(self) -> Work:
        """The order of the tiles: those with the most work first."""
        costs = [self._tile_cost(tile) for tile in range(self.row_tiles)]
        # Tiles that all have the same keys gain less from their order than from the L2 cache.
        most = None if self.causal else max(1, _CACHE_BYTES // self._point_bytes)
        orders = (
            balanced_work(self.sizes.batch, costs, self.blocks, last_first=flag, most_together=most)
            for flag in (True, False)
        )
        return min(orders, key=lambda work: work.makespan)

    @property
    def _point_bytes(self) -> int:
        """Bytes of the keys and values of a point of the batch."""
        return self.sizes.j * (self.sizes.e + self.sizes.f) * BITS[self.element] // 8

    @property
    def has_edges(self) -> bool:
        """Whether some blocks of scores have hidden ones."""
        return self.causal or self.masked or self.has_segments or self.sizes.j % self.keys != 0

    @property
    def cleans_values(self) -> bool:
        """Whether values that are not finite may be hidden from a row that multiplies them by 0.

        Those of other segments have to be finite, as those that a mask hides.
        """
        return self.causal and not self.has_segments

    # --- shared memory --------------------------------------------------------------------------

    @property
    def keys_offset(self) -> int:
        return self.q_slots * self.operands["q"].nbytes

    @property
    def values_offset(self) -> int:
        return self.keys_offset + self.stages * self.operands["k"].nbytes

    @property
    def merge_offset(self) -> int:
        return self.values_offset + self.stages * self.operands["v"].nbytes

    @property
    def partial_values(self) -> int:
        """Values of a thread that consumers of the same rows add: sums, and states of two rows."""
        return self.value_columns // 2 + 4

    @property
    def barriers_offset(self) -> int:
        others = self.tile.consumers - 1 if self.tile.split else 0
        return self.merge_offset + others * self.partial_values * 4 * 128

    @property
    def shared_bytes(self) -> int:
        return self.barriers_offset + RESERVED

    @property
    def cost(self) -> float:
        """Estimated time, for the choice between tiles."""
        # Three consumers overlap softmax and matmuls better than two.
        scores = self.tile.consumers * GROUP_ROWS * self.keys
        return self.work.makespan * scores * _SLOWNESS[self.tile.consumers]


def why_not(attention: Attention, types: set[str]) -> str | None:
    """The reason why an attention has no warpgroup plan at all, whatever its tile."""
    sizes = [attention.size(role) for role in "ijef"]
    nest = attention.nest
    numbers = [n for loop in nest.loops for n in (loop.size, *loop.strides)] + [*nest.offsets]
    if any(not isinstance(number, int) for number in numbers):
        return "it has symbolic sizes"
    if len(types) != 1 or not types <= set(ELEMENTS) or attention.type != "f32":
        return f"operands of {', '.join(sorted(types))} are not all bf16 or f16"
    _, _, e, f = sizes
    if max(e, f) > MOST_FEATURES:
        return f"heads have {max(e, f)} features, and tiles at most {MOST_FEATURES}"
    if e % 8 or f % 8:
        return f"heads have {e} and {f} features, which are not multiples of 8"
    if not prod(attention.nest.loops[i].size for i in attention.batch) or min(sizes) < 1:
        return "it is empty"
    return None


def map_operand(
    attention: Attention, name: str, argument: int, element: str, rows: int
) -> MappedOperand | None:
    """The map of boxes of `rows` rows of an operand; None if the copy engine cannot read it."""
    number, nest = attention.names.index(name), attention.nest
    row_loop, feature_loop = (nest.loops[attention.roles[role]] for role in AXES[name])
    batch = [nest.loops[i] for i in attention.batch]
    loops = [i for i, loop in enumerate(batch) if loop.size > 1 and loop.strides[number]]
    if feature_loop.strides[number] != 1:
        return None
    # A single row may have any stride.
    row_stride = row_loop.strides[number] if row_loop.size > 1 else feature_loop.size
    strides = (row_stride, *(batch[i].strides[number] for i in loops))
    size = BITS[element] // 8
    if 1 + len(strides) > MOST_RANK or not can_map(size, nest.offsets[number], strides):
        return None
    tensor = TensorMap(
        argument,
        nest.offsets[number] * size,
        element,
        (feature_loop.size, row_loop.size, *(batch[i].size for i in loops)),
        tuple(stride * size for stride in strides),
        (BOX_FEATURES, rows, *(1,) * len(loops)),
    )
    return MappedOperand(tensor, tuple(loops), rows, -(-feature_loop.size // BOX_FEATURES))


def plan_forward(
    attention: Attention,
    sizes: AttentionSizes,
    element: str,
    arguments: dict[str, int],
    processors: int,
    tiles: Sequence[Tile],
) -> ForwardPlan | str:
    """The plan with the least estimated cost; the reason where there is none.

    `arguments` are the numbers of the operands among the arguments of the kernel.
    """
    plans = []
    for tile in tiles:
        if tile.keys % 16 or not 0 < tile.keys <= MOST_BOX:
            return f"{tile.keys} keys of a tile are not a multiple of 16, at most {MOST_BOX}"
        if tile.split and tile.keys % GROUP_ROWS:
            return f"{tile.keys} keys of a tile of {GROUP_ROWS} rows are not a multiple of them"
        extents = {"q": tile.rows, "k": tile.keys, "v": tile.keys}
        operands = {}
        for name, rows in extents.items():
            mapped = map_operand(attention, name, arguments[name], element, rows)
            if mapped is None:
                return (
                    f"the copy engine cannot read {name}: rows or offsets are not 16-byte aligned"
                )
            operands[name] = mapped
        spec = attention.spec
        fitting = (
            plan
            for q_slots, stages in ((2, 4), (2, 3), (2, 2), (1, 2))
            if (
                plan := ForwardPlan(
                    sizes,
                    element,
                    spec.causal,
                    spec.masked,
                    spec.has_segments,
                    tile,
                    operands,
                    q_slots,
                    stages,
                    processors,
                )
            ).shared_bytes
            <= MOST_SHARED
        )
        plans += list(fitting)[:1]
    return (
        min(plans, key=lambda plan: plan.cost)
        if plans
        else "no tile of these rows fits into a block"
    )
