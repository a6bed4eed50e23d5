"""Adding to rows at computed positions, such as the gradient of an embedding: warps own rows.

In: a kernel that is one nest of loops which add to a buffer, with elementwise work on the whole
buffer before and behind. Out: a `ScatterPlan`, or None, and the code of a warp. A warp owns some
positions and some of what lies at each. It goes through all turns of the loops, a lane each,
and those whose position is its own it does together, in order. Where each line of the buffer has
positions of its own, a lane owns a line. So every element is touched by one thread, sums have the
order of the loops, and nothing waits. `kernel.py` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.mlir.bindings import arith, ir, scf
from nova.mlir.buffers import buffer_root
from nova.mlir.clone import clone_into
from nova.schedules.cuda.threads import WARP, Place, ballot, is_less, split, when
from nova.schedules.elements import Elements
from nova.schedules.nest import Nest, make_nest
from nova.schedules.positions import advance, index, shifted

_WARPS = 132 * 16
"""Warps that keep a large device busy."""
_PER_LANE = 4
_FEW = 8
"""Positions that a warp has at least where little lies at each."""
_BLOCK = 4
"""Warps of a block."""


@dataclass(frozen=True)
class ScatterPlan:
    """The loops of the turns and of what a turn adds to, and how the buffer is divided."""

    loop: Any
    loops: tuple[Any, ...]
    turns: tuple[int, ...]
    """Which of the loops are gone through; the others are indices of the buffer."""
    target: Any
    shape: tuple[int, ...]
    axis: int
    along: Mapping[int, int]
    """Dimension of the buffer -> which loop is its index."""
    position: tuple[Any, ...]
    """The ops that compute the position of a turn."""
    wanted: Any
    rows: int
    """Positions that a warp has."""
    per_lane: int
    by_lines: bool
    """Whether a lane has all positions of a line: what is added where differs from line to line."""

    @property
    def part(self) -> int:
        """What lies at a position."""
        return prod(self.shape) // self.shape[self.axis]

    @property
    def warps(self) -> int:
        return -(-self.shape[self.axis] // self.rows) * self.strips

    @property
    def strips(self) -> int:
        return -(-self.part // (WARP * self.per_lane))

    @property
    def blocks(self) -> int:
        return -(-self.warps // _BLOCK)

    @property
    def threads(self) -> int:
        return WARP * _BLOCK


def plan_scatter(ops: Sequence[Any]) -> ScatterPlan | None:
    """The plan for a kernel of `ops`, if one of them is such a nest of loops."""
    others = [op for op in ops if op.name != "linalg.generic"]
    if len(others) != 1 or others[0].name != "scf.for" or len(others[0].results):
        return None
    loops, bodies = _chain(others[0])
    if loops is None or any(_extent(loop) is None for loop in loops):
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
    if any(_extent(loops[i]) != shape[d] for d, i in along.items()):
        return None
    around = [op for op in ops if op.name == "linalg.generic"]
    if not all(_at_own_elements(make_nest(op), shape) for op in around):
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
    """Loops that stand alone in each other, and the other ops of each; None if there are more."""
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


def _extent(loop: Any) -> int | None:
    """The turns of a loop that counts from 0 in steps of 1."""
    low, high, step = (_constant(v) for v in list(loop.operands)[:3])
    return high if low == 0 and step == 1 else None


def _constant(value: Any) -> int | None:
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != "arith.constant":
        return None
    return int(value.owner.operation.attributes["value"].value)


def _makers(value: Any, ops: Sequence[Any]) -> list[Any]:
    """Those of `ops` that `value` depends on, in order."""
    needed = {value}
    found = []
    for op in reversed(ops):
        if any(r in needed for r in op.results):
            found.append(op)
            needed.update(op.operands)
    return found[::-1]


def _at_own_elements(nest: Nest, shape: tuple[int, ...]) -> bool:
    """Whether an op goes through `shape`, and reads and writes what has it at the same place."""
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


class ScatterCode:
    """Emits the ops of the kernel for one warp."""

    def __init__(self, plan: ScatterPlan, place: Place):
        self.plan = plan
        self.lane = place.lane()
        number = arith.addi(arith.muli(place.block, index(_BLOCK)), place.warp())
        self.exists = is_less(number, index(plan.warps)) if plan.warps % _BLOCK else None
        first, strip = split(number, [plan.warps // plan.strips, plan.strips])
        self.first = first if plan.rows == 1 else arith.muli(first, index(plan.rows))
        begin = arith.muli(strip, index(WARP * plan.per_lane))
        begin = arith.addi(begin, self.lane)
        self.parts = [shifted(begin, k * WARP) for k in range(plan.per_lane)]

    def elementwise(self, op: Any, flat: Any, captured: Mapping[Any, Any]) -> None:
        """One op on the warp's elements of the whole buffer."""
        nest = make_nest(op)
        elements = Elements(nest, [flat(v) for v in op.operands], captured)

        def at_position(position: Any) -> None:
            for part in self.parts:
                with when(self._owns(part, position)):
                    bases: list[Any] = [None] * len(op.operands)
                    ivs = {}
                    for i, counter in enumerate(self._indices(part, position)):
                        bases = advance(bases, counter, nest.loops[i])
                        ivs[nest.loops[i].dims[0]] = counter
                    elements.store(elements.apply(elements.load_all(bases), ivs), bases)

        if self.plan.rows == 1:
            at_position(self.first)
            return
        loop = scf.ForOp(index(0), index(self.plan.rows), index(1))
        with ir.InsertionPoint(loop.body):
            at_position(arith.addi(self.first, loop.induction_variable))
            scf.YieldOp([])

    def add(self, captured: Mapping[Any, Any]) -> None:
        """The loops: turns of 32 at a time are looked at, and the warp's own are done."""
        plan = self.plan
        sizes = [_extent(plan.loops[i]) or 0 for i in plan.turns]
        count = prod(sizes)
        if plan.by_lines:
            loop = scf.ForOp(index(0), index(count), index(1))
            with ir.InsertionPoint(loop.body):
                self._turn(split(loop.induction_variable, sizes), captured)
                scf.YieldOp([])
            return
        i32 = ir.IntegerType.get_signless(32)
        loop = scf.ForOp(index(0), index(count), index(WARP))
        with ir.InsertionPoint(loop.body):
            base = loop.induction_variable
            turn = arith.addi(base, self.lane)
            mask = ballot(self._is_own(turn, sizes, count, captured))
            one = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, 1)).result
            zero = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, 0)).result
            many = arith.index_castui(ir.IndexType.get(), _ones(mask))
            each = scf.ForOp(index(0), many, index(1), [mask])
            with ir.InsertionPoint(each.body):
                left = each.inner_iter_args[0]
                lowest = arith.andi(left, arith.subi(zero, left))
                below = _ones(arith.subi(lowest, one))
                number = arith.addi(base, arith.index_castui(ir.IndexType.get(), below))
                self._turn(split(number, sizes), captured)
                scf.YieldOp([arith.xori(left, lowest)])
            scf.YieldOp([])

    def _is_own(self, turn: Any, sizes: Sequence[int], count: int, captured: Any) -> Any:
        i1 = ir.IntegerType.get_signless(1)

        def own() -> Any:
            mapping = self._counters(split(turn, sizes), captured)
            for op in self.plan.position:
                clone_into(op, mapping)
            offset = arith.subi(mapping.get(self.plan.wanted, self.plan.wanted), self.first)
            return is_less(offset, index(self.plan.rows))

        guards = [is_less(turn, index(count))] if count % WARP else []
        if self.exists is not None:
            guards.append(self.exists)
        if not guards:
            return own()
        guard = guards[0] if len(guards) == 1 else arith.andi(*guards)
        op = scf.IfOp(guard, [i1], has_else=True)
        with ir.InsertionPoint(op.then_block):
            scf.YieldOp([own()])
        with ir.InsertionPoint(op.else_block):
            scf.YieldOp([arith.ConstantOp(i1, ir.IntegerAttr.get(i1, 0)).result])
        return op.results[0]

    def _turn(self, counters: Sequence[Any], captured: Mapping[Any, Any]) -> None:
        """What a turn adds, in each lane at its own elements."""
        for part in self.parts:
            with when(self._inside(part)):
                mapping = self._counters(counters, captured)
                own = self._split(part)
                dims = [d for d in range(len(self.plan.shape)) if d != self.plan.axis]
                for dim, counter in zip(dims, own, strict=True):
                    loop = self.plan.loops[self.plan.along[dim]]
                    mapping[loop.regions[0].blocks[0].arguments[0]] = counter
                for loop in self.plan.loops:
                    for op in loop.regions[0].blocks[0].operations:
                        if op.operation.name not in ("scf.for", "scf.yield"):
                            clone_into(op.operation, mapping)

    # --- places -----------------------------------------------------------------------------------

    def _counters(self, counters: Sequence[Any], captured: Mapping[Any, Any]) -> dict[Any, Any]:
        mapping = dict(captured)
        for i, counter in zip(self.plan.turns, counters, strict=True):
            mapping[self.plan.loops[i].regions[0].blocks[0].arguments[0]] = counter
        return mapping

    def _split(self, part: Any) -> list[Any]:
        shape, axis = self.plan.shape, self.plan.axis
        return split(part, [size for d, size in enumerate(shape) if d != axis])

    def _indices(self, part: Any, position: Any) -> list[Any]:
        own = self._split(part)
        return [*own[: self.plan.axis], position, *own[self.plan.axis :]]

    def _inside(self, part: Any) -> Any:
        inside = is_less(part, index(self.plan.part))
        return inside if self.exists is None else arith.andi(inside, self.exists)

    def _owns(self, part: Any, position: Any) -> Any:
        return arith.andi(
            self._inside(part), is_less(position, index(self.plan.shape[self.plan.axis]))
        )


def _ones(mask: Any) -> Any:
    """The number of bits that are set."""
    return ir.Operation.create("math.ctpop", [mask.type], [mask]).results[0]
