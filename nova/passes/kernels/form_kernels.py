"""`form-kernels`: groups ops into kernels and outlines each group as a function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attributes import DEVICE, PROLOGUE
from nova.ir.bindings import func, ir
from nova.ir.buffers import TENSOR_VIEWS, buffer_root
from nova.ir.clone import clone_into
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel, Main
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import kernels, main_function
from nova.passes.base import Pass
from nova.passes.kernels.barriers import drop_barriers, users_in_main
from nova.passes.kernels.buffer_donation import delay_updates, sink_producers
from nova.passes.kernels.form_host_regions import host_regions, inline_host_regions
from nova.passes.kernels.group_ops import (
    Captures,
    Group,
    Grouping,
    is_init,
    is_scalar,
    split_fills,
)

HOST_ROW_OPERAND = 128 << 10  # every tile of rows reads all of it: it stays in L2


@record
class FormKernels(Pass):
    """Group the ops of `main` into kernels.

    An op joins the kernel that produces its operands when both can be cut into the same tiles: a
    kernel has a *grid*, the leading dimensions that all of its outputs share, and an op may read
    values of the kernel only at its own grid point. So a softmax or a layer norm becomes one kernel
    over rows, and a matmul one over rows and columns with the following elementwise ops as its
    epilogue: bias and activation, or the update of the weight whose gradient it computes.
    `nova/passes/kernels/group_ops.py` has the rules. Ops with less than `serial_work` scalar
    operations in all become one kernel with an empty grid: below that, tiles do not pay. A matmul
    may share its rows with other ops if its right operand has `row_operand` bytes or less, but
    without `share_rows` (on a device) every matmul and attention has a kernel by itself, and the
    norm of the vector of GEMVs is a prologue of them (`gemv_prologue.py`). A kernel
    has at most `max_ops` ops, which become about `max_size` instructions: far more than layers of
    models need, and few enough that LLVM's time is linear in the program.

    Afterwards `main` is a list of calls, constants and reshapes, and each kernel is a private
    function with the attributes `nova.kernel`, `nova.grid` and `nova.work`. The host regions that
    `form-host-regions` made become separate kernels, which keep their attribute `nova.device`, and
    their calls replace the calls of the host regions in `main`.
    """

    name: ClassVar[str] = "form-kernels"
    serial_work: int = 20_000
    max_ops: int = 32
    max_size: int = 2048
    row_operand: int = HOST_ROW_OPERAND
    share_rows: bool = True

    def run(self, module: ir.Module) -> None:
        if self.row_operand < 0:  # how pipelines of earlier versions say it
            replace(self, row_operand=HOST_ROW_OPERAND, share_rows=False).run(module)
            return
        main = main_function(module)
        if formed := kernels(module):
            raise LoweringError(
                f"@{formed[0].name.value} is a kernel already", where=place_of(formed[0].location)
            )
        names = (f"kernel_{number}" for number in count())
        for region in host_regions(module):
            waits = _prepare(region)
            host = self._grouping(HOST_ROW_OPERAND, waits)
            groups = host.form(region.entry_block)
            device = DEVICE.get(region)
            _Outliner(module, region, names, host.captures, device).outline(groups)
        inline_host_regions(module, main)
        waits = _prepare(main)
        _delay_updates(module, main)
        grouping = self._grouping(self.row_operand if self.share_rows else None, waits)
        grouping.with_prologues = not self.share_rows and SizeTable.of(main) is None
        groups = grouping.form(main.entry_block)
        outliner = _Outliner(module, main, names, grouping.captures, prologues=grouping.prologues)
        outliner.outline(groups)

    def _grouping(self, row_operand: int | None, waits: dict[Any, list[Any]]) -> Grouping:
        return Grouping(self.serial_work, self.max_ops, self.max_size, row_operand, waits)


def _prepare(function: Any) -> dict[Any, list[Any]]:
    """Prepare a function for grouping; return the dependences that barriers impose."""
    split_fills(function.entry_block)
    return drop_barriers(function)


def _delay_updates(module: ir.Module, main: Any) -> None:
    """Move new values of parameters after the readers of the old ones, so they can be in place.

    Ops that only they need, such as a gradient, move along: they are computed next to their use.
    """
    updated = Main(main).updates
    if not updated:
        return
    block = main.entry_block
    values = list(block.operations[len(block.operations) - 1].operands)[-len(updated) :]
    arguments = [block.arguments[u] for u in updated]
    delay_updates(module, block, zip(arguments, values, strict=True))
    sink_producers(block, len(updated), arguments)


class _Outliner:
    """Moves groups into functions; main becomes calls in group order, reshapes between them.

    The functions get the next of `names`, and a `device` if it is not that of the target. Ops of
    `prologues` are copied into every kernel that reads their results.
    """

    def __init__(
        self,
        module: ir.Module,
        main: Any,
        names: Iterator[str],
        captures: Captures,
        device: str | None = None,
        prologues: Set[Any] = frozenset(),
    ):
        self.module = module
        self.main = main
        self.names = names
        self.captures = captures
        self.device = device
        operations = main.entry_block.operations
        self.returned = operations[len(operations) - 1].operation
        self.before = [op.operation for op in operations][:-1]
        self.new: dict[Any, Any] = {}
        # Once for all kernels: a zero fill may have as many users as there are kernels.
        self.prologues = prologues
        self.helpers = {op for op in self.before if op in prologues or _is_helper(op)}

    def outline(self, groups: Iterable[Group]) -> None:
        for group in groups:
            if group.formed:
                self._keep(group.ops[0])
            else:
                self._kernel(group)
        with ir.InsertionPoint(self.returned):
            for i, value in enumerate(self.returned.operands):
                self.returned.operands[i] = self._value(value)
        for op in reversed(self.before):
            if not any(True for r in op.results for _ in r.uses):
                op.erase()

    def _value(self, value: Any) -> Any:
        """The value of the new main for `value` of the old one; reshapes are rebuilt."""
        if value in self.new or not isinstance(value, ir.OpResult):
            return self.new.get(value, value)
        op = value.owner.operation
        if op.name in TENSOR_VIEWS:
            self._value(op.operands[0])
            clone_into(op, self.new)
        return self.new.get(value, value)

    def _keep(self, call: Any) -> None:
        """Keep the call of a kernel, at its position among the others."""
        with ir.InsertionPoint(self.returned):
            operands = {value: self._value(value) for value in call.operands}
            copy = clone_into(call, operands)
        self.new.update(zip(call.results, copy.results, strict=True))

    def _kernel(self, group: Group) -> None:
        ops = _with_helpers(group.ops, self.helpers, self.captures)
        members = {r for op in ops for r in op.results}
        inputs: dict[Any, None] = {}
        for op in ops:
            for value in [*op.operands, *self.captures[op]]:
                if value not in members:
                    inputs[value] = None
        inside = set(ops)
        results = [r for op in group.ops for r in op.results if _escapes(r, inside)]
        self._outline(group, ops, list(inputs), results)

    def _outline(self, group: Group, ops: list[Any], inputs: list[Any], results: list[Any]) -> None:
        name = next(self.names)
        types = ([v.type for v in inputs], [r.type for r in results])
        location = ops[-1].location
        with ir.InsertionPoint(self.main), location:
            kernel = _private_function(name, *types)
            view = Kernel.mark(kernel, work=group.work, grid=group.grid)
            if self.device is not None:
                view.device = self.device
            block = kernel.regions[0].blocks.append(*types[0])
        mapping = dict(zip(inputs, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            copies = {op: clone_into(op, mapping, nested=bool(self.captures[op])) for op in ops}
            self._mark_prologues(copies)
            with location:
                func.ReturnOp([mapping[r] for r in results])
        with ir.InsertionPoint(self.returned), location:
            operands = [self._value(v) for v in inputs]
            call = func.CallOp(types[1], ir.FlatSymbolRefAttr.get(name), operands)
        self.new.update(zip(results, call.results, strict=True))

    def _mark_prologues(self, copies: dict[Any, Any]) -> None:
        """Mark the ops of a prologue, and the fills of their destinations."""
        if not self.prologues:  # on a CPU: a fill may have as many users as there are kernels
            return
        for op, copy in copies.items():
            if op in self.prologues:
                PROLOGUE.set(copy)
        for op, copy in copies.items():
            users = users_in_main(copy.results[0]) if is_init(op) else []
            if users and all(map(PROLOGUE.has, users)):
                PROLOGUE.set(copy)


def _private_function(name: str, inputs: list[Any], results: list[Any]) -> Any:
    """A function without a body, in a fifth of the time of its Python class."""
    attributes = {
        "sym_name": ir.StringAttr.get(name),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, results)),
    }
    return ir.Operation.create("func.func", attributes=attributes, regions=1)


def _escapes(value: Any, inside: set[Any]) -> bool:
    """Whether an op outside of the kernel uses `value`, directly or through reshapes."""
    return any(user not in inside for user in users_in_main(value))


def _is_helper(op: Any) -> bool:
    """Whether every kernel that needs an op rematerializes it."""
    return is_scalar(op) or op.name == "tensor.empty" or op.name in TENSOR_VIEWS or is_init(op)


def _with_helpers(ops: list[Any], helpers: set[Any], captures: Captures) -> list[Any]:
    """The group's ops with the `helpers` that they need, in order."""
    chosen: dict[Any, None] = {}
    members = set(ops)

    def need(value: Any) -> None:
        if not isinstance(value, ir.OpResult):
            return
        op = value.owner.operation
        if op in chosen or op in members:
            return
        if op in helpers:
            if op.name in TENSOR_VIEWS and not _reaches(value, members):
                return
            for operand in [*op.operands, *captures[op]]:
                need(operand)
            chosen[op] = None

    for op in ops:
        for value in [*op.operands, *captures[op]]:
            need(value)
        chosen[op] = None
    return list(chosen)


def _reaches(value: Any, members: set[Any]) -> bool:
    """Whether a reshape is of a value that the group computes (or of none yet)."""
    source = buffer_root(value)
    if not isinstance(source, ir.OpResult):
        return False
    op = source.owner.operation
    return op in members or op.name == "tensor.empty"
