"""Groups the ops of `main` into kernels: the fusion decisions of `form-kernels`.

Input: the block of `main`, linalg ops on tensors with constants and reshapes between them, and the
values for which ops after barriers wait. Output: groups of ops in a valid execution order, each
with its grid. `form-kernels` outlines the groups; nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from nova.codegen.common.loop_nest import make_loop_nest
from nova.codegen.common.match_contraction import match_contraction
from nova.ir.attributes import WORK
from nova.ir.bindings import ir
from nova.ir.buffers import TENSOR_VIEWS, buffer_root
from nova.ir.linalg.generic import GenericOp, is_generic_op, stands_for_algorithm
from nova.ir.mathlib.f8_formats import NARROW_TYPES
from nova.ir.symbolic.size_table import typical
from nova.passes.kernels.code_size import code_size
from nova.passes.kernels.gemv_prologue import find_prologues, vector_of

_CONSTANTS = {"arith.constant", "tensor.empty"}
_BLOCK_POINTS, _BLOCK_WORK = 2048, 4
"""Elements of an op that joins the one block of a kernel of a device: four for each of its threads.
And the work of this kernel, in units of the work of a serial one."""


@dataclass
class Group:
    """Ops that become one kernel; `grid` is the sizes of the shared leading dimensions.

    A matmul inside may not lose the first `least` of them: see `_least_grid`. `size` is the
    approximate number of instructions. No op joins a group that is `alone`, or that is `formed`: a
    call of an existing kernel. A `tensor_core` group has a matmul of 16-bit floats on a device;
    `updates` is the index of the group of updates with its result. `vector` is that of the
    GEMVs of a group on a device.
    """

    index: int
    grid: tuple[int, ...]
    least: int = 0
    work: int = 0
    size: int = 0
    tiled: bool = True
    formed: bool = False
    alone: bool = False
    tensor_core: bool = False
    updates: int | None = None
    vector: Any = None
    ops: list[Any] = field(default_factory=list)


class Grouping:
    """Assigns each op to a group, in order; `waits` are the dependences that barriers impose.

    `row_operand` is the size in bytes of the right operand up to which a matmul may share its rows
    with other ops. With None no matmul does, and attention is a kernel by itself. `prologues` are
    ops that are in no group: the kernel of each GEMV that reads their result has a copy of them.
    """

    def __init__(
        self,
        serial_work: int,
        max_ops: int,
        max_size: int,
        row_operand: int | None,
        waits: dict[Any, list[Any]],
    ):
        self.serial_work = serial_work
        self.max_ops = max_ops
        self.max_size = max_size
        self.row_operand = row_operand
        self.waits = waits
        self.with_prologues = False
        self.groups: list[Group] = []
        self.made_by: dict[Any, Group] = {}
        self.prologues: set[Any] = set()
        self.captures = Captures()
        self._least: dict[Any, int] = {}

    def form(self, block: Any) -> list[Group]:
        if self.with_prologues:
            self.prologues = find_prologues(block, self._may_repeat)
        for op in self._order(block):
            if op in self.prologues:
                self._pass_on(op)
                continue
            if op.name in _CONSTANTS or op.name == "func.return" or is_init(op):
                continue
            if op.name in TENSOR_VIEWS or is_scalar(op):
                continue
            self._assign(op)
        return self.groups

    def _order(self, block: Any) -> list[Any]:
        """The ops in order; but GEMVs of one vector follow each other.

        What reads their results is then in one kernel after all of them, where it is small.
        """
        ops = [op.operation for op in block.operations]
        if self.row_operand is not None:
            return ops
        first: dict[Any, int] = {}
        keys = []
        for i, op in enumerate(ops):
            vector = vector_of(GenericOp(op)) if is_generic_op(op) else None
            moves = vector is not None and op not in self.waits and _reads_arguments(op, vector)
            keys.append((first.setdefault(vector, i), i) if moves else (i, i))
        return [ops[i] for _, i in sorted(keys)]

    def _may_repeat(self, op: Any) -> bool:
        """Whether several kernels may compute an op: it reads no tensor at computed positions."""
        return op not in self.waits and not self._reads_computed(op)

    def _reads_computed(self, op: Any) -> bool:
        """Whether an op reads a tensor at computed positions."""
        return any(isinstance(value.type, ir.RankedTensorType) for value in self.captures[op])

    def _pass_on(self, op: Any) -> None:
        """Let what reads the result of a prologue wait for the operands of the prologue."""
        latest = self._latest(_tensor_roots(op, self.captures))
        if latest >= 0:
            self.made_by[op.results[0]] = self.groups[latest]

    def _assign(self, op: Any) -> None:
        structured = GenericOp(op) if is_generic_op(op) else None
        work = structured.work if structured else _opaque_work(op)
        size = code_size(op)
        after = self._latest(_tensor_roots(op, self.captures))
        if after <= self._latest(buffer_root(v) for v in self.waits.get(op, ())):
            after = -1  # an op that has to wait starts a new kernel
        group = self._choose(structured, op, work, size, after)
        group.ops.append(op)
        group.work += work
        group.size += size
        for result in op.results:
            self.made_by[result] = group

    def _latest(self, values: Iterable[Any]) -> int:
        """The index of the last group that produces one of `values`; -1 when none does."""
        return max((self.made_by[v].index for v in values if v in self.made_by), default=-1)

    def _choose(
        self, structured: GenericOp | None, op: Any, work: int, size: int, after: int
    ) -> Group:
        if op.name == "func.call":
            return self._new(None, formed=True)
        if self._stands_alone(op):
            group = self._new(structured)
            group.alone = True
            return group
        if structured is not None and self._is_epilogue(structured, size, after):
            return self.groups[after]
        last = self.groups[-1] if self.groups else None
        if last is not None and self._fits(last, size) and self._is_serial(last, structured, work):
            # An untiled kernel runs in program order, so any op may join.
            last.grid, last.tiled = (), False
            return last
        if structured is not None and after >= 0 and self._fits(self.groups[after], size):
            group = self.groups[after]
            grid = self._shared_grid(group, structured)
            least = max(1, group.least, self._least_grid(structured))
            if len(grid) >= least and _worth(group.grid, grid):
                if group.tensor_core and _updates_wide(structured):
                    return self._update_group(group, structured, size)
                group.grid, group.least = grid, least
                return group
        vector = vector_of(structured) if self.row_operand is None and structured else None
        if structured is not None and vector is not None:
            return self._vector_group(structured, vector, size, after)
        return self._new(structured)

    def _is_serial(self, last: Group, op: GenericOp | None, work: int) -> bool:
        """Whether an op may be in an untiled kernel together with the last group.

        On a device that is one block: a few elements for each of its threads take less time than
        the boundary of another launch.
        """
        if work + last.work <= self.serial_work:
            return True
        if self.row_operand is not None or last.tiled or op is None:
            return False
        is_elementwise = all(iterator == "parallel" for iterator in op.iterators)
        few = is_elementwise and typical(prod(op.sizes)) <= _BLOCK_POINTS
        return few and work + last.work <= _BLOCK_WORK * self.serial_work

    def _is_epilogue(self, op: GenericOp, size: int, after: int) -> bool:
        """Whether an op reads the results of GEMVs at each point of their grid.

        It joins them, where a small op joins the last kernel: between them may be other GEMVs.
        """
        if after < 0 or self.groups[after].vector is None:
            return False
        group = self.groups[after]
        grid = self._shared_grid(group, op)
        return grid == group.grid == _own_grid(op) and self._fits(group, size)

    def _vector_group(self, op: GenericOp, vector: Any, size: int, after: int) -> Group:
        """The group of a matrix-vector product: that of another one with this vector and grid.

        Its operands exist before that group, which is after `after`.
        """
        grid = _own_grid(op)
        later = [] if op.op in self.waits else self.groups[after + 1 :]
        for group in reversed(later):
            is_same = group.vector is not None and group.vector == vector
            if is_same and group.grid == grid and self._fits(group, size):
                return group
        group = self._new(op)
        group.vector = vector
        return group

    def _update_group(self, group: Group, op: GenericOp, size: int) -> Group:
        """The group of the updates that read the result of a matmul; the first one creates it."""
        updates = None if group.updates is None else self.groups[group.updates]
        if updates is not None and self._fits(updates, size) and updates.grid == _own_grid(op):
            return updates
        updates = self._new(op)
        group.updates = updates.index
        return updates

    def _fits(self, group: Group, size: int) -> bool:
        """Whether an op of this size may join a group."""
        small = len(group.ops) < self.max_ops and group.size + size <= self.max_size
        return small and not group.formed and not group.alone

    def _stands_alone(self, op: Any) -> bool:
        """Whether an op is a kernel by itself: a whole algorithm, unless rows are shared."""
        return self.row_operand is None and op.name == "linalg.generic" and stands_for_algorithm(op)

    def _new(self, structured: GenericOp | None, formed: bool = False) -> Group:
        grid = _own_grid(structured) if structured else ()
        least = self._least_grid(structured) if structured else 0
        # The grid of an op that is computed whole need not be the leading dimensions of its
        # results.
        tiled = structured is not None and not structured.is_whole
        group = Group(len(self.groups), grid, least, tiled=tiled, formed=formed)
        group.tensor_core = self.row_operand is None and least > 0 and _is_narrow(structured)
        self.groups.append(group)
        return group

    def _least_grid(self, op: GenericOp) -> int:
        least = self._least.get(op.op)
        if least is None:
            least = self._least[op.op] = _least_grid(op, self.row_operand)
        return least

    def _shared_grid(self, group: Group, op: GenericOp) -> tuple[int, ...]:
        """The longest grid under which `op` reads the group's values at its own point only."""
        if not group.tiled or op.is_whole:
            return ()
        op_grid = _own_grid(op)
        length = 0
        while length < min(len(op_grid), len(group.grid)) and op_grid[length] == group.grid[length]:
            length += 1
        if any(self.made_by.get(buffer_root(v)) is group for v in self.captures[op.op]):
            return ()  # read at computed indices
        if group.tensor_core and self._reads_computed(op.op):
            return ()  # no epilogue of a matmul reads at computed indices
        for value, access in zip(op.op.operands, op.accesses, strict=True):
            if self.made_by.get(buffer_root(value)) is not group:
                continue
            if value != buffer_root(value):
                return ()  # read through a reshape
            aligned = 0
            while (
                aligned < min(length, len(access.coefficients))
                and access.row_dim(aligned) == op.grid_dims[aligned]
            ):
                aligned += 1
            length = min(length, aligned)
        return op_grid[:length]


def _reads_arguments(op: Any, vector: Any) -> bool:
    """Whether a GEMV reads only its vector, arguments and constants."""
    return all(
        root == vector
        or not isinstance(root, ir.OpResult)
        or root.owner.operation.name in _CONSTANTS
        or is_init(root.owner.operation)
        for root in map(buffer_root, op.operands)
    )


def _own_grid(op: GenericOp) -> tuple[int, ...]:
    sizes, iterators = op.sizes, op.iterators
    return tuple([sizes[d] for d in op.grid_dims if iterators[d] == "parallel"])


def _worth(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether joining leaves enough tiles for all cores."""
    return prod(after) >= min(prod(before), 64)


def _least_grid(op: GenericOp, row_operand: int | None) -> int:
    """The number of grid dimensions that a matmul must keep.

    All of them: it is cut into tiles of rows and columns, and ops that need whole rows (another
    matmul, a softmax) are better in a separate kernel than in tiles as wide as C. But where the
    right operand of each matmul of a batch has `row_operand` bytes or less, as in attention, every
    tile of rows can read all of it, and ops on the rows find them in the cache.
    """
    if op.num_inputs != 2 or op.num_outputs != 1 or "reduction" not in op.iterators:
        return 0
    nest = make_loop_nest(op.op)
    if match_contraction(nest, accumulate=True) is None:
        return 0
    grid = len(_own_grid(op))
    if row_operand is None:
        return grid
    columns = [not loop.strides[0] and loop.size > 1 for loop in nest.loops[:grid]]
    rows = columns.index(True) if True in columns else grid
    right = prod(loop.size for loop in nest.loops if loop.strides[1] and not loop.strides[0])
    right *= prod(loop.size for loop in nest.loops if not loop.parallel)
    element = ir.RankedTensorType(op.inputs[1].type).element_type
    if all(columns[rows:]) and right * element.width // 8 <= row_operand:
        return rows
    return grid


def _is_narrow(op: GenericOp | None) -> bool:
    """Whether all inputs are tensors of narrow floats."""
    return op is not None and all(
        isinstance(value.type, ir.RankedTensorType)
        and isinstance(value.type.element_type, NARROW_TYPES)
        for value in op.inputs
    )


def _updates_wide(op: GenericOp) -> bool:
    """Whether an op reads an f32 argument of main with an element for each point of its grid.

    That is an update of a parameter or of its moments, with several times the bytes of the result
    of a matmul of 16-bit floats. As its epilogue, it would wait for memory after the matmul, tile
    by tile, and its divisions would take more registers than the accumulators leave.
    """
    return any(
        not isinstance(buffer_root(value), ir.OpResult)
        and isinstance(value.type, ir.RankedTensorType)
        and isinstance(value.type.element_type, ir.F32Type)
        and prod(value.type.shape) == prod(op.sizes) > 1
        for value in op.inputs
    )


def is_init(op: Any) -> bool:
    """Whether a fill only initializes destinations: it joins the group of the op it initializes."""
    return _is_fill(op) and all(_initializes(use) for use in op.results[0].uses)


def split_fills(block: Any) -> None:
    """Give each destination a separate fill, where the fill is also read as a value.

    Otherwise another kernel would write the zeros of a matmul, and they would be copied. A copy to
    the middle of a padded tensor has a fill to itself: bufferization takes an op that does not read
    its destination for one that writes all of it, and would give two of them separate buffers, of
    which one is not filled.
    """
    for op in list(block.operations):
        op = op.operation
        uses = list(op.results[0].uses) if _is_fill(op) else []
        inits = [(u.owner.operation, u.operand_number) for u in uses if _initializes(u)]
        parts = [use for use in inits if not GenericOp(use[0]).out_dims]
        others = [use for use in inits if use not in parts]
        for use in parts if len(uses) > 1 else ():
            _give_copy(op, [use])
        if others and len(inits) < len(uses):
            _give_copy(op, others)


def _give_copy(fill: Any, users: list[tuple[Any, int]]) -> None:
    with ir.InsertionPoint(fill):
        copy = fill.clone().results[0]
    for owner, number in users:
        owner.operands[number] = copy


def _is_fill(op: Any) -> bool:
    if not is_generic_op(op):
        return False
    operands = op.operands
    for number in range(GenericOp(op).num_inputs):  # most ops read a tensor first
        if isinstance(operands[number].type, ir.RankedTensorType):
            return False
    return all(_is_constant(value) for value in captured(op))


def _is_constant(value: Any) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant"


def _initializes(use: Any) -> bool:
    owner = use.owner.operation
    return is_generic_op(owner) and use.operand_number >= GenericOp(owner).num_inputs


def _opaque_work(op: Any) -> int:
    if WORK.has(op):
        return WORK.get(op)
    sizes = [prod(r.type.shape) for r in op.results if isinstance(r.type, ir.RankedTensorType)]
    operands = [prod(o.type.shape) for o in op.operands if isinstance(o.type, ir.RankedTensorType)]
    return 8 * sum(sizes + operands)


def _tensor_roots(op: Any, captures: Captures) -> list[Any]:
    """The tensors that `op` reads, traced through reshapes and scalars."""
    roots = []
    for value in [*op.operands, *captures[op]]:
        if isinstance(value.type, ir.RankedTensorType):
            roots.append(buffer_root(value))
        elif isinstance(value, ir.OpResult):
            roots += _tensor_roots(value.owner.operation, captures)
    return roots


def is_scalar(op: Any) -> bool:
    """An op on scalars, a loop of one iteration: every kernel that needs it rematerializes it."""
    return not any(isinstance(r.type, ir.RankedTensorType) for r in op.results)


class Captures(dict[Any, list[Any]]):
    """The values that each op captures; for as long as the ops do not change."""

    def __missing__(self, op: Any) -> list[Any]:
        values = self[op] = captured(op)
        return values


def captured(op: Any) -> list[Any]:
    """Outer values that the regions of `op` use, each once, in order."""
    inside: set[Any] = set()
    used: dict[Any, None] = {}

    def visit(block: Any) -> None:
        inside.update(block.arguments)
        for inner in block.operations:
            nested_op = inner.operation
            for operand in nested_op.operands:
                if operand not in inside:
                    used[operand] = None
            for region in nested_op.regions:
                for nested in region.blocks:
                    visit(nested)
            inside.update(nested_op.results)

    for region in op.regions:
        for block in region.blocks:
            visit(block)
    return list(used)
