"""Structured ops as scalar scf loops: what `lanes` finds no vectors in, and what is left of those.

What makes the loops fast is left to LLVM's vectorizer, and this file gives it what it needs: a
unit-stride innermost loop, accumulators in registers, and permission to reorder the sums of
reductions (and nothing else: NaN and infinity stay right). `LoopEmitter` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova.mlir.bindings import arith, ir, memref, scf
from nova.mlir.clone import clone_into
from nova.schedules.nest import Loop, Nest, innermost
from nova.schedules.positions import Range, advance, at, index

_REORDERED = {"arith.addf", "arith.mulf"}


@dataclass(frozen=True)
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
        self.captured = captured
        self.nest = nest
        self.buffers = buffers
        self.ranges = ranges
        self.generic = nest.generic

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
            self._store(self._body(self._load_all(bases), ivs), bases)
            return
        first, rest = loops[0], loops[1:]
        low, high = first.range or (index(0), index(first.loop.size))
        carried = not rest and not first.loop.parallel
        initial = self._load_outputs(bases) if carried else []
        loop = scf.ForOp(low, high, index(1), initial)
        with ir.InsertionPoint(loop.body):
            iv = loop.induction_variable
            inner_bases = advance(bases, iv, first.loop)
            inner_ivs = dict(ivs)
            if len(first.loop.dims) == 1:
                inner_ivs[first.loop.dims[0]] = iv
            if carried:
                inputs = self._load_inputs(inner_bases)
                results = self._body([*inputs, *loop.inner_iter_args], inner_ivs)
                scf.YieldOp(results)
            else:
                self._level(rest, inner_bases, inner_ivs)
                scf.YieldOp([])
        if carried:
            self._store(list(loop.results), bases)

    # --- elements -------------------------------------------------------------------------------

    def _load_inputs(self, bases: list[Any]) -> list[Any]:
        arguments = self.generic.block.arguments
        return [
            self._load(i, bases) if any(True for _ in arguments[i].uses) else None
            for i in range(self.generic.num_inputs)
        ]

    def _load_outputs(self, bases: list[Any]) -> list[Any]:
        count = self.generic.num_inputs
        return [self._load(i, bases) for i in range(count, count + self.generic.num_outputs)]

    def _load_all(self, bases: list[Any]) -> list[Any]:
        outputs = self._load_outputs(bases) if self.generic.uses_output else []
        return [*self._load_inputs(bases), *outputs]

    def _load(self, operand: int, bases: list[Any]) -> Any:
        buffer = self.buffers[operand]
        if not isinstance(buffer.type, ir.MemRefType):
            return buffer
        value = memref.load(buffer, [at(bases[operand])])
        wanted = self.generic.block.arguments[operand].type
        # A bool is a byte in memory and an i1 in registers.
        return value if value.type == wanted else arith.trunci(wanted, value)

    def _store(self, values: list[Any], bases: list[Any]) -> None:
        for k, value in enumerate(values):
            operand = self.generic.num_inputs + k
            buffer = self.buffers[operand]
            if value.type != buffer.type.element_type:
                value = arith.extui(buffer.type.element_type, value)
            memref.store(value, buffer, [at(bases[operand])])

    # --- the body -------------------------------------------------------------------------------

    def _body(self, elements: list[Any], ivs: dict[int, Any]) -> list[Any]:
        block = self.generic.block
        mapping = dict(self.captured)
        mapping |= {a: v for a, v in zip(block.arguments, elements, strict=False) if v is not None}
        reduction = not all(loop.parallel for loop in self.nest.loops)
        for op in block.operations:
            op = op.operation
            if op.name == "linalg.yield":
                return [mapping.get(v, v) for v in op.operands]
            if op.name == "linalg.index":
                mapping[op.results[0]] = ivs[int(op.attributes["dim"].value)]
                continue
            new = clone_into(op, mapping)
            if reduction and op.name in _REORDERED:
                new.attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<reassoc,contract>")
        raise AssertionError("a linalg body ends with a yield")
