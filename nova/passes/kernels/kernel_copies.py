"""Copy-on-write of kernels that change for one of their calls: the other calls keep the original.

`plan-workspace` changes how a kernel uses a buffer that is passed twice. Calls that need the same
change share a kernel.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from nova.ir.bindings import ir


class KernelCopies:
    """`block` calls the functions in `named`, which gains the copies.

    A copy comes after its original: `dedup-kernels`, which keeps the first of equal kernels,
    restores the name of a kernel that was changed for all of its calls.
    """

    def __init__(self, block: Any, named: dict[str, Any]):
        self.named = named
        operations = [op.operation for op in block.operations]
        self._calls = Counter(_callee(op) for op in operations if op.name == "func.call")
        self._changed: dict[tuple[str, tuple[int, ...]], str] = {}

    def take(self, call: Any, change: tuple[int, ...]) -> Any | None:
        """The kernel of `call`, which the caller now changes, and which no other call uses.

        None where an earlier call needed the same `change`: this call now uses that kernel.
        """
        name = _callee(call)
        if self._calls[name] == 1:
            # Copies recorded as a change of this kernel are no longer that from now on.
            changed = {k: v for k, v in self._changed.items() if name not in (v, k[0])}
            self._changed = changed
            return self.named[name]
        existing = self._changed.get((name, change))
        copy = existing or self._copy(name)
        call.attributes["callee"] = ir.FlatSymbolRefAttr.get(copy)
        self._calls[name] -= 1
        self._calls[copy] += 1
        if existing is not None:
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
