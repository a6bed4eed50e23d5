"""The run-time values of symbolic sizes in a kernel.

A kernel with symbolic sizes has a buffer argument with the values of expressions, which the runtime
computes for the sizes of a call. `SizeValues` loads a value at the start of the kernel, once for
each expression; `nova/ir/index.py` asks it for the value of a `SizeExpr`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from nova.core.sizes import Size, SizeExpr
from nova.errors import LoweringError
from nova.ir.bindings import arith, ir, memref
from nova.ir.dialect import SIZE

MOST_VALUES = 4096
"""Upper bound of the expressions of a program: the static size of the buffer's type."""

SIZES_BUFFER = "nova_sizes"
"""The name of the buffer of values in a module."""

"""The op whose result is the value of a size: an `index`. Its attribute `expr` is the text."""

_CURRENT: ContextVar[SizeValues | None] = ContextVar("size_values", default=None)


class SizeValues:
    """Loads the values of expressions in one kernel; `numbers` has the position of each text."""

    def __init__(self, kernel: Any, numbers: dict[str, int]):
        self._block = kernel.entry_block
        self._location = kernel.location
        self._numbers = numbers
        self._values: dict[str, Any] = {}
        type_ = ir.MemRefType.get([MOST_VALUES], ir.IndexType.get())
        self._buffer = self._block.add_argument(type_, self._location)

    def value_of(self, size: Size) -> Any:
        """The value of a size that may be static."""
        if isinstance(size, SizeExpr):
            return self.value(size)
        return arith.constant(ir.IndexType.get(), size)

    def value(self, size: SizeExpr) -> Any:
        """The value of `size`, as an `index`."""
        text = str(size)
        if text not in self._values:
            self._values[text] = self._load(text)
        return self._values[text]

    def _load(self, text: str) -> Any:
        number = self._numbers.setdefault(text, len(self._numbers))
        if number >= MOST_VALUES:
            raise LoweringError(f"the program has more than {MOST_VALUES} symbolic sizes")
        with ir.InsertionPoint.at_block_begin(self._block), self._location:
            return memref.load(self._buffer, [arith.constant(ir.IndexType.get(), number)])

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use this kernel for the values that `index` emits."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


def size_value(size: SizeExpr) -> Any:
    """The value of `size` in the kernel that is lowered; before, the op `nova.size`."""
    values = _CURRENT.get()
    return create_size(size) if values is None else values.value(size)


def create_size(size: SizeExpr) -> Any:
    """The op `nova.size` at the insertion point: its result."""
    return ir.Operation.create(
        SIZE, results=[ir.IndexType.get()], attributes={"expr": ir.StringAttr.get(str(size))}
    ).result
