"""Matches kernels that add to rows at computed positions, and assigns the rows to warps.

Input: a kernel that is one loop nest which adds to a buffer, with elementwise ops on the whole
buffer before and after it. Output: a `ScatterPlan`, or None. `kernel.py` emits the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.loop_nest import LoopNest, make_loop_nest
from nova.codegen.gpu.block_ops import WARP
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.strategy import default_min_blocks_per_sm
from nova.core.sizes import SizeExpr, ceildiv, known_equal, same_shape
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root
from nova.ir.linalg.generic import shape_of
from nova.ir.symbolic.size_table import Extent, active_table, is_number, typical
from nova.ir.symbolic.size_values import loaded_size

_WARPS = 132 * 16
"""Warps that saturate a large device."""
_MAX_PER_LANE = 4
_FEW = 8
"""Minimum positions per warp where few elements are at each."""
WARPS_PER_BLOCK = 4


@dataclass(frozen=True)
class ScatterLoops:
    """The loops over updates and over the updated elements."""

    loops: tuple[Any, ...]
    update_loops: tuple[int, ...]
    """Which of the loops run over updates; the others are indices of the buffer."""
    target: Any
    axis: int
    """The dimension of the buffer whose index is computed."""
    loop_of_dim: Mapping[int, int]
    """Dimension of the buffer -> the loop that indexes it."""
    position: Any
    """The computed index."""
    position_ops: tuple[Any, ...]
    """The ops that compute the position of an update."""

    @property
    def shape(self) -> tuple[Extent, ...]:
        return shape_of(self.target)

    @property
    def root(self) -> Any:
        """The outermost loop, which is one op of the kernel."""
        return self.loops[0]

    @property
    def row_size(self) -> Extent:
        """Elements at a position."""
        return prod(size for dim, size in enumerate(self.shape) if dim != self.axis)

    @property
    def positions_per_line(self) -> bool:
        """Whether positions differ from line to line: they depend on loops over the buffer."""
        counters = {
            counter_of(loop) for i, loop in enumerate(self.loops) if i not in self.update_loops
        }
        return any(v in counters for op in self.position_ops for v in op.operands)


def match_scatter(kernel: DeviceKernel) -> ScatterLoops | None:
    """Match a kernel that is one such loop nest, with elementwise ops on the whole buffer."""
    if kernel.scratch:
        return None
    unstructured = [op for op in kernel.ops if op.name != "linalg.generic"]
    if len(unstructured) != 1 or unstructured[0].name != "scf.for":
        return None
    match = _match_loops(unstructured[0])
    elementwise = [op for op in kernel.ops if op.name == "linalg.generic"]
    if match is None or not all(
        _accesses_point(make_loop_nest(op), match.shape) for op in elementwise
    ):
        return None
    return match


def _match_loops(root: Any) -> ScatterLoops | None:
    if len(root.results):
        return None
    loops, bodies = _chain(root)
    if loops is None or any(iterations_of(loop) is None for loop in loops):
        return None
    ops = [op for body in bodies for op in body]
    stores = [op for op in ops if op.name == "memref.store"]
    if len(stores) != 1 or any(len(op.regions) for op in ops):
        return None
    target, indices = stores[0].operands[1], list(stores[0].operands)[2:]
    loads = [op for op in ops if op.name == "memref.load"]
    buffers = [target, *[op.operands[0] for op in loads]]
    # Loads with symbolic strides are of flat views.
    symbolic = active_table() is not None
    if any(buffer_root(value) != value for value in (buffers[:1] if symbolic else buffers)):
        return None  # a launch takes arguments of the kernel, not views of them
    if any(buffer_root(op.operands[0]) == target != op.operands[0] for op in loads):
        return None
    if any(op.operands[0] == target and list(op.operands)[1:] != indices for op in loads):
        return None
    counters = {counter_of(loop): i for i, loop in enumerate(loops)}
    loop_of_dim = {d: counters[v] for d, v in enumerate(indices) if v in counters}
    computed = [d for d in range(len(indices)) if d not in loop_of_dim]
    if len(computed) != 1 or len(set(loop_of_dim.values())) != len(loop_of_dim):
        return None
    (axis,) = computed
    update_loops = tuple(i for i in range(len(loops)) if i not in loop_of_dim.values())
    position_ops = _backward_slice(indices[axis], ops)
    position_loads = [op for op in position_ops if op.name == "memref.load"]
    if any(op.operands[0] == target for op in position_loads):
        return None
    shape = shape_of(target)
    if not all(known_equal(iterations_of(loops[i]), shape[d]) for d, i in loop_of_dim.items()):
        return None
    return ScatterLoops(
        tuple(loops), update_loops, target, axis, loop_of_dim, indices[axis], tuple(position_ops)
    )


@dataclass(frozen=True)
class ScatterPlan:
    """The partition of the buffer: positions per warp, and elements of each per lane."""

    match: ScatterLoops
    rows_per_warp: Extent
    elements_per_lane: int

    @property
    def row_groups(self) -> Extent:
        """Groups of positions, each of which has other warps: every `row_groups`th position."""
        positions = self.match.shape[self.match.axis]
        if isinstance(self.rows_per_warp, SizeExpr):
            return 1
        return ceildiv(positions, self.rows_per_warp)

    @property
    def warps(self) -> Extent:
        return self.row_groups * self.row_parts

    @property
    def row_parts(self) -> Extent:
        """Warps that share the elements at a position."""
        return ceildiv(self.match.row_size, WARP * self.elements_per_lane)

    @property
    def blocks(self) -> Extent:
        return ceildiv(self.warps, WARPS_PER_BLOCK)

    @property
    def threads(self) -> int:
        return WARP * WARPS_PER_BLOCK

    @property
    def min_blocks_per_sm(self) -> int:
        return default_min_blocks_per_sm(self.blocks)


def plan_scatter(kernel: DeviceKernel, match: ScatterLoops) -> ScatterPlan:
    """Divide the positions among as many warps as saturate a device."""
    positions, row_size = match.shape[match.axis], match.row_size
    if match.positions_per_line:
        return ScatterPlan(match, positions, 1)  # a lane has all positions of a line
    row_size = typical(row_size)
    per_lane = min(_MAX_PER_LANE, -(-row_size // WARP))
    row_parts = -(-row_size // (WARP * per_lane))
    least = 1 if row_size >= WARP else _FEW
    rows_per_warp = max(least, typical(positions) * row_parts // _WARPS)
    return ScatterPlan(match, rows_per_warp, per_lane)


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


def counter_of(loop: Any) -> Any:
    """The induction variable of a loop."""
    return loop.regions[0].blocks[0].arguments[0]


def iterations_of(loop: Any) -> Extent:
    """The iteration count of a loop that counts from 0 in steps of 1; None for another loop."""
    low, high, step = (_constant(v) for v in list(loop.operands)[:3])
    return high if is_number(low, 0) and is_number(step, 1) else None


def _constant(value: Any) -> Extent:
    if size := loaded_size(value):
        return size
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != "arith.constant":
        return None
    return int(value.owner.operation.attributes["value"].value)


def _backward_slice(value: Any, ops: Sequence[Any]) -> list[Any]:
    """Those of `ops` on which `value` depends, in order (a backward slice)."""
    needed = {value}
    slice_ops = []
    for op in reversed(ops):
        if any(r in needed for r in op.results):
            slice_ops.append(op)
            needed.update(op.operands)
    return slice_ops[::-1]


def _accesses_point(nest: LoopNest, shape: tuple[Extent, ...]) -> bool:
    """Whether an op runs over `shape`, and accesses buffers of that shape at its own point."""
    if not same_shape([loop.size for loop in nest.loops], shape):
        return False
    if not all(loop.parallel for loop in nest.loops):
        return False
    rows = [prod(shape[i + 1 :]) for i in range(len(shape))]
    body = nest.generic.block.operations
    return not any(op.operation.name == "memref.load" for op in body) and all(
        not isinstance(value.type, ir.MemRefType)
        or (
            is_number(nest.offsets[i], 0)
            and all(
                is_number(loop.size, 1) or known_equal(loop.strides[i], step)
                for loop, step in zip(nest.loops, rows, strict=True)
            )
        )
        for i, value in enumerate(nest.generic.op.operands)
    )
