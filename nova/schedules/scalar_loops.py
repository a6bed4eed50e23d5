"""Structured ops as scalar scf loops: what `lanes` finds no vectors in, and what is left of those.

What makes the loops fast is left to LLVM's vectorizer, and this file gives it what it needs: a
unit-stride innermost loop, accumulators in registers, and permission to reorder the sums of
reductions (and nothing else: NaN and infinity stay right). `LoopEmitter` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova.mlir.bindings import ir, scf
from nova.records import record
from nova.schedules.elements import Elements
from nova.schedules.nest import Loop, Nest, innermost
from nova.schedules.positions import Range, advance, index


@record
class Placed:
    """A loop with the range that this tile runs it over; None is all of it."""

    loop: Loop
    range: Range | None


class ScalarLoops:
    """Emits one nest at the insertion point, element by element."""

    def __init__(
        self,
        nest: Nest,
        buffers: Sequence[Any],
        ranges: Sequence[Range | None],
        captured: Mapping[Any, Any],
    ):
        self.nest = nest
        self.ranges = ranges
        self.elements = Elements(nest, buffers, captured)

    def emit(self) -> None:
        nest = self.nest
        placed = [Placed(lo, r) for lo, r in zip(nest.loops, self.ranges, strict=True)]
        if placed:
            last = placed.pop(innermost(nest))
            placed.append(last)
        bases = [None if o == 0 else index(o) for o in nest.offsets]
        self._level(placed, bases, {})

    def _level(self, loops: list[Placed], bases: list[Any], ivs: dict[int, Any]) -> None:
        if not loops:
            self.elements.store(self.elements.apply(self.elements.load_all(bases), ivs), bases)
            return
        first, rest = loops[0], loops[1:]
        low, high = first.range or (index(0), index(first.loop.size))
        carried = not rest and not first.loop.parallel
        initial = self.elements.load_outputs(bases) if carried else []
        loop = scf.ForOp(low, high, index(1), initial)
        with ir.InsertionPoint(loop.body):
            iv = loop.induction_variable
            inner_bases = advance(bases, iv, first.loop)
            inner_ivs = dict(ivs)
            if len(first.loop.dims) == 1:
                inner_ivs[first.loop.dims[0]] = iv
            if carried:
                inputs = self.elements.load_inputs(inner_bases)
                results = self.elements.apply([*inputs, *loop.inner_iter_args], inner_ivs)
                scf.YieldOp(results)
            else:
                self._level(rest, inner_bases, inner_ivs)
                scf.YieldOp([])
        if carried:
            self.elements.store(list(loop.results), bases)
