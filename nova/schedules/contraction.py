"""The matrix product for CPU targets: register-tiled, with both operands packed.

In: a `Contraction` (static sizes and strides), flat memrefs with offsets, and the row and column
range of C to compute. Out: scf/vector/memref/arith code at the current insertion point. The kernel
lowering calls `emit_block` for each task tile, whose size it asks of `tile_shape`.

Inside a block, from the outside in: blocks of rows (`mc`), blocks of k (`kc`), groups of column
panels (`nc`), panels of columns (`nr`), panels of rows (`mr`). The packed rows of A stay in the L2
cache, one column panel of B in L1, and an `mr x nr` tile of C in registers. There is one instance
of the micro-kernel, whatever the edges: it always computes a whole tile, and only the store looks
at how much of the tile exists. An element of C is always the same sum in the same order, however
the ranges are cut.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from nova.errors import ScheduleError
from nova.mlir.bindings import arith, ir, memref, scf, vector
from nova.schedules.choices import NO_CHOICES, Choices
from nova.schedules.packing import (
    BITS,
    Block,
    Index,
    Packer,
    add,
    branch,
    compare,
    element_type,
    index,
    loop,
    minimum,
    mul,
    splat,
    sub,
    vector_type,
)
from nova.targets import Target

_BUFFER_BYTES = 512 << 10
"""The most that the pack buffers of one block take from the stack."""

_FEW_TILES, _SMALL_TILE = 4, 16_000_000
"""Tasks are made smaller while there are fewer than this, and none gets fewer operations."""


@dataclass(frozen=True)
class Contraction:
    """C[m,n] (+)= sum over k of A[m,k] * B[k,n]; strides in elements.

    `choices` are what somebody has decided about its tiling; the rest follows from the sizes.
    """

    m: int
    n: int
    k: int
    a_strides: tuple[int, int]
    b_strides: tuple[int, int]
    c_strides: tuple[int, int]
    a_type: str
    b_type: str
    acc_type: str
    accumulate: bool
    choices: Choices = NO_CHOICES


@dataclass(frozen=True)
class Tiling:
    """How a contraction is cut; a function of the target and the contraction alone."""

    vl: int
    mr: int
    nv: int
    k_blocks: int
    kc: int
    mc: int

    @property
    def nr(self) -> int:
        return self.nv * self.vl

    @property
    def a_size(self) -> int:
        return self.mc * self.kc + self.vl

    @property
    def b_size(self) -> int:
        return self.nr * self.kc


def flops(spec: Contraction) -> int:
    """Floating-point operations of the whole contraction."""
    return 2 * spec.m * spec.n * spec.k


def is_worth_packing(target: Target, spec: Contraction) -> bool:
    """Whether `emit_block` beats plain loops: enough work, and more than a strip of C."""
    lanes = target.lanes(BITS[spec.acc_type])
    return flops(spec) >= 32768 and min(spec.m, spec.n) >= 4 and max(spec.m, spec.n) >= lanes


def tile_shape(target: Target, spec: Contraction) -> tuple[int, int]:
    """Rows and columns of C that one task should compute: whole register tiles.

    A task packs its rows of A and its columns of B once, so tiles are as tall as the packed rows
    of A may be and wide enough to keep the copying of A at a few percent; they are halved as long
    as there are too few to share out and halves are still worth a task.
    """
    inner = _with_unit_columns(spec)
    if inner is not spec:
        columns, rows = tile_shape(target, inner)
        return rows, columns
    tiling = _tiling(target, spec)
    rows, columns = tiling.mc, _up(min(max(spec.n, 1), 512), tiling.nr)

    def tiles() -> int:
        return -(-spec.m // rows) * -(-spec.n // columns)

    while tiles() < _FEW_TILES and rows * columns * spec.k >= _SMALL_TILE:
        half_rows, half_columns = _up(rows // 2, tiling.mr), _up(columns // 2, tiling.nr)
        if columns >= rows and half_columns < columns:
            columns = half_columns
        elif half_rows < rows:
            rows = half_rows
        else:
            break
    while columns < spec.n and 2 * rows * columns * spec.k < _SMALL_TILE:
        columns += tiling.nr
    return rows, columns


def register_shape(target: Target, spec: Contraction) -> tuple[int, int]:
    """Rows and columns of C that are held in registers: a tile is a multiple of both."""
    inner = _with_unit_columns(spec)
    tiling = _tiling(target, inner)
    return (tiling.mr, tiling.nr) if inner is spec else (tiling.nr, tiling.mr)


def emit_block(
    target: Target,
    spec: Contraction,
    a: ir.Value,
    a_offset: ir.Value,
    b: ir.Value,
    b_offset: ir.Value,
    c: ir.Value,
    c_offset: ir.Value,
    m_lo: ir.Value,
    m_hi: ir.Value,
    n_lo: ir.Value,
    n_hi: ir.Value,
) -> None:
    """Emit C[m_lo:m_hi, n_lo:n_hi] for the whole of k, at the current insertion point.

    a, b, c are one-dimensional memrefs of identity layout that do not overlap in what is read and
    written; offsets and ranges are `index` values. The pack buffers are put at the start of the
    enclosing function. Memory outside of the block of C is neither read nor written.
    """
    inner = _with_unit_columns(spec)
    if inner is not spec:
        a, a_offset, b, b_offset = b, b_offset, a, a_offset
        m_lo, m_hi, n_lo, n_hi = n_lo, n_hi, m_lo, m_hi
    _Block(target, inner, a, a_offset, b, b_offset, c, c_offset).emit(m_lo, m_hi, n_lo, n_hi)


def _part(number: Index, extent: int, parts: int) -> Index:
    """Where part `number` of `extent` cut into equal parts begins."""
    if isinstance(number, int):
        return number * extent // parts
    if extent % parts == 0:
        return mul(number, extent // parts)
    return arith.divui(mul(number, extent), index(parts))


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _with_unit_columns(spec: Contraction) -> Contraction:
    """The contraction, transposed if that makes the columns of C the contiguous ones."""
    rows_first = spec.c_strides[0] == 1 and spec.m > 1
    columns_first = spec.c_strides[1] == 1 and spec.n > 1
    if not rows_first or columns_first:
        return spec
    return replace(
        spec,
        m=spec.n,
        n=spec.m,
        a_strides=spec.b_strides[::-1],
        b_strides=spec.a_strides[::-1],
        c_strides=spec.c_strides[::-1],
        a_type=spec.b_type,
        b_type=spec.a_type,
    )


@functools.cache
def _tiling(target: Target, spec: Contraction) -> Tiling:
    bits = BITS[spec.acc_type]
    vl, size = target.lanes(bits), bits // 8
    mr, nv = _register_tile(target, spec.m, spec.n, vl)
    choices = spec.choices
    if choices.mr is not None or choices.nv is not None:
        mr, nv = choices.mr or mr, choices.nv or nv
        _check_registers(target, mr, nv)
    # A column panel takes most of L1, next to one row panel that streams through.
    depth = choices.kc or min(max(target.l1_bytes * 7 // 10 // (nv * vl * size), 256), 384)
    k_blocks = max(1, -(-spec.k // depth))
    kc = max(1, -(-spec.k // k_blocks))
    budget = min(target.l2_bytes * 5 // 8, _BUFFER_BYTES - kc * nv * vl * size - (8 << 10))
    most = max(1, budget // size // kc // mr)
    if choices.mc is not None or choices.kc is not None:
        wanted = -(-(choices.mc or 1) // mr)
        if wanted > budget // size // kc // mr:
            raise ScheduleError(
                f"packed panels of mc={wanted * mr} rows and kc={kc} are more than a task may hold",
                hint=f"kc * mc is at most {max(0, budget // size)} here",
            )
        most = wanted if choices.mc is not None else most
    pieces = max(1, -(-spec.m // (most * mr)))
    mc = _up(max(1, -(-spec.m // pieces)), mr)
    return Tiling(vl, mr, nv, k_blocks, kc, mc)


def _register_tile(target: Target, m: int, n: int, vl: int) -> tuple[int, int]:
    """Rows, and vectors a row, of the tile of C that is held in registers.

    A step of k costs the larger of its multiply-adds and its loads (two of each a cycle), and no
    less than the latency of one; the tile with the least total for the whole of C is taken, so a
    small or odd C wastes little at its edges. One register stays free for the compiler.
    """
    temporaries = 2 if target.has_fma else 3
    best: tuple[float, int] | None = None
    choice = (1, 1)
    for nv in range(1, 5):
        for mr in range(1, 17):
            if mr * nv + nv + temporaries > target.vector_registers:
                continue
            step = max(mr * nv / 2, (mr + nv) / 2, 4.0) + 0.4
            cost = -(-m // mr) * -(-n // (nv * vl)) * step
            if best is None or (cost, -mr * nv) < best:
                best, choice = (cost, -mr * nv), (mr, nv)
    return choice


def _check_registers(target: Target, mr: int, nv: int) -> None:
    """ScheduleError unless such a tile of C fits into the registers, with what it needs beside."""
    used = mr * nv + nv + (2 if target.has_fma else 3)
    if used > target.vector_registers:
        raise ScheduleError(
            f"a register tile of mr={mr} rows by nv={nv} vectors takes {used} registers, and "
            f"{target.name} has {target.vector_registers}"
        )


def _entry_alloca(elements: int, type_: str) -> ir.Value:
    """A 64-byte aligned buffer at the start of the enclosing function."""
    op = ir.InsertionPoint.current.block.owner.operation
    while op.name != "func.func":
        op = op.parent.operation
    with ir.InsertionPoint.at_block_begin(op.regions[0].blocks[0]):
        kind = ir.MemRefType.get([elements], element_type(type_))
        return memref.AllocaOp(kind, [], [], alignment=64).result


@dataclass(frozen=True)
class _Block:
    """The emission of one block; the columns of C are contiguous, or neither dimension is."""

    target: Target
    spec: Contraction
    a: ir.Value
    a_offset: Index
    b: ir.Value
    b_offset: Index
    c: ir.Value
    c_offset: Index

    @functools.cached_property
    def tiling(self) -> Tiling:
        return _tiling(self.target, self.spec)

    def emit(self, m_lo: Index, m_hi: Index, n_lo: Index, n_hi: Index) -> None:
        t, spec = self.tiling, self.spec
        if spec.k == 0:
            if not spec.accumulate:
                self._clear(m_lo, m_hi, n_lo, n_hi)
            return
        packed_a = _entry_alloca(t.a_size, spec.acc_type)
        packed_b = _entry_alloca(t.b_size, spec.acc_type)
        scratch = _entry_alloca(t.mr * t.nr, spec.acc_type)

        def k_block(m: Index, rows: Index, number: Index) -> None:
            # Blocks of k differ by at most one, so none is shorter than a vector.
            k = _part(number, spec.k, t.k_blocks)
            depth = sub(_part(add(number, 1), spec.k, t.k_blocks), k)
            if spec.k % t.k_blocks == 0:
                depth = t.kc
            overwrite: ir.Value | bool = not spec.accumulate
            if overwrite and t.k_blocks > 1:
                overwrite = compare(arith.CmpIPredicate.eq, number, 0)
            panels = arith.ceildivsi(index(rows), index(t.mr))
            self._pack_a(packed_a, m, rows, panels, k, depth)
            with loop(n_lo, n_hi, t.nr) as n:
                columns = sub(n_hi, n)
                self._pack_b(packed_b, n, columns, k, depth)
                with loop(0, panels, 1) as panel:
                    row = mul(panel, t.mr)
                    origin, extent = (add(m, row), n), (sub(rows, row), columns)
                    self._prefetch_c(origin)
                    if spec.n * spec.k * BITS[spec.b_type] // 8 > self.target.l2_bytes // 2:
                        self._prefetch_b(add(n, t.nr), k, depth, panel, panels)
                    tile = self._multiply(packed_a, panel, packed_b, depth)
                    self._store(tile, scratch, overwrite, origin, extent)

        # A loop of one turn is left out: LLVM's loop passes cost by the depth of the nest.
        def m_block(m: Index, rows: Index) -> None:
            if t.k_blocks == 1:
                k_block(m, rows, 0)
            else:
                with loop(0, t.k_blocks, 1) as number:
                    k_block(m, rows, number)

        if spec.m <= t.mc:
            m_block(m_lo, sub(m_hi, m_lo))
        else:
            with loop(m_lo, m_hi, t.mc) as m:
                m_block(m, minimum(sub(m_hi, m), t.mc))

    def _pack_a(
        self, buffer: ir.Value, m: Index, rows: Index, panels: Index, k: Index, depth: Index
    ) -> None:
        t, (ms, ks) = self.tiling, self.spec.a_strides
        packer = Packer(self.target, self.spec.acc_type, buffer)
        start = add(self.a_offset, add(mul(m, ms), mul(k, ks)))
        block = Block(self.a, self.spec.a_type, start, ms, ks, rows, depth)
        with loop(0, panels, 1) as panel:
            row = mul(panel, t.mr)
            part = replace(block, offset=add(start, mul(row, ms)), lanes=sub(rows, row))
            packer.pack_panel(part, t.mr, self.spec.k // t.k_blocks, mul(row, t.kc))

    def _pack_b(self, buffer: ir.Value, n: Index, columns: Index, k: Index, depth: Index) -> None:
        t, (ks, ns) = self.tiling, self.spec.b_strides
        packer = Packer(self.target, self.spec.acc_type, buffer)
        start = add(self.b_offset, add(mul(n, ns), mul(k, ks)))
        block = Block(self.b, self.spec.b_type, start, ns, ks, columns, depth)
        packer.pack_panel(block, t.nr, self.spec.k // t.k_blocks, 0)

    def _multiply(
        self, packed_a: ir.Value, panel: Index, packed_b: ir.Value, depth: Index
    ) -> list[ir.Value]:
        """The micro-kernel: the product of one row panel and one column panel, row by row."""
        t = self.tiling
        kind = vector_type(self.spec.acc_type, t.vl)
        a_start = mul(panel, t.mr * t.kc)
        zero = splat(kind, 0.0)
        op = scf.ForOp(index(0), index(depth), index(1), [zero] * (t.mr * t.nv))
        with ir.InsertionPoint(op.body):
            k = op.induction_variable
            b_at, a_at = mul(k, t.nr), add(a_start, mul(k, t.mr))
            right = [vector.load(kind, packed_b, [index(add(b_at, v * t.vl))]) for v in range(t.nv)]
            sums = []
            for i in range(t.mr):
                scalar = memref.load(packed_a, [index(add(a_at, i))])
                left = vector.broadcast(kind, scalar)
                for v in range(t.nv):
                    total = op.inner_iter_args[i * t.nv + v]
                    if self.target.has_fma:
                        sums.append(vector.fma(left, right[v], total))
                    else:
                        sums.append(arith.addf(total, arith.mulf(left, right[v])))
            scf.YieldOp(sums)
        return list(op.results)

    def _prefetch_b(self, n: Index, k: Index, depth: Index, panel: Index, panels: Index) -> None:
        """Fetch one of `panels` parts of the next column panel into L2 ahead of its packing."""
        t, (ks, ns) = self.tiling, self.spec.b_strides
        line = 512 // BITS[self.spec.b_type]
        start = add(self.b_offset, add(mul(n, ns), mul(k, ks)))
        if ks == 1:
            count = mul(arith.ceildivsi(index(depth), index(line)), t.nr)
        else:
            count = depth
        part = arith.ceildivsi(index(count), index(panels))
        first = arith.muli(index(panel), part)
        with loop(first, minimum(add(first, part), count), 1) as number:
            if ks == 1:
                lane, step = (op(number, index(t.nr)) for op in (arith.remui, arith.divui))
                places = [add(mul(lane, ns), mul(step, line))]
            else:
                places = [add(mul(number, ks), lane * ns) for lane in range(0, t.nr, line)]
            for place in places:
                where = [index(add(start, place))]
                memref.prefetch(self.b, where, is_write=False, locality_hint=2, is_data_cache=True)

    def _prefetch_c(self, origin: tuple[Index, Index]) -> None:
        """Fetch a tile of C while it is computed; its rows are too far apart for the hardware."""
        t, (ms, ns) = self.tiling, self.spec.c_strides
        start = add(self.c_offset, add(mul(origin[0], ms), mul(origin[1], ns)))
        line = 512 // BITS[self.spec.acc_type]
        for i in range(t.mr):
            for j in range(0, t.nr, line):
                place = [index(add(start, i * ms + j * ns))]
                memref.prefetch(self.c, place, is_write=False, locality_hint=3, is_data_cache=True)

    def _store(
        self,
        tile: list[ir.Value],
        scratch: ir.Value,
        overwrite: ir.Value | bool,
        origin: tuple[Index, Index],
        extent: tuple[Index, Index],
    ) -> None:
        """Write or add a tile to C at `origin`, where only `extent` (maybe more) of it exists."""
        t, (ms, ns) = self.tiling, self.spec.c_strides
        start = add(self.c_offset, add(mul(origin[0], ms), mul(origin[1], ns)))
        kind = vector_type(self.spec.acc_type, t.vl)

        def update(old: Callable[[], ir.Value], value: ir.Value) -> ir.Value:
            if overwrite is True:
                return value
            before = old()
            return arith.addf(
                before if overwrite is False else self._unless(overwrite, before), value
            )

        def whole() -> None:
            for i in range(t.mr):
                row = add(start, i * ms)
                for v in range(t.nv):
                    place = [index(add(row, v * t.vl))]
                    value = tile[i * t.nv + v]
                    old = functools.partial(vector.load, kind, self.c, place)
                    value = update(old, value)
                    vector.store(value, self.c, place)

        def spill() -> None:
            for number, value in enumerate(tile):
                vector.store(value, scratch, [index(number * t.vl)])

        def part() -> None:
            spill()
            flags = ir.VectorType.get([t.vl], ir.IntegerType.get_signless(1))
            with loop(0, minimum(extent[0], t.mr), 1) as i, loop(0, t.nr, t.vl) as j:
                mask = vector.create_mask(flags, [index(sub(extent[1], j))])
                value = vector.load(kind, scratch, [index(add(mul(i, t.nr), j))])
                place = [index(add(start, add(mul(i, ms), j)))]
                value = update(
                    lambda: vector.maskedload(kind, self.c, place, mask, splat(kind, 0.0)), value
                )
                vector.maskedstore(self.c, place, mask, value)

        def scattered() -> None:
            spill()
            with (
                loop(0, minimum(extent[0], t.mr), 1) as i,
                loop(0, minimum(extent[1], t.nr), 1) as j,
            ):
                place = [index(add(start, add(mul(i, ms), mul(j, ns))))]
                value = memref.load(scratch, [index(add(mul(i, t.nr), j))])
                memref.store(update(lambda: memref.load(self.c, place), value), self.c, place)

        if ns != 1 and self.spec.n > 1:
            scattered()
            return
        is_whole = arith.andi(
            compare(arith.CmpIPredicate.sge, extent[0], t.mr),
            compare(arith.CmpIPredicate.sge, extent[1], t.nr),
        )
        branch(is_whole, whole, part)

    def _unless(self, condition: ir.Value, value: ir.Value) -> ir.Value:
        """`value`, or zero under the condition; by its bits, so that NaN does not come through.

        LLVM would try to clone the loops around a branch or a select for its two outcomes.
        """
        bits = ir.IntegerType.get_signless(BITS[self.spec.acc_type])
        kept = arith.subi(arith.extui(bits, condition), arith.constant(bits, 1))
        if isinstance(value.type, ir.VectorType):
            kept = vector.broadcast(ir.VectorType.get(value.type.shape, bits), kept)
        return arith.bitcast(value.type, arith.andi(arith.bitcast(kept.type, value), kept))

    def _clear(self, m_lo: Index, m_hi: Index, n_lo: Index, n_hi: Index) -> None:
        ms, ns = self.spec.c_strides
        zero = splat(element_type(self.spec.acc_type), 0.0)
        with loop(m_lo, m_hi, 1) as m, loop(n_lo, n_hi, 1) as n:
            memref.store(zero, self.c, [index(add(self.c_offset, add(mul(m, ms), mul(n, ns))))])
