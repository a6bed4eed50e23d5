"""Reads `main`: the launch table, buffer table and constants of a lowered module.

In: a module at the `loops` stage, where main is a list of calls on arguments, outputs, views of the
workspace and constants. Out: `Tables`, which the file stores and the runtime runs, and the bytes of
the constants. Called by the compile driver, once for each variant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from nova.artifact.symbolic import Placeholders, SymbolicSizes
from nova.artifact.tables import ALIGN, BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.tilings import OperandRange, Tiling
from nova.codegen.common.footprint import Footprint, load_footprint
from nova.codegen.cpu.symbolic_kernel import symbolic_footprint, symbolic_numbers
from nova.core.records import record
from nova.core.sizes import SizeExpr
from nova.errors import LoweringError
from nova.ir.attributes import SIZE_VALUES, UNPACKED, WRITES
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_root, element_bytes, nbytes
from nova.ir.kernel import Kernel, Main
from nova.ir.linalg.generic import shape_of
from nova.ir.resources import resource_digest
from nova.ir.symbolic.size_table import SizeTable, active_table
from nova.ir.symbolic.size_values import SIZES_BUFFER
from nova.ir.types import dense_bytes
from nova.ir.walk import find_function
from nova.ir.walk import kernels as kernel_functions
from nova.passes.cpu.allocate_scratch import scratch_size
from nova.passes.kernels.plan_tasks import moved_bytes, read_task_ns

_INDEX_BYTES = 8

# The ops allowed in main: calls, their operands, and the terminator.
_HOST_OPS = VIEWS | {
    "arith.constant",
    "func.call",
    "func.return",
    "memref.get_global",
    "memref.view",
    "scf.yield",
}


@record
class Program:
    """The tables of a module, its constants, and its sizes if the tables have placeholders."""

    tables: Tables
    constants: bytes
    sizes: SymbolicSizes | None


def read_tables(module: ir.Module) -> Program:
    """The tables and the constants of a module at the `loops` stage."""
    try:
        return _read(module)
    except KeyError:  # earlier stages set this attribute; the text is not from Nova
        raise LoweringError("the module is not of the stage loops") from None


def read_unpacked(module: ir.Module) -> bytes:
    """The values of constants that the program has only as packed copies (`pack-constants`).

    The texts of earlier stages have them in hexadecimal, and the file keeps them as bytes.
    """
    data = bytearray()
    for op in module.body.operations:
        if op.operation.name == "memref.global" and UNPACKED.has(op):
            data += bytes(-len(data) % ALIGN)
            data += dense_bytes(op.operation.attributes["initial_value"])
    return bytes(data)


def read_sizes(module: ir.Module, placeholders: Placeholders) -> SymbolicSizes:
    """The symbolic sizes of a program, whose tables were read with `placeholders`."""
    main = find_function(module, "main")
    table = active_table()
    assert main is not None and table is not None
    arguments = list(main.entry_block.arguments)[:-1]  # without the workspace
    numbers = {n: table.size(n) for argument in arguments for n in argument.type.shape}
    shapes = {n: placeholders.number(s) for n, s in numbers.items() if isinstance(s, SizeExpr)}
    return SymbolicSizes(
        table.dims,
        table.representatives,
        len(SIZE_VALUES.get(main)),
        placeholders.expressions,
        shapes,
    )


def _read(module: ir.Module) -> Program:
    main = find_function(module, "main")
    table = SizeTable.of(main) if main is not None else None
    if table is None:
        return _read_with(module, None)
    with table.active():
        return _read_with(module, Placeholders(SIZE_VALUES.get(main)))


def _read_with(module: ir.Module, sizes: Placeholders | None) -> Program:
    reader = HostReader(module, sizes)
    kernels = {f.name.value: f for f in kernel_functions(module)}
    order = {name: i for i, name in enumerate(kernels)}
    reads = [_count_reads(f) for f in kernels.values()]
    launches = []
    for op in reader.calls():
        ids = tuple(reader.buffer(b) for b in list(op.operation.operands)[:-2])
        number = order[op.callee.value]
        launches.append(LaunchSpec(number, ids, reads[number]))
    functions = list(kernels.values())
    if sizes is None:
        specs = [_kernel_spec(f) for f in functions]
        work = sum(specs[launch.kernel].flops for launch in launches)
    else:
        specs = [_symbolic_spec(f, sizes) for f in functions]
        totals = [symbolic_numbers(functions[launch.kernel], "work")[0] for launch in launches]
        work = sizes.of(sum(totals))
    tables = Tables(
        buffers=tuple(reader.buffers),
        kernels=tuple(specs),
        launches=tuple(launches),
        workspace_size=reader.workspace_size,
        work=work,
        scratch_size=max(map(scratch_size, functions), default=0),
    )
    symbolic = None if sizes is None else read_sizes(module, sizes)
    return Program(tables, bytes(reader.constants), symbolic)


class HostReader:
    """Reads `main`: its calls, and their buffers and constants."""

    def __init__(self, module: ir.Module, sizes: Placeholders | None = None):
        self.module = module
        self.sizes = sizes
        main = find_function(module, "main")
        if main is None:
            raise LoweringError("the module has no function @main")
        self.main = main
        self.buffers: dict[BufferSpec, int] = {}
        self.constants = bytearray()
        self.constant_at: dict[str, int] = {}
        self.large_at: dict[str, int] = {}
        outputs = Main(main).outputs
        arguments = list(main.entry_block.arguments)
        inputs = len(arguments) - outputs - 1
        self.root_buffers = {
            a: ("arg", i) if i < inputs else ("output", i - inputs)
            for i, a in enumerate(arguments[:-1])
        }
        # A byte view of all of it folds to the workspace itself.
        self.root_buffers[arguments[-1]] = "workspace", 0
        self.workspace_size = Main(main).workspace

    def calls(self, block: Any = None, loops: bool = False) -> Iterator[Any]:
        """The kernel calls in main or one of its blocks, in order; with `loops`, also the loops."""
        for op in (block or self.main.entry_block).operations:
            if loops and op.operation.name == "scf.while":
                yield op
            elif op.operation.name not in _HOST_OPS:
                raise LoweringError(
                    f"main contains {op.operation.name}, which is not a kernel call",
                    where=str(op.location),
                )
            if op.operation.name == "func.call":
                yield op

    def buffer(self, value: Any) -> int:
        """The index of the buffer of a value in main."""
        return self.buffers.setdefault(self.spec(value), len(self.buffers))

    def spec(self, value: Any) -> BufferSpec:
        """The buffer of a value in main."""
        root = buffer_root(value)
        size = nbytes(root.type)
        if self.sizes is not None:
            size = self.sizes.of(prod(shape_of(root)) * element_bytes(root.type))
        if root in self.root_buffers:
            space, index = self.root_buffers[root]
            return BufferSpec(space, index, size)
        op = root.owner.operation
        if op.name == "memref.view":
            return BufferSpec("workspace", _constant_index(op.operands[1]), size)
        is_global = op.name == "memref.get_global"
        if is_global and self.sizes and op.attributes["name"].value == SIZES_BUFFER:
            return BufferSpec("sizes", 0, _INDEX_BYTES * len(SIZE_VALUES.get(self.main)))
        if is_global:
            return BufferSpec("constant", self._constant(op.attributes["name"].value), size)
        raise LoweringError(f"main passes the result of {op.name} to a kernel")

    def _constant(self, name: str) -> int:
        if name not in self.constant_at:
            for op in self.module.body.operations:
                if op.operation.name == "memref.global" and op.sym_name.value == name:
                    self.constant_at[name] = self._keep(op.operation.attributes["initial_value"])
        return self.constant_at[name]

    def _keep(self, values: Any) -> int:
        """The offset of the values of a constant; equal large constants are stored once."""
        digest = resource_digest(values)
        if digest is not None and digest in self.large_at:
            return self.large_at[digest]
        self.constants += bytes(-len(self.constants) % ALIGN)
        start = len(self.constants)
        self.constants += dense_bytes(values) or b"\0"  # an empty constant also has an address
        if digest is not None:
            self.large_at[digest] = start
        return start


def _count_reads(function: Any) -> int:
    """The number of arguments before the first one that the kernel writes."""
    return next((i for i, ranges in enumerate(WRITES.find(function) or ()) if ranges), 0)


def _kernel_spec(function: Any) -> KernelSpec:
    kernel = Kernel(function)
    return KernelSpec(
        name=kernel.name,
        symbol=kernel.name,
        grid=kernel.tiles,
        core=kernel.core,
        flops=kernel.work,
        bytes=moved_bytes(function),
        location=location_text(function.location),
        takes_scratch=scratch_size(function) > 0,
        tiling=_tiling(function, load_footprint(function)),
    )


def _symbolic_spec(function: Any, sizes: Placeholders) -> KernelSpec:
    """The kernel with placeholders for its tiles and costs, and for the numbers of its tiling."""
    names = ("tiles", "work", "bytes")
    numbers = [symbolic_numbers(function, name)[0] for name in names]
    tiles, work, moved = map(sizes.of, numbers)
    tiling = _tiling(function, symbolic_footprint(function))
    ranges = tuple(
        replace(
            r, low=sizes.of(r.low), high=sizes.of(r.high), strides=tuple(map(sizes.of, r.strides))
        )
        for r in tiling.ranges
    )
    tiling = replace(tiling, grid=tuple(map(sizes.of, tiling.grid)), ranges=ranges)
    return replace(_kernel_spec(function), grid=tiles, flops=work, bytes=moved, tiling=tiling)


def _tiling(function: Any, footprint: Footprint) -> Tiling:
    """The footprint of a kernel, as the runtime reads it to cut tasks."""
    ranges = tuple(
        OperandRange(number, writes, r.low, r.high, r.strides)
        for writes, arguments in ((False, footprint.reads), (True, footprint.writes))
        for number, byte_ranges in enumerate(arguments)
        for r in byte_ranges
    )
    return Tiling(footprint.grid, footprint.tile, ranges, read_task_ns(function))


def location_text(location: Any) -> str:
    text = str(location)
    return text.removeprefix("loc(").removesuffix(")").replace('"', "")


def _constant_index(value: Any) -> int:
    return int(value.owner.operation.attributes["value"].value)
