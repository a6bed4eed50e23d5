"""Cascade summation: loops that carry sums, blocked so that rounding errors stay small.

Input: the iterations of a reduction and its body. Output: scf loops at the insertion point. A float
sum of more than `MOST` iterations is a cascade (pairwise summation with a fan-in of `MOST`): the
sum of each block of `MOST` iterations starts at zero and is added to the sum of the level above,
which has blocks of `MOST` blocks, and so on. The error of a sum of n terms is then at most MOST *
(levels) roundings, where a single accumulator has n. The blocks depend on the number of iterations
alone: a result has the same bits however the work is distributed.

All schedules emit their reductions with it: vectors and scalars on a CPU, threads on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.codegen.common.combine import combiner, find_combiners, identity
from nova.codegen.common.loop_nest import LoopNest
from nova.core.records import record
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, index

MOST = 64
"""Iterations of a block, and blocks of a block of the next level."""

LONG = 256
"""Iterations of a block of scalars: LLVM vectorizes it, several of them per iteration."""

Body = Callable[[Any, list[Any]], list[Any]]
"""The carried values after one iteration, from its counter and the values before."""


@record
class Cascade:
    """How carried values are combined: `names` are the combining ops of the outputs.

    Values are in groups of one per output, as `names`; there may be several groups. A block has
    `most` iterations.
    """

    names: tuple[str, ...]
    most: int = MOST

    def emit_loop(
        self,
        count: Index,
        step: int,
        values: Sequence[Any],
        body: Body,
        *,
        first: Any = None,
        terms_per_iteration: int = 1,
    ) -> list[Any]:
        """A loop over 0, step, ... below `count`, shifted by `first` if it is passed.

        `terms_per_iteration` is the number of terms that an iteration adds one by one. A count that
        is known at run time has one level of blocks.
        """
        spans: list[int] = []
        span = step * max(1, self.most // terms_per_iteration)
        if not isinstance(count, int):
            spans = [span] if self.is_sum else []
        while isinstance(count, int) and self.is_sum and span < count:
            spans.append(span)
            span *= MOST
        return self._level(spans, (0, count), count, step, list(values), body, first)

    @property
    def is_sum(self) -> bool:
        """Whether rounding errors accumulate: extremes and integers have none."""
        return "arith.addf" in self.names

    def is_long(self, iterations: int) -> bool:
        """Whether this many iterations should have a separate sum."""
        return self.is_sum and iterations >= self.most

    def fresh(self, values: Sequence[Any]) -> list[Any]:
        """The initial values of sums like `values`."""
        return [identity(self._name(i), value.type) for i, value in enumerate(values)]

    def combined(self, lhs: Sequence[Any], rhs: Sequence[Any]) -> list[Any]:
        """Combine two lists of carried values."""
        pairs = zip(lhs, rhs, strict=True)
        return [combiner(self._name(i))(a, b) for i, (a, b) in enumerate(pairs)]

    def _name(self, number: int) -> str:
        return self.names[number % len(self.names)]

    def _level(
        self,
        spans: list[int],
        bounds: tuple[Any, Any],
        count: Index,
        step: int,
        values: list[Any],
        body: Body,
        first: Any,
    ) -> list[Any]:
        """The loops of one level and of the levels inside, for the positions in `bounds`."""
        low, high = bounds
        if not spans:
            if first is not None:
                low = first if isinstance(low, int) else arith.addi(low, first)
            return carried(low, high, step, values, body)
        *inner, span = spans

        def block(begin: Any, total: list[Any]) -> list[Any]:
            end = arith.addi(begin, index(span))
            if not isinstance(count, int) or count % span:
                end = arith.minui(end, index(count))
            part = self.fresh(total)
            part = self._level(inner, (begin, end), count, step, part, body, first)
            return self.combined(total, part)

        return carried(low, high, span, values, block)


SUMS = Cascade(("arith.addf",), LONG)
"""For GEMMs, whose blocks are longer: their tiles leave no registers for sums of blocks."""


def cascade_of(nest: LoopNest, most: int = MOST) -> Cascade:
    """The cascade of a loop nest; one without blocks where the body is not a plain combination."""
    return Cascade(find_combiners(nest) or (), most)


def carried(low: Any, high: Any, step: int, values: list[Any], body: Body) -> list[Any]:
    """A loop that carries `values`, with static or dynamic bounds; one iteration needs no loop."""
    if isinstance(low, int) and isinstance(high, int) and high - low == step:
        return body(index(low), values)
    op = scf.ForOp(index(low), index(high), index(step), values)
    with ir.InsertionPoint(op.body):
        scf.YieldOp(body(op.induction_variable, list(op.inner_iter_args)))
    return list(op.results)
