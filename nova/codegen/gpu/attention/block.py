"""Building blocks of attention on a GPU: pipelined tiles, matmuls, and weights.

Input: an `Attention` with its plan and buffers, at one point of the batch. Output: code.
`flash_forward.py` and `flash_backward.py` emit their blocks with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from nova.codegen.common.builder import BITS, element_type, vector_type
from nova.codegen.common.match_attention import Matrix
from nova.codegen.gpu.attention.plan import AttentionPlan
from nova.codegen.gpu.attention.scores import AttentionScores
from nova.codegen.gpu.gemm.epilogue import Core, parts
from nova.codegen.gpu.gemm.fma import PlainCore
from nova.codegen.gpu.gemm.mma import TensorCore
from nova.codegen.gpu.gemm.pipelined_copies import PipelinedCopies
from nova.codegen.gpu.gemm.plan import Operand, copy_bytes
from nova.codegen.gpu.gemm.shared_tile import SharedTile
from nova.codegen.gpu.ptx_ops import (
    GLOBAL,
    SHARED,
    barrier,
    commit_copies,
    global_base,
    load,
    narrow_pair,
    store,
    wait_for_copies,
)
from nova.core.sizes import common_factor
from nova.ir.attention_ops import AXES
from nova.ir.bindings import arith, ir, scf, vector
from nova.ir.index import Index, add, compare, divide, index, modulo, mul, offset_by
from nova.ir.symbolic.size_table import Extent, is_number

_LESS = arith.CmpIPredicate.slt


@dataclass(frozen=True)
class AttentionBlock(AttentionScores):
    """A block of threads at one point of the batch."""

    plan: AttentionPlan
    thread: ir.Value
    shared: ir.Value

    # --- tiles ----------------------------------------------------------------------------------

    def tile(self, name: str) -> SharedTile:
        """The tile of an operand."""
        return self.plan.tile(*AXES[name])

    def copies(self, name: str) -> PipelinedCopies:
        """The copier of rows of an operand into its tile."""
        matrix, plan = self.matrices[name], self.plan
        rows, features = (self.attention.size(role) for role in AXES[name])
        strides = matrix.row, matrix.column if features > 1 else 1
        copied = copy_bytes(True, *strides, matrix.type, plan.element, self._starts(name))
        tile = self.tile(name)
        operand = Operand(rows, features, *strides, matrix.type, tile, copied, may_shift=False)
        base = add(global_base(matrix.buffer), mul(matrix.start, BITS[matrix.type] // 8))
        return PipelinedCopies(operand, plan.threads, self.thread, index(base), plan.element)

    def core(self, lhs: SharedTile, rhs: SharedTile) -> Core:
        """This thread's part of a matmul of tiles, with its addresses computed."""
        plan, tiles = self.plan, self.plan.tile_matmul(lhs, rhs)
        lane, warp = modulo(self.thread, 32), divide(self.thread, 32)
        at_rows = mul(divide(warp, plan.warps[1]), tiles.warp[0])
        at_columns = mul(modulo(warp, plan.warps[1]), tiles.warp[1])
        core_class = TensorCore if plan.core_type == "tensor" else PlainCore
        core = core_class(tiles, index(lane), at_rows, at_columns, 0)
        core.prepare()
        return core

    def pipelined_loop(
        self,
        names: Sequence[str],
        offsets: Sequence[Index],
        blocks: tuple[Index, Index],
        size: int,
        carried: Sequence[ir.Value],
        body: Callable[[Index, Index, list[ir.Value]], list[ir.Value]],
        begin: Callable[[], None] = lambda: None,
    ) -> list[ir.Value]:
        """A loop over blocks of `size` rows of some operands, which are copied into tiles.

        `offsets` are offsets of the tiles in a buffer of the ring, relative to its first tile.
        `body` takes the number of the first row, the offset of the ring buffer from the first one,
        and the carried values, and returns those of the next iteration. Copies issued before the
        loop have arrived in the first iteration, too; `begin` is called when the first copies are
        in flight.
        """
        copies = [self.copies(name) for name in names]
        length = sum(self.tile(name).nbytes for name in names)

        def copy(number: Index, buffer: Index) -> None:
            for copy_operand, offset in zip(copies, offsets, strict=True):
                copy_operand.copy(offset_by(self.shared, buffer, offset), mul(number, size), 0)

        several = self.plan.stages > 1
        if several:
            first = scf.IfOp(compare(_LESS, *blocks))
            with ir.InsertionPoint(first.then_block):
                copy(blocks[0], 0)
                scf.YieldOp([])
        commit_copies()
        begin()
        low, high = (index(b) for b in blocks)
        loop = scf.ForOp(low, high, index(1), [index(0), *carried])
        with ir.InsertionPoint(loop.body):
            number = loop.induction_variable
            buffer, *values = loop.inner_iter_args
            next_buffer = arith.subi(index(length), buffer) if several else buffer
            if several:
                wait_for_copies(0)
                barrier()
                following = arith.addi(number, index(1))
                more = scf.IfOp(compare(_LESS, following, high))
                with ir.InsertionPoint(more.then_block):
                    copy(following, next_buffer)
                    scf.YieldOp([])
                commit_copies()
            else:
                barrier()
                copy(number, buffer)
                commit_copies()
                wait_for_copies(0)
                barrier()
            results = body(mul(number, size), buffer, list(values))
            scf.YieldOp([next_buffer, *results])
        wait_for_copies(0)
        return list(loop.results)[1:]

    def store_weights(self, core: Core, values: list[ir.Value], offset: Index) -> None:
        """Write this thread's part of a block of weights into their tile at an offset."""
        plan, tile = self.plan, self.plan.tile("i", "j")
        for row, column, elements in parts(core, values):
            chunk, within = divide(column, tile.per_chunk), modulo(column, tile.per_chunk)
            address = offset_by(self.shared, tile.at(row, chunk), mul(within, tile.element), offset)
            if plan.core_type == "tensor":
                store(narrow_pair(elements[0], elements[1], plan.element), address, SHARED, 4)
            else:
                packed = vector.from_elements(vector_type(plan.element, len(elements)), elements)
                store(packed, address, SHARED, tile.element * len(elements))

    # --- results --------------------------------------------------------------------------------

    def write(
        self,
        name: str,
        core: Core,
        values: list[ir.Value],
        first: Index,
        factor: Callable[[int], ir.Value] | None = None,
    ) -> None:
        """Store this thread's part of a result, rows from `first` on, scaled per row."""
        matrix = self.matrices[f"to_{name}"]
        rows, features = (self.attention.size(role) for role in AXES[name])
        width = self._width(f"to_{name}", features, core.together)
        columns = core.columns()
        size = BITS[matrix.type] // 8
        for number, tile_row in enumerate(core.rows()):
            row = add(first, tile_row)
            scale = factor(number) if factor else None
            exists = scf.IfOp(compare(_LESS, row, rows))
            with ir.InsertionPoint(exists.then_block):
                for start in range(0, len(columns), width):
                    elements = [values[core.number(number, start + i)] for i in range(width)]
                    if scale is not None:
                        elements = [arith.mulf(value, scale) for value in elements]
                    packed = self._stored(elements, matrix.type)
                    address = offset_by(
                        global_base(matrix.buffer), mul(matrix.at(row, columns[start]), size)
                    )
                    inside = scf.IfOp(compare(_LESS, columns[start], features))
                    with ir.InsertionPoint(inside.then_block):
                        store(packed, address, GLOBAL, size * width)
                        scf.YieldOp([])
                scf.YieldOp([])

    def _stored(self, values: Sequence[ir.Value], type_: str) -> ir.Value:
        """Adjacent elements rounded to the stored type."""
        if type_ != self.attention.type:
            if len(values) == 2 and type_ in ("bf16", "f16"):
                return narrow_pair(values[0], values[1], type_)
            values = [arith.truncf(element_type(type_), value) for value in values]
        return vector.from_elements(vector_type(type_, len(values)), values)

    def _width(self, name: str, features: int, together: int) -> int:
        """Adjacent elements that one store can write."""
        matrix = self.matrices[name]
        strides = features, matrix.row, *self._starts(name)
        factor = gcd(together, *map(common_factor, strides))
        return factor if is_number(matrix.column, 1) else 1

    def _starts(self, name: str) -> list[Extent]:
        """The start of an operand in its buffer: an offset, and strides of the batch loops."""
        number, nest = self.attention.names.index(name), self.attention.nest
        steps = (nest.loops[i].strides[number] for i in self.attention.batch)
        return [nest.offsets[number], *steps]


def read_number(matrix: Matrix, row: Index, type_: str) -> ir.Value:
    """Load the element that a tensor has for a row."""
    size = BITS[type_] // 8
    address = add(global_base(matrix.buffer), mul(matrix.at(row), size))
    return load(element_type(type_), address, GLOBAL, size)
