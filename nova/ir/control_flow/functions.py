"""Control functions and the modules of their regions.

`outline-control-flow` makes a *control function* of every loop and branch: a declaration with the
attribute `nova.control`, which `main` calls like a kernel. Each region is a module inside the
module, with a `main` of its own, so the passes up to `kernels-to-buffers` run over it as over any
program (`nova/passes/base.py`). `hoist-regions` then makes *region functions* of their mains.

Arguments of a control function, and of the `main` of its regions:

    switch  (selector, *operands) -> results; regions (*operands) -> results, one per branch
    while   (i1 condition, *consts, *carries) -> carries;
            region (*consts, *carries) -> (*carries, i1): the body, and the condition after it
    for     (*consts, *carries, *xs) -> (*carries, *ys);
            region (i64 position, *consts, *carries, *x slices) -> (*carries, *y slices)
    call    (ui8 file, *arguments) -> outputs; no regions: the file has a program, and `memory` is
            what a run of it needs. The plan has it, and `outline-control-flow` leaves it

`nova/artifact/tables.py` writes them to the file, `native/src/exec/control.c` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from nova.core.records import record
from nova.ir.attributes import CONTROL, REGION
from nova.ir.bindings import builtin, ir
from nova.ir.walk import functions, main_function


@record
class Control:
    """The contents of the attribute `nova.control`; `regions` are names of modules or functions."""

    construct: str  # switch, while, for, call
    regions: tuple[str, ...]
    consts: int = 0
    carries: int = 0
    length: int = 0
    reverse: bool = False
    memory: int = 0

    @staticmethod
    def of(function: Any) -> Control:
        fields = CONTROL.get(function)
        counts = {name: int(fields[name].value) for name in ("consts", "carries", "length")}
        return Control(
            construct=str(fields["construct"].value),
            regions=tuple(symbol.value for symbol in fields["regions"]),
            reverse=bool(fields["reverse"].value),
            memory=int(fields["memory"].value) if "memory" in fields else 0,
            **counts,
        )

    @property
    def first_carry(self) -> int:
        """The number of the argument that is the first carry."""
        return self.consts + (self.construct == "while")

    def set(self, function: Any) -> None:
        i64 = ir.IntegerType.get_signless(64)
        counts = {n: getattr(self, n) for n in ("consts", "carries", "length")}
        fields = {
            "construct": ir.StringAttr.get(self.construct),
            "regions": ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(n) for n in self.regions]),
            **{name: ir.IntegerAttr.get(i64, value) for name, value in counts.items()},
            "reverse": ir.BoolAttr.get(self.reverse),
        }
        if self.construct == "call":
            fields["memory"] = ir.IntegerAttr.get(i64, self.memory)
        CONTROL.set(function, ir.DictAttr.get(fields))


def is_control(function: Any) -> bool:
    """Whether a function is a control function."""
    return CONTROL.has(function)


def control_functions(module: Any) -> list[Any]:
    """The control functions of a module, in order."""
    return [f for f in functions(module) if is_control(f)]


def region_modules(module: Any) -> list[Any]:
    """The modules of regions directly inside a module; they come first in it."""
    return list(takewhile(lambda op: isinstance(op, builtin.ModuleOp), module.body.operations))


def every_control(module: Any) -> list[Any]:
    """The control functions of a module and of the modules inside it."""
    inner = [f for region in region_modules(module) for f in every_control(region)]
    return [*control_functions(module), *inner]


def host_functions(module: Any) -> Iterator[Any]:
    """The functions that call kernels: the region functions, and `main` last."""
    for function in functions(module):
        if REGION.has(function):
            yield function
    yield main_function(module)


def is_call(op: Any) -> bool:
    """Whether an op is a call of a function."""
    return bool(op.name == "func.call")


def name_of(op: Any) -> str:
    """The symbol name of a module or function."""
    return str(op.operation.attributes["sym_name"].value)
