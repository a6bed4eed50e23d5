"""Hand-written device programs: `gpu.launch`, or `gpu.module` and `gpu.launch_func`, on memrefs.

In: a parsed module whose function `entry` launches kernels on buffers. Out: the same program at the
stage `outlined`: a function for each kind of launch, a `main` that calls them in order, temporary
buffers in a workspace; and its signature. Other host code becomes launches as well
(`nova.frontends.host_code`). Arguments that kernels write become params, which are updated in
place, and come after the inputs; buffers that the function allocates and returns are results, and
so are returned scalars. Called by `nova.frontends.import_mlir`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod
from typing import Any

from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import ALIGN
from nova.compiler.signature import ProgramSignature
from nova.errors import DTypeError, ImportedProgramError
from nova.frontends.checks import all_ops, place
from nova.frontends.device_functions import check_device_functions, make_unique, written_arguments
from nova.frontends.entry import argument_names, find_entry
from nova.frontends.host_code import ALLOCATIONS, Host, HostLaunch, Lifetime, Loop, Step, read_host
from nova.frontends.host_kernels import HostKernels
from nova.frontends.host_loops import unroll_loops
from nova.frontends.host_numbers import Constant, Number, buffer_of, is_number
from nova.ir.attributes import name_dictionaries
from nova.ir.bindings import func, ir, memref, scf
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.context import load_device_dialects
from nova.ir.index import index
from nova.ir.kernel import Kernel, Main
from nova.ir.launches import make_launch
from nova.ir.types import nova_type
from nova.ir.walk import every_op
from nova.passes.base import UpstreamPass, run_pipeline
from nova.passes.pipelines import device_to_outlined


def has_launches(module: ir.Module) -> bool:
    """Whether a program launches kernels itself."""
    return any(op.name in ("gpu.launch", "gpu.launch_func") for op in all_ops(module))


def import_launches(
    module: ir.Module, entry: str, filename: str, params: Collection[str] = ()
) -> ProgramSignature:
    """Lower a module to the stage `outlined`, in place."""
    main = find_entry(module, entry, filename)
    for function in module.body.operations:
        if isinstance(function, func.FuncOp):
            kind = "public" if function == main else "private"
            function.attributes["sym_visibility"] = ir.StringAttr.get(kind, module.context)
    # Sizes that are computed from constants are constants afterwards.
    before = [UpstreamPass("inline,symbol-dce,func.func(lower-affine),canonicalize,cse")]
    run_pipeline(module, [*before, *device_to_outlined()])
    unroll_loops(module, entry, filename)
    main = find_entry(module, entry, filename)
    load_device_dialects(module.context)
    with module.context, ir.Location.unknown():
        check_device_functions(module, filename)
        make_unique(module)
        _check_buffers(main, filename)
        host = read_host(main, HostKernels(module, filename), filename)
        _check_results(main, host, filename)
        return _Rewrite(module, main, host).run(params)


def _check_buffers(main: Any, filename: str) -> None:
    """Refuse memory that a launch table cannot represent."""
    for op in every_op(main)[:-1]:
        for value in op.results:
            if isinstance(value.type, ir.MemRefType):
                _check_buffer(value, op.name, place(op, filename))
    for argument in main.entry_block.arguments:
        where = place(argument, filename)
        if not is_number(argument):
            _check_buffer(argument, "an argument", where)
        try:
            nova_type(_kind_of(argument))
        except DTypeError as error:
            raise ImportedProgramError(
                f"an argument has the type {argument.type}: {error.what}",
                where=where,
                hint=error.hint,
            ) from None


def _kind_of(value: Any) -> Any:
    """The type of a value in memory."""
    if isinstance(value, Number | Constant) or isinstance(value.type, ir.MemRefType):
        return value.type
    return buffer_of(value.type)


def _check_results(main: Any, host: Host, filename: str) -> None:
    operations = main.entry_block.operations
    roots = [value if isinstance(value, Number) else buffer_root(value) for value in host.returned]
    for value in roots:
        is_own = isinstance(value, Number) or (
            isinstance(value, ir.OpResult) and value.owner.operation.name in ALLOCATIONS
        )
        if not is_own or len(set(roots)) < len(roots):
            raise ImportedProgramError(
                "a result that is not a buffer of its own, which the function allocates",
                where=place(operations[len(operations) - 1].operation, filename),
                hint="an argument that kernels write is updated in place and need not be returned",
            )
    host.returned[:] = roots


def _check_buffer(value: Any, what: str, where: str) -> None:
    kind = value.type
    if not isinstance(kind, ir.MemRefType):
        raise ImportedProgramError(
            f"{what} has the type {kind}: launches work on memrefs and numbers",
            where=where,
            hint="a program on tensors has no launches: Nova makes them",
        )
    if not kind.has_static_shape or not kind.layout == _identity(kind) or kind.memory_space:
        raise ImportedProgramError(
            f"{what} has the type {kind}: a static shape, rows one after the other and the default "
            "memory space are expected",
            where=where,
        )


def _identity(kind: ir.MemRefType) -> Any:
    return ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))


class _Rewrite:
    """Writes the new `main`, and a function for each kind of launch."""

    def __init__(self, module: ir.Module, main: Any, host: Host):
        self.module = module
        self.main = main
        self.host = host
        self.arguments = list(main.entry_block.arguments)
        self.launchers: dict[Any, Any] = {}
        self.constants: dict[str, str] = {}

    def run(self, params: Collection[str]) -> ProgramSignature:
        written = self._written()
        names = self._names()
        late = [a in written or names[i] in params for i, a in enumerate(self.arguments)]
        order = sorted(range(len(late)), key=lambda i: late[i])
        inputs = late.count(False)
        args = []
        for position, i in enumerate(order):
            kind = nova_type(_kind_of(self.arguments[i]))
            role = "input" if position < inputs else "param"
            donated = self.arguments[i] in written
            args.append(TensorSpec(names[i], kind.shape, kind.dtype.name, role, donated=donated))
        outputs = []
        for number, value in enumerate(self.host.returned):
            kind = nova_type(_kind_of(value))
            outputs.append(TensorSpec(f"y{number}", kind.shape, kind.dtype.name, "output"))
        self._write(order, args, inputs)
        return ProgramSignature(tuple(args), tuple(outputs))

    def _written(self) -> set[Any]:
        found: set[Any] = set()
        known: dict[tuple[str, str], list[int]] = {}
        for launch in _every(self.host.steps, HostLaunch):
            if launch.symbols not in known:
                known[launch.symbols] = written_arguments(self.module, launch.symbols)
            for number in known[launch.symbols]:
                operand = launch.operands[number]
                if not isinstance(operand, Number | Constant):
                    found.add(buffer_root(operand))
        return found

    def _names(self) -> list[str]:
        return argument_names(self.main)

    def _write(self, order: list[int], args: list[TensorSpec], inputs: int) -> None:
        """Replace the function by the new main; launches move to separate functions."""
        offsets, size = _place_buffers(self.host)
        kinds = [_kind_of(self.arguments[i]) for i in order]
        kinds += [_kind_of(value) for value in self.host.returned]
        byte = ir.IntegerType.get_signless(8)
        kinds.append(ir.MemRefType.get([size], byte))
        with ir.InsertionPoint(self.main), self.main.location:
            new = func.FuncOp("nova_main", ir.FunctionType.get(kinds, []))
            block = new.add_entry_block()
        mapping = {self.arguments[i]: block.arguments[k] for k, i in enumerate(order)}
        mapping |= dict(zip(self.host.returned, list(block.arguments)[len(order) :], strict=False))
        with ir.InsertionPoint(block), ir.Location.unknown():
            for value, offset in offsets.items():
                at = index(offset)
                mapping[value] = memref.ViewOp(value.type, block.arguments[-1], at, []).result
        with ir.InsertionPoint(block), self.main.location:
            returned = func.ReturnOp([])
        self._write_steps(self.host.steps, returned.operation, returned.operation, mapping)
        self.main.operation.erase()
        ir.SymbolTable.set_symbol_name(new.operation, "main")
        named = name_dictionaries([a.name for a in args])
        new.arg_attrs = [*named, *[ir.DictAttr.get({})] * (len(kinds) - len(named))]
        main = Main(new)
        main.inputs, main.outputs, main.workspace = inputs, len(self.host.returned), size
        updated = tuple(i for i, spec in enumerate(args) if spec.donated)
        if updated:
            main.updates = updated

    def _write_steps(
        self, steps: Sequence[Step], before: Any, top: Any, mapping: dict[Any, Any]
    ) -> None:
        """Calls before an op; their operands are created before `top`, outside of all loops."""
        for step in steps:
            if isinstance(step, Loop):
                with ir.InsertionPoint(before), step.location:
                    loop, last = _make_loop(mapping[step.condition])
                self._write_steps(step.steps, last, loop if before == top else top, mapping)
            elif isinstance(step, HostLaunch):
                with ir.InsertionPoint(top), step.location:
                    operands = [self._operand(v, mapping) for v in step.operands]
                with ir.InsertionPoint(before), step.location:
                    func.CallOp(self._launcher(step, [v.type for v in operands]), operands)

    def _operand(self, value: Any, mapping: dict[Any, Any]) -> Any:
        """An operand in the new main; views and constants are created there."""
        if value not in mapping:
            if isinstance(value, Constant):
                mapping[value] = self._constant(value)
                return mapping[value]
            op = value.owner.operation
            inner = [self._operand(v, mapping) for v in op.operands]
            copy = op.clone()
            for i, new in enumerate(inner):
                copy.operands[i] = new
            mapping[value] = copy.results[0]
        return mapping[value]

    def _constant(self, constant: Constant) -> Any:
        """The buffer of a known scalar, which the file stores."""
        kind, key = constant.type, str(constant.value)
        if key not in self.constants:
            self.constants[key] = self._free_name("number")
            value = ir.RankedTensorType.get([], kind.element_type)
            with ir.InsertionPoint(self.main):
                memref.GlobalOp(
                    ir.StringAttr.get(self.constants[key]),
                    ir.TypeAttr.get(kind),
                    sym_visibility="private",
                    initial_value=ir.DenseElementsAttr.get_splat(value, constant.value),
                    constant=True,
                )
        return memref.GetGlobalOp(kind, self.constants[key]).result

    def _free_name(self, stem: str) -> str:
        taken = {
            op.operation.attributes["sym_name"].value
            for op in self.module.body.operations
            if "sym_name" in op.operation.attributes
        }
        number = 0
        while f"{stem}_{number}" in taken:
            number += 1
        return f"{stem}_{number}"

    def _launcher(self, launch: HostLaunch, kinds: list[Any]) -> Any:
        """The function with a launch, called with the buffers of the kernel."""
        key = (launch.symbols, launch.grid, launch.block, launch.shared, *map(str, kinds))
        if key in self.launchers:
            return self.launchers[key]
        with ir.InsertionPoint(self.main):
            function = func.FuncOp(
                self._free_name("launch"), ir.FunctionType.get(kinds, []), visibility="private"
            )
            block = function.add_entry_block()
        with ir.InsertionPoint(block):
            arguments = list(block.arguments)
            make_launch(launch.symbols, launch.grid, launch.block, launch.shared, arguments)
            func.ReturnOp([])
        Kernel.mark(function, work=prod(launch.grid) * prod(launch.block))
        self.launchers[key] = function
        return function


def _place_buffers(host: Host) -> tuple[dict[Any, int], int]:
    """The workspace offsets of buffers that are not returned, and the workspace size.

    Launches run one after the other, so a buffer may reuse the memory of a dead one. A scalar may
    not: it is live from one iteration of a loop to the next.
    """
    returned = set(host.returned)
    offsets: dict[Any, int] = {}
    free: dict[int, list[int]] = {}
    size = 0

    def place_one(value: Any) -> None:
        nonlocal size
        room = -(-nbytes(value.type) // ALIGN) * ALIGN
        if free.get(room) and not isinstance(value, Number):
            offsets[value] = free[room].pop()
        else:
            offsets[value] = size
            size += room

    for step in _every(host.steps, HostLaunch, Lifetime):
        if isinstance(step, Lifetime):
            root = buffer_root(step.buffer)
            if step.begins and root not in returned:
                place_one(root)
            elif not step.begins and root in offsets:
                free.setdefault(-(-nbytes(root.type) // ALIGN) * ALIGN, []).append(offsets[root])
        else:
            for operand in step.operands:
                if isinstance(operand, Number) and operand not in offsets.keys() | returned:
                    place_one(operand)
    return offsets, size


def _every(steps: Sequence[Step], *kinds: type) -> Iterator[Any]:
    """The steps of some kinds, also in loops, in order."""
    for step in steps:
        if isinstance(step, kinds):
            yield step
        if isinstance(step, Loop):
            yield from _every(step.steps, *kinds)


def _make_loop(condition: Any) -> tuple[Any, Any]:
    """A loop as in the tables, and the op at the end of its body."""
    loop = ir.Operation.create("scf.while", [], [], regions=2)
    test, body = (region.blocks.append() for region in loop.regions)
    with ir.InsertionPoint(test):
        scf.ConditionOp(memref.LoadOp(condition, []).result, [])
    with ir.InsertionPoint(body):
        last = scf.YieldOp([])
    return loop, last.operation
