"""An op at one point of some of its loops: its reductions there, all of them or a share.

Input: a loop nest, its flat buffers, and counters of loops. Output: code at the insertion point.
The generic strategy and searches for positions (`argreduce.py`) use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from nova.codegen.common.cascade_sum import Cascade, cascade_of
from nova.codegen.common.combine import combiner, identity
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import advance
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import split
from nova.ir.symbolic.size_table import Extent, typical


@dataclass(frozen=True)
class NestPoint:
    """An op at one point of some of its loops: the positions of its accesses, and the counters."""

    elements: Elements
    bases: list[Any]
    ivs: dict[int, Any]
    initial: Any = None
    """The value with which the reduction begins, instead of the one in memory."""

    @property
    def nest(self) -> LoopNest:
        return self.elements.nest

    def sizes(self, loops: Sequence[int]) -> list[Extent]:
        return [self.nest.loops[i].size for i in loops]

    def at(self, loops: Sequence[int], counters: Sequence[Any]) -> NestPoint:
        """The same op at a point of further loops."""
        bases, ivs = self.bases, dict(self.ivs)
        for number, counter in zip(loops, counters, strict=True):
            loop = self.nest.loops[number]
            bases = advance(bases, counter, loop)
            if len(loop.dims) == 1:
                ivs[loop.dims[0]] = counter
        return replace(self, bases=bases, ivs=ivs)

    def initial_values(self) -> list[Any]:
        """The values to which the terms of the reductions are added."""
        if self.initial is not None:
            return [self.initial]
        return self.elements.load_outputs(self.bases)

    def apply(self, values: Sequence[Any]) -> list[Any]:
        """One iteration of the reductions, on the accumulators so far."""
        inputs = self.elements.load_inputs(self.bases)
        return self.elements.apply([*inputs, *values], self.ivs)

    def reduce(self, loops: Sequence[int], values: list[Any]) -> list[Any]:
        """All iterations of the reductions, sequentially."""
        if not loops:
            return self.apply(values)
        cascade, inner = cascade_of(self.nest), typical(prod(self.sizes(loops[1:])))
        separate = cascade.is_long(inner)

        def iteration(iv: Any, values: list[Any]) -> list[Any]:
            inside = self.at(loops[:1], [iv])
            results = inside.reduce(loops[1:], cascade.fresh(values) if separate else values)
            return cascade.combined(values, results) if separate else results

        (size,) = self.sizes(loops[:1])
        return cascade.emit_loop(
            size, 1, values, iteration, terms_per_iteration=1 if separate else inner
        )

    def reduce_share(
        self, loops: Sequence[int], names: Sequence[str], first: Any, step: int
    ) -> list[Any]:
        """Reduce every `step`th term from `first` on: the share of one of `step` workers."""
        generic = self.nest.generic
        types = [a.type for a in generic.block.arguments][generic.num_inputs :]
        neutral = [identity(name, type_) for name, type_ in zip(names, types, strict=True)]
        sizes = self.sizes(loops)

        def iteration(number: Any, values: list[Any]) -> list[Any]:
            return self.at(loops, split(number, sizes)).apply(values)

        return Cascade(tuple(names)).emit_loop(prod(sizes), step, neutral, iteration, first=first)

    def combine_and_store(self, names: Sequence[str], totals: Sequence[Any]) -> None:
        """Combine with the old value of the output, and store."""
        before = self.initial_values()
        results = [combiner(n)(a, b) for n, a, b in zip(names, before, totals, strict=True)]
        self.elements.store(results, self.bases)
