"""Structured ops as scalar scf loops: nests that `vectorize.py` rejects, and remainders of vectors.

LLVM's vectorizer makes these loops fast. This file gives it what it needs: a unit-stride innermost
loop, accumulators in registers, and permission to reorder the sums of reductions (and nothing else:
NaN and infinity stay correct). Long sums are cut into blocks (cascade_sum.py), which are then
inside of all parallel loops. `LoopEmitter` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from nova.codegen.common.cascade_sum import LONG, MOST, carried, cascade_of
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import Range, advance
from nova.codegen.common.loop_nest import Loop, LoopNest, innermost
from nova.core.records import record
from nova.core.sizes import Size
from nova.ir.bindings import ir, scf
from nova.ir.index import index
from nova.ir.symbolic.size_table import is_number, typical

_PART = 8
"""Approximate remainder of a vectorized reduction, in elements: less than a vector."""


@record
class Placed:
    """A loop with the range over which this tile runs it; None is the whole loop."""

    loop: Loop
    range: Range | None


class ScalarLoops:
    """Emits one loop nest at the insertion point, element by element."""

    def __init__(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        ranges: Sequence[Range | None],
        captured: Mapping[Any, Any],
        *,
        like_vectors: bool = False,
    ):
        """With `like_vectors`, sums have the order of `VectorLoops` across columns."""
        self.nest = nest
        self.elements = Elements(nest, buffers, captured, reorder=not like_vectors)
        self.cascade = cascade_of(nest, MOST if like_vectors else LONG)
        placed = [Placed(lo, r) for lo, r in zip(nest.loops, ranges, strict=True)]
        self.placed = placed
        short = MOST if like_vectors else 2 * LONG
        self.is_long = self.cascade.is_sum and typical(_terms(placed)) > short

    def emit(self) -> None:
        nest, placed = self.nest, list(self.placed)
        if placed and not self.is_long:
            last = placed.pop(innermost(nest))
            placed.append(last)
        bases = [None if is_number(o, 0) else index(o) for o in nest.offsets]
        self._level(placed, bases, {})

    def _level(self, loops: list[Placed], bases: list[Any], ivs: dict[int, Any]) -> None:
        if not loops:
            self.elements.store(self.elements.apply(self.elements.load_all(bases), ivs), bases)
            return
        first, inner_loops = loops[0], loops[1:]
        if self.is_long and not first.loop.parallel:
            initial = self.elements.load_outputs(bases)
            self.elements.store(self._sums(loops, bases, ivs, initial), bases)
            return
        low, high = first.range or (index(0), index(first.loop.size))
        carries = not inner_loops and not first.loop.parallel
        initial = self.elements.load_outputs(bases) if carries else []
        loop = scf.ForOp(low, high, index(1), initial)
        with ir.InsertionPoint(loop.body):
            iv = loop.induction_variable
            inner_bases = advance(bases, iv, first.loop)
            inner_ivs = dict(ivs)
            if len(first.loop.dims) == 1:
                inner_ivs[first.loop.dims[0]] = iv
            if carries:
                inputs = self.elements.load_inputs(inner_bases)
                results = self.elements.apply([*inputs, *loop.inner_iter_args], inner_ivs)
                scf.YieldOp(results)
            else:
                self._level(inner_loops, inner_bases, inner_ivs)
                scf.YieldOp([])
        if carries:
            self.elements.store(list(loop.results), bases)

    def _sums(
        self, loops: list[Placed], bases: list[Any], ivs: dict[int, Any], values: list[Any]
    ) -> list[Any]:
        """`values` plus all terms of the reductions `loops`, carried in registers."""
        if not loops:
            inputs = self.elements.load_inputs(bases)
            return self.elements.apply([*inputs, *values], ivs)
        (placed, *inner_loops), cascade = loops, self.cascade
        first = placed.loop
        inner = typical(_terms(inner_loops))
        separate = cascade.is_long(inner)

        def iteration(iv: Any, values: list[Any]) -> list[Any]:
            inner_ivs = {**ivs, first.dims[0]: iv} if len(first.dims) == 1 else ivs
            initial = cascade.fresh(values) if separate else values
            results = self._sums(inner_loops, advance(bases, iv, first), inner_ivs, initial)
            return cascade.combined(values, results) if separate else results

        if placed.range is not None:
            return carried(*placed.range, 1, values, iteration)
        return cascade.emit_loop(
            first.size, 1, values, iteration, terms_per_iteration=1 if separate else inner
        )


def _terms(loops: Sequence[Placed]) -> Size:
    """Approximate number of terms of the reductions among `loops`; `_PART` for a remainder."""
    reductions = [placed for placed in loops if not placed.loop.parallel]
    return prod(p.loop.size if p.range is None else _PART for p in reductions)
