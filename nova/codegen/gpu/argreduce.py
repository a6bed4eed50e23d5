"""Arg-reductions (argmax, argmin): how threads that each search a part agree on a position.

Input: a reduction to a value and its position, whose body takes the next element when it is better
than the best so far. Output: code that finds the best of every n-th element, and that compares the
results of threads. `generic.py` calls this for the threads of a warp or a block, and
`cluster_argreduce.py` for those of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.builder import splat
from nova.codegen.common.index_math import shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import (
    WARP,
    ThreadPosition,
    barrier,
    butterfly,
    is_equal,
    is_less,
    when,
)
from nova.codegen.gpu.nest_point import NestPoint
from nova.ir.bindings import arith, ir, memref, scf
from nova.ir.clone import clone_into
from nova.ir.index import index
from nova.ir.walk import defining_op

_IN_FLIGHT = 16
"""Elements of a thread that are loaded before the first is compared."""

Best = tuple[Any, Any]
"""A value and its position."""


@dataclass(frozen=True)
class ArgReduce:
    """The parts of the body: the element, its position, whether it is taken, and the condition."""

    element: Any
    position: Any
    replaces: Any
    best: Any
    judges: tuple[Any, ...]

    def empty(self) -> list[Any]:
        """An initial best that the very first element replaces."""
        return [splat(self.best.type, 0), splat(self.position.type, 0)]

    def better(self, new: Any, old: Any, captured: Mapping[Any, Any]) -> Any:
        """Whether an element is better than another; equal ones are not."""
        mapping = dict(captured) | {self.element: new, self.best: old}
        # Only the very first element is taken unconditionally.
        index_type = self.position.type
        mapping[self.position] = arith.ConstantOp(
            index_type, ir.IntegerAttr.get(index_type, 1)
        ).result
        for op in self.judges:
            clone_into(op, mapping)
        return mapping[self.replaces]

    def merge(self, first: Best, second: Best, captured: Mapping[Any, Any]) -> Best:
        """The better of two; of equal ones, the first."""
        wins = self.better(second[0], first[0], captured)
        loses = self.better(first[0], second[0], captured)
        earlier = arith.cmpi(arith.CmpIPredicate.slt, second[1], first[1])
        true = arith.ConstantOp(wins.type, ir.IntegerAttr.get(wins.type, 1)).result
        equal = arith.xori(arith.ori(wins, loses), true)
        chosen = arith.ori(wins, arith.andi(equal, earlier))
        return (
            arith.select(chosen, second[0], first[0]),
            arith.select(chosen, second[1], first[1]),
        )

    def merge_warp(self, lane: Best, captured: Mapping[Any, Any]) -> Best:
        """The best of all lanes, in each of them."""
        value, position = butterfly(
            lane, lambda a, b: list(self.merge((a[0], a[1]), (b[0], b[1]), captured)), WARP
        )
        return value, position

    def merge_block(
        self, best: Best, captured: Mapping[Any, Any], position: ThreadPosition, rooms: Any
    ) -> Best:
        """The best of all threads of a block, in each of them; `rooms` have an element a warp."""
        best = self.merge_warp(best, captured)
        lane = position.lane()
        barrier()  # others may still read the results of an earlier search
        with when(is_equal(lane, index(0))):
            for value, room in zip(best, rooms, strict=True):
                memref.store(value, room, [position.warp()])
        barrier()
        slot = arith.select(is_less(lane, index(position.warps)), lane, index(0))
        value, where = (memref.load(room, [slot]) for room in rooms)
        return self.merge_warp((value, where), captured)


def best_share(
    point: NestPoint, reductions: Sequence[int], extreme: ArgReduce, first: Any, step: int
) -> Best:
    """The best of every `step`th element from `first` on, which exists."""
    elements, (row,) = point.elements, (point.nest.loops[i] for i in reductions)
    element = point.at(reductions, [first])
    inputs = elements.load_inputs(element.bases)
    # The very first element is taken unconditionally: so is the first one of each worker.
    start = {**element.ivs, row.dims[0]: index(0)}
    value, _ = elements.apply([*inputs, *extreme.empty()], start)
    begin = [value, arith.index_cast(extreme.position.type, first)]
    if isinstance(row.size, int) and row.size > 2 * step:
        return _best_batches(point, reductions, first, step, begin)
    loop = scf.ForOp(arith.addi(first, index(step)), index(row.size), index(step), begin)
    with ir.InsertionPoint(loop.body):
        element = point.at(reductions, [loop.induction_variable])
        scf.YieldOp(element.apply(loop.inner_iter_args))
    return loop.results[0], loop.results[1]


def _best_batches(
    point: NestPoint, reductions: Sequence[int], first: Any, step: int, best: list[Any]
) -> Best:
    """Compare batches of elements, whose loads are in flight together, with the best so far.

    The last batch has the first element again instead of those after the end: it is not better
    than itself.
    """
    elements, (row,) = point.elements, (point.nest.loops[i] for i in reductions)
    count = -(-row.size // step) - 1
    batch = min(_IN_FLIGHT, count)
    loop = scf.ForOp(index(step), index(count * step + 1), index(batch * step), best)
    with ir.InsertionPoint(loop.body):
        values = list(loop.inner_iter_args)
        start = arith.addi(first, loop.induction_variable)
        numbers = [shifted(start, k * step) for k in range(batch)]
        inside = [is_less(number, index(row.size)) for number in numbers]
        spots = [
            point.at(reductions, [arith.select(exists, number, first)])
            for exists, number in zip(inside, numbers, strict=True)
        ]
        loaded = [elements.load_inputs(spot.bases) for spot in spots]
        for spot, inputs in zip(spots, loaded, strict=True):
            values = elements.apply([*inputs, *values], spot.ivs)
        scf.YieldOp(values)
    return loop.results[0], loop.results[1]


def find_extreme(nest: LoopNest) -> ArgReduce | None:
    """Match a body that computes a position along its single reduction; else None."""
    generic = nest.generic
    reductions = [loop for loop in nest.loops if not loop.parallel]
    if generic.num_outputs != 2 or len(reductions) != 1:
        return None
    *body, last = [op.operation for op in generic.block.operations]
    best, where = list(generic.block.arguments)[generic.num_inputs :]
    chosen = [defining_op(value, "arith.select") for value in last.operands]
    if chosen[0] is None or chosen[1] is None:
        return None
    (replaces, element, old), (also_replaces, position, old_position) = (
        list(op.operands) for op in chosen if op
    )
    cast = defining_op(position, "arith.index_cast")
    counter = defining_op(cast.operands[0], "linalg.index") if cast is not None else None
    if replaces != also_replaces or old != best or old_position != where or counter is None:
        return None
    if (int(counter.attributes["dim"].value),) != reductions[0].dims:
        return None
    needed, judges = {replaces}, []
    for op in reversed(body):
        results = list(op.results)
        if any(r in needed for r in results) and element not in results and position not in results:
            judges.append(op)
            needed.update(op.operands)
    if not any(_is_first(op, position) for op in judges):
        return None
    matched = {element, position, best}
    inside = {r for op in judges for r in op.results} | matched
    arguments = set(generic.block.arguments) - matched
    if needed & arguments or where in needed or any(len(op.regions) for op in judges):
        return None
    outside = {r for op in body for r in op.results} - inside
    return (
        None
        if needed & outside
        else ArgReduce(element, position, replaces, best, tuple(judges[::-1]))
    )


def _is_first(op: Any, position: Any) -> bool:
    """Whether an op tests for position 0."""
    if op.name != "arith.cmpi" or int(op.attributes["predicate"].value) != arith.CmpIPredicate.eq:
        return False
    constant = defining_op(op.operands[1], "arith.constant")
    return (
        op.operands[0] == position
        and constant is not None
        and int(constant.attributes["value"].value) == 0
    )
