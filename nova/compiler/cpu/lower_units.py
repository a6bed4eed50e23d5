"""Lowers kernels to LLVM IR in units that compile in parallel: the stages `llvm` and `ll` per unit.

In: a module at the stage `loops`, or being lowered to it. Out: units for
`nova/compiler/llvm/machine_code.py`, shared functions first and then the units that take longest,
so that LLVM runs while the next units are lowered. Lowered functions replace those of the module at
the end, so its tables can be read while LLVM runs. `nova/compiler/cpu/backend.py` calls this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nova.compiler.llvm.compat import normalise
from nova.compiler.llvm.machine_code import Unit
from nova.core.records import record
from nova.ir.attributes import KERNEL, MATH, SCALAR_LOOPS, SHARED, Flag
from nova.ir.bindings import ir, llvm
from nova.ir.context import function_texts, print_op
from nova.ir.kernel import Kernel
from nova.passes.base import Pass, run_pipeline, run_verified_once
from nova.passes.cpu.drop_host_code import DropHostCode
from nova.passes.cpu.export_kernels import BODY
from nova.passes.pipelines import tidy_loops

_KERNELS_PER_OBJECT = 6
# The text of kernels in an object, from which a second thread compiles a part of them sooner.
_TEXT_PER_OBJECT = 32_000
# Independent of the number of threads: a program compiles to the same bytes on every machine.
_MOST_OBJECTS = 8
_UNROLLED_WORK = 8_000
# The least text of shared functions that gets a separate unit.
_LEAST_SHARED = 16_000
# The slowdown of LLVM on text that it vectorizes.
_VECTORIZED_COST = 4
# The least work of a kernel that only calls others, for its own code not to matter.
_LEAST_DRIVER_WORK = 1 << 20
# In a loop of a kernel: an op that computes, or accesses memory.
_BUSY_LOOP = re.compile(r"\n {6}[^\n]*\b(?:vector|memref\.(?:load|store|copy)|linalg|x86|amx)\b")
# Begins with literal text, which Python searches for forty times as fast as `\b`.
_CALL = re.compile(r"call @(\w+)\(")


@record
class UnitPart:
    """The functions of one unit, and the LLVM options for them."""

    functions: list[Any]
    size: int
    unroll: bool = False
    vectorize: bool = True
    optimize: bool = True

    @property
    def cost(self) -> int:
        return self.size * (_VECTORIZED_COST if self.vectorize else 1)


@record
class LoweredUnit:
    """The functions of a unit at the stage `llvm`, in a module; `calls` are functions of others."""

    module: ir.Module
    part: UnitPart
    calls: tuple[str, ...]

    def translate(self) -> Unit:
        """The unit in LLVM IR: its stage `ll`."""
        part = self.part
        text = translate_module(self.module)
        return Unit(text, part.unroll, self.calls, part.vectorize, part.optimize)


class UnitLowering:
    """Divides the code of a module at `loops` into parts, and lowers each to the stage `llvm`.

    `ready_parts` yields parts of shared functions while the module is still being lowered to
    `loops`; it may be called after each kernel, or not at all. `put_back` restores them, at the end
    of that stage. `shared_parts` yields the remaining
    shared functions, and `kernel_parts` the kernels. Call them in this order, and `lower` for each
    part before the next one is taken. The module changes in `replace_functions`, after the last
    part: then it is at the stage `llvm`.
    """

    def __init__(self, module: ir.Module, passes: Sequence[Pass]):
        self.module = module
        self.passes = passes
        self._texts: dict[str, str] = {}
        self._declared: dict[str, dict[str, Any]] = {}
        self._op_count = 0  # ops in the module when `ready_parts` last looked for functions
        self._taken: list[tuple[Any, Any]] = []  # declarations, and functions that they stand for
        self._modules: list[ir.Module] = []  # the modules of those functions
        self._lowered: list[ir.Module] = []  # the parts, to be put into the module
        self._names: set[str] = set()  # of the functions in them

    def ready_parts(self) -> Iterator[UnitPart]:
        """Parts of new shared functions since the last call, if they are large enough.

        They are cleaned up as they will be at `loops`, outside of the module: see `put_back`.
        """
        count = len(self.module.body.operations)
        if count == self._op_count:  # called after each of many kernels
            return
        self._op_count = count
        new = [op for op in self._functions(SHARED) if _name(op) not in self._declared]
        if not new:
            return
        self._take_out(new)
        yield from self._shared_parts(new)

    def shared_parts(self, text: str) -> Iterator[UnitPart]:
        """Parts of shared functions; `text` is that of the module."""
        self._texts = function_texts(text)
        self._declare_shared(self._functions(SHARED))
        # The same parts as from `ready_parts`: units are the same from any stage a compile starts.
        remaining = {_name(op): op for op in self._functions(SHARED)}
        for kernel in self._functions(KERNEL):
            callees = self._callees(kernel, remaining)
            names = [name for name in remaining if name in callees]
            yield from self._shared_parts([remaining.pop(name) for name in names])

    def kernel_parts(self) -> Iterator[UnitPart]:
        """Parts of kernels: one for tiny kernels, others for those with and without scalar loops.

        One more has the kernels that only call shared functions. Shared functions that are too few
        for a separate unit are included.
        """
        kernels = self._functions(KERNEL)
        tiny = [op for op in kernels if _work(op) <= _UNROLLED_WORK]
        drivers = [op for op in kernels if self._is_driver(op)]
        large = [op for op in kernels if op not in tiny and op not in drivers]
        parts = [
            UnitPart(members, sum(map(self._size, members)), unroll=True, vectorize=is_scalar)
            for is_scalar in (True, False)
            if (members := [op for op in tiny if SCALAR_LOOPS.has(op) is is_scalar])
        ]
        if drivers:
            size = sum(map(self._size, drivers))
            parts.append(UnitPart(drivers, size, vectorize=False, optimize=False))
        parts += self._divide_by_loops(large + self._functions(SHARED))
        # A long unit at the end would run alone on one thread.
        yield from sorted(parts, key=lambda part: -part.cost)

    def _functions(self, attribute: Flag) -> list[Any]:
        """The functions with an attribute that have not been lowered yet."""
        return [op for op in _functions(self.module, attribute) if _name(op) not in self._names]

    # --- dividing -------------------------------------------------------------------------------

    def _shared_parts(self, functions: list[Any]) -> list[UnitPart]:
        """Functions that became ready at the same time, as parts; empty if they are small."""
        scalar = [op for op in functions if SCALAR_LOOPS.has(op)]
        vector = [op for op in functions if not SCALAR_LOOPS.has(op)]
        parts = [
            UnitPart(members, sum(map(self._size, members)), vectorize=members is scalar)
            for members in (scalar, vector)
        ]
        return [part for part in parts if part.size >= _LEAST_SHARED]

    def _is_driver(self, kernel: Any) -> bool:
        """Whether the loops of a kernel call the blocks of a matmul, and do nothing else."""
        text = self._text(kernel)
        return (
            _work(kernel) >= _LEAST_DRIVER_WORK
            and "call @nova_multiply_" in text
            and not SCALAR_LOOPS.has(kernel)
            and _BUSY_LOOP.search(text) is None
        )

    def _callees(self, kernel: Any, functions: Mapping[str, Any]) -> set[str]:
        """The `functions` that a kernel calls, directly or indirectly."""
        callees: set[str] = set()
        worklist = [self._text(kernel)]
        while worklist:
            for name in self._called(worklist.pop()) - callees:
                if name in functions:
                    callees.add(name)
                    worklist.append(self._text(functions[name]))
        return callees

    def _divide_by_loops(self, functions: list[Any]) -> list[UnitPart]:
        """Divide functions with scalar loops, which LLVM vectorizes, and those without."""
        scalar = [op for op in functions if SCALAR_LOOPS.has(op)]
        vector = [op for op in functions if not SCALAR_LOOPS.has(op)]
        return self._divide(scalar) + [replace(p, vectorize=False) for p in self._divide(vector)]

    def _divide(self, functions: list[Any]) -> list[UnitPart]:
        """Divide the functions into parts of about the same size."""
        size = sum(map(self._size, functions))
        count = max(len(functions) // _KERNELS_PER_OBJECT, size // _TEXT_PER_OBJECT)
        count = max(1, min(_MOST_OBJECTS, len(functions), count))
        members: list[list[Any]] = [[] for _ in range(count)]
        sizes = [0] * count
        for size, op in sorted(((self._size(f), f) for f in functions), key=lambda e: -e[0]):
            smallest = sizes.index(min(sizes))
            members[smallest].append(op)
            sizes[smallest] += size
        return [UnitPart(*part) for part in zip(members, sizes, strict=True) if part[0]]

    def _size(self, function: Any) -> int:
        return len(self._text(function))

    def _text(self, function: Any) -> str:
        # Names with escaped characters, in hand-written text, do not match in the printed text.
        return self._texts.get(_name(function)) or print_op(function)

    def _called(self, text: str) -> set[str]:
        return set(_CALL.findall(text))

    # --- lowering -------------------------------------------------------------------------------

    def lower(self, part: UnitPart) -> LoweredUnit:
        """Lower a part to the stage `llvm`, in a module of its own."""
        defined = {_name(op) for op in part.functions}
        text = "\n".join(map(self._text, part.functions))
        calls = sorted(self._called(text) - defined)
        copy = self._cut(part.functions, calls)
        run_verified_once(copy, [step for step in self.passes if step.concerns(text)])
        self._lowered.append(copy)
        self._names |= defined
        return LoweredUnit(copy, part, tuple(calls))

    def _take_out(self, new: Sequence[Any]) -> None:
        """Move functions to a module of their own and clean them up; declarations stay.

        So the cleanup of the stage `loops` does not process them again.
        """
        others = list(self._declared)
        self._declare_shared(new)
        with self.module.context, ir.Location.unknown():
            own = ir.Module.create()
            for op in new:
                with ir.InsertionPoint(op):
                    self._taken.append((self._declare(_name(op)), op))
                op.detach_from_parent()
                own.body.append(op)
            self._modules.append(own)
            with ir.InsertionPoint(own.body):
                for name in others:
                    self._declare(name)
        run_pipeline(own, tidy_loops(), verify=False)
        self._texts |= function_texts(print_op(own.operation))

    def put_back(self) -> None:
        """Replace the declarations of functions that `ready_parts` took out by the functions."""
        for declaration, op in self._taken:
            op.detach_from_parent()
            ir.InsertionPoint(declaration).insert(op)
            declaration.erase()
        self._taken.clear()
        self._modules.clear()

    def _cut(self, functions: Sequence[Any], declared: Sequence[str]) -> ir.Module:
        """A module with copies of functions, and declarations of their callees."""
        with self.module.context, ir.Location.unknown():
            copy = ir.Module.create()
            with ir.InsertionPoint(copy.body):
                for op in functions:
                    op.clone()
                for name in declared:
                    self._declare(name)
        return copy

    def _declare(self, name: str) -> Any:
        return ir.Operation.create("func.func", attributes=self._declared[name], regions=1)

    def _declare_shared(self, functions: Sequence[Any]) -> None:
        self._declared |= {_name(op): _declaration(op) for op in functions}

    def replace_functions(self) -> None:
        """Put the lowered parts into the module, which has only code from here on.

        They are moved: nothing may use the `LoweredUnit`s any more. Declarations are dropped. Math
        functions, of which every unit has a copy, appear once.
        """
        run_pipeline(self.module, [DropHostCode()], verify=False)
        old = {_name(op): op for flag in (KERNEL, SHARED) for op in _functions(self.module, flag)}
        math: set[str] = set()
        for lowered in self._lowered:
            tops = [op.operation for op in lowered.body.operations]
            defined = [op for op in tops if op.regions[0].blocks]
            new = [op for op in defined if not MATH.has(op) or _name(op) not in math]
            math.update(_name(op) for op in new if MATH.has(op))
            replaced = [old.get(_name(op).removesuffix(BODY)) for op in new]
            before = next(op for op in replaced if op is not None)
            for op, place in zip(new, replaced, strict=True):
                before = place or before
                op.detach_from_parent()
                ir.InsertionPoint(before).insert(op)
        self._lowered.clear()
        for name in self._names:
            old[name].erase()


def _functions(module: ir.Module, attribute: Flag) -> list[Any]:
    """The functions with an attribute, except those at the stage `llvm`."""
    operations = [op.operation for op in module.body.operations]
    return [op for op in operations if op.name == "func.func" and attribute.has(op)]


def _declaration(function: Any) -> dict[str, Any]:
    """The attributes of a declaration of a shared function."""
    names = ("sym_name", "function_type", "sym_visibility", "arg_attrs", SHARED.name)
    return {name: function.attributes[name] for name in names if name in function.attributes}


def _name(function: Any) -> str:
    return str(function.attributes["sym_name"].value)


def _work(kernel: Any) -> int:
    return Kernel(kernel).work


def translate_module(module: ir.Module) -> str:
    """LLVM IR of a module at the stage `llvm`."""
    return normalise(llvm.translate_module_to_llvmir(module.operation))
