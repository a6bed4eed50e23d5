"""Launches of device functions, as `gpu.launch_func` writes them.

`read_launch` gives the sizes, which have to be constants, and the operands. Called by the reader of
device tables (`nova/codegen/device.py`) and by the importer of hand-written launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from nova.errors import UnsupportedOpError
from nova.mlir.diagnostics import place_of

# The operands of `gpu.launch_func`, in groups.
_TOKENS, _GRID, _BLOCK, _CLUSTER, _SHARED, _OPERANDS, _OBJECT = 0, 1, 4, 7, 10, 11, 12

Three = tuple[int, int, int]

# What devices take at most along each axis; `native/src/tables.c` holds files to the same.
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS = (1024, 1024, 64)
_MOST_SHARED = 227 << 10


@dataclass(frozen=True)
class Launch:
    """One launch: blocks, threads of a block, bytes of dynamic shared memory, and operands."""

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

    @property
    def first_operand(self) -> int:
        """How many operands of the op stand before those of the kernel."""
        return sum(list(self.op.attributes["operandSegmentSizes"])[:_OPERANDS])


def read_launch(op: Any) -> Launch:
    """A `gpu.launch_func`; UnsupportedOpError for what a table of launches cannot say."""
    sizes = list(op.attributes["operandSegmentSizes"])
    groups, at = [], 0
    for size in sizes:
        groups.append(list(op.operands)[at : at + size])
        at += size
    if len(op.results) or groups[_TOKENS] or groups[_OBJECT]:
        raise UnsupportedOpError(
            "gpu.launch_func that is asynchronous",
            where=place_of(op.location),
            hint="launches run one behind the other: write them without tokens",
        )
    if groups[_CLUSTER]:
        raise UnsupportedOpError(
            "gpu.launch_func with clusters of blocks", where=place_of(op.location)
        )
    numbers = [_constant(group[0], op) for group in groups[_GRID:_CLUSTER]]
    shared = _constant(groups[_SHARED][0], op) if groups[_SHARED] else 0
    grid, block = _three(numbers[:3]), _three(numbers[3:])
    _check_sizes(grid, block, shared, op)
    return Launch(op, grid, block, shared, tuple(groups[_OPERANDS]))


def _check_sizes(grid: Three, block: Three, shared: int, op: Any) -> None:
    """Refuse what no device launches: the runtime would, when the file is loaded elsewhere."""
    within = zip((*grid, *block), (*_MOST_BLOCKS, *_MOST_THREADS), strict=True)
    fits = all(1 <= size <= most for size, most in within)
    if fits and prod(block) <= _MOST_THREADS[0] and 0 <= shared <= _MOST_SHARED:
        return
    raise UnsupportedOpError(
        f"a launch of {_times(grid)} blocks of {_times(block)} threads with {shared} bytes of "
        "shared memory",
        where=place_of(op.location),
        hint=f"devices take {_times(_MOST_BLOCKS)} blocks, {_MOST_THREADS[0]} threads of "
        f"{_times(_MOST_THREADS)}, and {_MOST_SHARED} bytes at most, and one block and thread at "
        "least",
    )


def _times(sizes: Three) -> str:
    return "x".join(map(str, sizes))


def _three(values: list[int]) -> Three:
    x, y, z = values
    return x, y, z


def _constant(value: Any, op: Any) -> int:
    owner = getattr(value.owner, "operation", None)
    if owner is None or owner.name != "arith.constant":
        raise UnsupportedOpError(
            "gpu.launch_func with a size that is not a constant",
            where=place_of(op.location),
            hint="grids, blocks and shared memory are known when a program is compiled",
        )
    return int(owner.attributes["value"].value)
