"""Kernels to LLVM IR in units that compile side by side: the stages `llvm` and `ll`, unit by unit.

In: a module at the stage `loops`, and its text. Out: units for `nova/codegen/llvm.py`, those that
take longest first, so that LLVM is at work while the next ones are still being lowered; the module
is at the stage `llvm` when the last one has been taken. `nova/codegen/compile.py` calls this.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nova.codegen.llvm import Unit
from nova.codegen.normalise import normalise
from nova.mlir.bindings import ir, llvm
from nova.passes.base import Pass, run_pipeline, run_verified_once
from nova.passes.export_kernels import BODY
from nova.passes.strip_host import StripHost
from nova.records import record
from nova.schedules.shared import SCALAR_LOOPS, SHARED

_KERNELS_PER_OBJECT = 3
# Not the number of threads: the same program gives the same bytes on every machine.
_MOST_OBJECTS = 8
_UNROLLED_WORK = 8_000
# How much longer LLVM takes over text that it is to vectorize.
_VECTORIZED_COST = 4
_FUNCTION = re.compile(r"^  func\.func (?:private )?@(\w+)\(", re.MULTILINE)
_CALL = re.compile(r"\bcall @(\w+)\(")


@record
class _Part:
    """Functions that go into one unit, and how LLVM is to treat them."""

    functions: list[Any]
    size: int
    unroll: bool = False
    vectorize: bool = True

    @property
    def cost(self) -> int:
        return self.size * (_VECTORIZED_COST if self.vectorize else 1)


@dataclass
class UnitLowering:
    """The way of a module from `loops` to LLVM IR; `passes` lead to `llvm`.

    `shared` gives the units of the functions that kernels share, `kernels` those of the kernels;
    to be taken in this order. `main` and what is no code is the caller's until the second begins.
    `lowering` and `translating` are the seconds that both have taken so far.
    """

    module: ir.Module
    text: str
    passes: Sequence[Pass]
    lowering: float = 0.0
    translating: float = 0.0
    _texts: dict[str, str] = field(init=False)
    _declared: dict[str, dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self._texts = _function_texts(self.text)
        self._declared = {_name(op): _declaration(op) for op in self._functions(SHARED)}

    def shared(self) -> Iterator[Unit]:
        """Units of what kernels share."""
        yield from self._lower(self._divide_kinds(self._functions(SHARED)))

    def kernels(self) -> Iterator[Unit]:
        """Units of kernels: one of the tiny ones, others of those with scalar loops or without."""
        run_pipeline(self.module, [StripHost()], verify=False)
        kernels = self._functions("nova.kernel")
        tiny = [op for op in kernels if _work(op) <= _UNROLLED_WORK]
        rest = [op for op in kernels if _work(op) > _UNROLLED_WORK]
        parts = [_Part(tiny, sum(map(self._size, tiny)), unroll=True)] if tiny else []
        yield from self._lower(parts + self._divide_kinds(rest))

    def _functions(self, attribute: str) -> list[Any]:
        operations = [op.operation for op in self.module.body.operations]
        return [op for op in operations if attribute in op.attributes]

    def _divide_kinds(self, functions: list[Any]) -> list[_Part]:
        scalar = [op for op in functions if SCALAR_LOOPS in op.attributes]
        vector = [op for op in functions if SCALAR_LOOPS not in op.attributes]
        return self._divide(scalar) + [replace(p, vectorize=False) for p in self._divide(vector)]

    def _divide(self, functions: list[Any]) -> list[_Part]:
        """The functions in parts of about the same size."""
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
        # Names with other letters, in a text that a person wrote, are not found in it.
        return self._texts.get(_name(function)) or function.get_asm(assume_verified=True)

    def _lower(self, parts: list[_Part]) -> Iterator[Unit]:
        # A long one at the end would keep one thread busy alone.
        for part in sorted(parts, key=lambda part: -part.cost):
            yield self._unit(part)

    def _unit(self, part: _Part) -> Unit:
        started = time.perf_counter()
        own = {_name(op) for op in part.functions}
        text = "\n".join(map(self._text, part.functions))
        called = set(_CALL.findall(text))
        elsewhere = sorted(called - own)
        with self.module.context, ir.Location.unknown():
            cut = ir.Module.create()
            with ir.InsertionPoint(cut.body):
                for op in part.functions:
                    op.clone()
                for name in elsewhere:
                    self._declare(name)
        run_verified_once(cut, [step for step in self.passes if step.concerns(text)])
        self._put_back(part, cut)
        lowered = time.perf_counter()
        self.lowering += lowered - started
        code = unit_text(cut)
        self.translating += time.perf_counter() - lowered
        return Unit(code, part.unroll, tuple(elsewhere), part.vectorize)

    def _declare(self, name: str) -> None:
        """The declaration of a function that another unit has, at the insertion point."""
        ir.Operation.create("func.func", attributes=self._declared[name], regions=1)

    def _put_back(self, part: _Part, cut: ir.Module) -> None:
        """Lowered functions take the places of those they were; declarations are of no use."""
        made = [op.operation for op in cut.body.operations if op.operation.regions[0].blocks]
        place = {_name(op): op for op in part.functions}
        before = part.functions[0]
        for op in made:
            before = place.get(_name(op).removesuffix(BODY), before)
            with ir.InsertionPoint(before):
                op.clone()
        for op in part.functions:
            op.erase()


def _function_texts(text: str) -> dict[str, str]:
    """The text of each function; to count and search it is much faster than to walk the ops."""
    found = list(_FUNCTION.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {m[1]: text[m.start() : end] for m, end in zip(found, ends, strict=True)}


def _declaration(function: Any) -> dict[str, Any]:
    """The attributes of a declaration of a shared function."""
    kept = ("sym_name", "function_type", "sym_visibility", "arg_attrs", SHARED)
    return {name: function.attributes[name] for name in kept if name in function.attributes}


def _name(function: Any) -> str:
    return str(function.attributes["sym_name"].value)


def _work(kernel: Any) -> int:
    return int(kernel.attributes["nova.work"].value)


def unit_text(module: ir.Module) -> str:
    """LLVM IR of a module at the stage `llvm`."""
    return normalise(llvm.translate_module_to_llvmir(module.operation))
