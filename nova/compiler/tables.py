"""Reads `main`: the launch table, buffer table and constants of a lowered module.

In: a module at the `loops` stage, where main is a list of calls on arguments, outputs, views of the
workspace and constants. Out: `Tables`, which the file stores and the runtime runs, and the bytes of
the constants. Called by the compile driver, once for each variant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nova.artifact.tables import ALIGN, BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.tilings import OperandRange, Tiling
from nova.codegen.common.footprint import load_footprint
from nova.errors import LoweringError
from nova.ir.attributes import MERGES_TILES, UNPACKED, WRITES
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_root, nbytes
from nova.ir.kernel import Kernel, Main
from nova.ir.resources import resource_digest
from nova.ir.types import dense_bytes
from nova.ir.walk import find_function
from nova.ir.walk import kernels as kernel_functions
from nova.passes.cpu.allocate_scratch import scratch_size
from nova.passes.kernels.plan_tasks import moved_bytes, read_task_ns

# The ops allowed in main: calls, their operands, and the terminator.
_HOST_OPS = VIEWS | {
    "arith.constant",
    "func.call",
    "func.return",
    "memref.get_global",
    "memref.view",
    "scf.yield",
}


def read_tables(module: ir.Module) -> tuple[Tables, bytes]:
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


def _read(module: ir.Module) -> tuple[Tables, bytes]:
    reader = HostReader(module)
    kernels = {f.name.value: f for f in kernel_functions(module)}
    order = {name: i for i, name in enumerate(kernels)}
    reads = [_count_reads(f) for f in kernels.values()]
    launches = []
    for op in reader.calls():
        ids = tuple(reader.buffer(b) for b in list(op.operation.operands)[:-2])
        number = order[op.callee.value]
        launches.append(LaunchSpec(number, ids, reads[number]))
    specs = [_kernel_spec(f) for f in kernels.values()]
    tables = Tables(
        buffers=tuple(reader.buffers),
        kernels=tuple(specs),
        launches=tuple(launches),
        workspace_size=reader.workspace_size,
        work=sum(specs[launch.kernel].flops for launch in launches),
        scratch_size=max(map(scratch_size, kernels.values()), default=0),
    )
    return tables, bytes(reader.constants)


class HostReader:
    """Reads `main`: its calls, and their buffers and constants."""

    def __init__(self, module: ir.Module):
        self.module = module
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
        if root in self.root_buffers:
            space, index = self.root_buffers[root]
            return BufferSpec(space, index, size)
        op = root.owner.operation
        if op.name == "memref.view":
            return BufferSpec("workspace", _constant_index(op.operands[1]), size)
        if op.name == "memref.get_global":
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
        tiling=_tiling(function),
    )


def _tiling(function: Any) -> Tiling:
    """The footprint of a kernel, as the runtime reads it to cut tasks: the slowest loop first."""
    footprint = load_footprint(function)
    order = -1 if MERGES_TILES.has(function) else 1
    ranges = tuple(
        OperandRange(number, writes, r.low, r.high, r.strides[::order])
        for writes, arguments in ((False, footprint.reads), (True, footprint.writes))
        for number, byte_ranges in enumerate(arguments)
        for r in byte_ranges
    )
    grid, tile = footprint.grid[::order], footprint.tile[::order]
    return Tiling(grid, tile, ranges, read_task_ns(function))


def location_text(location: Any) -> str:
    text = str(location)
    return text.removeprefix("loc(").removesuffix(")").replace('"', "")


def _constant_index(value: Any) -> int:
    return int(value.owner.operation.attributes["value"].value)
