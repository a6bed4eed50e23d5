"""The micro-kernel: packed panels of A and B multiplied into C, one register tile at a time.

In: a register tile (`MicroKernel`), packed operands (see packing.py), C, and where the old values
come from. Out: a call of a shared function that loops over column panels, row panels and k.
`contraction.py` calls `multiply`. A tile is always computed as a whole; only its store looks at how
much of it exists.
"""

from __future__ import annotations

from dataclasses import dataclass

from nova.mlir.bindings import arith, ir, memref, scf, vector
from nova.schedules.packing import Block, pack
from nova.schedules.shared import call_shared, entry_alloca
from nova.schedules.words import (
    BITS,
    Index,
    add,
    branch,
    compare,
    index,
    loop,
    minimum,
    mul,
    splat,
    sub,
    vector_type,
)
from nova.targets import Target

_TURN = 24
"""Multiply-adds that hide what else a turn of the innermost loop does; more only take longer to
compile."""

_AHEAD = 16
"""Steps of k that rows of an unpacked B are fetched ahead: too far apart for the hardware."""


@dataclass(frozen=True)
class Place:
    """A matrix in memory: element (row, column) is at `offset + row*row_stride + ...`."""

    buffer: ir.Value
    offset: Index
    row_stride: Index
    column_stride: Index

    @property
    def numbers(self) -> tuple[Index, Index, Index]:
        return self.offset, self.row_stride, self.column_stride

    def at(self, row: Index, column: Index) -> Index:
        inner = add(mul(row, self.row_stride), mul(column, self.column_stride))
        return add(self.offset, inner)


@dataclass(frozen=True)
class MicroKernel:
    """`mr` rows of `nv` vectors of C in registers."""

    target: Target
    acc_type: str
    mr: int
    nv: int

    @property
    def vl(self) -> int:
        return self.target.lanes(BITS[self.acc_type])

    @property
    def nr(self) -> int:
        return self.nv * self.vl

    @property
    def unrolled(self) -> int:
        """Steps of k in one turn of the innermost loop, a power of two."""
        steps = 1
        while steps * self.mr * self.nv < _TURN and steps < 4:
            steps *= 2
        return steps

    def multiply(
        self,
        a: ir.Value,
        b: ir.Value,
        c: Place,
        old: Place,
        rows: Index,
        columns: Index,
        depth: Index,
        b_offset: Index = 0,
    ) -> None:
        """C = old + A*B for packed A (`rows`) and B (`columns`), both `depth` steps deep.

        The panels of B begin at `b_offset` of its buffer.

        `old` is C itself, or a row of `nr` elements with both strides 0. The strides are known: if
        the columns of C are contiguous, whole vectors are stored.
        """
        unit = c.column_stride == 1

        def body(*values: ir.Value) -> None:
            left, right, into, before, *numbers = values
            c_at, c_row, c_column, old_at, old_row, old_column, m, n, k, b_at = numbers
            written = Place(into, c_at, c_row, 1 if unit else c_column)
            read = Place(before, old_at, old_row, old_column)
            _Body(self, left, right, written, read, unit, None).emit(m, n, k, b_at)

        numbers = [index(n) for n in (*c.numbers, *old.numbers, rows, columns, depth, b_offset)]
        layout = "" if unit else "_strided"
        name = f"nova_multiply{layout}_{self.acc_type}_{self.mr}x{self.nr}"
        buffers = (a, b, c.buffer, old.buffer)
        call_shared(name, buffers, numbers, 2, body)

    def multiply_copying(
        self, a: ir.Value, b: Block, panel: ir.Value, c: Place, old: Place, rows: Index
    ) -> None:
        """The same for a B whose rows are contiguous and of the accumulator's type.

        The first row panel reads B where it lies, and leaves each column panel in `panel`, a
        buffer of one, for the others: the copying hides behind the multiply-adds.
        """
        unit = c.column_stride == 1

        def body(*values: ir.Value) -> None:
            left, source, copy, into, before, *numbers = values
            c_at, c_row, c_column, old_at, old_row, old_column, m, n, k, at, step = numbers
            written = Place(into, c_at, c_row, 1 if unit else c_column)
            read = Place(before, old_at, old_row, old_column)
            block = Block(source, b.type, at, 1, step, n, k)
            _Body(self, left, copy, written, read, unit, block).emit(m, n, k, 0)

        sizes = (rows, b.lanes, b.depth, b.offset, b.k_stride)
        layout = "" if unit else "_strided"
        name = f"nova_multiply_copying{layout}_{self.acc_type}_{self.mr}x{self.nr}"
        buffers = (a, b.source, panel, c.buffer, old.buffer)
        numbers = [index(n) for n in (*c.numbers, *old.numbers, *sizes)]
        call_shared(name, buffers, numbers, 3, body)


@dataclass(frozen=True)
class _Body:
    """The body of one multiplying function."""

    kernel: MicroKernel
    a: ir.Value
    b: ir.Value
    c: Place
    old: Place
    unit: bool
    source: Block | None
    """Where B is copied from, into `b`, which then is one column panel; None: B is packed."""

    @property
    def kind(self) -> ir.VectorType:
        return vector_type(self.kernel.acc_type, self.kernel.vl)

    def emit(self, rows: Index, columns: Index, depth: Index, b_offset: Index) -> None:
        kernel = self.kernel
        scratch = entry_alloca(kernel.mr * kernel.nr, kernel.acc_type)
        with loop(0, columns, kernel.nr) as j:
            b_at, width = add(b_offset, mul(j, depth)), sub(columns, j)
            if self.source is not None:
                b_at = 0
                whole = self._pack_edge(self.source.part(j, 0, depth))
            with loop(0, rows, kernel.mr) as i:
                start = self.c.at(i, j)
                self._prefetch(start)
                if self.source is None:
                    tile = self._multiply(mul(i, depth), b_at, depth)
                else:
                    copies = arith.andi(whole, compare(arith.CmpIPredicate.eq, i, 0))
                    tile = self._multiply_or_copy(copies, i, self.source.at(j, 0), depth)
                before = self.old.at(i, j)
                self._store(tile, scratch, start, before, sub(rows, i), width)

    def _pack_edge(self, rest: Block) -> ir.Value:
        """Whether the next panel of B is whole; one that is not is packed before it is used."""
        kernel = self.kernel
        whole = compare(arith.CmpIPredicate.sge, rest.lanes, kernel.nr)
        part = compare(arith.CmpIPredicate.slt, rest.lanes, kernel.nr)
        with ir.InsertionPoint(scf.IfOp(part).then_block):
            pack(kernel.target, kernel.acc_type, rest, kernel.nr, 1, self.b)
            scf.YieldOp([])
        return whole

    def _multiply_or_copy(
        self, copies: ir.Value, i: Index, source: Index, depth: Index
    ) -> list[ir.Value]:
        """The product of row panel i and the column panel, which is copied first if `copies`."""
        kinds = [self.kind] * (self.kernel.mr * self.kernel.nv)
        op = scf.IfOp(copies, kinds, has_else=True)
        for block, at in ((op.then_block, source), (op.else_block, None)):
            with ir.InsertionPoint(block):
                scf.YieldOp(self._multiply(mul(i, depth), 0, depth, at))
        return list(op.results)

    def _multiply(
        self, a_at: Index, b_at: Index, depth: Index, source: Index | None = None
    ) -> list[ir.Value]:
        """The product of one row panel and one column panel, row by row.

        From `source` on, the column panel is copied to where it is read otherwise.
        """
        zero = splat(self.kind, 0.0)
        sums = [zero] * (self.kernel.mr * self.kernel.nv)
        steps = self.kernel.unrolled
        if steps == 1:
            return self._steps(sums, a_at, b_at, 0, depth, 1, source)
        whole = arith.andi(index(depth), index(-steps))
        sums = self._steps(sums, a_at, b_at, 0, whole, steps, source)
        return self._steps(sums, a_at, b_at, whole, depth, 1, source)

    def _steps(
        self,
        sums: list[ir.Value],
        a_at: Index,
        b_at: Index,
        first: Index,
        end: Index,
        steps: int,
        source: Index | None,
    ) -> list[ir.Value]:
        kernel = self.kernel
        op = scf.ForOp(index(first), index(end), index(steps), sums)
        with ir.InsertionPoint(op.body):
            k = op.induction_variable
            sums = list(op.inner_iter_args)
            for step in range(steps):
                b_row = add(b_at, add(mul(k, kernel.nr), step * kernel.nr))
                a_row = add(a_at, add(mul(k, kernel.mr), step * kernel.mr))
                if source is None:
                    right = self._load_row(self.b, b_row)
                else:
                    right = self._copy_row(source, add(k, step), b_row)
                sums = self._step(sums, a_row, right)
            scf.YieldOp(sums)
        return list(op.results)

    def _load_row(self, buffer: ir.Value, start: Index) -> list[ir.Value]:
        """One step of k of a column panel."""
        kernel = self.kernel
        return [
            vector.load(self.kind, buffer, [index(add(start, v * kernel.vl))])
            for v in range(kernel.nv)
        ]

    def _copy_row(self, source: Index, k: Index, into: Index) -> list[ir.Value]:
        """The same of a B that is not packed, which goes to the panel at `into`."""
        assert self.source is not None
        kernel, stride = self.kernel, self.source.k_stride
        start = add(source, mul(k, stride))
        later = add(start, mul(stride, _AHEAD))
        for lane in range(0, kernel.nr, 512 // BITS[kernel.acc_type]):
            self._fetch(self.source.source, add(later, lane), write=False)
        row = self._load_row(self.source.source, start)
        for v, value in enumerate(row):
            vector.store(value, self.b, [index(add(into, v * kernel.vl))])
        return row

    def _step(self, sums: list[ir.Value], a_row: Index, right: list[ir.Value]) -> list[ir.Value]:
        kernel = self.kernel
        result = []
        for i in range(kernel.mr):
            scalar = memref.load(self.a, [index(add(a_row, i))])
            left = vector.broadcast(self.kind, scalar)
            for v in range(kernel.nv):
                total = sums[i * kernel.nv + v]
                if kernel.target.has_fma:
                    result.append(vector.fma(left, right[v], total))
                else:
                    result.append(arith.addf(total, arith.mulf(left, right[v])))
        return result

    def _prefetch(self, start: Index) -> None:
        """Fetch a tile of C while it is computed; its rows are too far apart for the hardware."""
        kernel = self.kernel
        line = 512 // BITS[kernel.acc_type]
        for i in range(kernel.mr):
            row = add(start, mul(i, self.c.row_stride))
            for j in range(0, kernel.nr if self.unit else 1, line):
                self._fetch(self.c.buffer, add(row, j), write=True)

    def _fetch(self, buffer: ir.Value, place: Index, write: bool) -> None:
        memref.prefetch(buffer, [index(place)], is_write=write, locality_hint=3, is_data_cache=True)

    def _store(
        self,
        tile: list[ir.Value],
        scratch: ir.Value,
        start: Index,
        before: Index,
        rows: Index,
        columns: Index,
    ) -> None:
        """Write a tile, of which only `rows` and `columns` (maybe more than it has) exist."""
        kernel, kind = self.kernel, self.kind
        c, old = self.c, self.old

        def whole() -> None:
            for i in range(kernel.mr):
                into, source = (
                    add(start, mul(i, c.row_stride)),
                    add(before, mul(i, old.row_stride)),
                )
                for v in range(kernel.nv):
                    was = vector.load(kind, old.buffer, [index(add(source, v * kernel.vl))])
                    value = arith.addf(was, tile[i * kernel.nv + v])
                    vector.store(value, c.buffer, [index(add(into, v * kernel.vl))])

        def spill() -> None:
            for number, value in enumerate(tile):
                vector.store(value, scratch, [index(number * kernel.vl)])

        def part() -> None:
            spill()
            flags = ir.VectorType.get([kernel.vl], ir.IntegerType.get_signless(1))
            height = minimum(rows, kernel.mr)
            with loop(0, height, 1) as i, loop(0, kernel.nr, kernel.vl) as j:
                mask = vector.create_mask(flags, [index(sub(columns, j))])
                into = [index(add(start, add(mul(i, c.row_stride), j)))]
                source = [index(add(before, add(mul(i, old.row_stride), j)))]
                was = vector.maskedload(kind, old.buffer, source, mask, splat(kind, 0.0))
                value = vector.load(kind, scratch, [index(add(mul(i, kernel.nr), j))])
                vector.maskedstore(c.buffer, into, mask, arith.addf(was, value))

        def scattered() -> None:
            spill()
            height, width = minimum(rows, kernel.mr), minimum(columns, kernel.nr)
            with loop(0, height, 1) as i, loop(0, width, 1) as j:
                inner = [add(mul(i, p.row_stride), mul(j, p.column_stride)) for p in (c, old)]
                was = memref.load(old.buffer, [index(add(before, inner[1]))])
                value = memref.load(scratch, [index(add(mul(i, kernel.nr), j))])
                memref.store(arith.addf(was, value), c.buffer, [index(add(start, inner[0]))])

        if not self.unit:
            scattered()
            return
        is_whole = arith.andi(
            compare(arith.CmpIPredicate.sge, rows, kernel.mr),
            compare(arith.CmpIPredicate.sge, columns, kernel.nr),
        )
        branch(is_whole, whole, part)
