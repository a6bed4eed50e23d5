"""`plan-workspace`: every intermediate of main gets an offset in one workspace."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import LoweringError, WorkspaceError
from nova.ir.attributes import DEVICE, IN_PLACE, SLICED, WORKSPACE
from nova.ir.bindings import func, ir, memref
from nova.ir.buffers import as_bytes, buffer_root, element_bytes, emit_copy, nbytes, view_as
from nova.ir.control_flow.functions import (
    Control,
    control_functions,
    is_call,
    is_control,
    name_of,
    region_modules,
)
from nova.ir.diagnostics import place_of
from nova.ir.index import index
from nova.ir.kernel import Kernel, Main, is_kernel, set_argument_types
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import functions_by_name, kernels, main_function
from nova.passes.base import Pass
from nova.passes.control.region_memory import control_memory, control_work
from nova.passes.gpu.join_updates import join_updates
from nova.passes.gpu.slice_views import view_slices
from nova.passes.kernels.buffer_donation import (
    Answers,
    can_write_in_place,
    carries_in_place,
    delay_updates,
    is_copy,
    overwritten_copies,
    users,
)
from nova.passes.kernels.kernel_copies import KernelCopies
from nova.passes.kernels.workspace.assign_offsets import Lifetime, order_calls
from nova.passes.kernels.workspace.output_memory import (
    OutputPlaces,
    Placement,
    find_outputs,
    place_buffers,
)
from nova.passes.kernels.workspace.rematerialize import Call, Recompute

_LARGE = 64 << 20
"""Bytes of a buffer that a kernel may overwrite with its result."""


@record
class PlanWorkspace(Pass):
    """Turn `main` into `main(arguments, outputs, workspace)`.

    Results are written directly into the output buffers; an updated parameter directly into the
    parameter when no later kernel reads its old value (buffer donation), and a large intermediate
    over another that is dead afterwards, where tiles allow it. Other buffers get offsets in one
    workspace, aligned to 64 bytes: they share memory by lifetime, but only as much as
    `max_workspace` requires where sharing would order independent kernels, which takes at most
    `spare` bytes (nova/passes/kernels/workspace/assign_offsets.py). Buffers that still do not fit
    are rematerialized (nova/passes/kernels/workspace/rematerialize.py). If the workspace is large,
    or above the limit, buffers are in parts of outputs that are not written yet, too
    (nova/passes/kernels/workspace/output_memory.py): a view of the output as bytes. With symbolic
    sizes the runtime lays out the workspace of a call, and checks the limit. The size is the
    attribute `nova.workspace`; `nova.outputs` counts the outputs. A result that is an argument, a
    constant or a duplicate is copied by a separate kernel. A call of a control function gets one
    more buffer: the workspace of its regions, and the second buffers of the carries of a loop. The
    body of a loop updates a carry in place, as `nova.in_place` says, where it does not read the old
    value later. With `overwrite`, a kernel that changes parts of a copy of an intermediate, and a
    loop that updates a carry in place, write to the buffer of the old value if it is dead
    afterwards.
    """

    name: ClassVar[str] = "plan-workspace"
    reads_regions: ClassVar[bool] = True
    max_workspace: int | None = None
    overwrite: bool = True
    spare: int | None = None
    on_device: bool = False

    def run(self, module: ir.Module) -> None:
        main = main_function(module)
        if WORKSPACE.has(main):
            raise LoweringError("@main has a workspace already", where=place_of(main.location))
        _require_buffer_results(main)
        limit = self.max_workspace if SizeTable.of(main) is None else None
        _Planner(module, main, limit, self.spare, self.on_device).plan(self.overwrite)


def _require_buffer_results(main: Any) -> None:
    types = [*main.type.inputs, *main.type.results]
    updates = Main(main).updates
    inputs, results = list(main.type.inputs), list(main.type.results)
    carried = Main(main).carried
    pairs = zip(updates, results[len(results) - len(updates) :], strict=True)
    if any(not isinstance(t, ir.MemRefType) for t in types):
        wrong, hint = (
            "has an argument or a result that is not a buffer",
            "run bufferize-kernels first",
        )
    elif len(set(updates)) < len(updates) or any(
        not 0 <= u < len(inputs) or inputs[u] != new for u, new in pairs
    ):
        wrong, hint = "updates arguments with values of other types, or twice", None
    elif len(carried) > len(results) or any(
        not 0 <= c < len(inputs) or inputs[c] != new
        for c, new in zip(carried, results, strict=False)
    ):
        wrong, hint = "carries arguments with values of other types", None
    else:
        return
    raise LoweringError(f"@main {wrong}", where=place_of(main.location), hint=hint)


class _Planner:
    def __init__(
        self, module: ir.Module, main: Any, limit: int | None, spare: int | None, on_device: bool
    ):
        self.limit = limit
        self.spare = spare
        self.on_device = on_device
        self.module = module
        self.main = main
        self.block = main.entry_block
        self.arguments = list(self.block.arguments)
        self.named = functions_by_name(module)
        self.copies = KernelCopies(self.block, self.named)
        self.answers: Answers = {}

    def plan(self, overwrite: bool) -> None:
        self._allocate_regions()
        returned = self.block.operations[len(self.block.operations) - 1]
        if overwrite:
            with ir.InsertionPoint(returned.operation):
                self._overwrite_dead_operands(returned.operation)
        updates = Main(self.main).updates
        ordinary = len(returned.operands) - len(updates)
        pairs = [
            (self.arguments[u], returned.operands[ordinary + i]) for i, u in enumerate(updates)
        ]
        delay_updates(self.module, self.block, pairs)
        # Operands of the return are read one at a time, after those before them are bound: binding
        # replaces buffers.
        with ir.InsertionPoint(returned.operation), self.main.location:
            outputs = [
                self.block.add_argument(value.type, self.main.location)
                for value in list(returned.operands)[:ordinary]
            ]
            carries = self._find_carries(returned)
            for i, output in enumerate(outputs):
                if i not in carries:
                    self._bind(returned.operands[i], output)
            in_place = [
                i
                for i in carries
                if self._carry(self.arguments[carries[i]], returned.operands[i], outputs[i])
            ]
            if in_place:
                IN_PLACE.set(self.main, tuple(in_place))
            self._keep_old_values(returned, ordinary, [self.arguments[u] for u in updates])
            for i, argument in enumerate(updates):
                self._update(self.arguments[argument], returned.operands[ordinary + i])
            end = func.ReturnOp([])
        returned.operation.erase()
        with ir.InsertionPoint(end), self.main.location:
            self._reuse_large_buffers([] if Main(self.main).carried else outputs)
        if self.on_device and SizeTable.of(self.main) is None:
            join_updates(self.main, self.named)
            with ir.InsertionPoint(end), self.main.location:
                view_slices(self.main, self.named, self.copies, len(self.arguments))
        size = self._place_buffers(outputs)
        set_argument_types(self.main, [])
        self._set_argument_attributes(len(self.block.arguments))
        main = Main(self.main)
        main.workspace, main.outputs = size, ordinary

    def _allocate_regions(self) -> None:
        """Give every call of a control function the memory that its regions need."""
        planned = {name_of(m): main_function(m) for m in region_modules(self.module)}
        for op in list(self.block.operations):
            op = op.operation
            function = self.named.get(op.attributes["callee"].value) if is_call(op) else None
            if function is None or not is_control(function):
                continue
            regions = [planned[name] for name in Control.of(function).regions]
            for region in regions[:1]:
                if in_place := Main(region).in_place:
                    IN_PLACE.set(function, in_place)
            Kernel(function).work = control_work(function, regions)
            i8 = ir.IntegerType.get_signless(8)
            size = control_memory(function, regions, self.on_device)
            type_ = ir.MemRefType.get([size], i8)
            with ir.InsertionPoint(op), op.location:
                memory = memref.AllocOp(type_, [], []).result
                func.CallOp([], op.attributes["callee"], [*op.operands, memory])
            op.erase()
            types = [*function.type.inputs, type_]
            function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))

    # --- results --------------------------------------------------------------------------------

    def _bind(self, value: Any, target: Any) -> None:
        """Let the kernel that computes `value` write into `target`, or copy at the end."""
        root = buffer_root(value)
        if _is_alloc(root):
            self._replace(root, target)
        else:
            self._copy(value, target)

    def _find_carries(self, returned: Any) -> dict[int, int]:
        """The carries of a loop that may be updated in place, and the argument of each."""
        return {
            i: argument
            for i, argument in enumerate(Main(self.main).carried)
            if _is_alloc(buffer_root(returned.operands[i]))
            or buffer_root(returned.operands[i]) == self.arguments[argument]
        }

    def _carry(self, argument: Any, value: Any, output: Any) -> bool:
        """Update a carry in place if nothing reads its old value later, else write its output."""
        root = buffer_root(value)
        if root == argument and value.type == argument.type:
            return True
        if _is_alloc(root) and can_write_in_place(self.named, argument, root, self.answers):
            self._replace(root, argument)
            self._merge_arguments(argument)
            return True
        self._bind(value, output)
        return False

    def _overwrite_dead_operands(self, returned: Any) -> None:
        """Let calls that change parts of a value write to its buffer, if it is dead afterwards."""
        for op in list(self.block.operations):
            op = op.operation
            function = self.named.get(op.attributes["callee"].value) if is_call(op) else None
            if function is None:
                continue
            is_loop = is_control(function)
            for old, new in (carries_in_place if is_loop else overwritten_copies)(function):
                source, target = (buffer_root(op.operands[i]) for i in (old, new))
                if (
                    _is_alloc(source)
                    and _is_alloc(target)
                    and source.type == target.type
                    and returned not in users(source)
                    and can_write_in_place(self.named, source, target, self.answers)
                ):
                    self._replace(target, source)
                    self._merge_arguments(source)

    def _keep_old_values(self, returned: Any, first: int, updated: list[Any]) -> None:
        """Copy a new value that is the old value of another updated parameter."""
        for i, argument in enumerate(updated):
            value = returned.operands[first + i]
            root = buffer_root(value)
            if root in updated and root != argument:
                copy = memref.AllocOp(value.type, [], []).result
                self._copy(value, copy)
                returned.operands[first + i] = copy

    def _update(self, argument: Any, value: Any) -> None:
        root = buffer_root(value)
        if root == argument and value.type == argument.type:
            return  # the new value is the old one
        if _is_alloc(root) and can_write_in_place(self.named, argument, root, self.answers):
            self._replace(root, argument)
            self._merge_arguments(argument)
        else:
            self._copy(value, argument)

    def _merge_arguments(self, argument: Any) -> None:
        """Make a kernel that gets one buffer twice use only the last of the two arguments.

        This keeps the promise to kernels that their arguments do not overlap.
        """
        for op in dict.fromkeys(users(argument)):
            if op.name != "func.call":
                continue
            positions = [i for i, o in enumerate(op.operands) if buffer_root(o) == argument]
            if len(positions) < 2:
                continue
            if is_control(self.named[op.attributes["callee"].value]):
                continue
            kernel = self.copies.take(op, tuple(positions))
            if kernel is None:
                continue
            self.answers.pop(kernel.name.value, None)
            formal = list(kernel.entry_block.arguments)
            with ir.InsertionPoint.at_block_begin(kernel.entry_block), kernel.location:
                for i in positions[:-1]:
                    formal[i].replace_all_uses_with(view_as(formal[positions[-1]], formal[i].type))
            for inner in [o.operation for o in kernel.entry_block.operations]:
                if is_copy(inner) and inner.operands[0] == inner.operands[1]:
                    inner.erase()
                    SLICED.set(kernel, (*(SLICED.find(kernel) or ()), *positions))

    def _replace(self, root: Any, target: Any) -> None:
        with ir.InsertionPoint(root.owner.operation), self.main.location:
            view = view_as(target, root.type)
        owner = root.owner.operation
        root.replace_all_uses_with(view)
        owner.erase()

    def _copy(self, value: Any, target: Any) -> None:
        name = f"copy_{len(list(self.module.body.operations))}"
        type_ = value.type
        with ir.InsertionPoint(self.main), self.main.location:
            kernel = func.FuncOp(name, ([type_, type_], []), visibility="private")
            self.named[name] = kernel
            view = Kernel.mark(kernel, work=prod(type_.shape), grid=tuple(type_.shape))
            view.ins = view.outs = 1
            block = kernel.add_entry_block()
            with ir.InsertionPoint(block):
                emit_copy(block.arguments[0], block.arguments[1])
                func.ReturnOp([])
        func.CallOp([], ir.FlatSymbolRefAttr.get(name), [value, view_as(target, type_)])

    def _reuse_large_buffers(self, outputs: Sequence[Any]) -> None:
        """Let a kernel write its result over an operand of that size that nothing reads later.

        Only large buffers, such as the scores of a vocabulary and their gradient: the memory of
        others is shared by lifetime, and kernels with one argument for two are compiled separately.
        """
        # A buffer that the host and the device share has a copy on each side.
        on_host = any(DEVICE.has(kernel) for kernel in kernels(self.module))
        if on_host or SizeTable.of(self.main) is not None:
            return
        for call in [op.operation for op in self.block.operations]:
            kernel = self.named.get(call.attributes["callee"].value) if is_call(call) else None
            if kernel is None or is_control(kernel) or not is_kernel(kernel):
                continue
            ins = Kernel(kernel).ins
            for target in map(buffer_root, list(call.operands)[ins:]):
                sources = dict.fromkeys(map(buffer_root, list(call.operands)[:ins]))
                for source in sources:
                    if not self._can_reuse(source, target, outputs):
                        continue
                    first, second = (source, target) if _is_alloc(target) else (target, source)
                    self._replace(second, first)
                    self._merge_arguments(first)
                    break

    def _can_reuse(self, source: Any, target: Any, outputs: Sequence[Any]) -> bool:
        return (
            source != target
            and _is_alloc(source)
            and (_is_alloc(target) or target in outputs)
            and source.type.element_type == target.type.element_type
            and nbytes(source.type) == nbytes(target.type) >= _LARGE
            and can_write_in_place(self.named, source, target, self.answers)
        )

    # --- workspace ------------------------------------------------------------------------------

    def _place_buffers(self, outputs: Sequence[Any]) -> int:
        buffers, placement = self._fit(outputs)
        i8 = ir.IntegerType.get_signless(8)
        workspace_type = ir.MemRefType.get([placement.size], i8)
        workspace = self.block.add_argument(workspace_type, self.main.location)
        for number, buffer in enumerate(buffers):
            op = buffer.owner.operation
            with ir.InsertionPoint(op), op.location:
                output, offset = placement.places[number]
                memory = workspace if output is None else as_bytes(outputs[output])
                view = memref.ViewOp(buffer.type, memory, index(offset), []).result
            buffer.replace_all_uses_with(view)
            op.erase()
        return placement.size

    def _fit(self, outputs: Sequence[Any]) -> tuple[list[Any], Placement]:
        """The buffers and their places; buffers that do not fit are rematerialized."""
        again = None
        totals: list[int] = []
        while True:
            buffers, lifetimes, before = self._lifetimes()
            placement = self._place(buffers, lifetimes, before, outputs)
            totals.append(placement.size)
            if self.limit is None or placement.size <= self.limit:
                return buffers, placement
            again = again or Recompute(self._calls)
            if not again.step():
                least = min(totals)
                error = WorkspaceError(
                    f"the program needs {least} bytes of scratch memory, and max_workspace "
                    f"allows {self.limit}",
                    hint=f"max_workspace={least} is the least that works",
                )
                error.least = least
                raise error

    def _place(
        self,
        buffers: list[Any],
        lifetimes: list[Lifetime],
        before: list[int],
        outputs: Sequence[Any],
    ) -> Placement:
        """The places of buffers in the workspace and in outputs that are not written yet."""
        calls = [op.operation for op in self.block.operations if is_call(op.operation)]
        memory = find_outputs(outputs, calls, self.named) if self._owns_outputs() else []
        callees = {call: self.named[call.attributes["callee"].value] for call in calls}
        # Loops and branches have pointers in their memory, and run programs of their own.
        excluded = {
            buffer_root(value)
            for call, callee in callees.items()
            if is_control(callee)
            for value in call.operands
        }

        def fits(buffer: int, output: int) -> bool:
            value, target = buffers[buffer], outputs[output]
            if value in excluded:
                return False
            # The caller's arrays are aligned to their elements; those of a device to 256 bytes.
            return self.on_device or element_bytes(value.type) <= element_bytes(target.type)

        finder = OutputPlaces(lifetimes, memory, before, fits)
        return place_buffers(finder, self.limit, self.spare, self.on_device)

    def _owns_outputs(self) -> bool:
        """Whether the memory of results has no other value before they are written.

        The results of a loop body may be the memory of its carries; a buffer that the host and the
        device share has a copy on each side; and sizes that are not known have no offsets.
        """
        is_region = self.module.operation.parent is not None
        on_host = any(DEVICE.has(kernel) for kernel in kernels(self.module))
        return not is_region and not on_host and SizeTable.of(self.main) is None

    def _calls(self) -> list[Call]:
        called = [*kernels(self.module), *control_functions(self.module)]
        costs = {view.name: (view.ins, view.work) for view in map(Kernel, called)}
        return [
            Call(
                op.operation,
                tuple(map(buffer_root, op.operation.operands)),
                *costs[op.callee.value],
            )
            for op in self.block.operations
            if op.operation.name == "func.call"
        ]

    def _lifetimes(self) -> tuple[list[Any], list[Lifetime], list[int]]:
        """Allocations, the calls that use each, and the order of calls by data dependence."""
        uses: dict[Any, list[int]] = {
            op.operation.results[0]: []
            for op in self.block.operations
            if op.operation.name == "memref.alloc"
        }
        calls = self._calls()
        number: dict[Any, int] = {}
        for time, call in enumerate(calls):
            for root in dict.fromkeys(call.roots):
                number.setdefault(root, len(number))
                if root in uses:
                    uses[root].append(time)
        buffers = [buffer for buffer, times in uses.items() if times]
        for unused in [buffer for buffer, times in uses.items() if not times]:
            _erase(unused.owner.operation)
        lifetimes = [Lifetime(nbytes(b.type), tuple(uses[b])) for b in buffers]
        touched = [([number[r] for r in c.read], [number[r] for r in c.written]) for c in calls]
        return buffers, lifetimes, order_calls(touched)

    def _set_argument_attributes(self, count: int) -> None:
        arg_attrs = list(self.main.arg_attrs) if len(self.arguments) else []
        empty = ir.DictAttr.get({})
        self.main.arg_attrs = [*arg_attrs, *[empty] * (count - len(arg_attrs))]


def _erase(op: Any) -> None:
    """Erase a buffer or view that no call uses, and the views of it."""
    for user in [use.owner.operation for use in op.results[0].uses]:
        _erase(user)
    op.erase()


def _is_alloc(value: Any) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.operation.name == "memref.alloc"
