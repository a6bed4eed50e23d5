"""`form-kernels`: groups ops into kernels and outlines each group as a function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

from nova.errors import LoweringError
from nova.mlir.bindings import func, ir
from nova.mlir.clone import clone_into
from nova.mlir.diagnostics import place_of
from nova.mlir.structured import Structured, is_structured
from nova.mlir.walk import kernels, main_function
from nova.passes.base import Pass
from nova.passes.donation import delay_updates

_VIEWS = {"tensor.collapse_shape", "tensor.expand_shape"}
_CONSTANTS = {"arith.constant", "tensor.empty"}


@dataclass(frozen=True)
class FormKernels(Pass):
    """Group the ops of `main` into kernels.

    An op joins the kernel that produces its operands when both can be cut into the same tiles: a
    kernel has a *grid*, the leading dimensions that all of its outputs share, and an op may read
    what the kernel wrote only at its own grid point. So a softmax, a layer norm, or a matrix
    product with the elementwise work behind it become one kernel over rows. Ops with less than
    `serial_work` scalar operations in all are put into one kernel with an empty grid: below that,
    nothing is gained from tiles.

    Afterwards `main` is a list of calls, constants and reshapes, and each kernel is a private
    function with the attributes `nova.kernel`, `nova.grid` and `nova.work`.
    """

    name: ClassVar[str] = "form-kernels"
    serial_work: int = 20_000
    max_ops: int = 32

    def run(self, module: ir.Module) -> None:
        main = main_function(module)
        if formed := kernels(module):
            raise LoweringError(
                f"@{formed[0].name.value} is a kernel already", where=place_of(formed[0].location)
            )
        waits = _drop_barriers(main)
        _delay_updates(module, main)
        groups = _Grouping(self, waits).form(main)
        _Outliner(module, main).outline(groups)


@dataclass
class Group:
    """Ops that become one kernel; `grid` is the sizes of the shared leading dimensions."""

    index: int
    grid: tuple[int, ...]
    work: int = 0
    tiled: bool = True
    ops: list[Any] = field(default_factory=list)


class _Grouping:
    def __init__(self, options: FormKernels, waits: dict[Any, list[Any]]):
        self.options = options
        self.waits = waits
        self.groups: list[Group] = []
        self.made_by: dict[Any, Group] = {}

    def form(self, main: Any) -> list[Group]:
        for op in main.entry_block.operations:
            op = op.operation
            if op.name in _CONSTANTS or op.name == "func.return" or _is_init(op):
                continue
            if op.name in _VIEWS or _is_scalar(op):
                continue
            self._place(op)
        return self.groups

    def _place(self, op: Any) -> None:
        structured = Structured(op) if is_structured(op) else None
        work = structured.work if structured else _opaque_work(op)
        after = self._latest(_tensor_roots(op))
        if after <= self._latest(root(v) for v in self.waits.get(op, ())):
            after = -1  # what has to wait starts a kernel of its own
        group = self._choose(structured, op, work, after)
        group.ops.append(op)
        group.work += work
        for result in op.results:
            self.made_by[result] = group

    def _latest(self, values: Iterable[Any]) -> int:
        """The index of the last group that makes one of `values`; -1 when none does."""
        return max((self.made_by[v].index for v in values if v in self.made_by), default=-1)

    def _choose(self, structured: Structured | None, op: Any, work: int, after: int) -> Group:
        last = self.groups[-1] if self.groups else None
        small = self.options.serial_work
        if last is not None and work + last.work <= small and len(last.ops) < self.options.max_ops:
            # Order inside of an untiled kernel is program order, so anything may join.
            last.grid, last.tiled = (), False
            return last
        if structured is not None and after >= 0 and not structured.is_whole:
            group = self.groups[after]
            grid = self._shared_grid(group, structured)
            if grid and len(group.ops) < self.options.max_ops and _worth(group.grid, grid):
                group.grid = grid
                return group
        return self._new(structured)

    def _new(self, structured: Structured | None) -> Group:
        grid = _own_grid(structured) if structured else ()
        # The grid of what is computed whole need not be the leading dimensions of its results.
        tiled = structured is not None and not structured.is_whole
        group = Group(len(self.groups), grid, tiled=tiled)
        self.groups.append(group)
        return group

    def _shared_grid(self, group: Group, op: Structured) -> tuple[int, ...]:
        """The longest grid under which `op` reads the group's values at its own point only."""
        if not group.tiled:
            return ()
        own = _own_grid(op)
        length = 0
        while length < min(len(own), len(group.grid)) and own[length] == group.grid[length]:
            length += 1
        if any(self.made_by.get(root(v)) is group for v in _captured(op.op)):
            return ()  # read at computed indices
        for value, access in zip(op.op.operands, op.accesses, strict=True):
            if self.made_by.get(root(value)) is not group:
                continue
            if value != root(value):
                return ()  # read through a reshape
            aligned = 0
            while (
                aligned < min(length, len(access.coefficients))
                and access.row_dim(aligned) == op.out_dims[aligned]
            ):
                aligned += 1
            length = min(length, aligned)
        return own[:length]


def _own_grid(op: Structured) -> tuple[int, ...]:
    return tuple(op.sizes[d] for d in op.out_dims if op.iterators[d] == "parallel")


def _worth(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Joining must leave enough tiles for all cores."""
    return prod(after) >= min(prod(before), 64)


def _is_init(op: Any) -> bool:
    """A fill that only initialises destinations: it goes along with whoever it initialises."""
    if not is_structured(op) or any(
        isinstance(o.type, ir.RankedTensorType) for o in Structured(op).inputs
    ):
        return False
    if _captured(op):
        return False
    for use in op.results[0].uses:
        owner = use.owner.operation
        if not is_structured(owner) or use.operand_number < Structured(owner).num_inputs:
            return False
    return True


def _opaque_work(op: Any) -> int:
    sizes = [prod(r.type.shape) for r in op.results if isinstance(r.type, ir.RankedTensorType)]
    operands = [prod(o.type.shape) for o in op.operands if isinstance(o.type, ir.RankedTensorType)]
    return 8 * sum(sizes + operands)


def _tensor_roots(op: Any) -> list[Any]:
    """The tensors that `op` reads, seen through reshapes and scalars."""
    roots = []
    for value in [*op.operands, *_captured(op)]:
        if isinstance(value.type, ir.RankedTensorType):
            roots.append(root(value))
        elif isinstance(value, ir.OpResult):
            roots += _tensor_roots(value.owner.operation)
    return roots


def _is_scalar(op: Any) -> bool:
    """An op on numbers, from a loop of one turn: every kernel that needs it computes it again."""
    return not any(isinstance(r.type, ir.RankedTensorType) for r in op.results)


def root(value: Any) -> Any:
    """The value that `value` is a reshape of."""
    while isinstance(value, ir.OpResult) and value.owner.operation.name in _VIEWS:
        value = value.owner.operands[0]
    return value


def _captured(op: Any) -> list[Any]:
    """Values from outside that the regions of `op` use, each once, in order."""
    inside: set[Any] = set()
    used: dict[Any, None] = {}

    def visit(block: Any) -> None:
        inside.update(block.arguments)
        for inner in block.operations:
            for operand in inner.operation.operands:
                if operand not in inside:
                    used[operand] = None
            for region in inner.operation.regions:
                for nested in region.blocks:
                    visit(nested)
            inside.update(inner.operation.results)

    for region in op.regions:
        for block in region.blocks:
            visit(block)
    return list(used)


def _drop_barriers(main: Any) -> dict[Any, list[Any]]:
    """Replace barriers by what they hide; what ops behind one have to wait for is returned.

    Kernels are opaque to CSE, so a barrier has done its work once they are formed: what it kept
    apart stays apart because no pass merges ops after this point.
    """
    found: list[tuple[list[Any], Any]] = []
    for op in list(main.entry_block.operations):
        op = op.operation
        if op.name == "nova.barrier":
            hidden, after = op.operands
            found.append((_users(op.results[0]), after))
            op.results[0].replace_all_uses_with(hidden)
            op.erase()
    # Only now: the hash of an op changes with its operands.
    waits: dict[Any, list[Any]] = {}
    for users, after in found:
        for user in users:
            waits.setdefault(user, []).append(after)
    return waits


def _delay_updates(module: ir.Module, main: Any) -> None:
    """New values of parameters come after what reads the old ones, so that they can take them."""
    if "nova.updates" not in main.attributes:
        return
    updated = list(main.attributes["nova.updates"])
    block = main.entry_block
    values = list(block.operations[len(block.operations) - 1].operands)[-len(updated) :]
    arguments = [block.arguments[u] for u in updated]
    delay_updates(module, block, zip(arguments, values, strict=True) if updated else ())


def _users(value: Any) -> list[Any]:
    """The ops of main that use `value`, directly or through reshapes and numbers read from it.

    Those are made again in every kernel that needs them.
    """
    users: list[Any] = []
    for use in value.uses:
        user = _in_main(use.owner.operation)
        if user.name in _VIEWS or (len(user.results) and _is_scalar(user)):
            for result in user.results:
                users += _users(result)
        else:
            users.append(user)
    return users


class _Outliner:
    """Moves groups into functions; main becomes calls in group order, reshapes between them."""

    def __init__(self, module: ir.Module, main: Any):
        self.module = module
        self.main = main
        operations = main.entry_block.operations
        self.returned = operations[len(operations) - 1].operation
        self.before = [op.operation for op in operations][:-1]
        self.new: dict[Any, Any] = {}

    def outline(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._kernel(group)
        with ir.InsertionPoint(self.returned):
            for i, value in enumerate(self.returned.operands):
                self.returned.operands[i] = self._value(value)
        for op in reversed(self.before):
            if not any(True for r in op.results for _ in r.uses):
                op.erase()

    def _value(self, value: Any) -> Any:
        """What `value` of the old main is in the new one; reshapes are made anew where needed."""
        if value in self.new or not isinstance(value, ir.OpResult):
            return self.new.get(value, value)
        op = value.owner.operation
        if op.name in _VIEWS:
            self._value(op.operands[0])
            clone_into(op, self.new)
        return self.new.get(value, value)

    def _kernel(self, group: Group) -> None:
        ops = _with_helpers(group.ops)
        members = {r for op in ops for r in op.results}
        inputs: dict[Any, None] = {}
        for op in ops:
            for value in [*op.operands, *_captured(op)]:
                if value not in members:
                    inputs[value] = None
        inside = set(ops)
        results = [r for op in group.ops for r in op.results if _escapes(r, inside)]
        self._outline(group, ops, list(inputs), results)

    def _outline(self, group: Group, ops: list[Any], inputs: list[Any], results: list[Any]) -> None:
        name = f"kernel_{group.index}"
        types = ([v.type for v in inputs], [r.type for r in results])
        location = ops[-1].location
        with ir.InsertionPoint(self.main), location:
            kernel = func.FuncOp(name, types, visibility="private")
            i64 = ir.IntegerType.get_signless(64)
            kernel.attributes["nova.kernel"] = ir.UnitAttr.get()
            kernel.attributes["nova.grid"] = ir.DenseI64ArrayAttr.get(list(group.grid))
            kernel.attributes["nova.work"] = ir.IntegerAttr.get(i64, group.work)
            block = kernel.add_entry_block()
        mapping = dict(zip(inputs, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for op in ops:
                clone_into(op, mapping)
            with location:
                func.ReturnOp([mapping[r] for r in results])
        with ir.InsertionPoint(self.returned), location:
            operands = [self._value(v) for v in inputs]
            call = func.CallOp(types[1], ir.FlatSymbolRefAttr.get(name), operands)
        self.new.update(zip(results, call.results, strict=True))


def _escapes(value: Any, inside: set[Any]) -> bool:
    """Whether an op outside of the kernel uses `value`, directly or through reshapes."""
    return any(user not in inside for user in _users(value))


def _in_main(op: Any) -> Any:
    """The op of main whose regions `op` stands in; `op` itself where it is one."""
    while op.parent.operation.name != "func.func":
        op = op.parent.operation
    return op


def _with_helpers(ops: list[Any]) -> list[Any]:
    """The group's ops with the scalars, empties, fills and reshapes they need, in order."""
    chosen: dict[Any, None] = {}
    own = set(ops)

    def need(value: Any) -> None:
        if not isinstance(value, ir.OpResult):
            return
        op = value.owner.operation
        if op in chosen or op in own:
            return
        if _is_scalar(op) or op.name == "tensor.empty" or _is_init(op) or op.name in _VIEWS:
            if op.name in _VIEWS and not _reaches(value, own):
                return
            for operand in [*op.operands, *_captured(op)]:
                need(operand)
            chosen[op] = None

    for op in ops:
        for value in [*op.operands, *_captured(op)]:
            need(value)
        chosen[op] = None
    return list(chosen)


def _reaches(value: Any, own: set[Any]) -> bool:
    """Whether a reshape is of something the group itself makes (or of nothing yet)."""
    source = root(value)
    if not isinstance(source, ir.OpResult):
        return False
    op = source.owner.operation
    return op in own or op.name == "tensor.empty"
