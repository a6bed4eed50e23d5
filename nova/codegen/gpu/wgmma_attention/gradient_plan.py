"""Plans of the gradients of warpgroup attention: pure arithmetic, no code.

Input: an `Attention` that is a gradient. Output: a `GradientPlan`, or the reason why there is none.

A launch has one or more parts. A part has some of the results: its tiles are rows of k and v (or of
q), which stay in shared memory while the rows of q and g (or of k and v) pass through a ring. So
each result is summed in the registers of one warpgroup, in a fixed order, without atomics; scores
are recomputed in each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nova.codegen.common.match_attention import Attention
from nova.codegen.gpu.attention.plan import AttentionSizes
from nova.codegen.gpu.wgmma_attention.balance import Work, balanced_work
from nova.codegen.gpu.wgmma_attention.plan import (
    GROUP_ROWS,
    MOST_SHARED,
    RESERVED,
    MappedOperand,
    map_operand,
)

CONSUMERS = 2
REGISTERS, WIDE_REGISTERS = (40, 232), (24, 240)
"""Registers of a thread of the producer, and of a consumer; those of more than 64 features."""
STATISTICS_BYTES = 1024
"""Bytes of a stage for the logsumexp and delta of its rows."""
_TILE_OVERHEAD = 1.5
_BARRIER_BYTES = 256
"""Bytes of shared memory for the barriers of a part."""


@dataclass(frozen=True)
class GradientPart:
    """The results `results`: tiles of 64 rows per consumer, and blocks of `passing` rows."""

    sizes: AttentionSizes
    causal: bool
    results: tuple[str, ...]
    passing: int
    stages: int
    operands: dict[str, MappedOperand]
    """Those that stay, then those that pass."""
    processors: int

    @property
    def has_keys(self) -> bool:
        """Whether tiles are rows of k and v: then scores are transposed."""
        return "q" not in self.results

    @property
    def needs_slopes(self) -> bool:
        """Whether the gradient of the weights is needed, as for all results but v."""
        return self.results != ("v",)

    @property
    def fixed_names(self) -> tuple[str, ...]:
        return fixed_names(self.results)

    @property
    def passing_names(self) -> tuple[str, ...]:
        return ("q", "g") if self.has_keys else ("k", "v")

    @property
    def tile_rows(self) -> int:
        return CONSUMERS * GROUP_ROWS

    @property
    def rows(self) -> int:
        """Rows of q of a block of scores."""
        return self.passing if self.has_keys else self.tile_rows

    @property
    def keys(self) -> int:
        return self.tile_rows if self.has_keys else self.passing

    @property
    def extents(self) -> tuple[int, int]:
        """The size along which tiles lie, and that along which blocks pass."""
        return (self.sizes.j, self.sizes.i) if self.has_keys else (self.sizes.i, self.sizes.j)

    @property
    def tiles(self) -> int:
        return -(-self.extents[0] // self.tile_rows)

    def block_range(self, tile: int) -> tuple[int, int]:
        """The blocks that pass a tile; at least one, so that the first matmul has an operand."""
        high = -(-self.extents[1] // self.passing)
        if not self.causal:
            return 0, high
        first = tile * self.tile_rows
        if self.has_keys:
            return min(first // self.passing, high - 1), high
        return 0, min(high, -(-(first + self.tile_rows) // self.passing))

    @cached_property
    def work(self) -> Work:
        """The order of the tiles: with `causal`, the first keys, and the last rows, have the most
        blocks."""
        counts = [high - low for low, high in map(self.block_range, range(self.tiles))]
        costs = [count + _TILE_OVERHEAD for count in counts]
        blocks = min(self.sizes.batch * self.tiles, self.processors)
        return balanced_work(self.sizes.batch, costs, blocks, last_first=not self.has_keys)

    # --- shared memory --------------------------------------------------------------------------

    @property
    def fixed_bytes(self) -> int:
        return sum(self.operands[name].nbytes for name in self.fixed_names)

    @property
    def passing_bytes(self) -> int:
        return sum(self.operands[name].nbytes for name in self.passing_names)

    @property
    def stage_bytes(self) -> int:
        return self.passing_bytes + (STATISTICS_BYTES if self.has_keys else 0)

    @property
    def tile_bytes(self) -> int:
        return self.fixed_bytes + self.stages * self.stage_bytes


def fixed_names(results: tuple[str, ...]) -> tuple[str, ...]:
    """The operands that stay in shared memory."""
    if "q" in results:
        return ("q", "g")
    return ("k",) if results == ("v",) else ("k", "v")


@dataclass(frozen=True)
class GradientPlan:
    """The parts of a launch, one after the other."""

    sizes: AttentionSizes
    element: str
    parts: tuple[GradientPart, ...]

    @property
    def threads(self) -> int:
        return 128 * (1 + CONSUMERS)

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a thread of the producer, and of a consumer."""
        return REGISTERS if max(self.sizes.e, self.sizes.f) <= 64 else WIDE_REGISTERS

    @property
    def blocks(self) -> int:
        return max(part.work.blocks for part in self.parts)

    @property
    def barriers_offset(self) -> int:
        return max(part.tile_bytes for part in self.parts)

    def part_barriers(self, number: int) -> int:
        """The offset of the barriers of a part."""
        return self.barriers_offset + _BARRIER_BYTES * number

    @property
    def shared_bytes(self) -> int:
        return self.barriers_offset + RESERVED

    @property
    def maps(self) -> tuple[tuple[int, str], ...]:
        """The tensor maps, in the order of parameters: each operand of each part."""
        return tuple((n, name) for n, part in enumerate(self.parts) for name in part.operands)


def gradient_parts(features: int, *, masked: bool = False) -> dict[tuple[str, ...], int]:
    """Results of a part -> rows of the blocks that pass, by the registers of a thread.

    A thread has 64 x features sums of each result, and two blocks of 64 x rows scores. The values
    of a mask take as many registers as a block of scores.
    """
    if features <= 64:
        return {("k", "v"): 64, ("q",): 64 if masked else 128}
    if features <= 128:
        return {("k", "v"): 64, ("q",): 64}
    if features <= 192:
        return {("v",): 64, ("k",): 64, ("q",): 64}
    return {("v",): 64, ("k",): 32, ("q",): 32}


def plan_gradient(
    attention: Attention,
    sizes: AttentionSizes,
    element: str,
    arguments: dict[str, int],
    processors: int,
    passing_rows: dict[tuple[str, ...], int],
) -> GradientPlan | str:
    """The plan; the reason where there is none."""
    parts = []
    for results, passing in passing_rows.items():
        wanted = tuple(name for name in results if name in attention.spec.results)
        if not wanted:
            continue
        part = _plan_part(attention, sizes, element, arguments, processors, wanted, passing)
        if isinstance(part, str):
            return part
        parts.append(part)
    return GradientPlan(sizes, element, tuple(parts))


def _plan_part(
    attention: Attention,
    sizes: AttentionSizes,
    element: str,
    arguments: dict[str, int],
    processors: int,
    results: tuple[str, ...],
    passing: int,
) -> GradientPart | str:
    fixed: Sequence[str] = fixed_names(results)
    passing_names = ("k", "v") if "q" in results else ("q", "g")
    operands = {}
    for name in (*fixed, *passing_names):
        rows = CONSUMERS * GROUP_ROWS if name in fixed else passing
        mapped = map_operand(attention, name, arguments[name], element, rows)
        if mapped is None:
            return f"the copy engine cannot read {name}: rows or offsets are not 16-byte aligned"
        operands[name] = mapped
    causal = attention.spec.causal
    for stages in (4, 3, 2):
        part = GradientPart(sizes, causal, results, passing, stages, operands, processors)
        if part.tile_bytes + RESERVED <= MOST_SHARED:
            return part
    return "no tile fits into shared memory"
