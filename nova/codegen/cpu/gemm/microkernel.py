"""The GEMM microkernel: packed panels of A and B multiplied into C, one register tile at a time.

Input: a register tile (`Microkernel`), packed operands (see packing.py), C, and the address of the
old values. Output: a call of a shared function that loops over column panels, micropanels and k.
`packed_gemm.py` calls `multiply`. All columns of a tile are always computed; only its store
(store_tile.py) checks how many exist. A last micropanel of few rows has a shorter tile.
"""

from __future__ import annotations

import functools

from nova.codegen.common.builder import (
    BITS,
    branch,
    broadcast,
    load_element,
    load_vector,
    loop,
    splat,
    store_vector,
    vector_type,
)
from nova.codegen.cpu.gemm.blocking import edge_rows
from nova.codegen.cpu.gemm.packing import Block, pack
from nova.codegen.cpu.gemm.store_tile import StridedMatrix, store_tile
from nova.codegen.cpu.gemm.word_dot import WordDot
from nova.codegen.cpu.shared_functions import call_shared, entry_alloca
from nova.core.records import record
from nova.core.targets import Target
from nova.ir.bindings import arith, ir, memref, scf
from nova.ir.index import Index, add, compare, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number

_ITERATION = 24
"""Multiply-adds that hide the overhead of an iteration of the innermost loop; more only take longer
to compile."""

_AHEAD = 16
"""Prefetch distance of rows of an unpacked B in steps of k: hardware cannot at this stride."""


@record
class Microkernel:
    """`mr` rows of `nv` vectors of C in registers; a step of k is one word of `dot`.

    With `narrow`, a column panel with columns for one vector only is multiplied as one.
    """

    target: Target
    acc_type: str
    mr: int
    nv: int
    dot: WordDot
    narrow: bool = False

    @property
    def shape(self) -> str:
        """The end of the names of its functions."""
        return f"{self.acc_type}_{self.mr}x{self.nr}" + ("_narrow" if self.narrow else "")

    @property
    def word(self) -> ir.VectorType:
        """The vector type of a panel."""
        return vector_type(self.dot.layout.word_type(self.acc_type), self.vl)

    @property
    def vl(self) -> int:
        return self.target.lanes(BITS[self.acc_type])

    @property
    def nr(self) -> int:
        return self.nv * self.vl

    @property
    def unrolled(self) -> int:
        """Steps of k in one iteration of the innermost loop, a power of two.

        At least two: LLVM copies accumulators in a loop of one step that fills the registers.
        """
        steps = 2
        while steps * self.mr * self.nv < _ITERATION and steps < 4:
            steps *= 2
        return steps

    @property
    def edge(self) -> int:
        return edge_rows(self.mr)

    def multiply(
        self,
        a: ir.Value,
        b: ir.Value,
        c: StridedMatrix,
        old: StridedMatrix,
        rows: Index,
        columns: Index,
        depth: Index,
        b_offset: Index = 0,
        a_offset: Index | None = None,
        *,
        far: bool = False,
        transposed: bool = False,
    ) -> None:
        """C = old + A*B for packed A (`rows`) and B (`columns`), both `depth` steps deep.

        The panels of B begin at `b_offset` of its buffer, those of A at `a_offset`. If the panels
        of B are `far`, that is not in L2, each panel is prefetched while the previous one is used.

        `old` is C itself, or a row of `nr` elements with both strides 0. The strides are static: if
        the columns of C are contiguous, whole vectors are stored; with `transposed`, its rows are,
        and tiles are transposed first.
        """
        unit = is_number(c.column_stride, 1)

        def body(*values: ir.Value) -> None:
            lhs, rhs, into, before, *numbers = values
            c_at, c_row, c_column, old_at, old_row, old_column, m, n, k, b_at, *start = numbers
            row = 1 if transposed else c_row
            written = StridedMatrix(into, c_at, row, 1 if unit else c_column)
            read = StridedMatrix(before, old_at, old_row, old_column)
            tile = _Body(self, lhs, rhs, written, read, unit, None, None, far, *start)
            tile.emit(m, n, k, b_at)

        start = [] if a_offset is None else [a_offset]
        sizes = (rows, columns, depth, b_offset, *start)
        numbers = [index(n) for n in (*c.numbers, *old.numbers, *sizes)]
        layout = "" if unit else "_transposed" if transposed else "_strided"
        layout += self.dot.name
        layout += ("_far" if far else "") + ("_prepacked" if start else "")
        name = f"nova_multiply{layout}_{self.shape}"
        buffers = (a, b, c.buffer, old.buffer)
        call_shared(name, buffers, numbers, 2, body)

    def multiply_rows(
        self,
        a: Block,
        b: ir.Value,
        c: StridedMatrix,
        old: StridedMatrix,
        columns: Index,
        b_offset: Index,
        *,
        far: bool,
    ) -> None:
        """Like `multiply`, for an A that is read in place: its rows are contiguous."""
        unit = is_number(c.column_stride, 1)

        def body(*values: ir.Value) -> None:
            lhs, rhs, into, before, *numbers = values
            c_at, c_row, c_column, old_at, old_row, old_column, m, n, k, b_at, at, row = numbers
            written = StridedMatrix(into, c_at, c_row, 1 if unit else c_column)
            read = StridedMatrix(before, old_at, old_row, old_column)
            block = Block(lhs, a.type, at, row, 1, m, k)
            _Body(self, lhs, rhs, written, read, unit, None, block, far).emit(m, n, k, b_at)

        sizes = (a.lanes, columns, a.depth, b_offset, a.offset, a.lane_stride)
        layout = ("" if unit else "_strided") + ("_far" if far else "")
        name = f"nova_multiply_rows{layout}_{self.shape}"
        buffers = (a.source, b, c.buffer, old.buffer)
        numbers = [index(n) for n in (*c.numbers, *old.numbers, *sizes)]
        call_shared(name, buffers, numbers, 2, body)

    def multiply_copying(
        self,
        a: ir.Value,
        b: Block,
        panel: ir.Value,
        c: StridedMatrix,
        old: StridedMatrix,
        rows: Index,
        a_offset: Index | None = None,
    ) -> None:
        """Like `multiply`, for a B whose rows are contiguous and have the accumulator's type.

        The first micropanel reads B in place and copies each column panel to `panel`, a buffer of
        one panel, for the other micropanels: the multiply-adds hide the copy.
        """
        unit = is_number(c.column_stride, 1)

        def body(*values: ir.Value) -> None:
            lhs, source, copy, into, before, *numbers = values
            c_at, c_row, c_column, old_at, old_row, old_column, m, n, k, at, step, *start = numbers
            written = StridedMatrix(into, c_at, c_row, 1 if unit else c_column)
            read = StridedMatrix(before, old_at, old_row, old_column)
            block = Block(source, b.type, at, 1, step, n, k)
            tile = _Body(self, lhs, copy, written, read, unit, block, None, False, *start)
            tile.emit(m, n, k, 0)

        start = [] if a_offset is None else [a_offset]
        sizes = (rows, b.lanes, b.depth, b.offset, b.k_stride, *start)
        layout = ("" if unit else "_strided") + ("_prepacked" if start else "")
        name = f"nova_multiply_copying{layout}_{self.shape}"
        buffers = (a, b.source, panel, c.buffer, old.buffer)
        numbers = [index(n) for n in (*c.numbers, *old.numbers, *sizes)]
        call_shared(name, buffers, numbers, 3, body)


@record
class _Panel:
    """One tile of C: its offset, the rows and columns of C left from there, and its panel of B."""

    i: Index
    j: Index
    rows: Index
    columns: Index
    depth: Index
    b_at: Index
    later: _Later | None
    excess: ir.Value | None
    """What every row of the tile is too large by, where its words are flipped."""


@record
class _Later:
    """The prefetch of the next column panel: from `at` on, `step` elements per step of k."""

    at: Index
    step: Index


@record
class _RowOffsets:
    """The offset of a tile's rows of A, and their stride along k."""

    starts: list[Index]
    stride: int

    def at(self, k: ir.Value, step: int) -> list[Index]:
        """The elements of step k + `step`."""
        k_offset = mul(k, self.stride)
        return [add(start, add(k_offset, step * self.stride)) for start in self.starts]


@record
class _Body:
    """The body of one microkernel function."""

    kernel: Microkernel
    a: ir.Value
    b: ir.Value
    c: StridedMatrix
    old: StridedMatrix
    unit: bool
    source: Block | None
    """The source from which B is copied into `b`, then one column panel; None: B is packed."""
    rows: Block | None = None
    """The rows of A, read in place; None: A is packed."""
    far: bool = False
    a_offset: Index = 0
    """Where the panels of a packed A begin."""

    @property
    def vec_type(self) -> ir.VectorType:
        return vector_type(self.kernel.acc_type, self.kernel.vl)

    def emit(self, rows: Index, columns: Index, depth: Index, b_offset: Index) -> None:
        kernel = self.kernel
        scratch = entry_alloca(kernel.mr * kernel.nr, kernel.acc_type)
        excess = entry_alloca(kernel.nr, kernel.acc_type) if kernel.dot.has_excess else None
        # The micropanels together prefetch at least one whole column panel.
        step = arith.ceildivui(index(kernel.mr * kernel.nr), index(rows)) if self.far else 0
        with loop(0, columns, kernel.nr) as j:
            b_at, full = add(b_offset, mul(j, depth)), None
            if self.source is not None:
                b_at, full = 0, self._pack_edge(self.source.part(j, 0, depth))
            if excess is not None:
                self._sum_excess(excess, b_at, depth)
            with loop(0, rows, kernel.mr) as i:
                later = None
                if self.far:
                    share = mul(arith.divui(i, index(kernel.mr)), mul(step, depth))
                    later = _Later(add(add(b_at, mul(depth, kernel.nr)), share), step)
                sizes = sub(rows, i), sub(columns, j), depth
                panel = _Panel(i, j, *sizes, b_at, later, excess)
                tall = functools.partial(self._panel, panel, kernel.mr, full, scratch)
                short = functools.partial(self._panel, panel, kernel.edge, None, scratch)
                wide = functools.partial(branch, self._is_short(panel), short, tall)
                slim = functools.partial(self._panel, panel, kernel.mr, None, scratch, 1)
                branch(self._is_narrow(panel), slim, wide)

    def _sum_excess(self, excess: ir.Value, b_at: Index, depth: Index) -> None:
        """Sum the excess of a column panel over k, once for all its micropanels."""
        kernel = self.kernel
        zeros = [splat(self.vec_type, 0.0)] * kernel.nv
        op = scf.ForOp(index(0), index(depth), index(1), zeros)
        with ir.InsertionPoint(op.body):
            at = add(b_at, mul(op.induction_variable, kernel.nr))
            columns = self._load_row(self.b, at, kernel.nv)
            sums = zip(columns, op.inner_iter_args, strict=True)
            scf.YieldOp([kernel.dot.excess(kernel.target, *pair) for pair in sums])
        for v, value in enumerate(op.results):
            store_vector(value, excess, index(v * kernel.vl))

    def _is_narrow(self, p: _Panel) -> ir.Value | bool:
        """Whether one vector covers all remaining columns."""
        if not self.kernel.narrow:
            return False
        return compare(arith.CmpIPredicate.sle, p.columns, self.kernel.vl)

    def _is_short(self, p: _Panel) -> ir.Value | bool:
        """Whether the shorter tile covers all remaining rows; a first panel may have to copy B."""
        edge = self.kernel.edge
        if edge == self.kernel.mr:
            return False
        few = compare(arith.CmpIPredicate.sle, p.rows, edge)
        return arith.andi(few, compare(arith.CmpIPredicate.sgt, p.i, 0))

    def _panel(
        self,
        p: _Panel,
        mr: int,
        full: ir.Value | None,
        scratch: ir.Value,
        nv: int | None = None,
    ) -> None:
        """A tile of `mr` rows; the first of a column panel that is `full` copies it.

        The tile has `nv` vectors, those of the kernel by default.
        """
        nv = nv or self.kernel.nv
        start = self.c.at(p.i, p.j)
        self._prefetch(start, mr)
        if full is None or self.source is None:
            tile = self._multiply(self._row_offsets(p, mr), p.b_at, p.depth, nv, later=p.later)
        else:
            copies = arith.andi(full, compare(arith.CmpIPredicate.eq, p.i, 0))
            tile = self._multiply_or_copy(
                copies, self._row_offsets(p, mr), self.source.at(p.j, 0), p.depth
            )
        if p.excess is not None:
            columns = self._load_row(p.excess, 0, nv)
            tile = [arith.subi(value, columns[i % nv]) for i, value in enumerate(tile)]
        accesses = (self.c, start), (self.old, self.old.at(p.i, p.j))
        store_tile(tile, nv, scratch, *accesses, p.rows, p.columns, unit=self.unit)

    def _row_offsets(self, p: _Panel, mr: int) -> _RowOffsets:
        """The rows of A of a tile; rows past the last one repeat the last one."""
        if self.rows is None:
            start = add(self.a_offset, mul(p.i, p.depth))
            return _RowOffsets([add(start, r) for r in range(mr)], self.kernel.mr)
        first, last = self.rows.at(p.i, 0), sub(p.rows, 1)
        steps = [mul(minimum(last, r), self.rows.lane_stride) for r in range(1, mr)]
        return _RowOffsets([first, *(add(first, step) for step in steps)], 1)

    def _pack_edge(self, remaining: Block) -> ir.Value:
        """Whether the next panel of B is whole; a partial panel is packed before it is used."""
        kernel = self.kernel
        full = compare(arith.CmpIPredicate.sge, remaining.lanes, kernel.nr)
        part = compare(arith.CmpIPredicate.slt, remaining.lanes, kernel.nr)
        with ir.InsertionPoint(scf.IfOp(part).then_block):
            pack(kernel.target, kernel.acc_type, remaining, kernel.nr, 1, self.b)
            scf.YieldOp([])
        return full

    def _multiply_or_copy(
        self, copies: ir.Value, rows: _RowOffsets, source: Index, depth: Index
    ) -> list[ir.Value]:
        """Multiply a micropanel by the column panel, which is copied first if `copies`."""
        types = [self.vec_type] * (self.kernel.mr * self.kernel.nv)
        op = scf.IfOp(copies, types, has_else=True)
        for block, at in ((op.then_block, source), (op.else_block, None)):
            with ir.InsertionPoint(block):
                scf.YieldOp(self._multiply(rows, 0, depth, self.kernel.nv, at))
        return list(op.results)

    def _multiply(
        self,
        rows: _RowOffsets,
        b_at: Index,
        depth: Index,
        nv: int,
        source: Index | None = None,
        later: _Later | None = None,
    ) -> list[ir.Value]:
        """Multiply rows of A by `nv` vectors of one column panel, row by row.

        If there is a `source`, the column panel is read from it and copied to the packed panel.
        """
        zero = splat(self.vec_type, 0.0)
        sums = [zero] * (len(rows.starts) * nv)
        steps = self.kernel.unrolled
        full = arith.andi(index(depth), index(-steps))
        sums = self._steps(sums, rows, b_at, 0, full, steps, source, later)
        return self._steps(sums, rows, b_at, full, depth, 1, source)

    def _steps(
        self,
        sums: list[ir.Value],
        rows: _RowOffsets,
        b_at: Index,
        first: Index,
        end: Index,
        steps: int,
        source: Index | None,
        later: _Later | None = None,
    ) -> list[ir.Value]:
        kernel = self.kernel
        carried = [*sums, index(later.at)] if later else sums
        op = scf.ForOp(index(first), index(end), index(steps), carried)
        with ir.InsertionPoint(op.body):
            k = op.induction_variable
            sums, after = list(op.inner_iter_args), []
            if later:
                offset = sums.pop()
                after = [add(offset, mul(later.step, steps))]
            for step in range(steps):
                if later:
                    ahead = add(offset, mul(later.step, step))
                    self._fetch(self.b, ahead, write=False, level=2)
                b_row = add(b_at, add(mul(k, kernel.nr), step * kernel.nr))
                if source is None:
                    b_row_vectors = self._load_row(self.b, b_row, len(sums) // len(rows.starts))
                else:
                    b_row_vectors = self._copy_row(source, add(k, step), b_row)
                sums = self._step(sums, rows.at(k, step), b_row_vectors)
            scf.YieldOp([*sums, *after])
        return list(op.results)[: len(sums)]

    def _load_row(self, buffer: ir.Value, start: Index, nv: int) -> list[ir.Value]:
        """One step of k of the first vectors of a column panel."""
        kernel = self.kernel
        return [
            load_vector(kernel.word, buffer, index(add(start, v * kernel.vl))) for v in range(nv)
        ]

    def _copy_row(self, source: Index, k: Index, into: Index) -> list[ir.Value]:
        """One step of k of a B that is not packed, copied to the panel at `into`."""
        assert self.source is not None
        kernel, stride = self.kernel, self.source.k_stride
        start = add(source, mul(k, stride))
        later = add(start, mul(stride, _AHEAD))
        for lane in range(0, kernel.nr, 512 // BITS[kernel.acc_type]):
            self._fetch(self.source.source, add(later, lane), write=False)
        row = self._load_row(self.source.source, start, kernel.nv)
        for v, value in enumerate(row):
            store_vector(value, self.b, index(add(into, v * kernel.vl)))
        return row

    def _step(
        self, sums: list[ir.Value], offsets: list[Index], b_row_vectors: list[ir.Value]
    ) -> list[ir.Value]:
        kernel = self.kernel
        result = []
        for i, offset in enumerate(offsets):
            scalar = load_element(self.a, index(offset))
            spread = broadcast(kernel.word, scalar)
            for v, column in enumerate(b_row_vectors):
                total = sums[i * len(b_row_vectors) + v]
                result.append(kernel.dot.multiply_add(kernel.target, spread, column, total))
        return result

    def _prefetch(self, start: Index, mr: int) -> None:
        """Prefetch a tile of C while it is computed: hardware cannot at such a row stride."""
        kernel = self.kernel
        line = 512 // BITS[kernel.acc_type]
        if is_number(self.c.row_stride, 1) and not self.unit:
            for j in range(kernel.nr):
                column = add(start, mul(j, self.c.column_stride))
                self._fetch(self.c.buffer, column, write=True)
            return
        for i in range(mr):
            row = add(start, mul(i, self.c.row_stride))
            for j in range(0, kernel.nr if self.unit else 1, line):
                self._fetch(self.c.buffer, add(row, j), write=True)

    def _fetch(self, buffer: ir.Value, offset: Index, *, write: bool, level: int = 1) -> None:
        """Prefetch a cache line into a level of the caches."""
        memref.prefetch(
            buffer, [index(offset)], is_write=write, locality_hint=4 - level, is_data_cache=True
        )
