"""`link-persistent-kernel`: all kernels of a program as tasks of one resident kernel."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of
from nova.ir.launches import Launch
from nova.ir.persistent import (
    PERSISTENT_KERNEL,
    TASK_THREADS,
    check_persistent,
    persistent_launches,
)
from nova.ir.walk import every_op, find_ops
from nova.passes.base import Pass

_REGISTER = "nvvm.read.ptx.sreg."
_BLOCK_INDEX = f"{_REGISTER}ctaid.x"
_THREAD_INDEX = f"{_REGISTER}tid.x"
_LANE = f"{_REGISTER}laneid"
_TASK_BARRIER = 1
"""The barrier of the threads of a task; barrier 0 is that of all threads of the block."""


@record
class LinkPersistentKernel(Pass):
    """Add one kernel that runs the tasks of all launches of `main`, by their dependencies.

    A task is a block of a launch. Each device function is copied to a function that takes the
    number of its block, and that the new kernel inlines. The kernel is resident: it has as many
    blocks as run at once. Every block visits the rows of the table of launches in order, waits for
    the counters of the launches that a row depends on, runs its share of the row's tasks, and adds
    their number to the row's counter. Release and acquire order the memory of the tasks. A row only
    waits for rows before it, and all blocks are resident, so the first row that is not complete can
    always run: there is no deadlock (docs/persistent-kernels.md). The device functions remain, for
    traces and for launches by graph.
    """

    name: ClassVar[str] = "link-persistent-kernel"

    def run(self, module: ir.Module) -> None:
        check_persistent(module)
        launches = persistent_launches(module)
        with module.context, ir.Location.unknown():
            parts = {
                part.attributes["sym_name"].value: part for part in find_ops(module, "gpu.module")
            }
            functions = [_device_function(parts, launch) for launch in launches]
            parsed = ir.Module.parse(_module_text(launches, functions))
            with ir.InsertionPoint(module.body):
                linked = parsed.body.operations[0].operation.clone()
            kernel, *declarations = [op.operation for op in linked.regions[0].blocks[0].operations]
            for declaration in declarations:
                declaration.erase()
            with ir.InsertionPoint(kernel):
                _copy_variables(parts, launches)
                for number, (launch, function) in enumerate(zip(launches, functions, strict=True)):
                    _make_task(function.clone(), number, launch)


def _device_function(parts: dict[str, Any], launch: Launch) -> Any:
    module, name = launch.symbols
    for op in parts[module].regions[0].blocks[0].operations:
        if op.operation.name == "llvm.func" and op.attributes["sym_name"].value == name:
            return op.operation
    raise LoweringError(f"the module has no device function @{name}")


def _copy_variables(parts: dict[str, Any], launches: list[Launch]) -> None:
    """Copy the variables of the device functions: dynamic shared memory, which all share."""
    names: set[str] = set()
    for launch in launches:
        for op in parts[launch.symbols[0]].regions[0].blocks[0].operations:
            if op.operation.name != "llvm.mlir.global":
                continue
            name = op.attributes["sym_name"].value
            if name not in names:
                names.add(name)
                op.operation.clone()


# --- tasks ----------------------------------------------------------------------------------------


def _make_task(function: Any, number: int, launch: Launch) -> None:
    """Turn a copy of a device function into a task: its last parameter is its block."""
    function.attributes["sym_name"] = ir.StringAttr.get(_task_name(number))
    for name in list(function.attributes):
        name = getattr(name, "name", name)
        if name.startswith(("gpu.", "nvvm.")):
            del function.attributes[name]
    function.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    function.attributes["always_inline"] = ir.UnitAttr.get()
    entry = function.regions[0].blocks[0]
    block = entry.add_argument(ir.IntegerType.get_signless(32), function.location)
    types = ", ".join(str(argument.type) for argument in entry.arguments)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.Type.parse(f"!llvm.func<void ({types})>")
    )
    if "arg_attrs" in function.attributes:
        attributes = [*function.attributes["arg_attrs"], ir.DictAttr.get({})]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    for op in every_op(function)[:-1]:
        if op.name == _BLOCK_INDEX:
            op.results[0].replace_all_uses_with(block)
            op.erase()
        elif op.name == "nvvm.barrier":
            _limit_barrier(op, launch)
        elif op.name == _THREAD_INDEX:
            _reread_thread_index(op, launch)
        elif op.name.startswith(_REGISTER) and op.name != _LANE:
            raise _not_a_task(op, op.name)
        elif op.name == "llvm.inline_asm" and _synchronizes(op.attributes["asm_string"].value):
            raise _not_a_task(op, op.attributes["asm_string"].value)


def _reread_thread_index(op: Any, launch: Launch) -> None:
    """Read the index of the thread again in each task.

    LLVM would compute what all tasks derive from it once, before all of them, and keep it in
    registers.
    """
    i32 = ir.IntegerType.get_signless(32)
    threads = launch.block[0]
    with ir.InsertionPoint(op), op.location:
        index = ir.Operation.create(
            "llvm.inline_asm",
            results=[i32],
            attributes={
                "asm_string": ir.StringAttr.get("mov.u32 $0, %tid.x;"),
                "constraints": ir.StringAttr.get("=r"),
                "has_side_effects": ir.UnitAttr.get(),
            },
        ).results[0]
        if threads & (threads - 1) == 0:  # LLVM learns its range
            mask = _constant(threads - 1)
            index = ir.Operation.create(
                "llvm.and", results=[i32], operands=[index, mask]
            ).results[0]
    op.results[0].replace_all_uses_with(index)
    op.erase()


def _constant(value: int) -> Any:
    i32 = ir.IntegerType.get_signless(32)
    return ir.Operation.create(
        "llvm.mlir.constant", results=[i32], attributes={"value": ir.IntegerAttr.get(i32, value)}
    ).results[0]


def _limit_barrier(op: Any, launch: Launch) -> None:
    """Let a barrier wait for the threads of the task only."""
    if len(op.operands) or len(op.results):
        raise _not_a_task(op, "a barrier of some threads")
    threads = launch.block[0]
    if threads == TASK_THREADS:
        return
    with ir.InsertionPoint(op), op.location:
        ir.Operation.create(
            "nvvm.barrier",
            operands=[_constant(_TASK_BARRIER), _constant(threads)],
            attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 0])},
        )
    op.erase()


def _synchronizes(text: str) -> bool:
    """Whether an instruction waits for other threads, or needs resources of a whole kernel."""
    return any(word in text for word in ("bar.", "barrier", "setmaxnreg", "cluster", "wgmma"))


def _not_a_task(op: Any, what: str) -> LoweringError:
    return LoweringError(
        f"{what} in a kernel of a program with launch='persistent'",
        where=place_of(op.location),
        hint="compile the program with launch='graph'",
    )


# --- the kernel -----------------------------------------------------------------------------------


def _task_name(number: int) -> str:
    return f"nova_task_{number}"


def _module_text(launches: list[Launch], functions: list[Any]) -> str:
    """The text of the device module with the persistent kernel and declarations of its tasks."""
    types = [
        [str(argument.type) for argument in function.regions[0].blocks[0].arguments]
        for function in functions
    ]
    cases = "".join(
        _case_text(number, launch, types[number]) for number, launch in enumerate(launches)
    )
    targets = ", ".join(f"{number}: ^case{number}" for number in range(len(launches)))
    tasks = "\n  ".join(
        f"llvm.func @{_task_name(number)}({', '.join([*parameters, 'i32'])})"
        for number, parameters in enumerate(types)
    )
    return _KERNEL.format(
        name=PERSISTENT_KERNEL, threads=TASK_THREADS, cases=cases, targets=targets, tasks=tasks
    )


def _case_text(number: int, launch: Launch, types: list[str]) -> str:
    """The code that runs one task of a launch: loads its parameters, and calls its function."""
    lines, names = [], []
    for i, kind in enumerate(types):
        name = f"{number}_{i}"
        lines += [
            f"%at{name} = llvm.getelementptr %row_arguments[{i}] : (!llvm.ptr<1>) -> "
            "!llvm.ptr<1>, vector<2xi64>",
            f"%pair{name} = llvm.load %at{name} {{alignment = 16 : i64}} : "
            "!llvm.ptr<1> -> vector<2xi64>",
            f"%base{name} = llvm.extractelement %pair{name}[%c0 : i32] : vector<2xi64>",
        ]
        if kind == "!llvm.ptr":
            lines += [
                f"%stride{name} = llvm.extractelement %pair{name}[%c1 : i32] : vector<2xi64>",
                f"%offset{name} = llvm.mul %stride{name}, %wide_step : i64",
                f"%address{name} = llvm.add %base{name}, %offset{name} : i64",
                # A pointer to global memory: LLVM then knows it of the accesses of the task.
                f"%global{name} = llvm.inttoptr %address{name} : i64 to !llvm.ptr<1>",
                f"%p{name} = llvm.addrspacecast %global{name} : !llvm.ptr<1> to !llvm.ptr",
            ]
        names.append(f"%{'p' if kind == '!llvm.ptr' else 'base'}{name}")
    call = (
        f"llvm.call @{_task_name(number)}({', '.join([*names, '%task'])}) : "
        f"({', '.join([*types, 'i32'])}) -> ()"
    )
    body = "\n      ".join([*lines, call, "llvm.br ^ran"])
    if launch.block[0] == TASK_THREADS:
        return f"\n    ^case{number}:\n      {body}"
    return f"""
    ^case{number}:
      %n{number} = llvm.mlir.constant({launch.block[0]} : i32) : i32
      %has{number} = llvm.icmp "ult" %thread, %n{number} : i32
      llvm.cond_br %has{number}, ^run{number}, ^ran
    ^run{number}:
      {body}"""


_KERNEL = """
gpu.module @{name} {{
  llvm.func @{name}(%rows_: !llvm.ptr, %arguments_: !llvm.ptr, %waits_: !llvm.ptr,
                    %counters_: !llvm.ptr, %row_count_: i64, %steps_: i64)
      attributes {{gpu.kernel, nvvm.kernel, nvvm.maxntid = array<i32: {threads}, 1, 1>,
                  nvvm.minctasm = 2 : i32}} {{
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %c2 = llvm.mlir.constant(2 : i32) : i32
      %rows = llvm.addrspacecast %rows_ : !llvm.ptr to !llvm.ptr<1>
      %arguments = llvm.addrspacecast %arguments_ : !llvm.ptr to !llvm.ptr<1>
      %waits = llvm.addrspacecast %waits_ : !llvm.ptr to !llvm.ptr<1>
      %counters = llvm.addrspacecast %counters_ : !llvm.ptr to !llvm.ptr<1>
      %row_count = llvm.trunc %row_count_ : i64 to i32
      %steps = llvm.trunc %steps_ : i64 to i32
      %thread = nvvm.read.ptx.sreg.tid.x : i32
      %block = nvvm.read.ptx.sreg.ctaid.x : i32
      %blocks = nvvm.read.ptx.sreg.nctaid.x : i32
      %leads = llvm.icmp "eq" %thread, %c0 : i32
      llvm.br ^step(%c0 : i32)
    ^step(%step: i32):
      %epoch = llvm.add %step, %c1 : i32
      %wide_step = llvm.zext %step : i32 to i64
      llvm.br ^row(%c0 : i32)
    ^row(%row: i32):
      %row_at = llvm.getelementptr %rows[%row, 0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, !llvm.array<8 x i32>
      %kernel = llvm.load %row_at : !llvm.ptr<1> -> i32
      %at1 = llvm.getelementptr %row_at[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
      %task_count = llvm.load %at1 : !llvm.ptr<1> -> i32
      %at2 = llvm.getelementptr %row_at[2] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
      %first_block = llvm.load %at2 : !llvm.ptr<1> -> i32
      %is_after = llvm.icmp "uge" %block, %first_block : i32
      %distance = llvm.sub %block, %first_block : i32
      %wrapped = llvm.add %distance, %blocks : i32
      %first_task = llvm.select %is_after, %distance, %wrapped : i1, i32
      %has_task = llvm.icmp "ult" %first_task, %task_count : i32
      llvm.cond_br %has_task, ^enter, ^next
    ^enter:
      llvm.cond_br %leads, ^wait, ^ready
    ^wait:
      %at4 = llvm.getelementptr %row_at[4] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
      %wait_first = llvm.load %at4 : !llvm.ptr<1> -> i32
      %at5 = llvm.getelementptr %row_at[5] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
      %wait_count = llvm.load %at5 : !llvm.ptr<1> -> i32
      %wait_end = llvm.add %wait_first, %wait_count : i32
      llvm.br ^waits(%wait_first : i32)
    ^waits(%w: i32):
      %more = llvm.icmp "ult" %w, %wait_end : i32
      llvm.cond_br %more, ^await, ^ready
    ^await:
      %wait_at = llvm.getelementptr %waits[%w, 0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, !llvm.array<2 x i32>
      %awaited = llvm.load %wait_at : !llvm.ptr<1> -> i32
      %count_at = llvm.getelementptr %wait_at[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
      %count = llvm.load %count_at : !llvm.ptr<1> -> i32
      %needed = llvm.mul %count, %epoch : i32
      %counter_at = llvm.getelementptr %counters[%awaited] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.br ^poll
    ^poll:
      %value = llvm.inline_asm has_side_effects "ld.acquire.gpu.global.u32 $0, [$1];", "=r,l,~{{memory}}" %counter_at : (!llvm.ptr<1>) -> i32
      %is_complete = llvm.icmp "uge" %value, %needed : i32
      %next_wait = llvm.add %w, %c1 : i32
      llvm.cond_br %is_complete, ^waits(%next_wait : i32), ^poll
    ^ready:
      nvvm.barrier
      %at3 = llvm.getelementptr %row_at[3] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
      %argument_first = llvm.load %at3 : !llvm.ptr<1> -> i32
      %row_arguments = llvm.getelementptr %arguments[%argument_first] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xi64>
      llvm.br ^run(%first_task, %c0 : i32, i32)
    ^run(%task: i32, %ran: i32):
      llvm.switch %kernel : i32, ^ran [{targets}]{cases}
    ^ran:
      nvvm.barrier
      %next_task = llvm.add %task, %blocks : i32
      %ran_now = llvm.add %ran, %c1 : i32
      %has_more = llvm.icmp "ult" %next_task, %task_count : i32
      llvm.cond_br %has_more, ^run(%next_task, %ran_now : i32, i32), ^signal
    ^signal:
      llvm.cond_br %leads, ^add, ^next
    ^add:
      %own_at = llvm.getelementptr %counters[%row] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.inline_asm has_side_effects "red.release.gpu.global.add.u32 [$0], $1;", "l,r,~{{memory}}" %own_at, %ran_now : (!llvm.ptr<1>, i32) -> ()
      llvm.br ^next
    ^next:
      %next_row = llvm.add %row, %c1 : i32
      %has_row = llvm.icmp "ult" %next_row, %row_count : i32
      llvm.cond_br %has_row, ^row(%next_row : i32), ^end_step
    ^end_step:
      %has_step = llvm.icmp "ult" %epoch, %steps : i32
      %grid_at = llvm.getelementptr %counters[%row_count] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.cond_br %has_step, ^meet, ^leave
    ^meet:
      llvm.cond_br %leads, ^arrive, ^met
    ^arrive:
      llvm.inline_asm has_side_effects "red.release.gpu.global.add.u32 [$0], $1;", "l,r,~{{memory}}" %grid_at, %c1 : (!llvm.ptr<1>, i32) -> ()
      %all = llvm.mul %blocks, %epoch : i32
      llvm.br ^gather
    ^gather:
      %here = llvm.inline_asm has_side_effects "ld.acquire.gpu.global.u32 $0, [$1];", "=r,l,~{{memory}}" %grid_at : (!llvm.ptr<1>) -> i32
      %are_here = llvm.icmp "uge" %here, %all : i32
      llvm.cond_br %are_here, ^met, ^gather
    ^met:
      nvvm.barrier
      llvm.br ^step(%epoch : i32)
    ^leave:
      llvm.cond_br %leads, ^depart, ^end
    ^depart:
      %gone_at = llvm.getelementptr %grid_at[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
      %gone = llvm.inline_asm has_side_effects "atom.acq_rel.gpu.global.add.u32 $0, [$1], $2;", "=r,l,r,~{{memory}}" %gone_at, %c1 : (!llvm.ptr<1>, i32) -> i32
      %gone_now = llvm.add %gone, %c1 : i32
      %is_last = llvm.icmp "eq" %gone_now, %blocks : i32
      llvm.cond_br %is_last, ^reset(%c0 : i32), ^end
    ^reset(%i: i32):
      %reset_at = llvm.getelementptr %counters[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.inline_asm has_side_effects "st.relaxed.gpu.global.u32 [$0], $1;", "l,r,~{{memory}}" %reset_at, %c0 : (!llvm.ptr<1>, i32) -> ()
      %next_i = llvm.add %i, %c1 : i32
      %reset_end = llvm.add %row_count, %c2 : i32
      %resets = llvm.icmp "ult" %next_i, %reset_end : i32
      llvm.cond_br %resets, ^reset(%next_i : i32), ^end
    ^end:
      llvm.return
  }}
  {tasks}
}}
"""
