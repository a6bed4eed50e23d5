"""The order of work of persistent blocks, as a record: pure arithmetic, no code.

Input: the costs of the tiles of a point of the batch, which differ if the attention is causal.
Output: a `Work`. Tiles are taken in rounds, one per block, the most expensive first (longest
processing time first, Graham), and every second round is reversed, so that blocks have about the
same work; items of an incomplete round go to the blocks with the least. `work.py` emits the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_CLOSE = 1.01
"""Fewer points together, which share the L2 cache better, may take this much longer."""


@dataclass(frozen=True)
class Work:
    """Tiles of `batch` points, of which `together` are visited tile by tile."""

    batch: int
    tiles: int
    together: int
    blocks: int
    uneven: bool
    last_first: bool
    makespan: float
    """The cost of the tiles of the block with the most."""

    @property
    def items(self) -> int:
        return self.batch * self.tiles


def balanced_work(
    batch: int,
    costs: Sequence[float],
    blocks: int,
    *,
    last_first: bool,
    most_together: int | None = None,
) -> Work:
    """The order with about the least makespan, and as few points together as that allows."""
    tiles = len(costs)
    if len(set(costs)) == 1:
        makespan = -(-batch * tiles // blocks) * costs[0]
        return Work(batch, tiles, 1, blocks, False, last_first, makespan)
    orders = []
    for together in range(1, batch + 1):
        if batch % together == 0 and (most_together is None or together <= most_together):
            makespan = _makespan(batch, costs, together, blocks, last_first)
            orders.append(Work(batch, tiles, together, blocks, True, last_first, makespan))
    least = min(order.makespan for order in orders)
    return next(order for order in orders if order.makespan <= _CLOSE * least)


def _makespan(
    batch: int, costs: Sequence[float], together: int, blocks: int, last_first: bool
) -> float:
    """The same arithmetic as in `work.py`, on all items."""
    numbers = np.arange(batch * len(costs))
    rounds, within = numbers // blocks, numbers % blocks
    block = np.where(rounds % 2 == 1, blocks - 1 - within, within)
    tile = numbers % (together * len(costs)) // together
    if last_first:
        tile = len(costs) - 1 - tile
    return float(np.bincount(block, np.asarray(costs)[tile]).max())
