"""Reads `main`: the launch table, buffer table and constants of a lowered module.

In: a module at the `loops` stage, where main is a list of calls on arguments, outputs, views of the
workspace and constants. Out: `Tables`, which the file stores and the runtime runs, and the bytes of
the constants. Called by the compile driver, once for each variant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nova.artifact.container import ControlSpec
from nova.artifact.symbolic import Placeholders, SymbolicSizes
from nova.artifact.tables import ALIGN, BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.tilings import OperandRange, Tiling
from nova.codegen.common.footprint import Footprint, load_footprint
from nova.codegen.cpu.symbolic_kernel import symbolic_footprint
from nova.compiler.symbolic_tables import (
    host_work,
    read_sizes,
    sizes_buffer,
    symbolic_bytes,
    symbolic_control,
    symbolic_spec,
)
from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attributes import MERGES_TILES, SIZE_VALUES, TILES, UNPACKED, WRITES
from nova.ir.bindings import ir
from nova.ir.buffers import AS_BYTES, VIEWS, buffer_of_bytes, buffer_root, nbytes
from nova.ir.control_flow.functions import Control, control_functions, host_functions, is_control
from nova.ir.kernel import Kernel, Main
from nova.ir.resources import resource_digest
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.types import dense_bytes
from nova.ir.walk import find_function
from nova.ir.walk import kernels as kernel_functions
from nova.passes.cpu.allocate_scratch import scratch_size
from nova.passes.kernels.plan_tasks import moved_bytes, read_task_ns

_ANOTHER_STAGE = "the module is not of the stage loops"
# The ops allowed in main: calls, their operands, and the terminator.
_HOST_OPS = VIEWS | {
    "arith.constant",
    "func.call",
    "func.return",
    "memref.get_global",
    "memref.view",
    "scf.yield",
    AS_BYTES,
}


@record
class Program:
    """The tables of a module, its constants, and its sizes if the tables have placeholders."""

    tables: Tables
    constants: bytes
    sizes: SymbolicSizes | None = None


def read_tables(module: ir.Module) -> Program:
    """The tables and the constants of a module at the `loops` stage."""
    try:
        return _read(module)
    except KeyError:  # earlier stages set this attribute; the text is not from Nova
        raise LoweringError(_ANOTHER_STAGE) from None


def require_loops(module: ir.Module) -> None:
    """LoweringError if kernels of a text are not lowered to loops: the next passes rely on it."""
    if not all(TILES.has(kernel) for kernel in kernel_functions(module)):
        raise LoweringError(_ANOTHER_STAGE)


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


def _read(module: ir.Module) -> Program:
    main = find_function(module, "main")
    table = None if main is None else SizeTable.of(main)
    if main is None or table is None:
        return _read_program(module, None)
    sizes = Placeholders(SIZE_VALUES.get(main))
    with table.active():
        program = _read_program(module, sizes)
        return replace(program, sizes=read_sizes(main, sizes))


def _read_program(module: ir.Module, sizes: Placeholders | None) -> Program:
    constants = Constants(module)
    hosts = list(host_functions(module))
    numbers = {f.name.value: i for i, f in enumerate(hosts)}
    called = {f.name.value: f for f in [*kernel_functions(module), *control_functions(module)]}
    blocks = [_read_host(module, f, called, numbers, constants, sizes) for f in hosts]
    # A region may run on the thread, and in the scratch memory, of the program that contains it.
    scratch = max(block.scratch_size for block in blocks)
    *regions, tables = (replace(block, scratch_size=scratch) for block in blocks)
    return Program(replace(tables, regions=tuple(regions)), bytes(constants.data))


def _read_host(
    module: ir.Module,
    host: Any,
    called: Mapping[str, Any],
    numbers: Mapping[str, int],
    constants: Constants,
    sizes: Placeholders | None,
) -> Tables:
    """The tables of `main`, or of a region function."""
    reader = HostReader(module, host, constants, sizes)
    calls = list(reader.calls())
    names = {op.callee.value for op in calls}
    kernels = {name: f for name, f in called.items() if name in names}
    order = {name: i for i, name in enumerate(kernels)}
    reads = [_count_reads(f) for f in kernels.values()]
    launches = []
    for op in calls:
        number = order[op.callee.value]
        launches.append(LaunchSpec(number, reader.operands(op), reads[number]))
    specs = [
        control_spec(f, numbers, sizes) if is_control(f) else _kernel_spec(f, sizes)
        for f in kernels.values()
    ]
    code = [f for f in kernels.values() if not is_control(f)]
    return Tables(
        buffers=tuple(reader.buffers),
        kernels=tuple(specs),
        launches=tuple(launches),
        workspace_size=reader.workspace_size,
        work=_total_work(host, specs, launches, sizes),
        scratch_size=max(map(scratch_size, code), default=0),
    )


def _total_work(
    host: Any, specs: list[KernelSpec], launches: list[LaunchSpec], sizes: Placeholders | None
) -> int:
    """The scalar operations of all launches."""
    if sizes is None:
        return sum(specs[launch.kernel].flops for launch in launches)
    return sizes.of(host_work(host))


class Constants:
    """The bytes of the constants of a program and its regions."""

    def __init__(self, module: ir.Module):
        self.module = module
        self.data = bytearray()
        self._offsets: dict[str, int] = {}
        self._large: dict[str, int] = {}

    def offset(self, name: str) -> int:
        """The offset of a global."""
        if name not in self._offsets:
            for op in self.module.body.operations:
                if op.operation.name == "memref.global" and op.sym_name.value == name:
                    self._offsets[name] = self._keep(op.operation.attributes["initial_value"])
        return self._offsets[name]

    def _keep(self, values: Any) -> int:
        """The offset of the values of a constant; equal large constants are stored once."""
        digest = resource_digest(values)
        if digest is not None and digest in self._large:
            return self._large[digest]
        self.data += bytes(-len(self.data) % ALIGN)
        start = len(self.data)
        self.data += dense_bytes(values) or b"\0"  # an empty constant also has an address
        if digest is not None:
            self._large[digest] = start
        return start


class HostReader:
    """Reads `main`, or the function of a region: its calls, and their buffers and constants."""

    def __init__(
        self,
        module: ir.Module,
        host: Any = None,
        constants: Constants | None = None,
        sizes: Placeholders | None = None,
    ):
        self.sizes = sizes
        main = host or find_function(module, "main")
        if main is None:
            raise LoweringError("the module has no function @main")
        self.main = main
        self.buffers: list[BufferSpec] = []
        self._numbers: dict[tuple[BufferSpec, str], int] = {}
        self._constants = constants or Constants(module)
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
        return self.add(self.spec(value))

    def add(self, buffer: BufferSpec) -> int:
        """The index of a buffer, which is added if it is new."""
        return self._add(buffer, "")

    def operands(self, call: Any) -> tuple[int, ...]:
        """The indices of the buffers of a call of a kernel or control function."""
        operands = list(call.operation.operands)
        if not isinstance(operands[-1].type, ir.MemRefType):  # the range of tiles
            return tuple(map(self.buffer, operands[:-2]))
        return (*map(self.buffer, operands[:-1]), self._memory(operands[-1], call.callee.value))

    def _memory(self, value: Any, control: str) -> int:
        """The index of the buffer of a control function, the memory of its regions.

        With symbolic sizes the runtime computes its size, and no other call has it.
        """
        if self.sizes is None:
            return self.buffer(value)
        root = buffer_root(value)
        offset = 0 if root in self.root_buffers else _constant_index(root.owner.operands[1])
        return self._add(BufferSpec("workspace", offset, nbytes(root.type)), control)

    def _add(self, spec: BufferSpec, owner: str) -> int:
        key = spec, owner
        if key not in self._numbers:
            self._numbers[key] = len(self.buffers)
            self.buffers.append(spec)
        return self._numbers[key]

    def spec(self, value: Any) -> BufferSpec:
        """The buffer of a value in main."""
        root = buffer_root(value)
        size = nbytes(root.type) if self.sizes is None else symbolic_bytes(root, self.sizes)
        if root in self.root_buffers:
            space, index = self.root_buffers[root]
            return BufferSpec(space, index, size)
        op = root.owner.operation
        if op.name == "memref.view":
            return self._part(op.operands[0], _constant_index(op.operands[1]), size)
        if op.name == AS_BYTES:  # a byte view of all of it folds to this
            return self._part(root, 0, size)
        if self.sizes is not None and (buffer := sizes_buffer(op, self.sizes)) is not None:
            return buffer
        if op.name == "memref.get_global":
            constant = self._constants.offset(op.attributes["name"].value)
            return BufferSpec("constant", constant, size)
        raise LoweringError(f"main passes the result of {op.name} to a kernel")

    def _part(self, memory: Any, offset: int, size: int) -> BufferSpec:
        """A part of the workspace, or of an output."""
        kind, number = self.root_buffers[buffer_of_bytes(memory)]
        if kind == "output":
            return BufferSpec("output_part", offset, size, number)
        return BufferSpec(kind, offset, size)

    @property
    def constants(self) -> bytearray:
        """The bytes of the constants so far."""
        return self._constants.data


def _count_reads(function: Any) -> int:
    """The number of arguments before the first one that the kernel writes; 0 if not known.

    A kernel with empty results writes no byte: what it writes is what `nova.ins` says.
    """
    if is_control(function):
        return Kernel(function).ins
    ranges_of = WRITES.find(function)
    if ranges_of is None:
        return 0
    return next((i for i, ranges in enumerate(ranges_of) if ranges), Kernel(function).ins)


def _kernel_spec(function: Any, sizes: Placeholders | None) -> KernelSpec:
    kernel = Kernel(function)
    spec = KernelSpec(
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
    if sizes is None:
        return spec
    return symbolic_spec(function, spec, _tiling(function, symbolic_footprint(function)), sizes)


def _tiling(function: Any, footprint: Footprint) -> Tiling:
    """The footprint of a kernel, as the runtime reads it to cut tasks: the slowest loop first."""
    order = -1 if MERGES_TILES.has(function) else 1
    ranges = tuple(
        OperandRange(number, writes, r.low, r.high, r.strides[::order])
        for writes, arguments in ((False, footprint.reads), (True, footprint.writes))
        for number, byte_ranges in enumerate(arguments)
        for r in byte_ranges
    )
    grid, tile = footprint.grid[::order], footprint.tile[::order]
    return Tiling(grid, tile, ranges, read_task_ns(function))


def control_spec(
    function: Any, numbers: Mapping[str, int], sizes: Placeholders | None = None
) -> KernelSpec:
    """The record of a loop or branch; `numbers` has those of the tables of regions."""
    view, control = Kernel(function), Control.of(function)
    spec = KernelSpec(
        name=view.name,
        symbol=view.name,
        grid=1,
        core="vector",
        flops=view.work,
        bytes=sum(nbytes(t) for t in function.type.inputs),
        location=location_text(function.location),
        control=ControlSpec(
            control.construct,
            tuple(numbers[name] for name in control.regions),
            control.consts,
            control.carries,
            control.length,
            control.reverse,
        ),
        tiling=_control_tiling(function),
    )
    return spec if sizes is None else symbolic_control(function, spec, sizes)


def _control_tiling(function: Any) -> Tiling:
    """A loop or branch is one task, which touches all of its buffers."""
    ins = Kernel(function).ins
    ranges = tuple(
        OperandRange(number, number >= ins, 0, nbytes(type_), ())
        for number, type_ in enumerate(function.type.inputs)
        if nbytes(type_)
    )
    return Tiling((), (), ranges, read_task_ns(function))


def location_text(location: Any) -> str:
    text = str(location)
    return text.removeprefix("loc(").removesuffix(")").replace('"', "")


def _constant_index(value: Any) -> int:
    return int(value.owner.operation.attributes["value"].value)
