"""Lowers kernels to LLVM IR in units that compile in parallel: the stages `llvm` and `ll` per unit.

In: a module at the stage `loops`, or being lowered to it. Out: units for
`nova/compiler/cpu/llvm.py`, shared functions first and then the units that take longest, so that
LLVM runs while the next units are lowered. The module is at the stage `llvm` after the last unit
has been taken. `nova/compiler/cpu/backend.py` calls this.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nova.compiler.cpu.llvm import Unit
from nova.compiler.cpu.llvm_compat import normalise
from nova.core.records import record
from nova.ir.attributes import KERNEL, MATH, SCALAR_LOOPS, SHARED, Flag
from nova.ir.bindings import ir, llvm
from nova.ir.kernel import Kernel
from nova.passes.base import Pass, run_pipeline, run_verified_once
from nova.passes.cpu.drop_host_code import DropHostCode
from nova.passes.cpu.export_kernels import BODY
from nova.passes.pipelines import tidy_loops

_KERNELS_PER_OBJECT = 3
# Independent of the number of threads: a program compiles to the same bytes on every machine.
_MOST_OBJECTS = 8
_UNROLLED_WORK = 8_000
# The least text of shared functions that gets a separate unit.
_LEAST_SHARED = 16_000
# The slowdown of LLVM on text that it vectorizes.
_VECTORIZED_COST = 4
_FUNCTION = re.compile(r"^  func\.func (?:private )?@(\w+)\(", re.MULTILINE)
_CALL = re.compile(r"\bcall @(\w+)\(")


@record
class _Part:
    """The functions of one unit, and the LLVM options for them."""

    functions: list[Any]
    size: int
    unroll: bool = False
    vectorize: bool = True

    @property
    def cost(self) -> int:
        return self.size * (_VECTORIZED_COST if self.vectorize else 1)


class UnitLowering:
    """Lowers the code of a module from `loops` to LLVM IR; `passes` lead to `llvm`.

    `written` yields units of shared functions while the module is still being lowered to `loops`;
    it may be called after each kernel, or not at all. `shared` yields the remaining shared
    functions, and `kernels` the kernels; call them in this order, with the text of the stage. The
    caller owns `main` and everything that is not code until the last one starts. `lowering` and
    `translating` are the seconds that both have taken so far.
    """

    def __init__(self, module: ir.Module, passes: Sequence[Pass]):
        self.module = module
        self.passes = passes
        self.lowering = 0.0
        self.translating = 0.0
        self._texts: dict[str, str] = {}
        self._declared: dict[str, dict[str, Any]] = {}
        self._math: set[str] = set()
        self._seen = 0  # ops in the module when `written` last looked for functions
        self._lowered: list[ir.Module] = []  # results of `written`, to be put into the module

    def written(self) -> Iterator[Unit]:
        """Units of new shared functions since the last call, if they are many.

        They are lowered as they will be at `loops`: a copy gets the cleanup passes of that stage.
        """
        count = len(self.module.body.operations)
        if count == self._seen:  # called after each of many kernels
            return
        self._seen = count
        new = [op for op in self._functions(SHARED) if _name(op) not in self._declared]
        if not new:
            return
        started = time.perf_counter()
        cut = self._cut(new, list(self._declared))
        self._declare_shared(new)
        run_pipeline(cut, tidy_loops(), verify=False)
        self._texts |= _function_texts(cut.operation.get_asm(assume_verified=True))
        self.lowering += time.perf_counter() - started
        for part in self._together(_functions(cut, SHARED)[: len(new)]):
            unit, lowered = self._unit(part)
            self._lowered.append(lowered)
            yield unit

    def shared(self, text: str) -> Iterator[Unit]:
        """Units of shared functions; `text` is that of the module."""
        self._texts = _function_texts(text)
        self._declare_shared(self._functions(SHARED))
        while self._lowered:
            self._put_back(self._lowered.pop())
        # The same parts as from `written`: units do not depend on the stage a compile starts from.
        left = {_name(op): op for op in self._functions(SHARED)}
        for kernel in self._functions(KERNEL):
            names = self._reached(kernel, left)
            for part in self._together([left.pop(name) for name in left.copy() if name in names]):
                yield self._replaced(part)

    def kernels(self) -> Iterator[Unit]:
        """Units of kernels: one for tiny kernels, others for those with and without scalar loops.

        Shared functions that are too few for a separate unit are included.
        """
        run_pipeline(self.module, [DropHostCode()], verify=False)
        kernels = self._functions(KERNEL)
        tiny = [op for op in kernels if _work(op) <= _UNROLLED_WORK]
        rest = [op for op in kernels if _work(op) > _UNROLLED_WORK] + self._functions(SHARED)
        parts = [_Part(tiny, sum(map(self._size, tiny)), unroll=True)] if tiny else []
        parts += self._divide_kinds(rest)
        # A long unit at the end would run alone on one thread.
        for part in sorted(parts, key=lambda part: -part.cost):
            yield self._replaced(part)

    def _functions(self, attribute: Flag) -> list[Any]:
        return _functions(self.module, attribute)

    # --- dividing -------------------------------------------------------------------------------

    def _together(self, functions: list[Any]) -> list[_Part]:
        """Functions that became ready at the same time, as parts; empty if they are small."""
        scalar = [op for op in functions if SCALAR_LOOPS.has(op)]
        vector = [op for op in functions if not SCALAR_LOOPS.has(op)]
        parts = [
            _Part(members, sum(map(self._size, members)), vectorize=members is scalar)
            for members in (scalar, vector)
        ]
        return [part for part in parts if part.size >= _LEAST_SHARED]

    def _reached(self, kernel: Any, left: Mapping[str, Any]) -> set[str]:
        """The functions in `left` that a kernel calls, directly or indirectly."""
        found: set[str] = set()
        waiting = [self._text(kernel)]
        while waiting:
            for name in self._called(waiting.pop()) - found:
                if name in left:
                    found.add(name)
                    waiting.append(self._text(left[name]))
        return found

    def _divide_kinds(self, functions: list[Any]) -> list[_Part]:
        scalar = [op for op in functions if SCALAR_LOOPS.has(op)]
        vector = [op for op in functions if not SCALAR_LOOPS.has(op)]
        return self._divide(scalar) + [replace(p, vectorize=False) for p in self._divide(vector)]

    def _divide(self, functions: list[Any]) -> list[_Part]:
        """Divide the functions into parts of about the same size."""
        count = max(1, min(_MOST_OBJECTS, len(functions) // _KERNELS_PER_OBJECT))
        members: list[list[Any]] = [[] for _ in range(count)]
        sizes = [0] * count
        for size, op in sorted(((self._size(f), f) for f in functions), key=lambda e: -e[0]):
            smallest = sizes.index(min(sizes))
            members[smallest].append(op)
            sizes[smallest] += size
        return [_Part(*part) for part in zip(members, sizes, strict=True) if part[0]]

    def _size(self, function: Any) -> int:
        return len(self._text(function))

    def _text(self, function: Any) -> str:
        # Names with escaped characters, in hand-written text, do not match in the printed text.
        return self._texts.get(_name(function)) or function.get_asm(assume_verified=True)

    def _called(self, text: str) -> set[str]:
        return set(_CALL.findall(text))

    # --- lowering -------------------------------------------------------------------------------

    def _replaced(self, part: _Part) -> Unit:
        """The unit of functions of the module; the lowered functions replace them."""
        unit, lowered = self._unit(part)
        started = time.perf_counter()
        self._put_back(lowered)
        self.lowering += time.perf_counter() - started
        return unit

    def _unit(self, part: _Part) -> tuple[Unit, ir.Module]:
        """A unit, and its functions at the stage `llvm`."""
        started = time.perf_counter()
        own = {_name(op) for op in part.functions}
        text = "\n".join(map(self._text, part.functions))
        elsewhere = sorted(self._called(text) - own)
        cut = self._cut(part.functions, elsewhere)
        run_verified_once(cut, [step for step in self.passes if step.concerns(text)])
        lowered = time.perf_counter()
        self.lowering += lowered - started
        code = unit_text(cut)
        self.translating += time.perf_counter() - lowered
        return Unit(code, part.unroll, tuple(elsewhere), part.vectorize), cut

    def _cut(self, functions: Sequence[Any], declared: Sequence[str]) -> ir.Module:
        """A module with copies of functions, and declarations of their callees."""
        with self.module.context, ir.Location.unknown():
            cut = ir.Module.create()
            with ir.InsertionPoint(cut.body):
                for op in functions:
                    op.clone()
                for name in declared:
                    attributes = self._declared[name]
                    ir.Operation.create("func.func", attributes=attributes, regions=1)
        return cut

    def _declare_shared(self, functions: Sequence[Any]) -> None:
        self._declared |= {_name(op): _declaration(op) for op in functions}

    def _put_back(self, lowered: ir.Module) -> None:
        """Replace functions by their lowered versions; declarations are dropped.

        Math functions, of which every unit has a copy, appear once in the module.
        """
        made = [op.operation for op in lowered.body.operations if op.operation.regions[0].blocks]
        own = [op for op in made if not MATH.has(op) or _name(op) not in self._math]
        self._math.update(_name(op) for op in made if MATH.has(op))
        made = own
        names = {_name(op).removesuffix(BODY) for op in made}
        code = self._functions(KERNEL) + self._functions(SHARED)
        place = {name: op for op in code if (name := _name(op)) in names}
        before = next(iter(place.values()))
        for op in made:
            before = place.get(_name(op).removesuffix(BODY), before)
            with ir.InsertionPoint(before):
                op.clone()
        for op in place.values():
            op.erase()


def _functions(module: ir.Module, attribute: Flag) -> list[Any]:
    """The functions with an attribute that have not been lowered yet."""
    operations = [op.operation for op in module.body.operations]
    return [op for op in operations if op.name == "func.func" and attribute.has(op)]


def _function_texts(text: str) -> dict[str, str]:
    """The text of each function: counting and searching it is much faster than walking the ops."""
    found = list(_FUNCTION.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    # The end of the module follows the last function.
    return {m[1]: text[m.start() : end].rstrip("} \n") for m, end in zip(found, ends, strict=True)}


def _declaration(function: Any) -> dict[str, Any]:
    """The attributes of a declaration of a shared function."""
    kept = ("sym_name", "function_type", "sym_visibility", "arg_attrs", SHARED.name)
    return {name: function.attributes[name] for name in kept if name in function.attributes}


def _name(function: Any) -> str:
    return str(function.attributes["sym_name"].value)


def _work(kernel: Any) -> int:
    return Kernel(kernel).work


def unit_text(module: ir.Module) -> str:
    """LLVM IR of a module at the stage `llvm`."""
    return normalise(llvm.translate_module_to_llvmir(module.operation))
