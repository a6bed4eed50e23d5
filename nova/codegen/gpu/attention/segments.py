"""Packed sequences on a GPU: the blocks that a tile visits, and the ids of rows and keys.

Input: the operands of an `Attention` with segments at a point of its batch. Output: code. Blocks of
`mma.sync` and all roles of warpgroup attention use it.

The ranges of rows (and of keys) never decrease, so a tile visits what lies between the begin of its
first row and the end of its last one. Where ids are in order and both rows have the same, all
scores in the range are visible: only the blocks at its ends, and tiles with several segments,
compare ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.gpu.attention.dropout import WORD, KeptWeights, bit
from nova.codegen.gpu.ptx_ops import GLOBAL, global_base, load, opaque, wide, word
from nova.core.sizes import ceildiv
from nova.ir.bindings import arith, ir, scf
from nova.ir.index import Index, add, compare, divide, divide_up, index, minimum, mul, sub
from nova.ir.symbolic.size_table import Extent

_BYTES = 4
_GROUP = 4
"""Accumulators of a thread in 8 columns of a warpgroup's result: two in each of two rows."""
_LAST = 2**31 - 1
_OPERANDS = {
    "i": ("q_segment", "key_begin", "key_end"),
    "j": ("k_segment", "row_begin", "row_end"),
}
"""Rows of a tile -> their ids, and the begin and end of their ranges."""


def read_id(matrix: Matrix, row: Index) -> ir.Value:
    """The i32 that a tensor has for a row."""
    address = add(global_base(matrix.buffer), mul(matrix.at(row), _BYTES))
    return load(ir.IntegerType.get_signless(32), address, GLOBAL, _BYTES)


@dataclass(frozen=True)
class SegmentRange:
    """The rows (of the other side) that a tile may see; few registers, all i32."""

    begin: ir.Value
    end: ir.Value
    inner: ir.Value
    """The begin of the rows that all rows of the tile see; after the end if there are none."""

    @staticmethod
    def of_tile(
        attention: Attention, matrices: dict[str, Matrix], role: str, first: Index, rows: int
    ) -> SegmentRange | None:
        """The range of a tile of `rows` rows of q (or of keys) from `first` on.

        None, and no code, without segments.
        """
        if not attention.spec.has_segments:
            return None
        ids, begins, ends = (matrices[name] for name in _OPERANDS[role])
        last = minimum(add(first, rows - 1), attention.size(role) - 1)
        begin, end = read_id(begins, first), read_id(ends, last)
        is_exact = arith.cmpi(arith.CmpIPredicate.sge, begin, word(0))
        is_one = arith.cmpi(arith.CmpIPredicate.eq, read_id(ids, first), read_id(ids, last))
        inner = arith.select(arith.andi(is_exact, is_one), begin, word(_LAST))
        return SegmentRange(arith.maxsi(begin, word(0)), end, inner)

    def blocks(self, size: int, low: Index, high: Index) -> tuple[ir.Value, ir.Value]:
        """The blocks of `size` rows with rows of the range, of those from `low` to `high`."""
        first = arith.maxsi(index(divide(wide(self.begin), size)), index(low))
        return first, arith.minsi(index(divide_up(wide(self.end), size)), index(high))

    def some_blocks(self, size: int, low: Index, high: Index) -> tuple[ir.Value, ir.Value]:
        """As `blocks`, but at least one."""
        first, last = self.blocks(size, low, high)
        first = arith.minsi(first, arith.subi(index(high), index(1)))
        return first, arith.maxsi(last, arith.addi(first, index(1)))

    def inner_blocks(self, size: int, low: Index, high: Index) -> tuple[ir.Value, ir.Value]:
        """Blocks without hidden scores, of those from `low` to `high`; none at `low` if none."""
        upper = arith.minsi(index(divide(wide(self.end), size)), index(high))
        lower = arith.maxsi(index(divide_up(wide(self.inner), size)), index(low))
        has_some = compare(arith.CmpIPredicate.slt, lower, upper)
        return tuple(arith.select(has_some, bound, index(low)) for bound in (lower, upper))

    def covers(self, first: Index, size: int) -> ir.Value:
        """Whether all rows of the tile see all `size` rows from `first` on."""
        start = word(first)
        after = arith.cmpi(arith.CmpIPredicate.sge, start, self.inner)
        stop = arith.addi(start, word(size))
        return arith.andi(after, arith.cmpi(arith.CmpIPredicate.sle, stop, self.end))


@dataclass(frozen=True)
class SegmentIds:
    """The ids of the rows and columns of blocks of scores; transposed, rows are keys."""

    rows: Matrix
    columns: Matrix
    sizes: tuple[int, int]

    @staticmethod
    def make(
        attention: Attention, matrices: dict[str, Matrix], *, transposed: bool = False
    ) -> SegmentIds:
        order = -1 if transposed else 1
        names, roles = ("q_segment", "k_segment")[::order], "ij"[::order]
        sizes = tuple(attention.size(role) for role in roles)
        return SegmentIds(matrices[names[0]], matrices[names[1]], sizes)

    def visible(self, rows: Sequence[Index], first: Index, count: int) -> KeptWeights:
        """A bit for each of `count` accumulators of a warpgroup: row and column share a segment.

        They are of two rows and of columns from `first` on, that of the thread's first accumulator.
        Bits are computed before the matmul of the scores begins, as those of dropout.
        """
        own = [read_id(self.rows, minimum(row, self.sizes[0] - 1)) for row in rows]
        start = add(global_base(self.columns.buffer), mul(self.columns.at(first), _BYTES))
        is_whole = self.sizes[1] % (2 * count) == 0
        limit = None if is_whole else word(sub(self.sizes[1] - 1, first))
        words = []
        for low in range(0, count, WORD):
            length = min(count - low, WORD)
            op = scf.ForOp(word(2 * low), opaque(word(2 * (low + length))), word(8), [word(0)])
            with ir.InsertionPoint(op.body):
                bits = arith.shrui(op.inner_iter_args[0], word(_GROUP))
                for side in range(2):
                    column = arith.addi(op.induction_variable, word(side))
                    if limit is not None:  # the last column there is
                        column = arith.minsi(column, limit)
                    offset = arith.index_cast(ir.IndexType.get(), column)
                    address = add(start, mul(offset, self.columns.row * _BYTES))
                    other = load(ir.IntegerType.get_signless(32), address, GLOBAL, _BYTES)
                    for half, id_ in enumerate(own):
                        same = arith.cmpi(arith.CmpIPredicate.eq, id_, other)
                        flag = bit(WORD - _GROUP + 2 * half + side)
                        bits = arith.ori(bits, arith.select(same, flag, word(0)))
                scf.YieldOp([bits])
            unused = WORD - length
            words.append(arith.shrui(op.results[0], word(unused)) if unused else op.results[0])
        return KeptWeights(tuple(words))


def block_range(segments: SegmentRange | None, size: int, length: Extent) -> tuple[Index, Index]:
    """The blocks of `size` rows that a tile visits: all of `length` without segments."""
    count = ceildiv(length, size)
    return (0, count) if segments is None else segments.blocks(size, 0, count)
