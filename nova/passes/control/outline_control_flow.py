"""`outline-control-flow`: the regions of loops and branches become programs of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attributes import CARRIED, INPUTS
from nova.ir.bindings import arith, builtin, func, ir, tensor
from nova.ir.clone import clone_into
from nova.ir.control_flow.functions import Control, control_functions, is_call, name_of
from nova.ir.dialect import CONSTANT, full_name
from nova.ir.index import index
from nova.ir.symbolic.size_table import copy_sizes
from nova.ir.walk import every_op, main_function
from nova.passes.base import Pass
from nova.passes.control.match_loops import constant_index, match_loop
from nova.passes.control.tensor_selects import lower_tensor_selects

_LOCAL = ("arith.constant", CONSTANT, "tensor.empty")
"""Ops that every region which needs their result has a copy of."""

_REARRANGING = (full_name("permute"), full_name("reshape"))
"""Ops that `while` loops have copies of, too: they are fused with their readers, and outside they
would write a copy, which pays only for many iterations."""

Build = Callable[[list[Any]], Sequence[Any]]
"""Emits the ops of a region over the arguments of its main; returns its results."""


@record
class OutlineControlFlow(Pass):
    """Make control functions of the scf ops on tensors in `main`, and modules of their regions.

    `nova/ir/control_flow/functions.py` describes both. Slices that a `scf.for` reads and writes at
    its induction variable, forwards or backwards, become slices of the operands and results of the
    control function: no kernel copies them. A loop whose bounds are not constant, any op that
    carries values other than tensors, and one without an op on tensors inside stay: they run inside
    of one kernel.
    """

    name: ClassVar[str] = "outline-control-flow"
    reads_regions: ClassVar[bool] = True

    def run(self, module: ir.Module) -> None:
        lower_tensor_selects(module)
        outline(module, "")


def outline(module: Any, prefix: str) -> None:
    """Outline the loops and branches of a module, and of the modules that this makes."""
    main = main_function(module)
    while op := next(filter(can_outline, _operations(main)), None):
        _Outliner(module, main, op, prefix).outline()
    called = {op.attributes["callee"].value for op in _operations(main) if is_call(op)}
    for function in control_functions(module):
        if name_of(function) not in called:  # a region calls the file instead
            function.operation.erase()


def _operations(main: Any) -> list[Any]:
    return [op.operation for op in main.entry_block.operations]


def can_outline(op: Any) -> bool:
    """Whether a loop or branch carries only tensors, and has constant bounds if it is a `for`."""
    if op.name not in _OUTLINED or not len(op.results):
        return False
    if not all(map(_is_static_tensor, op.results)) or not _has_tensor_ops(op):
        return False
    if op.name == "scf.for":
        bounds = [constant_index(op.operands[i]) for i in range(3)]
        return None not in bounds and bounds[2] > 0  # type: ignore[operator]
    if op.name == "scf.while":
        before, after = (region.blocks[0] for region in op.regions)
        ending = before.operations[len(before.operations) - 1].operation
        forwarded = [*before.arguments, *after.arguments, *list(ending.operands)[1:]]
        return all(map(_is_static_tensor, forwarded))
    return True


def _has_tensor_ops(op: Any) -> bool:
    """Whether the regions work on tensors; loops over single elements are code of one kernel."""
    names = {inner.name for inner in every_op(op)}
    if any(n.startswith(("nova.", "linalg.", "stablehlo.", "func.call")) for n in names):
        return True
    return not names & {"tensor.extract", "tensor.insert"}


def _is_static_tensor(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and value.type.has_static_shape


class _Outliner:
    """Outlines one op of a `main`."""

    def __init__(self, module: Any, main: Any, op: Any, prefix: str):
        self.module = module
        self.main = main
        self.op = op
        count = len(list(module.body.operations))
        self.name = f"{prefix}{_OUTLINED[op.name]}_{count}"
        self.regions: list[str] = []

    def outline(self) -> None:
        with self.op.location:
            {
                "scf.if": self._if,
                "scf.index_switch": self._switch,
                "scf.while": self._while,
                "scf.for": self._for,
            }[self.op.name]()

    # --- constructs -----------------------------------------------------------------------------

    def _if(self) -> None:
        blocks = [region.blocks[0] for region in self.op.regions]
        with ir.InsertionPoint(self.op):
            selector = _scalar_tensor(self.op.operands[0])
        self._branches(selector, [blocks[1], blocks[0]])

    def _switch(self) -> None:
        blocks = [region.blocks[0] for region in self.op.regions]
        cases = list(self.op.attributes["cases"])
        with ir.InsertionPoint(self.op):
            selector = _case_number(self.op.operands[0], cases)
        self._branches(selector, [*blocks[1:], blocks[0]])

    def _branches(self, selector: Any, blocks: list[Any]) -> None:
        captures = _Captures(blocks)
        for block in blocks:
            self._region_of(captures, [], partial(_inline_branch, block))
        results = self._call(Control("switch", tuple(self.regions)), [selector, *captures.tensors])
        self._replace(results)

    def _while(self) -> None:
        """The first test of the condition runs in main; the region is the body and the next test.

        The loop carries what the condition forwards: the arguments of the body, and the results.
        """
        before, after = (region.blocks[0] for region in self.op.regions)
        captures = _Captures([before, after], local=(*_LOCAL, *_REARRANGING))
        types = [r.type for r in self.op.results]

        def step(inner: dict[Any, Any], carried: list[Any]) -> list[Any]:
            arguments = _inline(after, carried, dict(inner))
            again, *forwarded = _inline(before, arguments, dict(inner))
            return [*forwarded, _scalar_tensor(again)]

        self._region_of(captures, types, step)
        with ir.InsertionPoint(self.op):
            again, *initial = _inline(before, list(self.op.operands), {})
            predicate = _scalar_tensor(again)
        control = Control("while", tuple(self.regions), len(captures.tensors), len(types))
        self._replace(self._call(control, [predicate, *captures.tensors, *initial]))

    def _for(self) -> None:
        loop = match_loop(self.op)
        captures = _Captures([loop.block], skipped=loop.slice_ops)
        consts = len(captures.tensors)
        i64 = ir.IntegerType.get_signless(64)
        number_type = ir.RankedTensorType.get([], i64)
        carried = [loop.block.arguments[1 + i].type for i in loop.carries]
        slices = [op.results[0].type for op in loop.reads]
        types = [number_type, *(t.type for t in captures.tensors), *carried, *slices]

        def body(arguments: list[Any]) -> Sequence[Any]:
            inner = captures.bind(arguments[1 : 1 + consts])
            rest = arguments[1 + consts :]
            pairs = zip(loop.carries, rest[: len(carried)], strict=True)
            inner |= {loop.block.arguments[1 + i]: v for i, v in pairs}
            inner |= {
                op.results[0]: v for op, v in zip(loop.reads, rest[len(carried) :], strict=True)
            }
            position = arith.index_cast(ir.IndexType.get(), tensor.extract(arguments[0], []))
            inner[loop.block.arguments[0]] = loop.induction(position)
            for op in loop.numbers:
                inner[op.results[0]] = arguments[0]
            return loop.inline(inner)

        self._define(types, body, first_carry=1 + consts, carries=len(carried))
        sources = [*captures.tensors, *loop.initial, *(op.operands[0] for op in loop.reads)]
        control = Control(
            "for", tuple(self.regions), consts, len(carried), loop.length, loop.reverse
        )
        results = self._call(control, sources, loop.result_types)
        self._replace([results[i] for i in loop.order])

    # --- parts ----------------------------------------------------------------------------------

    def _region_of(
        self,
        captures: _Captures,
        types: list[Any],
        emit: Callable[[dict[Any, Any], list[Any]], Sequence[Any]],
    ) -> None:
        consts = len(captures.tensors)

        def build(arguments: list[Any]) -> Sequence[Any]:
            return emit(captures.bind(arguments[:consts]), arguments[consts:])

        arguments = [*(t.type for t in captures.tensors), *types]
        self._define(arguments, build, first_carry=consts, carries=len(types))

    def _define(self, types: list[Any], build: Build, first_carry: int, carries: int) -> None:
        """A module with a `main` of these arguments, whose ops `build` emits."""
        name = f"{self.name}_{len(self.regions)}"
        self.regions.append(name)
        with ir.InsertionPoint.at_block_begin(self.module.body):
            region = builtin.ModuleOp()
        region.operation.attributes["sym_name"] = ir.StringAttr.get(name)
        with ir.InsertionPoint(region.body):
            main = func.FuncOp("main", (types, []))
            block = main.add_entry_block()
            with ir.InsertionPoint(block):
                results = list(build(list(block.arguments)))
                func.ReturnOp(results)
        INPUTS.set(main, len(types))
        if carries:
            CARRIED.set(main, tuple(range(first_carry, first_carry + carries)))
        copy_sizes(self.main, main)
        returned = [r.type for r in results]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, returned))
        self._declare_callees(region, main, name)
        outline(region, f"{name}_")

    def _declare_callees(self, region: Any, main: Any, name: str) -> None:
        """Declare the control functions of calls of files inside of a region in its module."""
        declared = {name_of(f): f for f in control_functions(self.module)}
        for op in every_op(main):
            if is_call(op) and op.attributes["callee"].value in declared:
                callee = op.attributes["callee"].value
                new = f"{name}_{callee}"
                with ir.InsertionPoint(main):
                    declared[callee].operation.clone().attributes["sym_name"] = ir.StringAttr.get(
                        new
                    )
                op.attributes["callee"] = ir.FlatSymbolRefAttr.get(new)

    def _call(
        self, control: Control, operands: list[Any], types: list[Any] | None = None
    ) -> list[Any]:
        if types is None:
            types = [r.type for r in self.op.results]
        with ir.InsertionPoint(self.main):
            function = func.FuncOp(
                self.name, ([o.type for o in operands], types), visibility="private"
            )
        control.set(function)
        with ir.InsertionPoint(self.op):
            call = func.CallOp(types, ir.FlatSymbolRefAttr.get(self.name), operands)
        return list(call.results)

    def _replace(self, results: Sequence[Any]) -> None:
        for old, new in zip(self.op.results, results, strict=True):
            old.replace_all_uses_with(new)
        self.op.erase()


_OUTLINED = {
    "scf.if": "branch",
    "scf.index_switch": "branch",
    "scf.while": "loop",
    "scf.for": "loop",
}


class _Captures:
    """The tensors from outside that blocks use; scalars and constants are computed inside."""

    def __init__(
        self,
        blocks: Sequence[Any],
        skipped: Sequence[Any] = (),
        local: tuple[str, ...] = _LOCAL,
    ):
        self._names = local
        self._skipped = set(skipped)
        self._local: dict[Any, None] = {}
        tensors: dict[Any, None] = {}
        inside: set[Any] = set()
        for block in blocks:
            _collect_defined(block, inside)
        for block in blocks:
            for value in self._used(block):
                if value not in inside:
                    self._add(value, tensors)
        self.tensors = list(tensors)

    def _used(self, block: Any) -> list[Any]:
        used: list[Any] = []
        for op in block.operations:
            op = op.operation
            if op not in self._skipped:
                used += op.operands
            elif op.name == "tensor.insert_slice":
                used.append(op.operands[0])  # the row that the region returns
            for region in op.regions:
                for nested in region.blocks:
                    used += self._used(nested)
        return used

    def _add(self, value: Any, tensors: dict[Any, None]) -> None:
        op = value.owner.operation if isinstance(value, ir.OpResult) else None
        is_tensor = isinstance(value.type, ir.RankedTensorType)
        if is_tensor and (op is None or op.name not in self._names):
            tensors[value] = None
            return
        assert op is not None, "functions take tensors only"
        if op not in self._local:
            for operand in op.operands:
                self._add(operand, tensors)
            self._local[op] = None

    def bind(self, arguments: Sequence[Any]) -> dict[Any, Any]:
        """The values inside of a region by those outside; emits the local ones."""
        inner = dict(zip(self.tensors, arguments, strict=True))
        for op in self._local:
            clone_into(op, inner)
        return inner


def _collect_defined(block: Any, values: set[Any]) -> None:
    values.update(block.arguments)
    for op in block.operations:
        op = op.operation
        values.update(op.results)
        for region in op.regions:
            for nested in region.blocks:
                _collect_defined(nested, values)


def _inline(block: Any, arguments: Sequence[Any], inner: dict[Any, Any]) -> list[Any]:
    """Clone the ops of a block at the insertion point; return the operands of its last op."""
    inner |= dict(zip(block.arguments, arguments, strict=True))
    *operations, ending = [op.operation for op in block.operations]
    for op in operations:
        clone_into(op, inner)
    return [inner.get(v, v) for v in ending.operands]


def _inline_branch(block: Any, inner: dict[Any, Any], carried: list[Any]) -> list[Any]:
    return _inline(block, carried, inner)


def _scalar_tensor(value: Any) -> Any:
    """A scalar as a tensor of rank 0; the tensor that it was extracted from, if it was."""
    op = value.owner.operation if isinstance(value, ir.OpResult) else None
    if op is not None and op.name == "tensor.extract" and len(op.operands) == 1:
        return op.operands[0]
    return tensor.from_elements(ir.RankedTensorType.get([], value.type), [value])


def _case_number(selector: Any, cases: list[int]) -> Any:
    """The number of the case that an index selects, as a tensor; the default comes last."""
    i64 = ir.IntegerType.get_signless(64)
    if cases == list(range(len(cases))):
        last = index(len(cases))
        number = arith.minui(selector, last)
    else:
        number = index(len(cases))
        for position, case in reversed(list(enumerate(cases))):
            is_case = arith.cmpi(arith.CmpIPredicate.eq, selector, index(case))
            number = arith.select(is_case, index(position), number)
    return _scalar_tensor(arith.index_cast(i64, number))
