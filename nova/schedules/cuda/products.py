"""The matrix product on a GPU: the code of one block.

In: a `ProductPlan`, the buffers of A and B, and what to do with the results; out: code at the
insertion point, inside of a `gpu.launch` with the plan's grid, block and shared memory. The device
schedule of kernels calls `emit_product`.

Stages of both operands are copied into a ring of buffers in shared memory, some stages ahead of the
one that is multiplied. Sums go through shared memory to those who finish them: neighbours in memory
to neighbouring threads, some columns (a `Fragment`) at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from nova.mlir.bindings import arith, ir, scf, vector
from nova.schedules.cuda.instructions import (
    GLOBAL,
    SHARED,
    at,
    barrier,
    commit_copies,
    divide,
    global_base,
    load,
    modulo,
    shared_base,
    store,
    wait_for_copies,
)
from nova.schedules.cuda.products_plain import PlainCore
from nova.schedules.cuda.products_plan import Operand, ProductPlan
from nova.schedules.cuda.products_staging import Stager
from nova.schedules.cuda.products_tensor import TensorCore
from nova.schedules.words import (
    BITS,
    Index,
    add,
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

_LESS = arith.CmpIPredicate.slt


@dataclass(frozen=True)
class Fragment:
    """Some results: `value` is a vector of the plan's width, or a number where that is one.

    `row` and `column` are those of its first element in C; the others are in the same row, or with
    `along_rows` in the same column. `around` are the positions of the loops around, 0 for those of k.
    """

    around: tuple[Index, ...]
    row: ir.Value
    column: ir.Value
    value: ir.Value
    along_rows: bool


Finish = Callable[[Fragment], None]
"""What to do with results, such as to add a bias and store them; called once, in a loop."""


def emit_product(
    plan: ProductPlan,
    a: ir.Value,
    b: ir.Value,
    finish: Finish,
    *,
    block: ir.Value,
    thread: ir.Value,
) -> None:
    """The code of block number `block`; a and b are flat buffers, `thread` counts in the block."""
    if not plan.blocks:
        return
    if plan.swapped:
        a, b = b, a
    _Block(plan, a, b, finish, block, thread).emit()


def storing(plan: ProductPlan, c: ir.Value) -> Finish:
    """A `Finish` that writes C, a flat buffer of the sums' type, or adds to it."""
    spec, offset = plan.product.contraction, plan.product.offsets[2]
    size = BITS[spec.acc_type] // 8
    strides = spec.c_strides[::-1] if plan.swapped else spec.c_strides
    aligned = all(s % plan.width == 0 for s in (max(strides), offset, *_steps_of(plan, 2)))
    align = size * (plan.width if aligned else 1)

    def finish(fragment: Fragment) -> None:
        number = add(mul(fragment.row, strides[0]), mul(fragment.column, strides[1]))
        for position, step in zip(fragment.around, _steps_of(plan, 2), strict=True):
            number = add(number, mul(position, step))
        address = at(global_base(c), mul(number, size), offset * size)
        value = fragment.value
        if spec.accumulate:
            value = arith.addf(load(value.type, address, GLOBAL, align), value)
        store(value, address, GLOBAL, align)

    return finish


def _steps_of(plan: ProductPlan, which: int) -> list[int]:
    return [loop.strides[which] for loop in plan.product.around]


@dataclass(frozen=True)
class _Block:
    plan: ProductPlan
    a: ir.Value
    b: ir.Value
    finish: Finish
    block: ir.Value
    thread: ir.Value

    def emit(self) -> None:
        plan, shape = self.plan, self.plan.shape
        tile, around = self._position()
        first_row, first_column = mul(tile[0], shape.rows), mul(tile[1], shape.columns)
        shared = shared_base()
        core = self._core()
        core.prepare()
        sums = core.zeros()
        stages = plan.stages_of_k * plan.product.outer_steps
        if stages:
            left = self._stager(plan.left, self.a, 0, first_row, around)
            right = self._stager(plan.right, self.b, 1, first_column, around)
            sums = self._multiply(core, left, right, shared, stages)
            # Who is still multiplying reads what the sums will overwrite.
            wait_for_copies(0)
            barrier()
        self._collect(core, sums, shared)
        barrier()
        self._finish_tile(shared, first_row, first_column, around)

    def _position(self) -> tuple[tuple[Index, Index], tuple[Index, ...]]:
        """The tile of this block, and the positions of the loops around.

        Tiles are walked in groups of rows, each column by column, so that the blocks that run at a
        time share rows of A and columns of B.
        """
        plan = self.plan
        (rows, columns), group = plan.tiles, plan.group
        number: Index = modulo(self.block, rows * columns)
        rest: Index = divide(self.block, rows * columns)
        around: list[Index] = []
        for around_loop in reversed(plan.product.around):
            if around_loop.parallel:
                around.insert(0, modulo(rest, around_loop.size))
                rest = divide(rest, around_loop.size)
            else:
                around.insert(0, 0)
        first = mul(divide(number, group * columns), group)
        within = modulo(number, group * columns)
        if rows % group == 0:
            tile = add(first, modulo(within, group)), divide(within, group)
        else:
            high = index(minimum(sub(rows, first), group))
            within = index(within)
            tile = add(first, arith.remui(within, high)), arith.divui(within, high)
        return tile, tuple(around)

    def _core(self) -> TensorCore | PlainCore:
        plan, shape = self.plan, self.plan.shape
        lane, warp = modulo(self.thread, 32), divide(self.thread, 32)
        part = divide(warp, prod(shape.warps))
        at_rows = mul(modulo(divide(warp, shape.warps[1]), shape.warps[0]), shape.warp[0])
        at_columns = mul(modulo(warp, shape.warps[1]), shape.warp[1])
        kind = TensorCore if plan.kind == "tensor" else PlainCore
        return kind(plan, index(lane), at_rows, at_columns, part)

    def _stager(
        self, operand: Operand, buffer: ir.Value, which: int, first: Index, around: Sequence[Index]
    ) -> Stager:
        plan = self.plan
        number: Index = plan.product.offsets[which]
        for position, step in zip(around, _steps_of(plan, which), strict=True):
            number = add(number, mul(position, step))
        base = index(add(global_base(buffer), mul(number, BITS[operand.type] // 8)))
        element = "f32" if plan.element == "tf32" else plan.element
        return Stager(operand, plan.shape.threads, self.thread, base, first, element)

    # --- the loop over k ------------------------------------------------------------------------

    def _multiply(
        self,
        core: TensorCore | PlainCore,
        left: Stager,
        right: Stager,
        shared: ir.Value,
        stages: int,
    ) -> list[ir.Value]:
        plan = self.plan
        ahead = plan.shape.stages - 1
        ring = plan.shape.stages * plan.stage_bytes

        def copy(number: Index, place: Index) -> None:
            k, extra = self._step(number)
            left.copy(add(shared, place), k, extra[0])
            right.copy(at(shared, place, plan.left.tile.nbytes), k, extra[1])

        for number in range(ahead):
            if number < stages:
                copy(number, number * plan.stage_bytes)
            commit_copies()
        zero = index(0)
        initial = [zero, index(ahead * plan.stage_bytes), *core.zeros()]
        op = scf.ForOp(zero, index(stages), index(1), initial)
        with ir.InsertionPoint(op.body):
            number = op.induction_variable
            here, there, *sums = op.inner_iter_args
            wait_for_copies(ahead - 1)
            barrier()
            coming = scf.IfOp(compare(_LESS, number, stages - ahead))
            with ir.InsertionPoint(coming.then_block):
                copy(add(number, ahead), there)
                scf.YieldOp([])
            commit_copies()
            start = add(shared, here)
            sums = core.stage(start, add(start, plan.left.tile.nbytes), sums)
            scf.YieldOp([*(self._next(p, ring) for p in (here, there)), *sums])
        return list(op.results)[2:]

    def _next(self, place: ir.Value, ring: int) -> ir.Value:
        """The buffer behind one of the ring."""
        moved = index(add(place, self.plan.stage_bytes))
        around = compare(arith.CmpIPredicate.eq, moved, ring)
        return arith.select(around, index(0), moved)

    def _step(self, number: Index) -> tuple[Index, list[Index]]:
        """First step of k of a stage, and how many bytes outer loops of k have moved on."""
        plan = self.plan
        inner = modulo(number, plan.stages_of_k) if plan.product.outer_steps > 1 else number
        extra: list[Index] = [0, 0]
        rest = divide(number, plan.stages_of_k)
        for around_loop in reversed(plan.product.around):
            if around_loop.parallel or plan.product.outer_steps == 1:
                continue
            position, rest = modulo(rest, around_loop.size), divide(rest, around_loop.size)
            for i, operand in enumerate((plan.left, plan.right)):
                nbytes = around_loop.strides[i] * BITS[operand.type] // 8
                extra[i] = add(extra[i], mul(position, nbytes))
        return mul(inner, plan.shape.depth), extra

    # --- results --------------------------------------------------------------------------------

    def _collect(
        self, core: TensorCore | PlainCore, sums: list[ir.Value], shared: ir.Value
    ) -> None:
        """Write the sums of all warps as tiles, one for each part of the steps."""
        plan = self.plan
        type_ = plan.product.contraction.acc_type
        size = BITS[type_] // 8
        base = add(shared, mul(core.part, plan.shape.rows * plan.pitch))
        for row, column, values in core.parts(sums):
            address = at(base, mul(row, plan.pitch), mul(column, size))
            kind = vector_type(type_, len(values))
            value = vector.from_elements(kind, values) if len(values) > 1 else values[0]
            store(value, address, SHARED, size * len(values))

    def _finish_tile(
        self, shared: ir.Value, first_row: Index, first_column: Index, around: tuple[Index, ...]
    ) -> None:
        plan, shape, spec = self.plan, self.plan.shape, self.plan.product.contraction
        size, per_row = BITS[spec.acc_type] // 8, shape.columns // plan.width
        kind = element_type(spec.acc_type)
        if plan.width > 1:
            kind = vector_type(spec.acc_type, plan.width)
        apart = shape.rows * plan.pitch
        with loop(self.thread, shape.rows * per_row, shape.threads) as number:
            row, column = divide(number, per_row), mul(modulo(number, per_row), plan.width)
            at_row, at_column = add(first_row, row), add(first_column, column)
            inside = None
            for place, limit, whole in (
                (at_row, spec.m, spec.m % shape.rows == 0),
                (at_column, spec.n, spec.n % shape.columns == 0),
            ):
                if not whole:
                    exists = compare(_LESS, place, limit)
                    inside = exists if inside is None else arith.andi(inside, exists)
            only = scf.IfOp(splat(ir.IntegerType.get_signless(1), 1) if inside is None else inside)
            with ir.InsertionPoint(only.then_block):
                start = at(shared, mul(row, plan.pitch), mul(column, size))
                align = size * plan.width
                value = load(kind, start, SHARED, align)
                for part in range(1, shape.split):
                    more = load(kind, at(start, part * apart), SHARED, align)
                    value = arith.addf(value, more)
                places = (at_column, at_row) if plan.swapped else (at_row, at_column)
                rows_columns = [index(p) for p in places]
                self.finish(Fragment(around, *rows_columns, value, plan.swapped))
                scf.YieldOp([])
