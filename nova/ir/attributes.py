"""Every attribute that Nova adds to the IR: name, type, meaning, and typed accessors.

A declaration is the only place with the name of an attribute. `WORK.get(kernel)` reads it,
`WORK.set(kernel, 8)` writes it; `Kernel` and `Main` (`nova/ir/kernel.py`) are views of the two
sorts of functions with one property per attribute. `docs/attributes.md` is generated from this
table and from the code: it lists the modules that set and that read each attribute.

`accept_old_names` renames the attributes of texts that earlier versions wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, overload

from nova.errors import LoweringError
from nova.ir.bindings import ir

T = TypeVar("T")

ATTRIBUTES: dict[str, Attribute[Any]] = {}
"""Every declaration, by the name of the attribute."""


class Attribute(Generic[T]):
    """The declaration of an attribute: a subclass converts its values.

    `on` says which ops have it. `old` are names of earlier versions, with a pattern for the ops
    that had the attribute under that name: `llvm.func @f` is matched as a text.
    """

    mlir_type = ""

    def __init__(self, name: str, on: str, meaning: str, old: dict[str, str] | None = None):
        self.name = name
        self.on = on
        self.meaning = meaning
        self.old = old or {}
        ATTRIBUTES[name] = self

    # --- values ---------------------------------------------------------------------------------

    def encode(self, value: T, context: ir.Context) -> Any:
        """The MLIR attribute of a value."""
        raise NotImplementedError

    def decode(self, attribute: Any) -> T:
        """The value of an MLIR attribute; TypeError if it has another type."""
        raise NotImplementedError

    # --- accessors ------------------------------------------------------------------------------

    def has(self, op: Any) -> bool:
        """Whether an op has the attribute."""
        return self.name in op.attributes

    def get(self, op: Any) -> T:
        """The value; KeyError if the op does not have the attribute."""
        attribute = op.attributes[self.name]
        try:
            return self.decode(attribute)
        except (TypeError, ValueError, AttributeError):
            raise LoweringError(
                f"{self.name} is {attribute}, which is not of the type {self.mlir_type}"
            ) from None

    def find(self, op: Any) -> T | None:
        """The value, or None."""
        return self.get(op) if self.has(op) else None

    def set(self, op: Any, value: T) -> None:
        op.attributes[self.name] = self.encode(value, op.context)

    def remove(self, op: Any) -> None:
        """Remove the attribute, if the op has it."""
        if self.has(op):
            del op.attributes[self.name]

    def copy(self, source: Any, target: Any) -> None:
        """Give `target` the attribute of `source`."""
        target.attributes[self.name] = source.attributes[self.name]

    # --- properties of views (nova/ir/kernel.py) ------------------------------------------------

    @overload
    def __get__(self, view: None, owner: type) -> Attribute[T]: ...
    @overload
    def __get__(self, view: Any, owner: type) -> T: ...
    def __get__(self, view: Any, owner: type) -> Attribute[T] | T:
        return self if view is None else self.get(view.op)

    def __set__(self, view: Any, value: T) -> None:
        self.set(view.op, value)


class Flag(Attribute[bool]):
    """An attribute that an op has or does not have."""

    mlir_type = "unit"

    def get(self, op: Any) -> bool:
        return self.has(op)

    def set(self, op: Any, value: bool = True) -> None:
        if value:
            op.attributes[self.name] = ir.UnitAttr.get(op.context)
        else:
            self.remove(op)


class Integer(Attribute[int]):
    mlir_type = "i64"

    def encode(self, value: int, context: ir.Context) -> Any:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)

    def decode(self, attribute: Any) -> int:
        return int(attribute.value)


class Int32(Integer):
    mlir_type = "i32"

    def encode(self, value: int, context: ir.Context) -> Any:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(32, context), value)


class Integers(Attribute[tuple[int, ...]]):
    mlir_type = "array<i64>"

    def encode(self, value: Sequence[int], context: ir.Context) -> Any:
        return ir.DenseI64ArrayAttr.get(list(value), context)

    def decode(self, attribute: Any) -> tuple[int, ...]:
        return tuple(attribute)


class Int32s(Integers):
    mlir_type = "array<i32>"

    def encode(self, value: Sequence[int], context: ir.Context) -> Any:
        return ir.DenseI32ArrayAttr.get(list(value), context)


class Rows(Attribute[tuple[tuple[int, ...], ...]]):
    mlir_type = "[array<i64>, ...]"

    def encode(self, value: Sequence[Sequence[int]], context: ir.Context) -> Any:
        rows = [ir.DenseI64ArrayAttr.get(list(row), context) for row in value]
        return ir.ArrayAttr.get(rows, context)

    def decode(self, attribute: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(row) for row in attribute)


class RowsPerArgument(Attribute[tuple[tuple[tuple[int, ...], ...], ...]]):
    mlir_type = "[[array<i64>, ...], ...]"

    def encode(self, value: Sequence[Sequence[Sequence[int]]], context: ir.Context) -> Any:
        arguments = [
            ir.ArrayAttr.get(
                [ir.DenseI64ArrayAttr.get(list(row), context) for row in rows], context
            )
            for rows in value
        ]
        return ir.ArrayAttr.get(arguments, context)

    def decode(self, attribute: Any) -> tuple[tuple[tuple[int, ...], ...], ...]:
        return tuple(tuple(tuple(row) for row in rows) for rows in attribute)


class Text(Attribute[str]):
    mlir_type = "string"

    def encode(self, value: str, context: ir.Context) -> Any:
        return ir.StringAttr.get(value, context)

    def decode(self, attribute: Any) -> str:
        return str(attribute.value)


class Texts(Attribute[tuple[str, ...]]):
    mlir_type = "[string, ...]"

    def encode(self, value: Sequence[str], context: ir.Context) -> Any:
        return ir.ArrayAttr.get([ir.StringAttr.get(text, context) for text in value], context)

    def decode(self, attribute: Any) -> tuple[str, ...]:
        return tuple(str(text.value) for text in attribute)


class Structured(Attribute[Any]):
    """A value with a structure that its module reads and checks: an MLIR attribute."""

    def __init__(self, name: str, mlir_type: str, on: str, meaning: str):
        super().__init__(name, on, meaning)
        self.mlir_type = mlir_type

    def encode(self, value: Any, context: ir.Context) -> Any:
        return value

    def decode(self, attribute: Any) -> Any:
        return attribute


# --- main -----------------------------------------------------------------------------------------

_FUNCTION_BUT_MAIN = r"(func|llvm)\.func (?!main$)"

INPUTS = Integer(
    "nova.inputs",
    "main",
    "The number of inputs: arguments after them are params.",
)
UPDATES = Integers(
    "nova.updates",
    "main",
    "For each trailing result of main, the number of the argument that it updates in place.",
)
SIGNATURE = Structured(
    "nova.signature",
    "[{name, shape, dtype, role, alias}, ...]",
    "main",
    "Names, shapes, dtypes and roles of arguments and outputs, where types of main do not say it.",
)
OUTPUTS = Integer(
    "nova.outputs",
    "main",
    "The number of output buffers, which are arguments before the workspace.",
)
WORKSPACE = Integer("nova.workspace", "main", "Bytes of the workspace, the last argument of main.")
DIMS = Texts(
    "nova.dims",
    "main",
    "The dims of a program with symbolic sizes: name, the prime that stands for it, min, max.",
)
SIZES = Texts(
    "nova.sizes",
    "main",
    "The expressions over the dims that the shapes of the program have, as far as they are not "
    "products of dims.",
)
SIZE_VALUES = Texts(
    "nova.size_values",
    "main",
    "The expressions whose values kernels load from the buffer of sizes, in its order.",
)
NAME = Text("nova.name", "arguments and results of main", "The name of an argument or a result.")

# --- ops ------------------------------------------------------------------------------------------

DEVICE = Text(
    "nova.device",
    "nova ops, host regions, kernels",
    "`cpu` pins an op, a host region or a kernel to the host, for every target.",
)
WORK = Integer(
    "nova.work",
    "kernels, linalg.generic",
    "The estimated number of scalar operations of a kernel, or of an op that stands for a "
    "whole algorithm.",
)
INVERTED = Flag(
    "nova.inverted",
    "stablehlo.select_and_scatter",
    "The selection is `not select(candidate, selected)`, see `simplify-stablehlo`.",
)
OVERWRITES = Flag(
    "nova.overwrites",
    "nova ops",
    "Marks an op that may write its result over its first operand, which no later op reads.",
)
FUSION_GUARD = Flag(
    "nova.guard",
    "barriers",
    "Marks a barrier that only keeps elementwise fusion from duplicating its operand.",
)
TILE_LOCAL = Flag(
    "nova.tile_local",
    "memref.alloca",
    "Marks a buffer of which each tile needs only its part: code generation allocates a tile of "
    "it.",
    old={"nova.scratch": r"memref\.alloca"},
)
UNWRITTEN = Integers(
    "nova.unwritten",
    "kernels",
    "The arguments of a kernel that no launch before it writes: weights and constants.",
)
PROLOGUE = Flag(
    "nova.prologue",
    "linalg.generic, scalars and loops that write a row",
    "Marks an op that every block of a launch computes, for the ops over the grid: as a whole, or "
    "what its attention needs.",
)
UNPACKED = Flag(
    "nova.unpacked",
    "memref.global",
    "Marks a constant that kernels read only in its packed copies.",
)

# --- control flow ---------------------------------------------------------------------------------

CONTROL = Structured(
    "nova.control",
    "{construct, regions, consts, carries, length, reverse}",
    "functions",
    "Marks a control function: a loop or branch whose regions are programs.",
)
REGION = Flag(
    "nova.region",
    "functions",
    "Marks the function of a region: a `main` that a control function runs.",
)

CARRIED = Integers(
    "nova.carried",
    "main of a region",
    "For each carry of a loop, the argument that has its value; the first results are the next "
    "values.",
)
IN_PLACE = Integers(
    "nova.in_place",
    "main of a region",
    "The carries that the region updates in place: it does not write their outputs.",
)

# --- kernels --------------------------------------------------------------------------------------

KERNEL = Flag("nova.kernel", "functions", "Marks the functions that are kernels.")
GRID = Integers(
    "nova.grid",
    "kernels",
    "The extents of the leading dimensions that all outputs share; tiles divide this space.",
)
INS = Integer(
    "nova.ins",
    "kernels",
    "The number of arguments that are read only; outputs and intermediate buffers follow.",
    old={"nova.inputs": _FUNCTION_BUT_MAIN},
)
OUTS = Integer("nova.outs", "kernels", "The number of output buffers, after the `nova.ins`.")
SLICED = Integers(
    "nova.sliced",
    "kernels",
    "The arguments of which a kernel writes a slice in place: their bytes are not part of its "
    "cost.",
)
SCHEDULE = Structured(
    "nova.schedule",
    "{mr, nv, kc, mc, tile, task_ns}",
    "kernels",
    "Schedule overrides, by a person or the tuner.",
)
PREPACKED = Rows(
    "nova.packed",
    "kernels",
    "Arguments in the packed layout of a GEMM: argument, columns per panel, blocks of k.",
)
WINOGRAD = Rows(
    "nova.winograd",
    "kernels",
    "The weights of a convolution, transformed for Winograd's algorithm: argument, outputs of a "
    "side of a tile.",
)
MAY_BE_EMPTY = Flag(
    "nova.may_be_empty",
    "loads at computed positions",
    "The buffer has no elements for some sizes: the lowering of the kernel guards the load.",
)
TILES = Integer("nova.tiles", "kernels", "The number of tiles; set by the lowering to loops.")
CORE = Text(
    "nova.core",
    "kernels",
    "The execution unit: `matrix`, `vector`, or `host` for a single unstructured tile; on a device "
    "`matrix` is a kernel with matrix instructions.",
)
LOOPS = Integers("nova.loops", "kernels", "The extents of the loops over tiles: the merged grid.")
TILE = Integers("nova.tile", "kernels", "The extents of a tile, along each loop over tiles.")
DEPENDENT = Flag(
    "nova.dependent",
    "kernels",
    "Its code waits by itself for the launches before it (programmatic dependent launch).",
)
READS = RowsPerArgument(
    "nova.reads",
    "kernels",
    "The byte ranges that a tile reads of each argument: low, high, and a stride per loop.",
)
WRITES = RowsPerArgument(
    "nova.writes",
    "kernels",
    "The byte ranges that a tile writes of each argument: low, high, and a stride per loop.",
)
MERGES_TILES = Flag(
    "nova.merges_tiles",
    "kernels",
    "Marks a kernel that computes a range of tiles in larger blocks; its tiles are numbered with "
    "the first loop fastest.",
)
SYMBOLIC = Structured(
    "nova.symbolic",
    "{tiles, work, bytes, loops, reads, writes} or {blocks, flops, bytes}",
    "kernels",
    "The same numbers as expressions over the dims, of a kernel with symbolic sizes.",
)
TASK_NS = Integer(
    "nova.task_ns",
    "kernels",
    "The estimated nanoseconds of one task; the runtime cuts tiles into tasks.",
)
SCRATCH_OFFSETS = Integers(
    "nova.scratch_offsets",
    "kernels",
    "The offsets in scratch memory of the buffers that are its last arguments.",
    old={"nova.scratch": _FUNCTION_BUT_MAIN},
)
LAUNCH = Integers(
    "nova.launch",
    "kernels",
    "The launch on a device: blocks, threads per block, bytes of shared memory.",
)
MIN_BLOCKS_PER_SM = Integer(
    "nova.min_blocks_per_sm",
    "kernels",
    "The number of blocks per multiprocessor that the registers of the kernel must allow.",
    old={"nova.resident": _FUNCTION_BUT_MAIN},
)
FLOPS = Integer(
    "nova.flops",
    "kernels",
    "The floating-point operations of a kernel on a device: two for a multiply-add.",
)
TENSOR_MAPS = Rows(
    "nova.tensor_maps",
    "kernels",
    "The tensor maps that are parameters of a launch, after its pointers (`nova/ir/tensor_maps.py`)"
    ": argument, offset in bytes, element type, rank, extents, strides in bytes, box.",
)
CLUSTER = Integer("nova.cluster", "kernels", "The number of blocks of a cluster on a device.")

# --- functions that kernels call ------------------------------------------------------------------

SHARED = Flag("nova.shared", "functions", "Marks a function that several kernels call.")
SCALAR_LOOPS = Flag(
    "nova.scalar_loops",
    "kernels, shared functions",
    "Marks a function with scalar loops that LLVM must vectorize.",
)
MATH = Flag(
    "nova.math",
    "functions",
    "Marks a math function that `expand-math` wrote; every code unit has those that it calls.",
)

# --- attributes of other dialects that Nova sets --------------------------------------------------

NOALIAS = Flag(
    "llvm.noalias",
    "arguments of functions",
    "LLVM: the buffer does not overlap with another that the function writes.",
)
NVVM_MIN_BLOCKS = Int32(
    "nvvm.minctasm", "device functions", "NVVM: the minimum number of blocks per multiprocessor."
)
NVVM_CLUSTER = Int32s(
    "nvvm.cluster_dim", "device functions", "NVVM: the blocks of a cluster along each axis."
)
CONTAINER_MODULE = Flag("gpu.container_module", "modules", "GPU dialect: has device modules.")


# --- dictionaries of arguments --------------------------------------------------------------------


def name_dictionaries(names: Sequence[str]) -> list[Any]:
    """The `arg_attrs` of arguments with names, in the current context."""
    context = ir.Context.current
    return [ir.DictAttr.get({NAME.name: NAME.encode(name, context)}) for name in names]


def noalias_dictionaries(flags: Sequence[bool]) -> list[Any]:
    """The `arg_attrs` of arguments: `llvm.noalias` where `flags` says so."""
    noalias = ir.DictAttr.get({NOALIAS.name: ir.UnitAttr.get()})
    nothing = ir.DictAttr.get({})
    return [noalias if flag else nothing for flag in flags]


# --- names of earlier versions --------------------------------------------------------------------

_OLD: dict[str, list[tuple[re.Pattern[str], Attribute[Any]]]] = {}
for _declaration in list(ATTRIBUTES.values()):
    for _name, _pattern in _declaration.old.items():
        _OLD.setdefault(_name, []).append((re.compile(_pattern), _declaration))
_OLD_NAME = re.compile(rf"(?:{'|'.join(map(re.escape, _OLD))})\b")


def accept_old_names(module: ir.Module, text: str) -> None:
    """Rename the attributes of earlier versions in a module that was parsed from `text`."""
    names = set(_OLD_NAME.findall(text))
    if not names:
        return

    def visit(op: Any, depth: int) -> None:
        present = [name for name in names if name in op.attributes]
        label = _label(op) if present else ""
        for name in present:
            for pattern, declaration in _OLD[name]:
                if pattern.match(label) and not declaration.has(op):
                    op.attributes[declaration.name] = op.attributes[name]
                    del op.attributes[name]
                    break
        if depth:
            for region in op.regions:
                for block in region.blocks:
                    for child in block.operations:
                        visit(child.operation, depth - 1)

    # Tile-local buffers are allocated in the first block of a kernel.
    visit(module.operation, 2)


def _label(op: Any) -> str:
    symbol = op.attributes["sym_name"].value if "sym_name" in op.attributes else ""
    return f"{op.name} {symbol}".strip()
