"""Scatter-add to rows at computed positions, such as the gradient of an embedding: warps own rows.

Input: a `ScatterPlan`. Output: the code of a warp. A warp owns some positions and some of the
elements at each. It scans all updates, one per lane, and applies those at its own positions with
all lanes, in order. Where each line of the buffer has positions of its own, a lane owns a line. So
one thread touches each element, sums have the order of the loops, and there is no synchronization.
`launch.py` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import advance, index, shifted
from nova.codegen.common.loop_nest import make_loop_nest
from nova.codegen.gpu.block_ops import WARP, Place, ballot, is_less, split, when
from nova.codegen.gpu.scatter_plan import BLOCK, ScatterPlan, iterations_of
from nova.ir.bindings import arith, ir, scf
from nova.ir.clone import clone_into


class ScatterCode:
    """Emits the ops of the kernel for one warp."""

    def __init__(self, plan: ScatterPlan, place: Place):
        self.plan = plan
        self.lane = place.lane()
        number = arith.addi(arith.muli(place.block, index(BLOCK)), place.warp())
        self.exists = is_less(number, index(plan.warps)) if plan.warps % BLOCK else None
        first, strip = split(number, [plan.warps // plan.strips, plan.strips])
        self.first = first if plan.rows == 1 else arith.muli(first, index(plan.rows))
        begin = arith.muli(strip, index(WARP * plan.per_lane))
        begin = arith.addi(begin, self.lane)
        self.parts = [shifted(begin, k * WARP) for k in range(plan.per_lane)]

    def elementwise(self, op: Any, flat: Any, captured: Mapping[Any, Any]) -> None:
        """Emit one op on the warp's elements of the whole buffer."""
        nest = make_loop_nest(op)
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
        """Emit the loops: scan 32 iterations at a time, and run the warp's own."""
        plan = self.plan
        sizes = [iterations_of(plan.loops[i]) or 0 for i in plan.turns]
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
        """The addends of an iteration, in each lane at its own elements."""
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

    # --- positions --------------------------------------------------------------------------------

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
    """The number of set bits (popcount)."""
    return ir.Operation.create("math.ctpop", [mask.type], [mask]).results[0]
