"""Shared parts of the attention schedules: blocks of rows and keys, and matmuls of blocks.

Input: an `Attention`, and the code that `flash_forward.py` and `flash_backward.py` emit around it.
Output: copies between strided tensors and small buffers on the stack, and register-tiled matmuls of
such buffers. Buffers have room for whole vectors and whole tiles, so only the copies check bounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial

from nova.codegen.common.builder import BITS, branch, element_type, loop, splat, vector_type
from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.common.widening import widen
from nova.codegen.cpu.loops import Range
from nova.codegen.cpu.multiply_add import multiply_add
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.sizes import Size
from nova.core.targets import Target
from nova.ir.attention_ops import AXES
from nova.ir.bindings import arith, ir, memref, scf, vector
from nova.ir.index import Index, add, compare, index, minimum, mul, sub
from nova.ir.symbolic.size_table import is_number, typical


@record
class Registers:
    """The register tile of a matmul: `mr` rows of `nv` vectors of `vl` lanes."""

    target: Target
    type: str
    vl: int
    mr: int
    nv: int

    @property
    def nr(self) -> int:
        return self.nv * self.vl

    @property
    def vec_type(self) -> ir.VectorType:
        return vector_type(self.type, self.vl)

    def columns(self, count: int) -> tuple[int, int]:
        """Vectors per column panel and the number of panels, for a matmul with `count` columns."""
        vectors = -(-count // self.vl)
        panels = -(-vectors // self.nv)
        return -(-vectors // panels), panels


def choose_registers(target: Target, type_: str, rows: int) -> Registers:
    """Tiles of 8x2 vectors with 32 registers, else 6x2 (4x2 without FMA); at most `rows` rows."""
    if target.vector_registers >= 32:
        mr = 8
    else:
        mr = 6 if target.has_fma else 4
    return Registers(target, type_, target.lanes(BITS[type_]), max(1, min(mr, rows)), 2)


def block_rows(attention: Attention, rows: Size, nbytes: int, limit: int = 128) -> int:
    """Rows of a block: even parts of `rows`, at most `limit` and at most what fits in `nbytes`.

    Symbolic rows have the largest blocks.
    """
    width = max(attention.size("e"), attention.size("f")) * BITS[attention.type] // 8
    most = max(16, min(limit, nbytes // width))
    return -(-rows // -(-rows // most)) if isinstance(rows, int) else most


@record
class AttentionPoint(ABC):
    """One point of the batch, cut into blocks of rows of q and blocks of keys."""

    target: Target
    attention: Attention
    at: dict[str, Matrix]
    one_block: bool = False
    """Whether the code is for the symbolic numbers of keys that one block holds."""

    @abstractmethod
    def block_rows(self, rows: Size) -> int:
        """Rows, or keys, of a block."""

    @property
    def max_rows(self) -> int:
        """The most rows that any matmul has."""
        return typical(self.attention.size("i"))

    @cached_property
    def r(self) -> Registers:
        return choose_registers(self.target, self.attention.type, self.max_rows)

    @cached_property
    def rows(self) -> int:
        """Rows of q in a block."""
        return round_up(self.block_rows(self.attention.size("i")), self.r.mr)

    @cached_property
    def keys(self) -> int:
        """Keys in a block."""
        return round_up(self.block_rows(self.attention.size("j")), self.r.nr)

    @property
    def several(self) -> bool:
        """Whether there is more than one block of keys."""
        return not self.one_block and may_exceed(self.attention.size("j"), self.keys)

    def visible_range(self, role: str, first: Index, count: Index) -> tuple[Index, Index]:
        """The keys that `count` rows from `first` on may see; for role "j", the rows of keys.

        All of them without segments. The ranges of rows (and of keys) never decrease.
        """
        size = self.attention.size("j" if role == "i" else "i")
        if not self.attention.spec.has_segments:
            return 0, size
        names = ("key_begin", "key_end") if role == "i" else ("row_begin", "row_end")
        begin, end = (self.at[name] for name in names)
        last = arith.maxsi(index(sub(add(first, count), 1)), index(0))
        bounds = [
            arith.index_cast(ir.IndexType.get(), memref.load(matrix.buffer, [index(matrix.at(at))]))
            for matrix, at in ((begin, first), (end, last))
        ]
        return arith.maxsi(bounds[0], index(0)), minimum(bounds[1], size)


def may_exceed(size: Size, limit: int) -> bool:
    """Whether a size is above `limit`, or may be at run time."""
    return not isinstance(size, int) or size > limit


# --- loops ----------------------------------------------------------------------------------------


@contextmanager
def blocks(low: Index, high: Index, step: int, most: Size) -> Iterator[tuple[Index, Index]]:
    """Start and length of blocks of `step`; `most` bounds the extent; one block needs no loop."""
    if not may_exceed(most, step):
        yield low, sub(high, low)
        return
    with loop(low, high, step) as start:
        even = isinstance(low, int) and isinstance(high, int) and (high - low) % step == 0
        yield start, step if even else minimum(sub(high, start), step)


def over_batch(
    attention: Attention,
    buffers: Sequence[ir.Value],
    ranges: Sequence[Range | None],
    body: Callable[[dict[str, Matrix]], None],
) -> None:
    """Emit `body` with the operands and results at each point of the batch in `ranges`."""
    nest = attention.nest
    point_strides = attention.point_strides() if attention.spec.has_dropout else {}

    def nested(loops: list[int], starts: list[Index]) -> None:
        if not loops:
            body(_matrices(attention, buffers, starts))
            return
        current = nest.loops[loops[0]]
        strides = (*current.strides, point_strides.get(loops[0], 0))
        low, high = ranges[loops[0]] or (0, current.size)

        def inside(at: Index) -> None:
            steps = zip(starts, strides, strict=True)
            nested(loops[1:], [add(base, mul(at, stride)) for base, stride in steps])

        if isinstance(high, int) and high == 1:
            inside(0)
        else:
            with loop(low, high, 1) as at:
                inside(at)

    nested(attention.batch, [*nest.offsets, 0])


def _matrices(
    attention: Attention, buffers: Sequence[ir.Value], starts: Sequence[Index]
) -> dict[str, Matrix]:
    """The operands and results; with dropout, the start of `point` is the number of the point."""
    matrices = {}
    for number, (name, buffer) in enumerate(zip(attention.names, buffers, strict=True)):
        axes = AXES[name.removeprefix("to_")]
        strides = [attention.nest.loops[attention.roles[a]].strides[number] for a in axes]
        element = str(buffer.type.element_type)
        row, column = [*strides, 0, 0][:2]
        matrices[name] = Matrix(buffer, element, starts[number], row, column)
    if attention.spec.has_dropout:
        seed = matrices["seed"]
        matrices["point"] = Matrix(seed.buffer, seed.type, starts[-1], 0, 0)
    return matrices


def span(attention: Attention, role: str, ranges: Sequence[Range | None]) -> tuple[Index, Index]:
    """The range of a loop that a tile computes."""
    number = attention.roles[role]
    tile_range = ranges[number] if number < len(ranges) else None
    return tile_range or (0, attention.size(role))


# --- matmuls --------------------------------------------------------------------------------------


@record
class Lhs:
    """The left operand of a matmul, read element by element: a buffer and its strides."""

    buffer: ir.Value
    start: Index
    row: int
    step: int


@record
class Rhs:
    """The right operand of a matmul, read by vectors: `step` elements from one k to the next.

    `next_vector` elements are from one vector of columns to the next; 0: they are contiguous.
    """

    buffer: ir.Value
    start: Index
    step: int
    next_vector: int = 0


def multiply(
    r: Registers,
    lhs: Lhs,
    rhs: Rhs,
    k: tuple[Index, Index],
    nv: int,
    before: list[ir.Value] | None = None,
    own_end: Index | None = None,
) -> list[ir.Value]:
    """`before` plus mr rows of left times nv vectors of right, row by row.

    With `own_end`, row i stops before step `own_end + i`: later steps are not multiplied, because a
    weight of 0 does not hide a NaN.
    """
    low, high = k
    initial = before or [splat(r.vec_type, 0.0)] * (r.mr * nv)
    if own_end is None:
        return _steps(r, lhs, rhs, (low, high), nv, initial)
    middle = arith.maxsi(index(low), index(minimum(high, own_end)))
    sums = _steps(r, lhs, rhs, (low, middle), nv, initial)
    return _steps(r, lhs, rhs, (middle, high), nv, sums, own_end)


def _steps(
    r: Registers,
    lhs: Lhs,
    rhs: Rhs,
    k: tuple[Index, Index],
    nv: int,
    initial: list[ir.Value],
    own_end: Index | None = None,
) -> list[ir.Value]:
    op = scf.ForOp(index(k[0]), index(k[1]), index(1), initial)
    with ir.InsertionPoint(op.body):
        at = op.induction_variable
        rhs_at, lhs_at = (
            add(rhs.start, mul(at, rhs.step)),
            add(lhs.start, mul(at, lhs.step)),
        )
        starts = [add(rhs_at, v * (rhs.next_vector or r.vl)) for v in range(nv)]
        vectors = [vector.load(r.vec_type, rhs.buffer, [index(start)]) for start in starts]
        sums = []
        for i in range(r.mr):
            element = memref.load(lhs.buffer, [index(add(lhs_at, i * lhs.row))])
            spread = vector.broadcast(r.vec_type, element)
            for v in range(nv):
                total = op.inner_iter_args[i * nv + v]
                new_total = multiply_add(r.target, spread, vectors[v], total)
                if own_end is not None:
                    visible = compare(arith.CmpIPredicate.slt, at, add(own_end, i))
                    new_total = arith.select(visible, new_total, total)
                sums.append(new_total)
        scf.YieldOp(sums)
    return list(op.results)


def load_tile(r: Registers, buffer: ir.Value, start: Index, row: int, nv: int) -> list[ir.Value]:
    """mr rows of nv vectors."""
    return [
        vector.load(r.vec_type, buffer, [index(add(start, i * row + v * r.vl))])
        for i in range(r.mr)
        for v in range(nv)
    ]


def store_tile(
    r: Registers, tile: list[ir.Value], buffer: ir.Value, start: Index, row: int, nv: int
) -> None:
    for number, value in enumerate(tile):
        i, v = divmod(number, nv)
        vector.store(value, buffer, [index(add(start, i * row + v * r.vl))])


# --- copies ---------------------------------------------------------------------------------------


def read_rows(
    r: Registers,
    source: Matrix,
    first: Index,
    rows: Index,
    columns: int,
    buffer: ir.Value,
    width: int,
    factor: float = 1.0,
) -> None:
    """Copy rows of a tensor, widened and scaled by `factor`, to buffer rows of `width` elements."""

    def copy(row: Index, column: Index, vectors: bool) -> None:
        offset = [index(source.at(add(first, row), column))]
        if vectors:
            value = vector.load(vector_type(source.type, r.vl), source.buffer, offset)
        else:
            value = memref.load(source.buffer, offset)
        value = widen(r.target, value, r.type)
        if factor != 1.0:
            value = arith.mulf(value, splat(value.type, factor))
        target = [index(add(mul(row, width), column))]
        if vectors:
            vector.store(value, buffer, target)
        else:
            memref.store(value, buffer, target)

    with loop(0, rows, 1) as row:
        unit = is_number(source.column, 1)
        each_column(r, columns, unit, lambda column, v: copy(row, column, v))


def each_column(
    r: Registers, columns: int, unit: bool, body: Callable[[Index, bool], None]
) -> None:
    """Emit `body(column, whole vector or element)` for all columns; the last vector may overlap."""
    if not unit or columns < r.vl:
        with loop(0, columns, 1) as column:
            body(column, False)
        return
    full = columns // r.vl * r.vl
    with loop(0, full, r.vl) as column:
        body(column, True)
    if full < columns:
        body(columns - r.vl, True)


def fill_panel(r: Registers, buffer: ir.Value, rows: Index, width: int) -> None:
    """Zero the rows that pad the last panel: they take part in the arithmetic but are not used."""
    low, high = mul(rows, width), mul(whole_panels(rows, r.mr), width)
    if width % r.vl == 0:
        clear(r, buffer, low, high)
        return
    zero = splat(element_type(r.type), 0.0)
    with loop(low, high, 1) as offset:
        memref.store(zero, buffer, [index(offset)])


def whole_panels(rows: Index, mr: int) -> Index:
    """`rows`, rounded up to whole panels."""
    if isinstance(rows, int):
        return round_up(rows, mr)
    return mul(arith.ceildivsi(index(rows), index(mr)), mr)


def each_panel(
    mr: int, half: int, begin: Index, rows: Index, panel: Callable[[Index, int], None]
) -> None:
    """Emit `panel(row, height)` for panels of `mr` rows. The last one is padded.

    It has `half` rows, unless that is 0, where no more are left: half a panel keeps enough
    multiply-adds in flight, and a panel of less rows takes as long.
    """
    end: Index = rows
    if half:
        end = mul(arith.divui(index(add(rows, mr - half - 1)), index(mr)), mr)
    with loop(begin, end, mr) as row:
        panel(row, mr)
    if half:
        has_more = compare(arith.CmpIPredicate.slt, end, rows)
        branch(has_more, partial(panel, end, half), lambda: None)


def write_rows(
    r: Registers,
    buffer: ir.Value,
    width: int,
    rows: tuple[Index, Index],
    columns: int,
    target: Matrix,
    first: Index,
    *,
    accumulate: bool = False,
) -> None:
    """Copy rows of a buffer to rows of a tensor from `first` on, or add them to those rows."""

    def copy(row: Index, column: Index, vectors: bool) -> None:
        source = [index(add(mul(row, width), column))]
        offset = [index(target.at(add(first, row), column))]
        if vectors:
            value = vector.load(r.vec_type, buffer, source)
            if accumulate:
                value = arith.addf(vector.load(r.vec_type, target.buffer, offset), value)
            vector.store(value, target.buffer, offset)
        else:
            value = memref.load(buffer, source)
            if accumulate:
                value = arith.addf(memref.load(target.buffer, offset), value)
            memref.store(value, target.buffer, offset)

    with loop(*rows, 1) as row:
        # An element must not be added twice, so the last vector may not overlap then.
        unit = is_number(target.column, 1) and not (accumulate and columns % r.vl)
        each_column(r, columns, unit, lambda column, v: copy(row, column, v))


def clear(r: Registers, buffer: ir.Value, low: Index, high: Index) -> None:
    """Zero the range [low, high); both are multiples of the vector."""
    zero = splat(r.vec_type, 0.0)
    with loop(low, high, r.vl) as at:
        vector.store(zero, buffer, [index(at)])


def scale_buffer(r: Registers, buffer: ir.Value, size: int, factor: float) -> None:
    """Multiply the first `size` elements, whole vectors, by a factor."""
    scale = splat(r.vec_type, factor)
    with loop(0, size, r.vl) as at:
        value = vector.load(r.vec_type, buffer, [at])
        vector.store(arith.mulf(value, scale), buffer, [at])


def lanes_below(r: Registers, start: Index, limit: Index) -> ir.Value:
    """A mask of the lanes of the vector at `start` that are below `limit`."""
    flags = ir.VectorType.get([r.vl], ir.IntegerType.get_signless(1))
    return vector.create_mask(flags, [index(sub(limit, start))])
