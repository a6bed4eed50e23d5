"""Typed views of the functions of a module: kernels, and `main`.

A property of a view is the declaration of an attribute (`nova/ir/attributes.py`): reading it reads
the attribute of the function, and assigning to it sets the attribute. Reading an attribute that the
function does not have is a KeyError; `Kernel.work.find(op)` gives None.
"""

from __future__ import annotations

from typing import Any

from nova.ir import attributes
from nova.ir.bindings import ir


class Function:
    """A view of a function with one block."""

    __slots__ = ("op",)

    def __init__(self, op: Any):
        self.op = op

    @property
    def name(self) -> str:
        return str(self.op.attributes["sym_name"].value)

    @property
    def block(self) -> Any:
        return self.op.entry_block

    @property
    def location(self) -> Any:
        return self.op.location


class Kernel(Function):
    """A kernel: one loop nest over tiles on a CPU, or one launch on a device."""

    __slots__ = ()

    # from `form-kernels`
    grid = attributes.GRID
    work = attributes.WORK
    device = attributes.DEVICE
    # from `bufferize-kernels`
    ins = attributes.INS
    outs = attributes.OUTS
    # from `choose-schedules`, `pack-constants` and `pack-operands`
    schedule = attributes.SCHEDULE
    prepacked = attributes.PREPACKED
    winograd = attributes.WINOGRAD
    # from `lower-kernels`
    tiles = attributes.TILES
    core = attributes.CORE
    loops = attributes.LOOPS
    tile = attributes.TILE
    reads = attributes.READS
    writes = attributes.WRITES
    scalar_loops = attributes.SCALAR_LOOPS
    symbolic = attributes.SYMBOLIC
    # from `plan-tasks` and `allocate-scratch`
    task_ns = attributes.TASK_NS
    merges_tiles = attributes.MERGES_TILES
    scratch_offsets = attributes.SCRATCH_OFFSETS
    # from `lower-device-kernels`
    launch = attributes.LAUNCH
    min_blocks_per_sm = attributes.MIN_BLOCKS_PER_SM
    flops = attributes.FLOPS
    cluster = attributes.CLUSTER
    tensor_maps = attributes.TENSOR_MAPS

    @classmethod
    def mark(cls, op: Any, *, work: int, grid: tuple[int, ...] | None = None) -> Kernel:
        """Make a kernel of a function; one without a `grid` contains its launch already."""
        attributes.KERNEL.set(op)
        kernel = cls(op)
        kernel.work = work
        if grid is not None:
            kernel.grid = grid
        return kernel

    @property
    def output_arguments(self) -> list[Any]:
        """The arguments that are the buffers of the outputs."""
        return list(self.block.arguments)[self.ins : self.ins + self.outs]

    @property
    def intermediate_arguments(self) -> list[Any]:
        """The arguments that are buffers of intermediate values: nobody reads them afterwards."""
        return list(self.block.arguments)[self.ins + self.outs :]


class Main(Function):
    """The function `main`: the calls of the kernels."""

    __slots__ = ()

    inputs = attributes.INPUTS
    outputs = attributes.OUTPUTS
    workspace = attributes.WORKSPACE
    signature = attributes.SIGNATURE

    @property
    def updates(self) -> tuple[int, ...]:
        """For each trailing result, the argument that it updates; empty without updates."""
        return attributes.UPDATES.find(self.op) or ()

    @updates.setter
    def updates(self, arguments: tuple[int, ...]) -> None:
        attributes.UPDATES.set(self.op, arguments)

    @property
    def carried(self) -> tuple[int, ...]:
        """Of the body of a loop, the argument of each carry; the first results are carries."""
        return attributes.CARRIED.find(self.op) or ()

    @property
    def in_place(self) -> tuple[int, ...]:
        """Of the body of a loop, the carries that it updates in place."""
        return attributes.IN_PLACE.find(self.op) or ()


def is_kernel(op: Any) -> bool:
    """Whether a function is a kernel."""
    return attributes.KERNEL.has(op)


def set_argument_types(function: Any, results: list[Any] | None = None) -> None:
    """Set the type of a function to that of its block arguments; `results` replaces its results."""
    types = [argument.type for argument in function.entry_block.arguments]
    returned = list(function.type.results) if results is None else results
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, returned))
