"""`fuse-launches`: small launches that do not depend on each other become one launch."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attributes import (
    CLUSTER,
    DEPENDENT,
    FLOPS,
    INS,
    KERNEL,
    LAUNCH,
    MIN_BLOCKS_PER_SM,
    SLICED,
    TENSOR_MAPS,
)
from nova.ir.bindings import arith, func, ir, scf
from nova.ir.buffers import AS_BYTES, VIEWS, nbytes
from nova.ir.context import load_device_dialects
from nova.ir.control_flow.functions import host_functions
from nova.ir.index import index
from nova.ir.kernel import Kernel
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import every_op, find_ops, kernels, main_function
from nova.passes.base import Pass
from nova.passes.gpu.call_effects import CallEffects, MainBuffers

_MOST_THREADS = 256
_MOST_SHARED = 96 << 10
_PROCESSORS, _PROCESSOR_SHARED = 132, 227 << 10
_MOST_BLOCKS = 528
"""Blocks of a fused launch: two waves of two blocks on each of 132 multiprocessors."""
_MOST_MEMBERS = 8
_MOST_FLOPS, _MOST_BYTES = 1 << 27, 16 << 20
"""Of a member: a few microseconds, so that its latency and its boundary are much of its time."""
_SEARCHED = 16
"""Launches before a call, with which it is compared."""
_TASK_BARRIER = 1
_BLOCK_ID, _THREAD_ID = 0, 3  # arguments of the body of a `gpu.launch`, along x


@record
class FuseLaunches(Pass):
    """Fuse small launches that do not depend on each other, horizontally: in `main` and regions.

    A launch costs its boundary and the latency of its loads and stores, whatever its size. The
    blocks of a fused launch are those of its members, one after the other, and each block runs the
    code of its member: results have the same bits. A call moves up to the first launch that it can
    join, past launches that it does not depend on. Members have at most 256 threads; the
    threads that a member does not have skip its code, and its barriers are named barriers of the
    others. Kernels with clusters, tensor maps or symbolic sizes stay as they are.
    """

    name: ClassVar[str] = "fuse-launches"

    def run(self, module: ir.Module) -> None:
        load_device_dialects(module.context)
        main = main_function(module)
        if SizeTable.of(main) is not None:
            return
        launched = {k.name.value: k for k in kernels(module)}
        fusable = {name: kernel for name, kernel in launched.items() if _can_fuse(kernel)}
        fused: dict[tuple[str, ...], Any] = {}
        with module.context:
            for function in list(host_functions(module)):
                groups = [g for g in _find_groups(function, launched, fusable) if len(g) > 1]
                if groups:
                    _hoist_views(function)
                for calls in groups:
                    names = tuple(call.attributes["callee"].value for call in calls)
                    if names not in fused:
                        fused[names] = _fuse([fusable[name] for name in names])
                    _replace_calls(calls, [fusable[name] for name in names], fused[names])
        if fused:
            _erase_uncalled(module, fusable)


def _can_fuse(kernel: Any) -> bool:
    if not LAUNCH.has(kernel) or CLUSTER.has(kernel) or TENSOR_MAPS.has(kernel):
        return False
    blocks, threads, shared = LAUNCH.get(kernel)
    is_small = FLOPS.get(kernel) <= _MOST_FLOPS and _argument_bytes(kernel) <= _MOST_BYTES
    if not 0 < blocks < _MOST_BLOCKS or threads > _MOST_THREADS or threads % 32:
        return False
    if not is_small or shared > _MOST_SHARED:
        return False
    launches = find_ops(kernel, "gpu.launch")
    if len(launches) != 1 or len(launches[0].regions[0].blocks) != 1:
        return False
    arguments = list(launches[0].regions[0].blocks[0].arguments)
    used = {i for i, argument in enumerate(arguments) if any(True for _ in argument.uses)}
    return used <= {_BLOCK_ID, _THREAD_ID} and not any(map(_is_own_barrier, every_op(launches[0])))


def _is_own_barrier(op: Any) -> bool:
    """Whether an op synchronizes threads in a way that depends on the threads of the block."""
    if op.name != "llvm.inline_asm":
        return op.name.startswith(("nvvm.barrier", "nvvm.mbarrier"))
    return any(word in op.attributes["asm_string"].value for word in ("bar.", "barrier"))


def _argument_bytes(kernel: Any) -> int:
    return sum(
        nbytes(argument.type)
        for argument in kernel.entry_block.arguments
        if isinstance(argument.type, ir.MemRefType)
    )


# --- groups ---------------------------------------------------------------------------------------


class _Item:
    """A launch, or several that become one; or another op, which nothing moves past."""

    def __init__(self, call: Any, effects: CallEffects | None, kernel: Any | None):
        self.calls = [call]
        self.effects = [effects]
        self.blocks, _, self.shared = (0, 0, 0) if kernel is None else LAUNCH.get(kernel)

    def depends(self, effects: CallEffects) -> bool:
        return any(earlier is None or earlier.conflicts(effects) for earlier in self.effects)

    def takes(self, kernel: Any) -> bool:
        """Whether a kernel fits: small ones run concurrently in all blocks of the launch."""
        if self.blocks == 0 or len(self.calls) == _MOST_MEMBERS:
            return False
        blocks, _, shared = LAUNCH.get(kernel)
        resident = _PROCESSORS * (_PROCESSOR_SHARED // (max(shared, self.shared) + (1 << 10)))
        return self.blocks + blocks <= min(_MOST_BLOCKS, resident)

    def add(self, call: Any, effects: CallEffects, kernel: Any) -> None:
        blocks, _, shared = LAUNCH.get(kernel)
        self.calls.append(call)
        self.effects.append(effects)
        self.blocks += blocks
        self.shared = max(self.shared, shared)


_VIEW_OPS = {"arith.constant", "memref.view", "memref.get_global", AS_BYTES, *VIEWS}


def _hoistable_views(main: Any) -> list[Any]:
    """The views of arguments, the workspace and constants, which may be before all calls."""
    hoistable: list[Any] = []
    values = set(main.entry_block.arguments)
    for op in main.entry_block.operations:
        op = op.operation
        if op.name in _VIEW_OPS and values.issuperset(op.operands):
            hoistable.append(op)
            values.update(op.results)
    return hoistable


def _find_groups(main: Any, launched: dict[str, Any], fusable: dict[str, Any]) -> list[list[Any]]:
    """The calls of each launch, fused or not, in their order."""
    buffers = MainBuffers(main)
    hoistable = set(_hoistable_views(main))
    items: list[_Item] = []
    for op in main.entry_block.operations:
        op = op.operation
        if op in hoistable:
            continue
        name = op.attributes["callee"].value if op.name == "func.call" else ""
        ins = INS.find(launched[name]) if name in launched else None
        effects = None if ins is None else buffers.effects(op, ins)
        if effects is None or name not in fusable:
            items.append(_Item(op, effects, None))
            continue
        kernel = launched[name]
        target = None
        for item in reversed(items[-_SEARCHED:]):
            if item.depends(effects):
                break
            if item.takes(kernel):
                target = item
        if target is None:
            items.append(_Item(op, effects, kernel))
        else:
            target.add(op, effects, kernel)
    return [item.calls for item in items]


def _hoist_views(main: Any) -> None:
    """Move views of buffers before all calls, which may then change their order."""
    hoistable = set(_hoistable_views(main))
    ops = [op.operation for op in main.entry_block.operations]
    start = next(i for i, op in enumerate(ops) if op not in hoistable)
    for op in ops[start:]:
        if op in hoistable:
            op.move_before(ops[start])


# --- the fused kernel -----------------------------------------------------------------------------


def _argument_order(members: list[Any]) -> list[tuple[int, int]]:
    """The arguments of the fused kernel, as members and their arguments: inputs come first."""
    sections: list[list[tuple[int, int]]] = [[], [], []]
    for number, kernel in enumerate(members):
        view = Kernel(kernel)
        for i in range(len(kernel.entry_block.arguments)):
            section = 0 if i < view.ins else 1 if i < view.ins + view.outs else 2
            sections[section].append((number, i))
    return [argument for section in sections for argument in section]


def _fuse(members: list[Any]) -> Any:
    """A kernel whose launch has the blocks of all members."""
    order = _argument_order(members)
    types = [members[number].entry_block.arguments[i].type for number, i in order]
    numbers = (kernel.name.value.removeprefix("kernel_") for kernel in members)
    main_member = max(members, key=FLOPS.get)
    with ir.InsertionPoint(members[0].operation), main_member.location:
        fused = func.FuncOp(
            f"kernels_{'_'.join(numbers)}", ir.FunctionType.get(types, []), visibility="private"
        )
        block = fused.add_entry_block()
        with ir.InsertionPoint(block):
            returned = func.ReturnOp([])
        _describe(fused, members, order)
        arguments: list[dict[int, Any]] = [{} for _ in members]
        for argument, (number, i) in zip(block.arguments, order, strict=True):
            arguments[number][i] = argument
        with ir.InsertionPoint(returned):
            _emit_launch(fused, members, arguments)
    return fused


def _describe(fused: Any, members: list[Any], order: list[tuple[int, int]]) -> None:
    """The attributes of the fused kernel."""
    views = [Kernel(kernel) for kernel in members]
    launches = [view.launch for view in views]
    KERNEL.set(fused)
    view = Kernel(fused)
    view.work = sum(v.work for v in views)
    view.ins, view.outs = sum(v.ins for v in views), sum(v.outs for v in views)
    view.flops = sum(v.flops for v in views)
    view.core = "matrix" if any(v.core == "matrix" for v in views) else "vector"
    threads, shared = max(t for _, t, _ in launches), max(s for _, _, s in launches)
    view.launch = (sum(blocks for blocks, _, _ in launches), threads, shared)
    DEPENDENT.set(fused, all(map(DEPENDENT.has, members)))
    bounds = [b for k in members if (b := MIN_BLOCKS_PER_SM.find(k)) is not None and b > 1]
    view.min_blocks_per_sm = min(bounds, default=1)
    sliced = {
        at for at, (number, i) in enumerate(order) if i in (SLICED.find(members[number]) or ())
    }
    if sliced:
        SLICED.set(fused, tuple(sorted(sliced)))


def _emit_launch(fused: Any, members: list[Any], arguments: list[dict[int, Any]]) -> None:
    """The launch, at the insertion point: a block runs the member that it belongs to."""
    from nova.ir.gpu_bindings import gpu  # only a compile for a device loads them

    blocks, threads, shared = LAUNCH.get(fused)
    i32 = ir.IntegerType.get_signless(32)
    launch = gpu.LaunchOp(
        (index(blocks), index(1), index(1)),
        (index(threads), index(1), index(1)),
        dynamic_shared_memory_size=arith.ConstantOp(i32, shared).result,
    )
    body = launch.regions[0].blocks[0]
    block_id, thread_id = body.arguments[_BLOCK_ID], body.arguments[_THREAD_ID]
    with ir.InsertionPoint(body):
        end = gpu.TerminatorOp().operation
    first = 0
    for number, kernel in enumerate(members):
        count, member_threads, _ = LAUNCH.get(kernel)
        with ir.InsertionPoint(end):
            inside = end
            if number + 1 < len(members):
                choice = _if(arith.CmpIPredicate.ult, block_id, index(first + count), has_else=True)
                inside = choice.then_block.operations[0].operation
                end = choice.else_block.operations[0].operation
        with ir.InsertionPoint(inside):
            own_block = arith.subi(block_id, index(first)) if first else block_id
            if member_threads < threads:
                choice = _if(arith.CmpIPredicate.ult, thread_id, index(member_threads))
                inside = choice.then_block.operations[0].operation
        limit = member_threads if member_threads < threads else None
        _move_body(kernel, arguments[number], launch.operation, inside, (own_block, thread_id))
        if limit is not None:
            _limit_barriers(inside.block, limit)
        first += count


def _if(predicate: Any, left: Any, right: Any, has_else: bool = False) -> Any:
    """A branch whose blocks are empty."""
    choice = scf.IfOp(arith.cmpi(predicate, left, right), has_else=has_else)
    for block in [choice.then_block, *([choice.else_block] if has_else else [])]:
        with ir.InsertionPoint(block):
            scf.YieldOp([])
    return choice


def _move_body(
    kernel: Any, arguments: dict[int, Any], launch: Any, end: Any, ids: tuple[Any, Any]
) -> None:
    """Move a copy of a kernel's code: what is before its launch, and the body before `end`."""
    copy = kernel.operation.clone(ir.InsertionPoint(kernel.operation))
    entry = copy.regions[0].blocks[0]
    for i, argument in enumerate(entry.arguments):
        argument.replace_all_uses_with(arguments[i])
    *before, own_launch, _ = [op.operation for op in entry.operations]
    for op in before:
        op.move_before(launch)
    body = own_launch.regions[0].blocks[0]
    for number, value in zip((_BLOCK_ID, _THREAD_ID), ids, strict=True):
        body.arguments[number].replace_all_uses_with(value)
    for op in [op.operation for op in body.operations][:-1]:
        op.move_before(end)
    copy.erase()


def _limit_barriers(block: Any, threads: int) -> None:
    """Let the barriers of a member wait for its own threads only."""
    from nova.ir.gpu_bindings import nvvm

    i32 = ir.IntegerType.get_signless(32)
    for op in [inner for top in block.operations for inner in every_op(top)]:
        if op.name == "gpu.barrier":
            with ir.InsertionPoint(op), op.location:
                barrier, count = (arith.ConstantOp(i32, n).result for n in (_TASK_BARRIER, threads))
                nvvm.BarrierOp(barrierId=barrier, numberOfThreads=count)
            op.erase()


# --- main -----------------------------------------------------------------------------------------


def _replace_calls(calls: list[Any], members: list[Any], fused: Any) -> None:
    operands = [calls[number].operands[i] for number, i in _argument_order(members)]
    with ir.InsertionPoint(calls[0]), calls[0].location:
        func.CallOp([], ir.FlatSymbolRefAttr.get(fused.name.value), operands)
    for call in calls:
        call.erase()


def _erase_uncalled(module: ir.Module, fusable: dict[str, Any]) -> None:
    calls = [op for f in host_functions(module) for op in find_ops(f, "func.call")]
    called = {op.attributes["callee"].value for op in calls}
    for name, kernel in fusable.items():
        if name not in called:
            kernel.operation.erase()
