"""Matches kernels that add to rows at computed positions, and assigns the rows to warps.

Input: a kernel that is one loop nest which adds to a buffer, with elementwise ops on the whole
buffer before and after it. Output: a `ScatterPlan`, or None. `schedule.py` calls this; `scatter.py`
emits the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.loop_nest import LoopNest, make_loop_nest
from nova.codegen.gpu.block_ops import WARP
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root

_WARPS = 132 * 16
"""Warps that saturate a large device."""
_PER_LANE = 4
_FEW = 8
"""Minimum positions per warp where few elements are at each."""
BLOCK = 4
"""Warps of a block."""


@dataclass(frozen=True)
class ScatterPlan:
    """The loops over updates and over the updated elements, and the partition of the buffer."""

    loop: Any
    loops: tuple[Any, ...]
    turns: tuple[int, ...]
    """Which of the loops run over updates; the others are indices of the buffer."""
    target: Any
    shape: tuple[int, ...]
    axis: int
    along: Mapping[int, int]
    """Dimension of the buffer -> the loop that indexes it."""
    position: tuple[Any, ...]
    """The ops that compute the position of an update."""
    wanted: Any
    rows: int
    """Positions per warp."""
    per_lane: int
    by_lines: bool
    """Whether a lane has all positions of a line: positions differ from line to line."""

    @property
    def part(self) -> int:
        """Elements at a position."""
        return prod(self.shape) // self.shape[self.axis]

    @property
    def warps(self) -> int:
        return -(-self.shape[self.axis] // self.rows) * self.strips

    @property
    def strips(self) -> int:
        return -(-self.part // (WARP * self.per_lane))

    @property
    def blocks(self) -> int:
        return -(-self.warps // BLOCK)

    @property
    def threads(self) -> int:
        return WARP * BLOCK


def plan_scatter(ops: Sequence[Any]) -> ScatterPlan | None:
    """The plan for a kernel of `ops`, if one of them is such a loop nest."""
    others = [op for op in ops if op.name != "linalg.generic"]
    if len(others) != 1 or others[0].name != "scf.for" or len(others[0].results):
        return None
    loops, bodies = _chain(others[0])
    if loops is None or any(iterations_of(loop) is None for loop in loops):
        return None
    every = [op for body in bodies for op in body]
    stores = [op for op in every if op.name == "memref.store"]
    if len(stores) != 1 or any(len(op.regions) for op in every):
        return None
    target, indices = stores[0].operands[1], list(stores[0].operands)[2:]
    read = [op for op in every if op.name == "memref.load"]
    buffers = [target, *[op.operands[0] for op in read]]
    if any(buffer_root(value) != value for value in buffers):
        return None  # a launch takes arguments of the kernel, not views of them
    if any(op.operands[0] == target and list(op.operands)[1:] != indices for op in read):
        return None
    counters = {loop.regions[0].blocks[0].arguments[0]: i for i, loop in enumerate(loops)}
    along = {d: counters[v] for d, v in enumerate(indices) if v in counters}
    computed = [d for d in range(len(indices)) if d not in along]
    if len(computed) != 1 or len(set(along.values())) != len(along):
        return None
    (axis,) = computed
    turns = tuple(i for i in range(len(loops)) if i not in along.values())
    position = _makers(indices[axis], every)
    own = {v for v, i in counters.items() if i not in turns}
    used = {v for op in position for v in op.operands}
    loads = [op for op in position if op.name == "memref.load"]
    if any(op.operands[0] == target for op in loads):
        return None
    shape = tuple(target.type.shape)
    if any(iterations_of(loops[i]) != shape[d] for d, i in along.items()):
        return None
    around = [op for op in ops if op.name == "linalg.generic"]
    if not all(_at_own_elements(make_loop_nest(op), shape) for op in around):
        return None
    part = prod(shape) // shape[axis]
    by_lines = bool(used & own)
    per_lane = 1 if by_lines else min(_PER_LANE, -(-part // WARP))
    strips = -(-part // (WARP * per_lane))
    rows = max(1 if part >= WARP else _FEW, shape[axis] * strips // _WARPS)
    if by_lines:
        rows = shape[axis]
    return ScatterPlan(
        others[0],
        tuple(loops),
        turns,
        target,
        shape,
        axis,
        along,
        tuple(position),
        indices[axis],
        rows,
        per_lane,
        by_lines,
    )


def _chain(loop: Any) -> tuple[list[Any] | None, list[list[Any]]]:
    """Perfectly nested loops, and the other ops of each; None if a loop has several loops."""
    loops, bodies = [], []
    while loop is not None:
        inside = [op.operation for op in loop.regions[0].blocks[0].operations]
        inner = [op for op in inside if op.name == "scf.for"]
        if len(inner) > 1 or len(loop.results):
            return None, []
        loops.append(loop)
        bodies.append([op for op in inside if op.name not in ("scf.for", "scf.yield")])
        loop = inner[0] if inner else None
    return loops, bodies


def iterations_of(loop: Any) -> int | None:
    """The iteration count of a loop that counts from 0 in steps of 1."""
    low, high, step = (_constant(v) for v in list(loop.operands)[:3])
    return high if low == 0 and step == 1 else None


def _constant(value: Any) -> int | None:
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != "arith.constant":
        return None
    return int(value.owner.operation.attributes["value"].value)


def _makers(value: Any, ops: Sequence[Any]) -> list[Any]:
    """Those of `ops` on which `value` depends, in order (a backward slice)."""
    needed = {value}
    found = []
    for op in reversed(ops):
        if any(r in needed for r in op.results):
            found.append(op)
            needed.update(op.operands)
    return found[::-1]


def _at_own_elements(nest: LoopNest, shape: tuple[int, ...]) -> bool:
    """Whether an op runs over `shape`, and accesses buffers of that shape at its own point."""
    if tuple(loop.size for loop in nest.loops) != shape:
        return False
    if not all(loop.parallel for loop in nest.loops):
        return False
    rows = [prod(shape[i + 1 :]) for i in range(len(shape))]
    body = nest.generic.block.operations
    return not any(op.operation.name == "memref.load" for op in body) and all(
        not isinstance(value.type, ir.MemRefType)
        or (
            nest.offsets[i] == 0
            and all(
                loop.size == 1 or loop.strides[i] == step
                for loop, step in zip(nest.loops, rows, strict=True)
            )
        )
        for i, value in enumerate(nest.generic.op.operands)
    )
