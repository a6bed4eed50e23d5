"""Scatter-add to rows at computed positions, such as the gradient of an embedding: warps own rows.

Input: a `ScatterPlan`. Output: the code of a warp. A warp owns every `row_groups`th position, and
some of the elements at each: frequent positions next to each other have different warps. It scans
all updates, some per lane, and applies those at its own positions with all lanes, in order. Where
each line of the buffer has positions of its own, a lane owns a line. So one thread touches each
element, sums have the order of the loops, and there is no synchronization.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any

from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import advance, shifted
from nova.codegen.common.loop_nest import make_loop_nest
from nova.codegen.gpu.block_ops import WARP, ThreadPosition, ballot, is_equal, is_less, split, when
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.scatter.plan import (
    WARPS_PER_BLOCK,
    ScatterPlan,
    counter_of,
    iterations_of,
    match_scatter,
    plan_scatter,
)
from nova.codegen.gpu.strategy import Strategy
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir, scf
from nova.ir.clone import clone_into
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent, is_number

_SCANNED, _TOGETHER = 4, 4
"""Positions of a lane whose loads do not wait for each other, and updates of a warp likewise."""


class ScatterCode:
    """Emits the ops of the kernel for one warp."""

    def __init__(self, plan: ScatterPlan, position: ThreadPosition):
        self.plan = plan
        self.match = plan.match
        self.lane = position.lane()
        number = arith.addi(arith.muli(position.block, index(WARPS_PER_BLOCK)), position.warp())
        ragged = not is_multiple(plan.warps, WARPS_PER_BLOCK)
        self.exists = is_less(number, index(plan.warps)) if ragged else None
        self.first, row_part = split(number, [plan.row_groups, plan.row_parts])
        begin = arith.muli(row_part, index(WARP * plan.elements_per_lane))
        begin = arith.addi(begin, self.lane)
        self.parts = [shifted(begin, k * WARP) for k in range(plan.elements_per_lane)]

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

        if is_number(self.plan.rows_per_warp, 1):
            at_position(self.first)
            return
        loop = scf.ForOp(index(0), index(self.plan.rows_per_warp), index(1))
        with ir.InsertionPoint(loop.body):
            step = arith.muli(loop.induction_variable, index(self.plan.row_groups))
            at_position(arith.addi(self.first, step))
            scf.YieldOp([])

    def add(self, captured: Mapping[Any, Any]) -> None:
        """Emit the loops: scan 32 iterations at a time, and run the warp's own."""
        match = self.match
        sizes = [iterations_of(match.loops[i]) for i in match.update_loops]
        count = prod(sizes)
        if match.positions_per_line:
            loop = scf.ForOp(index(0), index(count), index(1))
            with ir.InsertionPoint(loop.body):
                self._add_update(split(loop.induction_variable, sizes), captured)
                scf.YieldOp([])
            return
        scanned = next(n for n in (_SCANNED, 1) if n == 1 or is_multiple(count, n * WARP))
        loop = scf.ForOp(index(0), index(count), index(scanned * WARP))
        with ir.InsertionPoint(loop.body):
            bases = [shifted(loop.induction_variable, k * WARP) for k in range(scanned)]
            numbers = [arith.addi(base, self.lane) for base in bases]
            masks = [ballot(self._owns_update(n, sizes, count, captured)) for n in numbers]
            for base, mask in zip(bases, masks, strict=True):
                self._add_owned(base, mask, sizes, captured)
            scf.YieldOp([])

    def _add_owned(
        self, base: Any, mask: Any, sizes: Sequence[Extent], captured: Mapping[Any, Any]
    ) -> None:
        """Add the updates from `base` on whose bits are set, in order, some of them at a time.

        What they add is loaded before the first of them changes the buffer.
        """
        i32, to_index = ir.IntegerType.get_signless(32), ir.IndexType.get()
        zero, unit = (arith.ConstantOp(i32, ir.IntegerAttr.get(i32, n)).result for n in (0, 1))
        owned = arith.index_castui(to_index, _popcount(mask))
        each = scf.ForOp(index(0), owned, index(_TOGETHER), [mask])
        with ir.InsertionPoint(each.body):
            remaining = each.inner_iter_args[0]
            numbers: list[Any] = []
            exists: list[Any] = []
            for _ in range(_TOGETHER):
                lowest = arith.andi(remaining, arith.subi(zero, remaining))
                below = _popcount(arith.subi(lowest, unit))
                number = arith.addi(base, arith.index_castui(to_index, below))
                is_set = arith.cmpi(arith.CmpIPredicate.ne, remaining, zero)
                # Past the last update, the first one is loaded again.
                numbers.append(arith.select(is_set, number, numbers[0]) if numbers else number)
                exists.append(is_set)
                remaining = arith.xori(remaining, lowest)
            updates = [self._load_update(split(number, sizes), captured) for number in numbers]
            for store, is_set in zip(updates, [None, *exists[1:]], strict=True):
                with nullcontext() if is_set is None else when(is_set):
                    store()
            scf.YieldOp([remaining])

    def _owns_update(
        self, number: Any, sizes: Sequence[Extent], count: Extent, captured: Mapping[Any, Any]
    ) -> Any:
        """Whether update `number` is at a position of the warp."""
        i1 = ir.IntegerType.get_signless(1)

        def is_owned() -> Any:
            mapping = self._counters(split(number, sizes), captured)
            for op in self.match.position_ops:
                clone_into(op, mapping)
            position = mapping.get(self.match.position, self.match.position)
            if not is_number(self.plan.rows_per_warp, 1):
                position = arith.remui(position, index(self.plan.row_groups))
            return is_equal(position, self.first)

        guards = [] if is_multiple(count, WARP) else [is_less(number, index(count))]
        if self.exists is not None:
            guards.append(self.exists)
        if not guards:
            return is_owned()
        guard = guards[0] if len(guards) == 1 else arith.andi(*guards)
        op = scf.IfOp(guard, [i1], has_else=True)
        with ir.InsertionPoint(op.then_block):
            scf.YieldOp([is_owned()])
        with ir.InsertionPoint(op.else_block):
            scf.YieldOp([arith.ConstantOp(i1, ir.IntegerAttr.get(i1, 0)).result])
        return op.results[0]

    def _add_update(self, counters: Sequence[Any], captured: Mapping[Any, Any]) -> None:
        """Add one update, in each lane at its own elements."""
        for part in self.parts:
            inside = self._inside(part)
            with nullcontext() if inside is None else when(inside):
                mapping = self._mapping(part, counters, captured)
                for op in self._body():
                    clone_into(op, mapping)

    def _load_update(
        self, counters: Sequence[Any], captured: Mapping[Any, Any]
    ) -> Callable[[], None]:
        """Load the addends of an update; the result adds them to the buffer.

        Warps that do not exist have no updates. Elements past the end of a row are not loaded.
        """
        if not is_multiple(self.match.row_size, WARP * self.plan.elements_per_lane):
            return lambda: self._add_update(counters, captured)
        mappings = [self._mapping(part, counters, captured) for part in self.parts]
        reads = self._reads_target()
        for mapping in mappings:
            for op in self._body():
                if op not in reads:
                    clone_into(op, mapping)

        def add() -> None:
            *before, store = reads
            for ops in (before, [store]):
                for mapping in mappings:
                    for op in ops:
                        clone_into(op, mapping)

        return add

    def _mapping(
        self, part: Any, counters: Sequence[Any], captured: Mapping[Any, Any]
    ) -> dict[Any, Any]:
        mapping = self._counters(counters, captured)
        dims = [d for d in range(len(self.match.shape)) if d != self.match.axis]
        for dim, counter in zip(dims, self._split(part), strict=True):
            mapping[counter_of(self.match.loops[self.match.loop_of_dim[dim]])] = counter
        return mapping

    def _body(self) -> list[Any]:
        """The ops of all loops but the loops themselves, in order."""
        return [
            op.operation
            for loop in self.match.loops
            for op in loop.regions[0].blocks[0].operations
            if op.operation.name not in ("scf.for", "scf.yield")
        ]

    def _reads_target(self) -> list[Any]:
        """The ops that load from the buffer or depend on that, and the store, which is the last."""
        target, found = self.match.target, []
        values: set[Any] = set()
        for op in self._body():
            loads = op.name == "memref.load" and op.operands[0] == target
            if loads or op.name == "memref.store" or not values.isdisjoint(op.operands):
                found.append(op)
                values.update(op.results)
        return sorted(found, key=lambda op: op.name == "memref.store")

    # --- positions --------------------------------------------------------------------------------

    def _counters(self, counters: Sequence[Any], captured: Mapping[Any, Any]) -> dict[Any, Any]:
        mapping = dict(captured)
        for i, counter in zip(self.match.update_loops, counters, strict=True):
            mapping[counter_of(self.match.loops[i])] = counter
        return mapping

    def _split(self, part: Any) -> list[Any]:
        shape, axis = self.match.shape, self.match.axis
        return split(part, [size for d, size in enumerate(shape) if d != axis])

    def _indices(self, part: Any, position: Any) -> list[Any]:
        indices = self._split(part)
        return [*indices[: self.match.axis], position, *indices[self.match.axis :]]

    def _inside(self, part: Any) -> Any | None:
        """Whether the warp has this part of a row; None where all warps do."""
        if is_multiple(self.match.row_size, WARP * self.plan.elements_per_lane):
            return self.exists
        inside = is_less(part, index(self.match.row_size))
        return inside if self.exists is None else arith.andi(inside, self.exists)

    def _owns(self, part: Any, position: Any) -> Any:
        in_buffer = is_less(position, index(self.match.shape[self.match.axis]))
        inside = self._inside(part)
        return in_buffer if inside is None else arith.andi(inside, in_buffer)


def _popcount(mask: Any) -> Any:
    """The number of set bits."""
    return ir.Operation.create("math.ctpop", [mask.type], [mask]).results[0]


def emit_scatter(kernel: DeviceKernel, plan: ScatterPlan, position: ThreadPosition) -> None:
    """Emit all ops for the positions of one warp."""
    flat = kernel.flat_buffers()
    code = ScatterCode(plan, position)
    for op in kernel.ops:
        with op.location:
            if op == plan.match.root:
                code.add({})
            else:
                code.elementwise(op, flat, {})


SCATTER = Strategy("scatter", match_scatter, plan_scatter, emit_scatter)
