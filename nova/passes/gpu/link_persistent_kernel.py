"""`link-persistent-kernel`: all kernels of a program as tasks of one resident kernel."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.gpu.persistent.kernel import kernel_text, shared_bytes
from nova.codegen.gpu.persistent.task import TASK_THREADS, Task, task_name
from nova.core.records import record
from nova.errors import LoweringError, PersistentLaunchError
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of
from nova.ir.launches import MOST_SHARED, Launch, check_persistent, has_flow, persistent_launches
from nova.ir.walk import device_modules, every_op
from nova.passes.base import Pass

_REGISTER = "nvvm.read.ptx.sreg."
_BLOCK_INDEX = f"{_REGISTER}ctaid.x"
_THREAD_INDEX = f"{_REGISTER}tid.x"
_LANE = f"{_REGISTER}laneid"
_DEPENDENT = "griddepcontrol."
_TASK_BARRIER = 1
"""The barrier of the threads of a task; barrier 0 is that of all threads of the block."""


@record
class LinkPersistentKernel(Pass):
    """Add one kernel that runs the tasks of all launches of a program, by their dependencies.

    A task is a block of a launch. Each device function is copied to a function that takes the
    number of its block, and that the new kernel inlines. The kernel is resident: it has as many
    blocks as run at once. Every block visits the rows of the table of launches in order, waits for
    the counters of the launches that a row depends on, runs its share of the row's tasks, and adds
    their number to the row's counter. Release and acquire order the memory of the tasks. A row only
    waits for rows before it, and all blocks are resident, so the first row that is not complete can
    always run: there is no deadlock (docs/persistent-kernels.md). Loops and branches are decisions
    of all blocks, and the kernel has their code, too. The device functions remain, for traces and
    for launches by graph.
    """

    name: ClassVar[str] = "link-persistent-kernel"

    def run(self, module: ir.Module) -> None:
        check_persistent(module)
        launches = persistent_launches(module)
        with module.context, ir.Location.unknown():
            parts = {part.attributes["sym_name"].value: part for part in device_modules(module)}
            functions = [_device_function(parts, launch) for launch in launches]
            with_flow = has_flow(module)
            tasks = [_task(*pair, with_flow) for pair in zip(launches, functions, strict=True)]
            parsed = ir.Module.parse(kernel_text(tasks, with_flow))
            with ir.InsertionPoint(module.body):
                linked = parsed.body.operations[0].operation.clone()
            kernel, *declarations = [op.operation for op in linked.regions[0].blocks[0].operations]
            for declaration in declarations:
                if declaration.name == "llvm.func" and not declaration.regions[0].blocks:
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


def _task(launch: Launch, function: Any, with_flow: bool) -> Task:
    own = shared_bytes(with_flow)
    if launch.shared > MOST_SHARED - own:
        raise _not_a_task(
            launch.op,
            f"{launch.shared} bytes of shared memory, where its tables leave {MOST_SHARED - own},",
        )
    if launch.block[0] > TASK_THREADS or (*launch.grid[1:], *launch.block[1:]) != (1, 1, 1, 1):
        raise _not_a_task(launch.op, f"{launch.grid} blocks of {launch.block} threads")
    types = (str(argument.type) for argument in function.regions[0].blocks[0].arguments)
    return Task(tuple(types), launch.block[0])


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
    function.attributes["sym_name"] = ir.StringAttr.get(task_name(number))
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
        elif op.name == "llvm.inline_asm" and _DEPENDENT in op.attributes["asm_string"].value:
            op.erase()  # the order of launches, which counters replace
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
            index = ir.Operation.create("llvm.and", results=[i32], operands=[index, mask]).results[
                0
            ]
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
    from nova.ir.gpu_bindings import nvvm  # only a compile for a device loads them

    threads = launch.block[0]
    if threads == TASK_THREADS:
        return
    with ir.InsertionPoint(op), op.location:
        nvvm.BarrierOp(barrierId=_constant(_TASK_BARRIER), numberOfThreads=_constant(threads))
    op.erase()


def _synchronizes(text: str) -> bool:
    """Whether an instruction waits for other threads, or needs resources of a whole kernel."""
    return any(word in text for word in ("bar.", "barrier", "setmaxnreg", "cluster", "wgmma"))


def _not_a_task(op: Any, what: str) -> PersistentLaunchError:
    return PersistentLaunchError(
        f"{what} cannot be in a kernel of a program with launch='persistent'",
        where=place_of(op.location),
        hint="compile the program with launch='graph'",
    )
