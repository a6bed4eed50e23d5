"""Launches of device functions, as `gpu.launch_func`.

`read_launch` reads the sizes, which must be constants, and the operands; the reader of device
tables (`nova/compiler/gpu/backend.py`) calls it. `launch_groups` reads the operands, constant or
not; the importer of hand-written launches calls it, and `make_launch`, which creates one.
`persistent_launches` are those of a program that is one resident kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from nova.errors import PersistentLaunchError, UnsupportedOpError
from nova.ir.attributes import CLUSTER, TENSOR_MAPS
from nova.ir.bindings import arith, ir
from nova.ir.control_flow.functions import control_functions, host_functions
from nova.ir.diagnostics import place_of
from nova.ir.index import index
from nova.ir.walk import find_ops, kernels, main_function

# The operand groups of `gpu.launch_func`.
_TOKENS, _GRID, _BLOCK, _CLUSTER, _SHARED, _OPERANDS, _OBJECT = 0, 1, 4, 7, 10, 11, 12

Three = tuple[int, int, int]

# Device limits along each axis; `native/src/loader/tables.c` checks files against the same limits.
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS = (1024, 1024, 64)
MOST_SHARED = 227 << 10


@dataclass(frozen=True)
class Launch:
    """One launch: grid size, block size, bytes of dynamic shared memory, and operands."""

    op: Any
    grid: Three
    block: Three
    shared: int
    operands: tuple[Any, ...]

    @property
    def symbols(self) -> tuple[str, str]:
        """The names of the `gpu.module` and of the function in it."""
        module, function = self.op.attributes["kernel"].value
        return module, function


@dataclass(frozen=True)
class LaunchGroups:
    """The operands of a `gpu.launch_func`, which need not be constants."""

    grid: tuple[Any, ...]
    block: tuple[Any, ...]
    shared: Any | None
    operands: tuple[Any, ...]


def launch_groups(op: Any) -> LaunchGroups:
    """The operands of a launch, without async tokens, which only order launches."""
    groups = _groups(op)
    if groups[_OBJECT]:
        raise UnsupportedOpError(
            "gpu.launch_func with a module that is loaded at run time",
            where=place_of(op.location),
            hint="launch a function of a gpu.module of the program",
        )
    if groups[_CLUSTER]:
        raise UnsupportedOpError(
            "gpu.launch_func with clusters of blocks", where=place_of(op.location)
        )
    sizes = tuple(group[0] for group in groups[_GRID:_CLUSTER])
    shared = groups[_SHARED][0] if groups[_SHARED] else None
    return LaunchGroups(sizes[:3], sizes[3:], shared, tuple(groups[_OPERANDS]))


def _groups(op: Any) -> list[list[Any]]:
    groups, at = [], 0
    for size in op.attributes["operandSegmentSizes"]:
        groups.append(list(op.operands)[at : at + size])
        at += size
    return groups


def make_launch(
    symbols: tuple[str, str], grid: Three, block: Three, shared: int, operands: list[Any]
) -> Any:
    """A `gpu.launch_func` at the insertion point."""
    i32 = ir.IntegerType.get_signless(32)
    sizes = [index(size) for size in (*grid, *block)]
    bytes_ = [arith.ConstantOp(i32, shared).result] if shared else []
    segments = [0, *[1] * 6, *[0] * 3, len(bytes_), len(operands), 0]
    return ir.Operation.create(
        "gpu.launch_func",
        [],
        [*sizes, *bytes_, *operands],
        attributes={
            "kernel": ir.SymbolRefAttr.get(list(symbols)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
        },
    )


def read_launch(op: Any, blocks: int | None = None) -> Launch:
    """Read a `gpu.launch_func`; UnsupportedOpError if a launch table cannot represent it.

    `blocks` replaces a number of blocks that is computed from symbolic sizes.
    """
    if len(op.results) or _groups(op)[_TOKENS]:
        raise UnsupportedOpError(
            "gpu.launch_func that is asynchronous",
            where=place_of(op.location),
            hint="launches run in order: write them without tokens",
        )
    groups = launch_groups(op)
    values = [*groups.grid, *groups.block]
    numbers = [
        constant_size(value, op) if number or blocks is None else blocks
        for number, value in enumerate(values)
    ]
    shared = 0 if groups.shared is None else constant_size(groups.shared, op)
    grid, block = three(numbers[:3]), three(numbers[3:])
    check_sizes(grid, block, shared, op)
    return Launch(op, grid, block, shared, groups.operands)


def check_sizes(grid: Three, block: Three, shared: int, op: Any) -> None:
    """Refuse sizes beyond the device limits: the runtime would refuse them at load time."""
    within = zip((*grid, *block), (*_MOST_BLOCKS, *_MOST_THREADS), strict=True)
    fits = all(1 <= size <= most for size, most in within)
    if fits and prod(block) <= _MOST_THREADS[0] and 0 <= shared <= MOST_SHARED:
        return
    raise UnsupportedOpError(
        f"a launch of {_times(grid)} blocks of {_times(block)} threads with {shared} bytes of "
        "shared memory",
        where=place_of(op.location),
        hint=f"devices take {_times(_MOST_BLOCKS)} blocks, {_MOST_THREADS[0]} threads of "
        f"{_times(_MOST_THREADS)}, and {MOST_SHARED} bytes at most, and one block and thread at "
        "least",
    )


def _times(sizes: Three) -> str:
    return "x".join(map(str, sizes))


def three(values: list[int]) -> Three:
    x, y, z = values
    return x, y, z


def constant_size(value: Any, op: Any) -> int:
    """The value of a constant size of a launch; UnsupportedOpError if it is not constant."""
    number = find_constant(value)
    if number is None:
        raise UnsupportedOpError(
            "gpu.launch_func with a size that is not a constant",
            where=place_of(op.location),
            hint="blocks' threads and shared memory are known when a program is compiled",
        )
    return number


def find_constant(value: Any) -> int | None:
    """The integer of a constant value, or None."""
    owner = getattr(value.owner, "operation", None)
    if owner is None or owner.name != "arith.constant":
        return None
    return int(owner.attributes["value"].value)


# --- programs that one resident kernel runs -------------------------------------------------------


def check_persistent(module: ir.Module) -> None:
    """Refuse a program at the stage `outlined` with kernels that need launches of their own."""
    for kernel in kernels(module):
        if CLUSTER.has(kernel) or TENSOR_MAPS.has(kernel):
            raise PersistentLaunchError(
                f"@{kernel.name.value}, a kernel of clusters or tensor maps, cannot run in a "
                "program with launch='persistent'",
                where=place_of(kernel.location),
                hint="compile the program with launch='graph'",
            )


def persistent_launches(module: ir.Module) -> list[Launch]:
    """The launches of the kernels of a program, in the order of the numbers of their tasks.

    These are the kernels that `main` calls, in the order of the module; then those that each region
    of a loop or branch calls and none before it does. The runtime numbers them in the same way.
    """
    *regions, main = host_functions(module)
    launches: dict[str, list[Launch]] = {}
    for function in (main, *regions):
        called = {op.attributes["callee"].value for op in find_ops(function, "func.call")}
        for kernel in kernels(module):
            name = kernel.name.value
            if name in called and name not in launches:
                ops = find_ops(kernel, "gpu.launch_func")
                launches[name] = [read_launch(op, 1) for op in ops]
    return [launch for of_kernel in launches.values() for launch in of_kernel]


def has_flow(module: ir.Module) -> bool:
    """Whether a program has loops or branches that are not inside of a kernel."""
    return bool(control_functions(module) or find_ops(main_function(module), "scf.while"))
