"""Kernels that are about to be changed for one of their calls: the other calls keep the old one.

`plan-workspace` changes what a kernel does with a buffer that it is given twice. Calls that want
the same change get the same kernel.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from nova.ir.bindings import ir


class KernelCopies:
    """`block` calls the functions in `named`, which gains the copies.

    A copy stands behind the kernel that it is of: `dedup-kernels`, which keeps the first of equal
    ones, gives back the name of a kernel that was changed for all of its calls.
    """

    def __init__(self, block: Any, named: dict[str, Any]):
        self.named = named
        operations = [op.operation for op in block.operations]
        self._calls = Counter(_callee(op) for op in operations if op.name == "func.call")
        self._changed: dict[tuple[str, tuple[int, ...]], str] = {}

    def take(self, call: Any, change: tuple[int, ...]) -> Any | None:
        """The kernel of `call`, which the caller now changes, and which no other call has.

        None where another call wanted the same `change` before: this one has its kernel now.
        """
        name = _callee(call)
        if self._calls[name] == 1:
            # What others were given as the change of something is something else from now on.
            kept = {k: v for k, v in self._changed.items() if name not in (v, k[0])}
            self._changed = kept
            return self.named[name]
        known = self._changed.get((name, change))
        copy = known or self._copy(name)
        call.attributes["callee"] = ir.FlatSymbolRefAttr.get(copy)
        self._calls[name] -= 1
        self._calls[copy] += 1
        if known is not None:
            return None
        self._changed[name, change] = copy
        return self.named[copy]

    def _copy(self, name: str) -> str:
        number = 1
        while (new := f"{name}_{number}") in self.named:
            number += 1
        kernel = self.named[name].operation.clone()
        kernel.attributes["sym_name"] = ir.StringAttr.get(new)
        kernel.move_after(self.named[name].operation)
        self.named[new] = kernel.opview
        return new


def _callee(call: Any) -> str:
    return str(call.attributes["callee"].value)
