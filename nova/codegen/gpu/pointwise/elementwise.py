"""A thread for one or a few points of the grid: elementwise ops, and small loops at each point.

Input: the loop nests of a kernel, all over its grid, and the points of a thread. Output: the code
of the thread. Every op reads values that the kernel wrote only at its own point, so threads do not
synchronize, and intermediate values stay in registers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.cascade_sum import Cascade, cascade_of
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import advance, shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import when
from nova.codegen.gpu.memory import load_run, store_run, widest
from nova.codegen.gpu.pointwise.computed_loads import computed_loads, find_adjacent, load_adjacent
from nova.core.sizes import is_multiple
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent, active_table, is_number, typical
from nova.ir.walk import defining_op

_MANY_VECTORS = 1 << 17
"""Threads from which a device is full: fewer of them may have several loads each."""


@dataclass(frozen=True)
class ThreadVector:
    """The number of the grid loop along which a thread has `width` adjacent points."""

    loop: int
    width: int


def widest_vector(nests: Sequence[LoopNest], grid: Sequence[Extent]) -> ThreadVector | None:
    """Along the last loop: as many points as 16 bytes of the widest element hold.

    Of the widest element of whole tensors, where there are many points: what all rows share, such
    as the parameters of each channel, is read from a cache.
    """
    if not grid:
        return None
    loop = len(grid) - 1
    whole, shared = _adjacent_elements(nests, loop)
    narrow, wide = widest([*whole, *shared]), widest(whole or shared)
    is_wide = typical(prod(grid)) >= _MANY_VECTORS * wide and _are_aligned(nests, loop, wide)
    for width in (wide, narrow) if is_wide else (narrow,):
        if width > 1 and is_multiple(grid[loop], width) and _loads_vectors(nests, grid, width):
            return ThreadVector(loop, width)
    return None


def _adjacent_elements(nests: Sequence[LoopNest], loop: int) -> tuple[list[Any], list[Any]]:
    """The types of operands that are contiguous along a loop: whole ones, and repeated ones."""
    whole, shared = list[Any](), list[Any]()
    for nest in nests:
        for i, value in enumerate(nest.generic.op.operands):
            if isinstance(value.type, ir.MemRefType) and is_number(nest.loops[loop].strides[i], 1):
                outer = nest.loops[:loop]
                is_shared = any(is_number(o.strides[i], 0) and typical(o.size) > 1 for o in outer)
                (shared if is_shared else whole).append(value.type.element_type)
    return whole, shared


def _are_aligned(nests: Sequence[LoopNest], loop: int, width: int) -> bool:
    """Whether `width` points along a loop are aligned in all operands that are contiguous there."""
    return all(
        is_multiple(step, width)
        for nest in nests
        for i, value in enumerate(nest.generic.op.operands)
        if isinstance(value.type, ir.MemRefType) and is_number(nest.loops[loop].strides[i], 1)
        for step in (
            nest.offsets[i],
            *(other.strides[i] for k, other in enumerate(nest.loops) if k != loop),
        )
    )


def _loads_vectors(nests: Sequence[LoopNest], grid: Sequence[Extent], width: int) -> bool:
    """Whether loads at computed positions are vectors, or at constants along the last loop."""
    loop = len(grid) - 1
    if is_number(grid[loop], width) and active_table() is None:
        return True
    return all(len(find_adjacent(nest, loop, width)) == len(computed_loads(nest)) for nest in nests)


class ElementwiseCode:
    """The code of a thread at its points."""

    def __init__(
        self,
        grid_rank: int,
        vector: ThreadVector | None,
        point_strides: Mapping[Any, Extent] | None = None,
    ):
        self.grid_rank = grid_rank
        self.vector = vector
        self.count = vector.width if vector else 1
        # Private buffers that hold a value per point of the thread, at this distance in elements.
        self.point_strides = point_strides or {}
        # The last written values, by buffer and access: a read of them uses the registers.
        self.cached: dict[Any, list[Any]] = {}

    def emit(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        counters: Sequence[Any],
        captured: Mapping[Any, Any],
    ) -> None:
        """Emit one op at the thread's points; `counters` are the grid's counters at the first."""
        elements = Elements(nest, buffers, captured)
        bases = first_positions(nest, counters)
        ivs: list[dict[int, Any]] = [{} for _ in range(self.count)]
        for i, counter in enumerate(counters):
            loop = nest.loops[i]
            if len(loop.dims) == 1 and loop.dims[0] in nest.indexed:
                step = self.vector is not None and i == self.vector.loop
                for k in range(self.count):
                    ivs[k][loop.dims[0]] = shifted(counter, k) if step else counter
        inner = list(range(self.grid_rank, len(nest.loops)))
        parallel = [i for i in inner if nest.loops[i].parallel]
        reductions = [i for i in inner if not nest.loops[i].parallel]
        self._parallel(elements, parallel, reductions, bases, ivs)

    def preload(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        counters: Sequence[Any],
        written: Collection[Any],
    ) -> None:
        """Load what `emit` will read of buffers that are not `written` until then."""
        elements = Elements(nest, buffers, {})
        bases = first_positions(nest, counters)
        arguments = list(nest.generic.block.arguments)
        for i in range(nest.generic.num_inputs):
            is_read = isinstance(buffers[i].type, ir.MemRefType) and any(arguments[i].uses)
            key = self._key(elements, i)
            if is_read and key is not None and buffers[i] not in written:
                self.cached[key] = self._load(elements, i, bases[i])

    def store_results(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        counters: Sequence[Any],
        values: list[Any],
        *,
        adds: bool,
    ) -> None:
        """Store results at the thread's points, computed elsewhere; `adds` accumulates."""
        elements = Elements(nest, buffers, {})
        bases = first_positions(nest, counters)
        if adds:
            (before,) = self._outputs(elements, bases)
            values = [arith.addf(old, new) for old, new in zip(before, values, strict=True)]
        self._store(elements, [values], bases)

    def _parallel(
        self,
        elements: Elements,
        loops: list[int],
        reductions: list[int],
        bases: list[Any],
        ivs: list[dict[int, Any]],
    ) -> None:
        if loops:
            nest = elements.nest
            op = scf.ForOp(index(0), index(nest.loops[loops[0]].size), index(1))
            with ir.InsertionPoint(op.body):
                inside = self._inside(nest, loops[0], op.induction_variable, bases, ivs)
                self._parallel(elements, loops[1:], reductions, *inside)
                scf.YieldOp([])
            self._forget(elements)
            return
        if not reductions:
            outputs = self._outputs(elements, bases) if elements.generic.uses_output else None
            self._store(elements, self._apply(elements, bases, outputs, ivs), bases)
            return
        self._store(elements, self._totals(elements, reductions, bases, ivs), bases)

    def _totals(
        self,
        elements: Elements,
        loops: list[int],
        bases: list[Any],
        ivs: list[dict[int, Any]],
    ) -> list[list[Any]]:
        """The old values of the outputs plus the reductions: a list of points for each output."""
        return self._reduce(elements, loops, bases, self._outputs(elements, bases), ivs)

    def _inside(
        self, nest: LoopNest, number: int, iv: Any, bases: list[Any], ivs: list[dict[int, Any]]
    ) -> tuple[list[Any], list[dict[int, Any]]]:
        loop = nest.loops[number]
        if len(loop.dims) == 1:
            ivs = [{**point_ivs, loop.dims[0]: iv} for point_ivs in ivs]
        return advance(bases, iv, loop), ivs

    def _reduce(
        self,
        elements: Elements,
        loops: list[int],
        bases: list[Any],
        totals: list[list[Any]],
        ivs: list[dict[int, Any]],
    ) -> list[list[Any]]:
        """The reductions, carried in registers: `totals` are lists of values for each output."""
        if not loops:
            return self._apply(elements, bases, totals, ivs)
        nest = elements.nest
        cascade, (size, *sizes) = self._cascade(nest), [nest.loops[i].size for i in loops]
        inner = typical(prod(sizes))
        separate = cascade.is_long(inner)

        def iteration(iv: Any, values: list[Any]) -> list[Any]:
            where, inner_ivs = self._inside(nest, loops[0], iv, bases, ivs)
            initial = grouped(cascade.fresh(values) if separate else values, self.count)
            results = self._reduce(elements, loops[1:], where, initial, inner_ivs)
            flat = [value for total in results for value in total]
            return cascade.combined(values, flat) if separate else flat

        flat = [value for total in totals for value in total]
        terms = 1 if separate else inner
        return grouped(
            cascade.emit_loop(size, 1, flat, iteration, terms_per_iteration=terms), self.count
        )

    def _cascade(self, nest: LoopNest) -> Cascade:
        """The cascade of values grouped by output, one for each point."""
        names = cascade_of(nest).names
        return Cascade(tuple(name for name in names for _ in range(self.count)))

    # --- elements of several points ---------------------------------------------------------------

    def _apply(
        self,
        elements: Elements,
        bases: list[Any],
        outputs: list[list[Any]] | None,
        ivs: list[dict[int, Any]],
    ) -> list[list[Any]]:
        generic = elements.generic
        used = [any(True for _ in a.uses) for a in generic.block.arguments]
        inputs = [
            self._load(elements, i, bases[i]) if used[i] else None
            for i in range(generic.num_inputs)
        ]
        known = self._load_computed(elements, [v and v[0] for v in inputs], ivs[0])
        results = [
            elements.apply(
                [v and v[k] for v in inputs] + [total[k] for total in outputs or ()],
                ivs[k],
                known[k],
            )
            for k in range(self.count)
        ]
        return [list(values) for values in zip(*results, strict=True)]

    def _load_computed(
        self, elements: Elements, inputs: list[Any], ivs: dict[int, Any]
    ) -> list[dict[Any, Any]]:
        """The vectors that the body loads at positions that it computes, for each point."""
        if self.vector is None:
            return [{}]
        nest = elements.nest
        loads = find_adjacent(nest, self.vector.loop, self.count)
        return load_adjacent(nest, loads, inputs, ivs, elements.captured, self.count)

    def _outputs(self, elements: Elements, bases: list[Any]) -> list[list[Any]]:
        first = elements.generic.num_inputs
        return [
            self._load(elements, first + i, bases[first + i])
            for i in range(elements.generic.num_outputs)
        ]

    def _load(self, elements: Elements, operand: int, base: Any) -> list[Any]:
        buffer = elements.buffers[operand]
        if not isinstance(buffer.type, ir.MemRefType):
            return [buffer] * self.count
        cached = self.cached.get(self._key(elements, operand))
        if cached is not None:
            return cached
        aligned = self._is_vector(elements, operand)
        loaded = load_run(buffer, base, self.count, self._stride(elements, operand), aligned)
        return [elements.unpacked(operand, value) for value in loaded]

    def _store(self, elements: Elements, values: list[list[Any]], bases: list[Any]) -> None:
        for k, points in enumerate(values):
            operand = elements.generic.num_inputs + k
            self._store_points(elements, operand, points, bases[operand])
            self._remember(elements, operand, points)

    def _store_points(self, elements: Elements, operand: int, points: list[Any], base: Any) -> None:
        if len(points) == 1 and _keeps_others(elements, operand):
            changed, new = _changed_value(points[0])
            with when(changed):
                store_run(
                    [elements.packed(operand, new)], elements.buffers[operand], base, 0, False
                )
            return
        packed = [elements.packed(operand, v) for v in points]
        aligned = self._is_vector(elements, operand)
        stride = self._stride(elements, operand)
        store_run(packed, elements.buffers[operand], base, stride, aligned)

    def _stride(self, elements: Elements, operand: int) -> Extent:
        """Elements between adjacent points of the thread."""
        if self.vector is None:
            return 0
        stride = elements.nest.loops[self.vector.loop].strides[operand]
        return self.point_strides.get(elements.buffers[operand], stride)

    def _is_vector(self, elements: Elements, operand: int) -> bool:
        """Whether the thread's points of an operand are one aligned vector in memory."""
        if self.vector is None:
            return False
        nest = elements.nest
        vector = self.vector
        steps = [loop.strides[operand] for i, loop in enumerate(nest.loops) if i != vector.loop]
        return is_number(nest.loops[vector.loop].strides[operand], 1) and all(
            is_multiple(step, self.count) for step in (*steps, nest.offsets[operand])
        )

    # --- values in registers ----------------------------------------------------------------------

    def _key(self, elements: Elements, operand: int) -> Any:
        nest = elements.nest
        inner = nest.loops[self.grid_rank :]
        if any(not is_number(loop.strides[operand], 0) for loop in inner):
            return None
        strides = tuple(loop.strides[operand] for loop in nest.loops[: self.grid_rank])
        return elements.buffers[operand], nest.offsets[operand], strides

    def _remember(self, elements: Elements, operand: int, points: list[Any]) -> None:
        buffer = elements.buffers[operand]
        self.cached = {k: v for k, v in self.cached.items() if k is None or k[0] != buffer}
        inner = elements.nest.loops[self.grid_rank :]
        # A value defined inside a loop does not dominate the code after it.
        if not any(loop.parallel for loop in inner):
            self.cached[self._key(elements, operand)] = points
            self.cached.pop(None, None)

    def _forget(self, elements: Elements) -> None:
        written = set(elements.buffers[elements.generic.num_inputs :])
        self.cached = {k: v for k, v in self.cached.items() if k[0] not in written}


def _keeps_others(elements: Elements, operand: int) -> bool:
    """Whether an op in place selects between a new value and the old one of each element.

    So does an update of a slice: elements that keep their value need no store, nor a load. The
    value of a reduction is that of its last iteration: it is always stored.
    """
    generic = elements.generic
    if not all(loop.parallel for loop in elements.nest.loops):
        return False
    *_, ending = generic.block.operations
    value = _unrounded(ending.operands[operand - generic.num_inputs])
    select = defining_op(value, "arith.select")
    if select is None:
        return False
    old = select.operands[2]
    widened = defining_op(old, "arith.extf")
    old = old if widened is None else widened.operands[0]
    arguments = list(generic.block.arguments)
    if old not in arguments:
        return False
    number, operands = arguments.index(old), list(generic.op.operands)
    same_access = generic.accesses[number] == generic.accesses[operand]
    return same_access and operands[number] == operands[operand]


def _changed_value(value: Any) -> tuple[Any, Any]:
    """Whether an element changes, and its new value: `value` selects between that and the old."""
    select = defining_op(_unrounded(value), "arith.select")
    assert select is not None, "as in the body of the op"
    changed, new, _ = select.operands
    return changed, new if new.type == value.type else arith.truncf(value.type, new)


def _unrounded(value: Any) -> Any:
    rounded = defining_op(value, "arith.truncf")
    return value if rounded is None else rounded.operands[0]


def first_positions(nest: LoopNest, counters: Sequence[Any]) -> list[Any]:
    """The position of each operand's access at a point of the grid."""
    bases: list[Any] = [None if is_number(o, 0) else index(o) for o in nest.offsets]
    for counter, loop in zip(counters, nest.loops, strict=False):
        bases = advance(bases, counter, loop)
    return bases


def grouped(values: list[Any], size: int) -> list[list[Any]]:
    """Lists of `size` values: those of the points of each output."""
    return [values[i : i + size] for i in range(0, len(values), size)]
