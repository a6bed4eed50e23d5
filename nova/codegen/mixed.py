"""Programs of which a part is pinned to the host: taken apart for two compilers, and put together.

`split_pinned` takes the kernels of the host out of a module at the stage `buffers`; `join_host`
gives their launches the places that they had among those of the device, with copies where a value
is needed on the side that does not have it. `device.py` calls both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nova.artifact.tables import ALIGN, COPIES, BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.write import Variant
from nova.codegen.stages import copy_module
from nova.errors import LoweringError
from nova.mlir.bindings import func, ir
from nova.mlir.dialect import DEVICE
from nova.mlir.walk import functions, main_function

_KEPT = (DEVICE, "nova.inputs")


def pinned_functions(module: ir.Module) -> dict[str, Any]:
    """The kernels that run on the host, or what `split_pinned` left of them, by name."""
    return {f.name.value: f for f in functions(module) if DEVICE in f.attributes}


def split_pinned(module: ir.Module) -> ir.Module | None:
    """The kernels of the host in a module of their own, with a main that calls them.

    In `module` they become declarations. None where there are none.
    """
    pinned = pinned_functions(module)
    if not pinned:
        return None
    host = copy_module(module)
    for op in list(main_function(host).entry_block.operations):
        if op.operation.name == "func.call" and op.callee.value not in pinned:
            op.operation.erase()
    for function in functions(host):
        if function.name.value not in pinned and function.name.value != "main":
            function.operation.erase()
    for function in pinned.values():
        _declare(function)
    return host


def _declare(function: Any) -> None:
    """Replace a function by its declaration."""
    with ir.InsertionPoint(function), function.location:
        made = func.FuncOp(function.name.value, function.type, visibility="private")
        for name in _KEPT:
            made.attributes[name] = function.attributes[name]
    function.operation.erase()


@dataclass(frozen=True)
class Step:
    """A call of `main`: `launch` is None for one of the host, or for one that does nothing.

    `reads` are the buffers whose values it needs, `writes` those that it makes.
    """

    on_host: bool
    launch: LaunchSpec | None
    reads: tuple[BufferSpec, ...]
    writes: tuple[BufferSpec, ...]


def join_host(
    tables: Tables, constants: bytes, steps: Sequence[Step], host: Variant
) -> tuple[Tables, bytes]:
    """The tables of the whole program, and its constants.

    `tables` has the kernels and buffers of the device, and `steps` are all calls in order.
    """
    start = len(constants) + -len(constants) % ALIGN
    constants = constants.ljust(start, b"\0") + host.constants
    buffers = {buffer: number for number, buffer in enumerate(tables.buffers)}
    first_host = len(tables.kernels)
    first_copy = first_host + len(host.tables.kernels)

    def number(buffer: BufferSpec) -> int:
        return buffers.setdefault(buffer, len(buffers))

    def host_number(index: int) -> int:
        buffer = host.tables.buffers[index]
        shift = start if buffer.kind == "constant" else 0
        return number(replace(buffer, value=buffer.value + shift))

    launches: list[LaunchSpec] = []
    waiting = list(host.tables.launches)
    if len(waiting) != sum(step.on_host for step in steps):
        raise LoweringError("the two halves of the program do not have the same launches")
    copies = _Copies()

    def copy(moved: Iterable[BufferSpec], to_host: bool) -> None:
        kernel = first_copy + (not to_host)
        launches.extend(LaunchSpec(kernel, (number(b),), 0) for b in moved)

    for step in steps:
        if step.on_host:
            launch = waiting.pop(0)
            ids = tuple(map(host_number, launch.buffers))
            made = LaunchSpec(first_host + launch.kernel, ids, launch.reads)
        elif step.launch is not None:
            made = step.launch
        else:
            continue
        copy(copies.before(step), step.on_host)
        launches.append(made)
    copy(copies.at_end(), to_host=False)
    joined = replace(
        tables,
        kernels=(*tables.kernels, *host.tables.kernels, *map(_copy_spec, COPIES)),
        launches=tuple(launches),
        buffers=tuple(buffers),
        work=tables.work + host.tables.work,
        scratch_size=host.tables.scratch_size,
    )
    return joined, constants


def _copy_spec(core: str) -> KernelSpec:
    return KernelSpec(f"copy_{core}", "", 1, core, 0, 0, "")


_SIDES = {False: "device", True: "host"}


@dataclass
class _Copies:
    """Follows a program and knows which sides have the value of each buffer.

    Arguments begin on the device, and constants are on both sides. A buffer that is not known has
    no value that anybody needs.
    """

    sides: dict[BufferSpec, set[str]] = field(default_factory=dict)

    def before(self, step: Step) -> list[BufferSpec]:
        """What has to be copied to the side of `step`, which is taken to have run then."""
        side = _SIDES[step.on_host]
        moved = []
        for buffer in dict.fromkeys(step.reads):
            if buffer.kind == "arg":
                self.sides.setdefault(buffer, {"device"})
            if buffer.nbytes and side not in self.sides.get(buffer, {side}):
                moved.append(buffer)
                self.sides[buffer].add(side)
        for buffer in step.writes:
            for old in list(_overlapping(buffer, self.sides)):
                del self.sides[old]
        for buffer in step.writes:
            self.sides[buffer] = {side}
        return moved

    def at_end(self) -> list[BufferSpec]:
        """What has to be copied to the device: results, and arguments that were updated."""
        return [
            buffer
            for buffer, sides in self.sides.items()
            if buffer.kind in ("arg", "output") and buffer.nbytes and "device" not in sides
        ]


def _overlapping(buffer: BufferSpec, known: Iterable[BufferSpec]) -> Iterator[BufferSpec]:
    """Those that are gone when `buffer` is written: in the workspace, values share memory."""
    for other in known:
        if other.kind != buffer.kind:
            continue
        if buffer.kind != "workspace":
            if other.value == buffer.value:
                yield other
        elif other.value < buffer.value + buffer.nbytes and buffer.value < (
            other.value + other.nbytes
        ):
            yield other
