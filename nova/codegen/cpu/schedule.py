"""The CPU schedule of a kernel: its tiles, and the code of one tile.

The grid of a kernel is the leading dimensions that its ops share. The schedule cuts the grid into
tiles of about `tile_work` scalar operations (or the tile of the packed GEMM where there is one). A
tile runs the kernel's ops in order, each restricted to the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

from nova.codegen.common.flat_buffers import flatten, flatten_root
from nova.codegen.common.footprint import Footprint, find_footprint
from nova.codegen.common.loop_nest import (
    LoopNest,
    make_loop_nest,
    merge_grid,
    merge_inner,
    read_whole,
)
from nova.codegen.common.match_attention import find_attention
from nova.codegen.common.match_contraction import (
    LoopContraction,
    match_contraction,
    with_unit_columns,
)
from nova.codegen.common.overrides import read_overrides
from nova.codegen.common.size_loads import computes_size
from nova.codegen.common.tile_local import is_tile_local_alloca
from nova.codegen.common.zero_fill import fills_with_zero, same_output
from nova.codegen.cpu.attention.flash_forward import emit_attention, tile_rows
from nova.codegen.cpu.core_tiles import emit_blocks, tile_for_cores, wide_tile_for_cores
from nova.codegen.cpu.fourier.transform import block_columns, emit_fourier
from nova.codegen.cpu.gemm.prepacked_constants import (
    PrepackedPanels,
    is_one_block,
    panels_of,
    read_prepacked,
    row_panels_of,
)
from nova.codegen.cpu.gemm.row_panels import (
    RowPanels,
    emit_kernel_row_panels,
    find_row_panels,
)
from nova.codegen.cpu.gemm.strategies import (
    emit_block,
    is_worth_packing,
    register_shape,
    tile_shape,
)
from nova.codegen.cpu.gemm.unpacked_tiling import is_unpacked
from nova.codegen.cpu.gemm.window_operand import (
    image_footprint,
    reads_window_matrix,
    with_window_matrix,
)
from nova.codegen.cpu.loops import LoopEmitter, Range, index
from nova.codegen.cpu.shared_nests import call_shared_nest
from nova.codegen.cpu.tile_local_buffers import (
    TileLocalBuffers,
    first_point,
    relative_range,
    shifted,
)
from nova.codegen.cpu.winograd.kernel import emit_winograd, find_winograd
from nova.codegen.cpu.winograd.weights import transform_weights
from nova.core.rounding import round_up
from nova.core.sizes import Size, ceildiv
from nova.core.targets import Target
from nova.errors import LoweringError, ScheduleError
from nova.ir.attributes import SCHEDULE
from nova.ir.bindings import arith, ir, scf
from nova.ir.buffers import VIEWS, buffer_root
from nova.ir.clone import clone_into
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel
from nova.ir.linalg.fourier import find_fourier
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.winograd import find_weight_transform
from nova.ir.symbolic.size_table import active_table, decoded, is_number, typical
from nova.ir.walk import find_ops

_FEW_TILES, _LARGE_TILE, _SHORT = 8, 256_000_000, 64
"""GEMM tiles are halved up to this many tiles, but not below this many operations or this side."""

_USUAL_TILE_WORK = 65_536
"""With a smaller `tile_work`, GEMM tiles shrink in proportion, without a bound on their number."""


_TILE_LOCAL_BYTES = 256 << 10
"""Bytes of stack for the tile-local buffers of a tile, next to packed operands."""


_WORTH_VECTORS = 256
"""Points of a scalar loop nest from which it pays to run LLVM's vectorizer on the kernel."""


class KernelSchedule:
    """The schedule of one kernel: analysed once, emitted per tile."""

    def __init__(self, kernel: Any, ops: list[Any], target: Target, tile_work: int):
        self.target = target
        self.tile_work = tile_work
        self.ops = ops
        self.work = Kernel(kernel).work
        self.overrides = read_overrides(kernel)
        grid = decoded(Kernel(kernel).grid)
        structured = [op for op in ops if is_generic_op(op)]
        others = [
            op for op in ops if not is_generic_op(op) and op.name not in VIEWS and not _is_free(op)
        ]
        if others:
            grid = ()  # unstructured ops run once, in a single tile
        if active_table() is not None:
            self.work = sum(typical(GenericOp(op).operations) for op in structured)
        self.block = kernel.entry_block
        self.nests: dict[Any, LoopNest]
        self.tile_local: TileLocalBuffers
        self.contractions: dict[Any, LoopContraction]
        self._analyse(kernel, structured, grid)
        self.winograd = find_winograd(self, kernel)
        attentions = {op: find_attention(nest) for op, nest in self.nests.items()}
        self.attentions = {op: attention for op, attention in attentions.items() if attention}
        transforms = {op: find_fourier(op) for op in structured}
        self.transforms = {op: spec for op, spec in transforms.items() if spec}
        weights = {op: find_weight_transform(op) for op in structured}
        self.weights = {op: spec for op, spec in weights.items() if spec}
        # Whether any loops are left to LLVM's vectorizer; known when the tile is emitted.
        self.scalar_loops = bool(others)
        try:
            self._check_overrides()
            self.block_tile = self.overrides.tile or self._choose_tile()
        except ScheduleError as error:
            prefix = f"{SCHEDULE.name} of @{kernel.name.value}: "
            raise error.located(place_of(kernel.location) or "", prefix) from None
        self.units = self._find_units()
        self.tile = self.block_tile
        if self.units and self.overrides.tile is None:
            (contraction,) = self.contractions.values()
            swapped = with_unit_columns(contraction.spec) is not contraction.spec
            rows = contraction.n if swapped else contraction.m
            if contraction.spec.packed and not self.has_epilogue():
                self.block_tile = self._whole_rows(rows)
                self.tile = wide_tile_for_cores(self.grid, self.units, self.work, rows)
            else:
                sizes = self.grid, self.block_tile, self.units, self.work, rows
                self.tile = tile_for_cores(
                    *sizes, self.overrides.tiles, in_units=contraction.spec.packed_rows
                )
        self.tiles = _count(self.grid, self.tile)
        self.row_panels = self._find_row_panels(self.block_tile)
        self.part = self.row_panels.tile if self.row_panels else self.block_tile
        self.core = (
            "matrix" if self.contractions or self.attentions else "host" if others else "vector"
        )
        self._kernel, self._touching = kernel, self._touching_nests()
        if self.tile_local.parts:
            self.nests = {
                op: self.tile_local.localized(nest, self.part) for op, nest in self.nests.items()
            }
            self.contractions = self._find_contractions(kernel)

    @cached_property
    def footprint(self) -> Footprint:
        """What a tile reads and writes; of the ops as they are before the tile is emitted."""
        active = [op for op in self.ops if not _is_free(op)]
        return find_footprint(self._kernel, active, self._touching, self.grid, self.tile)

    # --- analysis -------------------------------------------------------------------------------

    def _analyse(self, kernel: Any, structured: list[Any], grid: tuple[Size, ...]) -> None:
        """Find the loop nests of the ops, and the contractions among them.

        Those of convolutions read a window matrix, unless one of them turns out not to be a GEMM
        over all of it.
        """
        loops = {op: make_loop_nest(op) for op in structured}
        matrices = {op: with_window_matrix(nest) for op, nest in loops.items()}
        self.windows = {op: found[1] for op, found in matrices.items() if found is not None}
        read = {op: found[0] for op, found in matrices.items() if found is not None}
        self._merge({**loops, **read}, grid)
        self.contractions = self._find_contractions(kernel)
        if all(self._reads_window_matrix(op) for op in self.windows):
            return
        self.windows = {}
        self._merge(loops, grid)
        self.contractions = self._find_contractions(kernel)

    def _merge(self, loops: dict[Any, LoopNest], grid: tuple[Size, ...]) -> None:
        nests, self.grid = merge_grid(list(loops.values()), grid)
        nests = [merge_inner(nest, len(self.grid)) for nest in nests]
        self.nests = dict(zip(loops, nests, strict=True))
        self.tile_local = TileLocalBuffers.of(self.ops, self.grid)
        self.skipped: set[Any] = set()

    def _reads_window_matrix(self, op: Any) -> bool:
        contraction = self.contractions.get(op)
        if contraction is None or 1 in self.tile_local.operands(self.nests[op]):
            return False
        windows = self.windows[op], contraction.n, contraction.k
        return reads_window_matrix(self.nests[op], *windows)

    def _touching_nests(self) -> dict[Any, LoopNest]:
        """The nests with the strides of images, for access footprints."""
        nests = dict(self.nests)
        for op, windows in self.windows.items():
            loops = self.contractions[op].n, self.contractions[op].k
            nests[op] = image_footprint(nests[op], windows, *loops)
        for op, contraction in self.contractions.items():
            # Rows of several blocks of k are at as many places.
            if contraction.spec.packed_rows and not is_one_block(self.target, contraction.spec):
                nests[op] = read_whole(nests[op], 0)
        if self.winograd is not None:
            op, elements = self.winograd.op, self.winograd.plan.weight_elements
            nests[op] = read_whole(nests[op], 0, elements)
        return nests

    def _find_contractions(self, kernel: Any) -> dict[Any, LoopContraction]:
        packed = read_prepacked(kernel)
        contractions: dict[Any, LoopContraction] = {}
        ops = list(self.nests)
        for i, op in enumerate(ops):
            before = ops[i - 1] if i else None
            zeroed = before is not None and fills_with_zero(before) and same_output(before, op)
            contraction = match_contraction(self.nests[op], accumulate=not zeroed)
            if contraction is not None and self.overrides.concerns_gemm:
                contraction = replace(
                    contraction, spec=replace(contraction.spec, overrides=self.overrides)
                )
            if contraction is not None and op in self.windows:
                contraction = replace(
                    contraction, spec=replace(contraction.spec, windows=self.windows[op])
                )
            if contraction is None or not is_worth_packing(self.target, contraction.spec):
                continue
            contraction = self._with_prepacked(contraction, op, packed)
            contractions[op] = contraction
            if zeroed and not contraction.spec.accumulate:
                self.skipped.add(before)  # the GEMM overwrites its output: no zeros needed
        if packed:
            raise LoweringError(
                f"@{kernel.name.value} has arguments packed for another schedule than its own",
                where=place_of(kernel.location),
                hint=f"run pack-constants for the same target and with the same {SCHEDULE.name}",
            )
        return contractions

    def _with_prepacked(
        self, contraction: LoopContraction, op: Any, packed: dict[Any, PrepackedPanels]
    ) -> LoopContraction:
        """The contraction that reads the operands of `packed` in panels, which are removed there.

        Operands that are packed for another schedule stay.
        """
        spec = contraction.spec
        left, right = (buffer_root(value) for value in list(op.operands)[:2])
        if right in packed and packed[right] == panels_of(self.target, spec):
            del packed[right]
            return replace(contraction, spec=replace(spec, packed=True))
        rows = row_panels_of(self.target, spec) if left in packed else None
        if rows is not None and replace(packed[left], of_rows=True) == rows:
            del packed[left]
            return replace(contraction, spec=replace(spec, packed_rows=True))
        return contraction

    def _check_overrides(self) -> None:
        """Raise ScheduleError for overrides of features that the kernel does not have."""
        tile = self.overrides.tile
        if self.overrides.concerns_gemm and not self.contractions:
            raise ScheduleError("the kernel has no matmul: mr, nv, kc and mc mean nothing")
        for contraction in self.contractions.values():
            register_shape(self.target, contraction.spec)  # also checked where `tile` sets the tile
        if tile is not None and self.tile_local.nbytes(tile) > 4 * _TILE_LOCAL_BYTES:
            raise ScheduleError(
                f"a tile would keep {self.tile_local.nbytes(tile)} bytes on the stack",
                hint=f"{4 * _TILE_LOCAL_BYTES} is the most",
            )
        if tile is not None and (
            len(tile) != len(self.grid)
            or any(t > max(1, typical(g)) for t, g in zip(tile, self.grid, strict=True))
        ):
            grid = "x".join(map(str, self.grid))
            raise ScheduleError(
                f"tile={'x'.join(map(str, tile))} does not fit the grid {grid or 'of one point'}",
                hint="it has a number for each loop of the grid, none above that loop",
            )

    def _choose_tile(self) -> tuple[int, ...]:
        if self.winograd is not None:
            return self.winograd.tile(self.grid)
        tile = [1] * len(self.grid)
        tile_sizes: dict[int, int] = {}
        unit: dict[int, int] = {}
        for contraction in self.contractions.values():
            sizes = tile_shape(self.target, contraction.spec)
            units = register_shape(self.target, contraction.spec)
            for loop, size, least in zip((contraction.m, contraction.n), sizes, units, strict=True):
                if loop < len(self.grid):
                    tile_sizes[loop] = max(tile_sizes.get(loop, 1), size)
                    unit[loop] = max(unit.get(loop, 1), least)
        for attention in self.attentions.values():
            rows = tile_rows(self.target, attention)
            for role, loop in attention.roles.items():
                if loop < len(self.grid):
                    tile_sizes[loop] = rows if role in "ij" else typical(self.grid[loop])
        for op, spec in self.transforms.items():
            columns = len(self.nests[op].loops) - 5
            if spec.form == "columns" and columns < len(self.grid):
                element = str(op.operands[0].type.element_type)
                tile_sizes[columns] = block_columns(self.target, spec, element)
        for loop, size in tile_sizes.items():
            tile[loop] = min(size, max(1, typical(self.grid[loop])))
        self._share_out(tile, unit)
        points = max(1, typical(prod(self.grid)))
        budget = max(1, int(self.tile_work / max(1.0, self.work / points)) // prod(tile))
        for i in reversed(range(len(self.grid))):
            if i not in tile_sizes:
                tile[i] = max(1, min(typical(self.grid[i]), budget))
                budget = max(1, budget // tile[i])
        row_panels = self._find_row_panels(tile)
        if (
            row_panels is None
            or self.tile_local.nbytes(row_panels.tile) > self._max_tile_local_bytes
        ):
            self._fit_tile_local(tile, unit)
        return tuple(tile)

    def _find_units(self) -> tuple[int, ...]:
        """The register tile along each loop of the grid; none if tiles cannot be merged.

        Tiles of one packed GEMM over a grid of its rows and columns can be.
        """
        if len(self.contractions) != 1 or len(self.grid) != 2 or self.attentions or self.winograd:
            return ()
        (contraction,) = self.contractions.values()
        sizes = *self.grid, contraction.spec.k
        if not all(isinstance(size, int) for size in sizes):
            return ()
        inner = with_unit_columns(contraction.spec)
        if {contraction.m, contraction.n} != {0, 1} or is_unpacked(self.target, inner):
            return ()
        units = register_shape(self.target, contraction.spec)
        return units if contraction.m == 0 else units[::-1]

    def has_epilogue(self) -> bool:
        """Whether ops other than the matmul write to a tile."""
        active = [op for op in self.nests if op not in self.skipped]
        return len(active) > 1

    def _whole_rows(self, rows: int) -> tuple[int, ...]:
        """The block with whole rows of C: those of A are then packed once."""
        sizes = zip(self.block_tile, self.grid, strict=True)
        return tuple(size if i == rows else extent for i, (size, extent) in enumerate(sizes))

    def _find_row_panels(self, tile: Sequence[int]) -> RowPanels | None:
        if self.winograd is not None:
            return None
        args = self.nests, self.contractions, self.skipped, self.grid
        return find_row_panels(self.target, *args, tile)

    @property
    def _max_tile_local_bytes(self) -> int:
        return min(_TILE_LOCAL_BYTES, self.target.l2_bytes // 2)

    def _fit_tile_local(self, tile: list[int], unit: dict[int, int]) -> None:
        """Halve the sides of a tile until its tile-local buffers stay in the cache."""
        while self.tile_local.nbytes(tile) > self._max_tile_local_bytes:
            half = {i: round_up(tile[i] // 2, unit.get(i, 1)) for i in range(len(tile))}
            shorter = {i: size for i, size in half.items() if 0 < size < tile[i]}
            if not shorter:
                return
            longest = max(shorter, key=lambda i: tile[i])
            tile[longest] = shorter[longest]

    def _share_out(self, tile: list[int], unit: dict[int, int]) -> None:
        """Halve the sides of a GEMM tile while there are few tiles with a lot of work each.

        Each tile packs its operands separately, which does not pay for a short side.
        """
        smaller = min(1.0, self.tile_work / _USUAL_TILE_WORK)
        while True:
            tiles = typical(_count(self.grid, tile))
            if smaller == 1.0 and tiles >= _FEW_TILES:
                return
            if self.work < 2 * smaller * _LARGE_TILE * tiles:
                return
            half = {i: -(-tile[i] // 2 // u) * u for i, u in unit.items() if tile[i] >= 2 * _SHORT}
            if not half:
                return
            longest = max(half, key=lambda i: tile[i])
            tile[longest] = half[longest]

    # --- emission -------------------------------------------------------------------------------

    @property
    def merges_tiles(self) -> bool:
        """Whether a range of tiles is computed in blocks; tiles are numbered rows fastest then."""
        if self.winograd is not None:
            return self.winograd.is_first_fastest
        return self.tile != self.block_tile

    def emit(self, begin: Any, end: Any) -> None:
        """Emit the code of tiles [begin, end) at the insertion point."""
        if self.winograd is not None:
            self.flat = self.tile_local.allocate(self.part, self.block)
            emit_winograd(self, self.winograd, begin, end)
            return
        if not self.merges_tiles:
            tiles = scf.ForOp(begin, end, index(1))
            with ir.InsertionPoint(tiles.body):
                self._emit_ranges(self.tile_ranges(tiles.induction_variable))
                scf.YieldOp([])
            return

        def emit_block_of_tiles(*spans: Range) -> None:
            parts = zip(spans, self.tile, self.grid, strict=True)
            self._emit_ranges([span if size < extent else None for span, size, extent in parts])

        emit_blocks(
            begin, end, self.grid, self.tile, self.block_tile, self.units, emit_block_of_tiles
        )

    def _emit_ranges(self, ranges: list[Range | None]) -> None:
        """Emit all ops, each restricted to these ranges of the grid; None is all of a loop."""
        self.flat = self.tile_local.allocate(self.part, self.block)
        if self.row_panels is not None:
            emit_kernel_row_panels(self, self.row_panels, ranges)
        else:
            self._emit_ops(ranges)

    def _emit_ops(self, ranges: list[Range | None]) -> None:
        """Emit the ops one after the other."""
        # Scalars that ops take as operands or capture: computed here, after the ops that define
        # them.
        mapping: dict[Any, Any] = {}
        for op in self.ops:
            if op in self.skipped or op.name in VIEWS or _is_free(op):
                continue
            with op.location:
                if op in self.contractions:
                    self._emit_gemm(self.nests[op], self.contractions[op], ranges)
                elif op in self.attentions:
                    buffers = [self.flat_buffer(v) for v in op.operands]
                    emit_attention(self.target, self.attentions[op], buffers, ranges)
                elif op in self.transforms:
                    buffers = [self.flat_buffer(v) for v in op.operands]
                    spec = self.transforms[op]
                    emit_fourier(self.target, spec, self.nests[op], buffers, ranges)
                elif op in self.weights:
                    buffers, layout = [self.flat_buffer(v) for v in op.operands], self.weights[op]
                    transform_weights(self.target, layout, self.nests[op], buffers, ranges)
                elif op in self.nests:
                    buffers = [self.flat_buffer(mapping.get(v, v)) for v in op.operands]
                    self._emit_loops(self.nests[op], buffers, ranges, mapping)
                else:
                    self._emit_nested(clone_into(op, mapping))

    def emit_epilogue(
        self,
        ops: Sequence[Any],
        ranges: list[Range | None],
        buffer_ranges: list[Range | None] | None = None,
    ) -> None:
        """Emit ops after a GEMM; `buffer_ranges` are those of `_emit_loops`."""
        for op in ops:
            with op.location:
                buffers = [self.flat_buffer(v) for v in op.operands]
                self._emit_loops(self.nests[op], buffers, ranges, {}, buffer_ranges)

    def _emit_loops(
        self,
        nest: LoopNest,
        buffers: list[Any],
        ranges: list[Range | None],
        mapping: dict[Any, Any],
        buffer_ranges: list[Range | None] | None = None,
    ) -> None:
        """The loops of a nest; `buffer_ranges` are those of the tile-local buffers, if others."""
        local = self.tile_local.operands(nest)
        if local:
            # Positions count from the first point of the tile, where its tile-local buffers begin.
            first = buffer_ranges or ranges
            for i, buffer in enumerate(buffers):
                if i not in local:
                    buffers[i] = shifted(buffer, first_point(nest, i, first))
            ranges = [
                r and o and relative_range(r, o[0]) for r, o in zip(ranges, first, strict=True)
            ]
        ranges = [*ranges, *[None] * (len(nest.loops) - len(ranges))]
        if self.contractions and not local and not mapping:
            spans = [
                r or (index(0), index(loop.size))
                for r, loop in zip(ranges, nest.loops, strict=True)
            ]
            if call_shared_nest(nest, buffers, spans, self.target):
                return
        emitter = LoopEmitter(nest, buffers, ranges, mapping, self.target)
        worth = typical(nest.iteration_count) >= _WORTH_VECTORS
        self.scalar_loops |= not emitter.emit() and worth

    def _emit_nested(self, op: Any) -> None:
        """Emit the structured ops inside a loop or branch, in place."""
        for inner in find_ops(op, "linalg.generic"):
            nest = merge_inner(make_loop_nest(inner), 0)
            with ir.InsertionPoint(inner), inner.location:
                buffers = [flatten(buffer_root(v)) for v in inner.operands]
                LoopEmitter(nest, buffers, [None] * len(nest.loops), None, self.target).emit()
            inner.erase()

    def tile_ranges(self, tile: Any) -> list[Range | None]:
        counts = [ceildiv(g, t) for g, t in zip(self.grid, self.tile, strict=True)]
        ranges: list[Range | None] = [None] * len(self.grid)
        remaining = tile
        several = [i for i, count in enumerate(counts) if not is_number(count, 0, 1)]
        order = several if self.merges_tiles else several[::-1]
        for i in order:
            is_last = i == order[-1]
            position = remaining if is_last else arith.remui(remaining, index(counts[i]))
            remaining = arith.divui(remaining, index(counts[i]))
            low = arith.muli(position, index(self.tile[i]))
            high = arith.addi(low, index(self.tile[i]))
            if not is_number(self.grid[i] % self.tile[i], 0):
                high = arith.minui(high, index(self.grid[i]))
            ranges[i] = (low, high)
        return ranges

    def flat_buffer(self, value: Any) -> Any:
        """The root buffer of `value` as one dimension; scalars unchanged."""
        return flatten_root(value, self.flat)

    def _emit_gemm(
        self, nest: LoopNest, contraction: LoopContraction, ranges: list[Range | None]
    ) -> None:
        buffers = [self.flat_buffer(v) for v in nest.generic.op.operands]
        offsets = [index(o) for o in nest.offsets]
        for i in self.tile_local.operands(nest):
            start = first_point(nest, i, ranges)
            offsets[i] = offsets[i] if start is None else arith.subi(offsets[i], start)

        def span(loop: int) -> Range:
            tile_range = ranges[loop] if loop < len(ranges) else None
            return tile_range or (index(0), index(nest.loops[loop].size))

        def emit_enclosing(loops: tuple[int, ...], at: list[Any]) -> None:
            if not loops:
                a, b, c = buffers
                m, n = span(contraction.m), span(contraction.n)
                emit_block(self.target, contraction.spec, a, at[0], b, at[1], c, at[2], *m, *n)
                return
            loop = nest.loops[loops[0]]
            low, high = span(loops[0])
            nested = scf.ForOp(low, high, index(1))
            with ir.InsertionPoint(nested.body):
                iv = nested.induction_variable
                inner = [
                    base
                    if is_number(stride, 0)
                    else arith.addi(base, arith.muli(iv, index(stride)))
                    for base, stride in zip(at, loop.strides, strict=True)
                ]
                emit_enclosing(loops[1:], inner)
                scf.YieldOp([])

        emit_enclosing(contraction.enclosing, offsets)


def _is_free(op: Any) -> bool:
    """Whether `op` needs no code in a tile: constants, and arithmetic on symbolic sizes."""
    return op.name == "arith.constant" or is_tile_local_alloca(op) or computes_size(op)


def _count(grid: Sequence[Size], tile: Sequence[int]) -> Size:
    return prod(ceildiv(g, t) for g, t in zip(grid, tile, strict=True))
