"""Hand-written device programs: `gpu.launch`, or `gpu.module` and `gpu.launch_func`, on memrefs.

In: a parsed module whose function `entry` launches kernels on buffers. Out: the same program at the
stage `outlined`: one function for each launch, a `main` that calls them in order, temporary buffers
in a workspace; and its signature. Arguments that kernels write become params, which are updated in
place, and stand behind the inputs; buffers that the function allocates and returns are results.
Called by `nova.frontends.program`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import ALIGN
from nova.codegen.signature import ProgramSignature
from nova.errors import ImportedProgramError, UnsupportedOpError
from nova.frontends.checks import all_ops, place
from nova.frontends.device_functions import check_device_functions, make_unique, written_arguments
from nova.frontends.entry import argument_name, find_entry
from nova.mlir.bindings import arith, func, ir, memref
from nova.mlir.buffers import VIEWS, buffer_root, nbytes
from nova.mlir.launches import Launch, read_launch
from nova.mlir.types import nova_type
from nova.passes.base import UpstreamPass, run_pipeline
from nova.passes.pipelines import device_to_outlined

_ALLOCATIONS = ("memref.alloc", "memref.alloca", "gpu.alloc")
_IGNORED = ("memref.dealloc", "gpu.dealloc", "gpu.wait", "func.return", "arith.constant")
_KNOWN = VIEWS | {*_ALLOCATIONS, *_IGNORED, "memref.get_global", "gpu.launch_func"}


def has_launches(module: ir.Module) -> bool:
    """Whether a program launches kernels itself."""
    return any(op.name in ("gpu.launch", "gpu.launch_func") for op in all_ops(module))


def import_launches(
    module: ir.Module, entry: str, filename: str, params: Collection[str] = ()
) -> ProgramSignature:
    """Bring a module to the stage `outlined`, in place."""
    main = find_entry(module, entry, filename)
    for function in module.body.operations:
        if isinstance(function, func.FuncOp):
            kind = "public" if function == main else "private"
            function.attributes["sym_visibility"] = ir.StringAttr.get(kind, module.context)
    # Sizes that are computed from constants are constants afterwards.
    before = [UpstreamPass("inline,symbol-dce,canonicalize,cse")]
    run_pipeline(module, [*before, *device_to_outlined()])
    main = find_entry(module, entry, filename)
    with module.context, ir.Location.unknown():
        check_device_functions(module, filename)
        make_unique(module)
        host = _read_host(main, filename)
        return _Rewrite(module, main, host, filename).run(params)


@dataclass(frozen=True)
class _Host:
    """What a function does: buffers that it makes, launches in order, and what it returns."""

    allocated: list[Any]
    launches: list[Launch]
    returned: list[Any]


def _read_host(main: Any, filename: str) -> _Host:
    operations = [op.operation for op in main.entry_block.operations]
    for op in operations:
        if op.name not in _KNOWN:
            raise UnsupportedOpError(
                f"{op.name} between launches: the host only launches kernels",
                where=place(op, filename),
                hint="move it into a kernel, or into the program that calls this one",
            )
        for value in op.results:
            if isinstance(value.type, ir.MemRefType):
                _check_buffer(value, op.name, place(op, filename))
    for argument in main.entry_block.arguments:
        _check_buffer(argument, "an argument", place(argument, filename))
    allocated = [op.results[0] for op in operations if op.name in _ALLOCATIONS]
    returned = [buffer_root(value) for value in operations[-1].operands]
    for value in returned:
        if value not in allocated or returned.count(value) > 1:
            raise ImportedProgramError(
                "a result that is not a buffer of its own, which the function allocates",
                where=place(operations[-1], filename),
                hint="an argument that kernels write is updated in place and need not be returned",
            )
    launches = [read_launch(op) for op in operations if op.name == "gpu.launch_func"]
    return _Host(allocated, launches, returned)


def _check_buffer(value: Any, what: str, where: str) -> None:
    kind = value.type
    if not isinstance(kind, ir.MemRefType):
        raise ImportedProgramError(
            f"{what} has the type {kind}: launches work on memrefs",
            where=where,
            hint="a program on tensors has no launches: Nova makes them",
        )
    if not kind.has_static_shape or not kind.layout == _identity(kind) or kind.memory_space:
        raise ImportedProgramError(
            f"{what} has the type {kind}: a static shape, rows behind each other and the default "
            "memory space are expected",
            where=where,
        )


def _identity(kind: ir.MemRefType) -> Any:
    return ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))


class _Rewrite:
    """Writes the new `main`, and a function for each launch."""

    def __init__(self, module: ir.Module, main: Any, host: _Host, filename: str):
        self.module = module
        self.main = main
        self.host = host
        self.filename = filename
        self.arguments = list(main.entry_block.arguments)

    def run(self, params: Collection[str]) -> ProgramSignature:
        written = self._written()
        names = self._names()
        late = [a in written or names[i] in params for i, a in enumerate(self.arguments)]
        order = sorted(range(len(late)), key=lambda i: late[i])
        inputs = late.count(False)
        args = []
        for position, i in enumerate(order):
            kind = nova_type(self.arguments[i].type)
            role = "input" if position < inputs else "param"
            donated = self.arguments[i] in written
            args.append(TensorSpec(names[i], kind.shape, kind.dtype.name, role, donated=donated))
        outputs = []
        for number, value in enumerate(self.host.returned):
            kind = nova_type(value.type)
            outputs.append(TensorSpec(f"y{number}", kind.shape, kind.dtype.name, "output"))
        self._write(order, args, inputs)
        return ProgramSignature(tuple(args), tuple(outputs))

    def _written(self) -> set[Any]:
        found: set[Any] = set()
        for launch in self.host.launches:
            for number in written_arguments(self.module, launch):
                found.add(buffer_root(launch.operands[number]))
        return found

    def _names(self) -> list[str]:
        taken: set[str] = set()
        return [argument_name(self.main, i, taken) for i in range(len(self.arguments))]

    def _write(self, order: list[int], args: list[TensorSpec], inputs: int) -> None:
        """The new main takes the place of the function; launches move to functions of their own."""
        offsets, size = _place_buffers(self.host)
        kinds = [self.arguments[i].type for i in order]
        kinds += [value.type for value in self.host.returned]
        byte = ir.IntegerType.get_signless(8)
        kinds.append(ir.MemRefType.get([size], byte))
        with ir.InsertionPoint(self.main), self.main.location:
            new = func.FuncOp("nova_main", ir.FunctionType.get(kinds, []))
            block = new.add_entry_block()
        mapping = {self.arguments[i]: block.arguments[k] for k, i in enumerate(order)}
        mapping |= dict(zip(self.host.returned, list(block.arguments)[len(order) :], strict=False))
        with ir.InsertionPoint(block), ir.Location.unknown():
            for value, offset in offsets.items():
                at = arith.ConstantOp(ir.IndexType.get(), offset)
                mapping[value] = memref.ViewOp(value.type, block.arguments[-1], at, []).result
        for number, launch in enumerate(self.host.launches):
            function = self._launcher(launch, number)
            with ir.InsertionPoint(block), launch.op.location:
                func.CallOp(function, [self._operand(v, mapping) for v in launch.operands])
        with ir.InsertionPoint(block), self.main.location:
            func.ReturnOp([])
        self.main.operation.erase()
        ir.SymbolTable.set_symbol_name(new.operation, "main")
        named = [ir.DictAttr.get({"nova.name": ir.StringAttr.get(a.name)}) for a in args]
        new.arg_attrs = [*named, *[ir.DictAttr.get({})] * (len(kinds) - len(named))]
        i64 = ir.IntegerType.get_signless(64)
        numbers = {"inputs": inputs, "outputs": len(self.host.returned), "workspace": size}
        for name, number in numbers.items():
            new.attributes[f"nova.{name}"] = ir.IntegerAttr.get(i64, number)
        updated = [i for i, spec in enumerate(args) if spec.donated]
        if updated:
            new.attributes["nova.updates"] = ir.DenseI64ArrayAttr.get(updated)

    def _operand(self, value: Any, mapping: dict[Any, Any]) -> Any:
        """An operand in the new main; views and constants are made there."""
        if value not in mapping:
            op = value.owner.operation
            inner = [self._operand(v, mapping) for v in op.operands]
            copy = op.clone()
            for i, new in enumerate(inner):
                copy.operands[i] = new
            mapping[value] = copy.results[0]
        return mapping[value]

    def _launcher(self, launch: Launch, number: int) -> Any:
        """The function that holds one launch, called with the buffers of the kernel."""
        kinds = [value.type for value in launch.operands]
        for kind in kinds:
            if not isinstance(kind, ir.MemRefType):
                raise UnsupportedOpError(
                    f"@{launch.symbols[1]} is given a {kind}: kernels are given buffers",
                    where=place(launch.op, self.filename),
                    hint="write the number as a constant in the kernel",
                )
        with ir.InsertionPoint(self.main), launch.op.location:
            function = func.FuncOp(
                f"launch_{number}", ir.FunctionType.get(kinds, []), visibility="private"
            )
            block = function.add_entry_block()
        with ir.InsertionPoint(block), launch.op.location:
            copy = launch.op.clone()
            for i, value in enumerate(launch.op.operands):
                own = i - launch.first_operand
                if own >= 0:
                    copy.operands[i] = block.arguments[own]
                else:
                    with ir.InsertionPoint(copy):
                        copy.operands[i] = value.owner.operation.clone().results[0]
            func.ReturnOp([])
        i64 = ir.IntegerType.get_signless(64)
        work = prod(launch.grid) * prod(launch.block)
        function.attributes["nova.kernel"] = ir.UnitAttr.get()
        function.attributes["nova.work"] = ir.IntegerAttr.get(i64, work)
        return function


def _place_buffers(host: _Host) -> tuple[dict[Any, int], int]:
    """Where the buffers that are not returned lie in the workspace, and its size."""
    offsets: dict[Any, int] = {}
    size = 0
    for value in host.allocated:
        if value not in host.returned:
            offsets[value] = size
            size += -(-nbytes(value.type) // ALIGN) * ALIGN
    return offsets, size
