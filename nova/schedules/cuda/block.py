"""A block for one point of the grid: its threads share the loops behind the grid.

In: the nests and other ops of a kernel, and where a thread is. Out: the code of the block: each op
spread over the threads, and barriers between ops that depend on each other. This takes every
kernel; what has no structure is left to one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from nova.mlir.bindings import arith, ir, scf
from nova.schedules.cuda.combine import combiner, identity
from nova.schedules.cuda.extremes import Extreme, find_extreme
from nova.schedules.cuda.threads import (
    WARP,
    Place,
    SharedMemory,
    is_equal,
    is_less,
    reduce_block,
    reduce_warp,
    split,
    when,
)
from nova.schedules.elements import Elements
from nova.schedules.lanes import find_combiners
from nova.schedules.nest import Nest
from nova.schedules.positions import advance, index


class BlockCode:
    """Emits the ops of a kernel for one block, in order."""

    def __init__(self, place: Place, grid_rank: int, shared: SharedMemory):
        self.place = place
        self.grid_rank = grid_rank
        self.shared = shared
        self.partials: dict[str, Any] = {}

    def reserve(self, nests: Sequence[Nest]) -> None:
        """Room for the partial results of all warps, at the top of the launch."""
        for nest in nests:
            names = find_combiners(nest)
            if names is None or self.place.warps == 1:
                continue
            first = nest.generic.num_inputs
            for argument in list(nest.generic.block.arguments)[first:]:
                key = str(argument.type)
                if key not in self.partials and not _parallel_size(nest, self.grid_rank) > 1:
                    self.partials[key] = self.shared.allocate(self.place.warps, argument.type)

    def emit(
        self,
        nest: Nest,
        buffers: Sequence[Any],
        counters: Sequence[Any],
        captured: Mapping[Any, Any],
    ) -> None:
        """One structured op; `counters` are those of the grid's loops."""
        elements = Elements(nest, buffers, captured)
        bases: list[Any] = [None if o == 0 else index(o) for o in nest.offsets]
        ivs: dict[int, Any] = {}
        for i, counter in enumerate(counters):
            bases = advance(bases, counter, nest.loops[i])
            if len(nest.loops[i].dims) == 1:
                ivs[nest.loops[i].dims[0]] = counter
        inner = range(self.grid_rank, len(nest.loops))
        parallel = [i for i in inner if nest.loops[i].parallel]
        reductions = [i for i in inner if not nest.loops[i].parallel]
        points = prod(nest.loops[i].size for i in parallel)
        if not points:
            return
        names = find_combiners(nest) if reductions else None
        terms = prod(nest.loops[i].size for i in reductions)
        if names is not None and points == 1 and terms > WARP:
            self._by_block(elements, parallel, reductions, names, bases, ivs)
        elif names is not None and points < self.place.threads and terms >= WARP:
            self._by_warps(elements, parallel, reductions, names, bases, ivs)
        elif terms >= WARP and reductions and (extreme := find_extreme(nest)):
            self._position_by_warps(elements, parallel, reductions, extreme, bases, ivs)
        else:
            self._by_threads(elements, parallel, reductions, bases, ivs)

    def alone(self) -> Any:
        """In one thread only: a context for what has no structure."""
        return when(is_equal(self.place.thread, index(0)))

    # --- ways to share a nest out -----------------------------------------------------------------

    def _by_threads(
        self,
        elements: Elements,
        parallel: list[int],
        reductions: list[int],
        bases: list[Any],
        ivs: dict[int, Any],
    ) -> None:
        """A thread for each point, which goes through the reductions by itself."""
        nest = elements.nest
        sizes = [nest.loops[i].size for i in parallel]

        def at_point(number: Any) -> None:
            where, own = self._at(nest, parallel, split(number, sizes), bases, ivs)
            if not reductions:
                elements.store(elements.apply(elements.load_all(where), own), where)
                return
            totals = elements.load_outputs(where)
            ranges = [(index(0), index(nest.loops[i].size), index(1)) for i in reductions]
            made = self._carried(elements, reductions, ranges, where, own, totals)
            elements.store(made, where)

        self._strided(self.place.thread, self.place.threads, prod(sizes), at_point)

    def _by_warps(
        self,
        elements: Elements,
        parallel: list[int],
        reductions: list[int],
        names: Sequence[str],
        bases: list[Any],
        ivs: dict[int, Any],
    ) -> None:
        """A warp for each point, whose lanes share the reductions."""
        nest = elements.nest
        sizes = [nest.loops[i].size for i in parallel]
        lane = self.place.lane()

        def at_point(number: Any) -> None:
            where, own = self._at(nest, parallel, split(number, sizes), bases, ivs)
            partial = self._partial(elements, reductions, names, where, own, lane, WARP)
            totals = [
                reduce_warp([value], combiner(name))[0]
                for value, name in zip(partial, names, strict=True)
            ]
            with when(is_equal(lane, index(0))):
                self._finish(elements, names, totals, where)

        self._strided(self.place.warp(), self.place.warps, prod(sizes), at_point)

    def _position_by_warps(
        self,
        elements: Elements,
        parallel: list[int],
        reductions: list[int],
        extreme: Extreme,
        bases: list[Any],
        ivs: dict[int, Any],
    ) -> None:
        """A warp for each point, whose lanes look for the best element together."""
        nest = elements.nest
        sizes = [nest.loops[i].size for i in parallel]
        (number,) = reductions
        lane = self.place.lane()

        def at_point(point: Any) -> None:
            where, own = self._at(nest, parallel, split(point, sizes), bases, ivs)
            dim = nest.loops[number].dims[0]
            spot, ivs_there = self._at(nest, [number], [lane], where, own)
            inputs = elements.load_inputs(spot)
            # The first element of all is taken whatever it is: so is the first one of each lane.
            first, _ = elements.apply([*inputs, *extreme.empty()], {**ivs_there, dim: index(0)})
            begin = [first, arith.index_cast(extreme.position.type, lane)]
            size = index(nest.loops[number].size)
            loop = scf.ForOp(arith.addi(lane, index(WARP)), size, index(WARP), begin)
            with ir.InsertionPoint(loop.body):
                spot, ivs_there = self._at(nest, [number], [loop.induction_variable], where, own)
                inputs = elements.load_inputs(spot)
                scf.YieldOp(elements.apply([*inputs, *loop.inner_iter_args], ivs_there))
            found = extreme.merge_warp((loop.results[0], loop.results[1]), elements.captured)
            with when(is_equal(lane, index(0))):
                elements.store(list(found), where)

        self._strided(self.place.warp(), self.place.warps, prod(sizes), at_point)

    def _by_block(
        self,
        elements: Elements,
        parallel: list[int],
        reductions: list[int],
        names: Sequence[str],
        bases: list[Any],
        ivs: dict[int, Any],
    ) -> None:
        """All threads share the reductions of the one point."""
        nest = elements.nest
        where, own = self._at(nest, parallel, [index(0)] * len(parallel), bases, ivs)
        threads = self.place.threads
        partial = self._partial(elements, reductions, names, where, own, self.place.thread, threads)
        totals = []
        for value, name in zip(partial, names, strict=True):
            room = self.partials.get(str(value.type))
            neutral = identity(name, value.type)
            totals.append(reduce_block(self.place, value, combiner(name), neutral, room))
        with self.alone():
            self._finish(elements, names, totals, where)

    def _partial(
        self,
        elements: Elements,
        reductions: list[int],
        names: Sequence[str],
        bases: list[Any],
        ivs: dict[int, Any],
        first: Any,
        step: int,
    ) -> list[Any]:
        """What one of `step` workers makes of every `step`th term, from its `first` on."""
        nest = elements.nest
        kinds = [a.type for a in nest.generic.block.arguments][nest.generic.num_inputs :]
        neutral = [identity(name, kind) for name, kind in zip(names, kinds, strict=True)]
        sizes = [nest.loops[i].size for i in reductions]
        loop = scf.ForOp(first, index(prod(sizes)), index(step), neutral)
        with ir.InsertionPoint(loop.body):
            counters = split(loop.induction_variable, sizes)
            where, own = self._at(nest, reductions, counters, bases, ivs)
            inputs = elements.load_inputs(where)
            scf.YieldOp(elements.apply([*inputs, *loop.inner_iter_args], own))
        return list(loop.results)

    def _finish(
        self, elements: Elements, names: Sequence[str], totals: list[Any], bases: list[Any]
    ) -> None:
        """Combine with what the output held, and store."""
        before = elements.load_outputs(bases)
        made = [combiner(n)(a, b) for n, a, b in zip(names, before, totals, strict=True)]
        elements.store(made, bases)

    def _carried(
        self,
        elements: Elements,
        loops: list[int],
        ranges: list[tuple[Any, Any, Any]],
        bases: list[Any],
        ivs: dict[int, Any],
        values: list[Any],
    ) -> list[Any]:
        if not loops:
            return elements.apply([*elements.load_inputs(bases), *values], ivs)
        loop = scf.ForOp(*ranges[0], values)
        with ir.InsertionPoint(loop.body):
            where, own = self._at(elements.nest, loops[:1], [loop.induction_variable], bases, ivs)
            carried = list(loop.inner_iter_args)
            scf.YieldOp(self._carried(elements, loops[1:], ranges[1:], where, own, carried))
        return list(loop.results)

    def _strided(self, first: Any, step: int, count: int, body: Any) -> None:
        """`body` for first, first + step, ... below `count`."""
        if count <= step:
            if count == step:
                body(first)
                return
            with when(is_less(first, index(count))):
                body(first)
            return
        loop = scf.ForOp(first, index(count), index(step))
        with ir.InsertionPoint(loop.body):
            body(loop.induction_variable)
            scf.YieldOp([])

    @staticmethod
    def _at(
        nest: Nest,
        loops: Sequence[int],
        counters: Sequence[Any],
        bases: list[Any],
        ivs: Mapping[int, Any],
    ) -> tuple[list[Any], dict[int, Any]]:
        own = dict(ivs)
        for number, counter in zip(loops, counters, strict=True):
            loop = nest.loops[number]
            bases = advance(bases, counter, loop)
            if len(loop.dims) == 1:
                own[loop.dims[0]] = counter
        return bases, own


def _parallel_size(nest: Nest, grid_rank: int) -> int:
    return prod(loop.size for loop in nest.loops[grid_rank:] if loop.parallel)
