"""Converts host code around launches to a list of launches.

In: a function whose loops around launches are unrolled. Out: its launches in order, including those
of device functions that replace the host code between them (`nova.frontends.host_kernels`), its
buffers, and its results. Called by `nova.frontends.launches`.

In a run, the host only launches. Its arithmetic, loads and stores between two launches run in one
thread of the device, so a run never waits for a value; copies and fills are kernels. A branch on a
runtime condition becomes a condition of each kernel inside. A loop with a runtime trip count stays
a loop, and waits for its condition. Async tokens order launches, and so does the program: they are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from nova.errors import UnsupportedOpError
from nova.frontends.checks import place
from nova.frontends.host_kernels import BLOCKS, THREADS, HostKernels, Symbols
from nova.frontends.host_loops import has_device_work
from nova.frontends.host_numbers import Number, buffer_of, constant_of, is_number
from nova.ir.bindings import arith, ir
from nova.ir.buffers import VIEWS
from nova.ir.launches import (
    Three,
    check_sizes,
    constant_size,
    find_constant,
    launch_groups,
    three,
)
from nova.ir.walk import every_op
from nova.passes.kernels.group_ops import captured

_LESS = arith.CmpIPredicate.slt
ALLOCATIONS = ("memref.alloc", "memref.alloca", "gpu.alloc")
_DEALLOCATIONS = ("memref.dealloc", "gpu.dealloc")
_NOTHING = VIEWS | {"arith.constant", "gpu.wait", "memref.get_global", "ub.poison"}
_MOST_WAITING = 64
"""The limit on ops in a one-thread kernel: each may have inputs, and kernels take about 500."""
_ARITHMETIC = ("arith", "index", "math")
_ARITHMETIC_OPS = ("memref.load", "memref.store", "scf.for", "scf.if", "scf.while")


@dataclass(frozen=True)
class HostLaunch:
    """A launch of a device function on buffers: values of the old function, or scalars."""

    symbols: Symbols
    grid: Three
    block: Three
    shared: int
    operands: tuple[Any, ...]
    location: Any


@dataclass(frozen=True)
class Lifetime:
    """The position in the launch order where the lifetime of a buffer begins or ends."""

    buffer: Any
    begins: bool


@dataclass(frozen=True)
class Loop:
    """Steps that are repeated while a scalar, read before them, is not 0."""

    condition: Number
    location: Any
    steps: list[HostLaunch | Lifetime | Loop] = field(default_factory=list)


Step = HostLaunch | Lifetime | Loop


@dataclass
class Host:
    """The actions of a function: launches in order, lifetimes between them, and its results."""

    steps: list[Step] = field(default_factory=list)
    returned: list[Any] = field(default_factory=list)


def read_host(main: Any, kernels: HostKernels, filename: str) -> Host:
    """The actions of the function `main`."""
    walk = _Walk(kernels, filename)
    walk.block(main.entry_block, None)
    return walk.host


class _Walk:
    """Walks the ops of a function; arithmetic is queued until another op comes."""

    def __init__(self, kernels: HostKernels, filename: str):
        self.kernels = kernels
        self.filename = filename
        self.host = Host()
        self.steps = self.host.steps  # of the current loop, if any
        self.waiting: list[Any] = []
        self.kept: list[tuple[Any, Number]] = []
        self.guard: Number | None = None
        self.numbers: dict[Any, Any] = {}
        self._structures: dict[str, Callable[[Any, Number | None], None]] = {
            "scf.if": self._branch,
            "scf.for": self._for,
            "scf.while": self._while,
        }

    def block(self, block: Any, guard: Number | None) -> None:
        """All ops of a block, under the condition `guard` if there is one."""
        for op in block.operations:
            self._op(op.operation, guard)

    def _op(self, op: Any, guard: Number | None) -> None:
        if op.name in _NOTHING or op.name in ("scf.yield", "scf.condition"):
            return
        if op.name in ALLOCATIONS:
            self.steps.append(Lifetime(op.results[0], begins=True))
        elif op.name in _DEALLOCATIONS:
            self._flush()  # queued ops may use the buffer
            self.steps.append(Lifetime(op.operands[len(op.operands) - 1], begins=False))
        elif op.name == "gpu.launch_func":
            self._launch(op, guard)
        elif op.name in ("gpu.memcpy", "memref.copy", "gpu.memset"):
            self._move(op, guard)
        elif op.name == "func.return":
            self._return(op)
        elif op.name in self._structures and has_device_work(op):
            self._structures[op.name](op, guard)
        elif self._is_arithmetic(op):
            self._wait(op, guard)
        else:
            self._refuse(op)

    def _refuse(self, op: Any) -> None:
        raise UnsupportedOpError(
            f"{op.name} between launches has no code in Nova",
            where=place(op, self.filename),
            hint="move it into a kernel, or into the program that calls this one",
        )

    def _is_arithmetic(self, op: Any) -> bool:
        known = op.name.partition(".")[0] in _ARITHMETIC or op.name in _ARITHMETIC_OPS
        return known and not has_device_work(op) and all(map(is_number, op.results))

    # --- scalars ----------------------------------------------------------------------------------

    def _wait(self, op: Any, guard: Number | None) -> None:
        self._under(guard)
        if len(self.waiting) >= _MOST_WAITING:
            self._flush()
        self.waiting.append(op)

    def _keep(self, value: Any, number: Number, guard: Number | None) -> None:
        """Let the next arithmetic kernel write a value to its buffer."""
        self._under(guard)
        self.kept.append((value, number))

    def _under(self, guard: Number | None) -> None:
        if guard is not self.guard:
            self._flush()
        self.guard = guard

    def _number(self, value: Any) -> Any:
        """The buffer of a scalar: an argument of the function, a constant, or a computed scalar."""
        if value in self.numbers or not isinstance(value, ir.OpResult):
            return self.numbers.get(value, value)
        if value.owner.operation.name == "arith.constant":
            return constant_of(value.owner.operation)
        return self.numbers[value]

    def _flush(self) -> None:
        """Launch the queued arithmetic."""
        ops, kept = self.waiting, self.kept
        self.waiting, self.kept = [], []
        inside = set(ops)
        for result in [r for op in ops for r in op.results]:
            if any(not _is_within(use.owner.operation, inside) for use in result.uses):
                self.numbers[result] = Number(buffer_of(result.type))
                kept.append((result, self.numbers[result]))
        if not kept and not any(o.name == "memref.store" for op in ops for o in every_op(op)):
            return
        made = {r for op in ops for r in op.results}
        used = [value for op in ops for value in (*op.operands, *captured(op))]
        used = [v for v in dict.fromkeys([*used, *(v for v, _ in kept)]) if v not in made]
        # Known scalars are inputs as well, so that iterations of a loop share their code.
        inline = [v for v in used if not is_number(v) and not isinstance(v.type, ir.MemRefType)]
        inputs = [v for v in used if is_number(v) or isinstance(v.type, ir.MemRefType)]
        location = ops[0].location if ops else ir.Location.unknown()
        with location:
            ops = [*(v.owner.operation for v in inline), *ops]
            symbols = self.kernels.arithmetic(ops, inputs, kept)
        operands = [self._number(v) if is_number(v) else v for v in inputs]
        operands += [number for _, number in kept]
        self._add(symbols, (1, 1, 1), (1, 1, 1), 0, operands, location, self.guard)

    # --- launches ---------------------------------------------------------------------------------

    def _launch(self, op: Any, guard: Number | None) -> None:
        self._flush()
        groups = launch_groups(op)
        block = three([constant_size(value, op) for value in groups.block])
        shared = 0 if groups.shared is None else constant_size(groups.shared, op)
        grid = [find_constant(value) for value in groups.grid]
        sizes = [size for size in grid if size is not None]
        any_grid = len(sizes) < 3
        launched = (BLOCKS, 1, 1) if any_grid else three(sizes)
        check_sizes(launched, block, shared, op)
        self._check_launch(op, groups.operands)
        operands = [self._number(v) if is_number(v) else v for v in groups.operands]
        if any_grid:
            operands += [self._number(value) for value in groups.grid]
        outer, name = op.attributes["kernel"].value
        symbols = self.kernels.variant((outer, name), any_grid, False, op)
        self._add(symbols, launched, block, shared, operands, op.location, guard)

    def _check_launch(self, op: Any, operands: Sequence[Any]) -> None:
        outer, name = op.attributes["kernel"].value
        if (outer, name) not in self.kernels.functions:
            raise UnsupportedOpError(
                f"gpu.launch_func of @{outer}::@{name}, which is not a gpu.func of the program",
                where=place(op, self.filename),
                hint="give the function in a gpu.module: compiled code is not taken",
            )
        for value in operands:
            if not is_number(value) and not isinstance(value.type, ir.MemRefType):
                raise UnsupportedOpError(
                    f"@{name} is given a {value.type}: kernels are given buffers and numbers",
                    where=place(op, self.filename),
                    hint="write it into a buffer, and let the kernel load it",
                )

    def _move(self, op: Any, guard: Number | None) -> None:
        """A copy or a fill: the last two operands are the destination and the source."""
        self._flush()
        first, second = list(op.operands)[-2:]
        if op.name == "memref.copy":
            first, second = second, first
        with op.location:
            if is_number(second):
                symbols, second = self.kernels.fill(first.type, second.type), self._number(second)
            else:
                symbols = self.kernels.copy(first.type, second.type)
        elements = prod(first.type.shape)
        blocks = -(-elements // THREADS)
        if blocks:
            grid, block = (blocks, 1, 1), (THREADS, 1, 1)
            self._add(symbols, grid, block, 0, [first, second], op.location, guard)

    def _add(
        self,
        symbols: Symbols,
        grid: Three,
        block: Three,
        shared: int,
        operands: list[Any],
        location: Any,
        guard: Number | None,
    ) -> None:
        if guard is not None:
            symbols = self.kernels.variant(symbols, False, True, None)
            operands = [*operands, guard]
        self.steps.append(HostLaunch(symbols, grid, block, shared, tuple(operands), location))

    # --- branches, loops and results --------------------------------------------------------------

    def _branch(self, op: Any, guard: Number | None) -> None:
        guards = self._guards(op, guard)
        results = self._new_numbers(op, op.results)
        self._flush()
        for own, region in zip(guards, op.regions, strict=True):
            for block in region.blocks:
                self.block(block, own)
                self._assign(results, _last(block).operands, own)
                self._flush()

    def _new_numbers(self, op: Any, values: Sequence[Any]) -> list[Number]:
        """The buffers of the values that a loop or a branch passes on."""
        made = []
        for value in filter(_is_value, values):
            if not is_number(value):
                raise UnsupportedOpError(
                    f"{op.name} around launches that hands on a {value.type}",
                    where=place(op, self.filename),
                    hint="write into the same buffers in all branches and iterations",
                )
            made.append(Number(buffer_of(value.type)))
            self.numbers[value] = made[-1]
        return made

    def _assign(self, numbers: Sequence[Number], values: Sequence[Any], guard: Any) -> None:
        """Let the next arithmetic kernel write values to their buffers, all at once."""
        for number, value in zip(numbers, filter(_is_value, values), strict=True):
            self._keep(value, number, guard)

    def _for(self, op: Any, guard: Number | None) -> None:
        block = op.regions[0].blocks[0]
        counter, *carried = list(block.arguments)
        lower, upper, step, *initial = list(op.operands)
        less = arith.CmpIPredicate.ult if "unsignedCmp" in op.attributes else _LESS
        ending = _last(block)
        with ir.InsertionPoint(op), op.location:
            starts = arith.cmpi(less, lower, upper)
        with ir.InsertionPoint(ending), op.location:
            following = arith.addi(counter, step)
            goes_on = arith.cmpi(less, following, upper)
        condition = self._new_condition(op, guard)
        numbers = self._new_numbers(op, [counter, *carried])
        self._assign(numbers, [lower, *initial], guard)
        self._wait(starts.owner.operation, guard)
        self._keep(starts, condition, guard)
        with self._loop(condition, op):
            self.block(block, None)
            self._assign(numbers, [following, *ending.operands], None)
            self._keep(goes_on, condition, None)
        self.numbers.update(zip(filter(_is_value, op.results), numbers[1:], strict=True))

    def _while(self, op: Any, guard: Number | None) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        test = _last(before)
        condition = self._new_condition(op, guard)
        given = self._new_numbers(op, before.arguments)
        handed = self._new_numbers(op, after.arguments)
        self._assign(given, op.operands, guard)
        self._flush()
        self.block(before, guard)
        self._assign(handed, list(test.operands)[1:], guard)
        self._keep(test.operands[0], condition, guard)
        with self._loop(condition, op):
            self.block(after, None)
            self._assign(given, _last(after).operands, None)
            self._flush()
            self.block(before, None)
            self._assign(handed, list(test.operands)[1:], None)
            self._keep(test.operands[0], condition, None)
        self.numbers.update(zip(filter(_is_value, op.results), handed, strict=True))

    @contextmanager
    def _loop(self, condition: Number, op: Any) -> Iterator[None]:
        """A loop; the caller updates its condition at the end of the body."""
        self._flush()
        outer, loop = self.steps, Loop(condition, op.location)
        self.steps = loop.steps
        yield
        self._flush()
        self.steps = outer
        self.steps.append(loop)

    def _new_condition(self, op: Any, guard: Number | None) -> Number:
        """A condition that is false if `guard` is false."""
        type_ = ir.IntegerType.get_signless(1)
        condition = Number(buffer_of(type_))
        if guard is not None:
            with ir.InsertionPoint(op), op.location:
                self._keep(arith.ConstantOp(type_, 0).result, condition, None)
        return condition

    def _guards(self, op: Any, guard: Number | None) -> list[Number]:
        """The conditions of the two branches; both are false if `guard` is false."""
        condition = op.operands[0]
        with ir.InsertionPoint(op), op.location:
            true = arith.ConstantOp(condition.type, 1).result
            otherwise = arith.xori(condition, true)
        guards = [self._new_condition(op, guard) for _ in range(2)]
        self._wait(otherwise.owner.operation, guard)
        for own, value in zip(guards, (condition, otherwise), strict=True):
            self._keep(value, own, guard)
        return guards

    def _return(self, op: Any) -> None:
        for value in op.operands:
            if is_number(value):
                number = Number(buffer_of(value.type))
                self._keep(value, number, None)
                self.host.returned.append(number)
            else:
                self.host.returned.append(value)
        self._flush()


def _last(block: Any) -> Any:
    return block.operations[len(block.operations) - 1].operation


def _is_value(value: Any) -> bool:
    """Whether a value is not a token."""
    return str(value.type) != "!gpu.async.token"


def _is_within(op: Any, inside: set[Any]) -> bool:
    """Whether an op is in a set, or nested in an op of the set."""
    while op is not None and op.name != "func.func":
        if op in inside:
            return True
        op = op.parent.operation if op.parent is not None else None
    return False
