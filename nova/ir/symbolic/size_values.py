"""The run-time values of symbolic sizes in a kernel.

A kernel with symbolic sizes has a buffer argument with the values of expressions, which the runtime
computes for the sizes of a call. `SizeValues` loads a value at the start of the kernel, once for
each expression; `nova/ir/index.py` asks it for the value of a `SizeExpr`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any

from nova.core.sizes import Size, SizeExpr
from nova.errors import LoweringError
from nova.ir.attributes import SIZE_VALUES
from nova.ir.bindings import arith, ir, memref
from nova.ir.dialect import SIZE

MOST_VALUES = 4096
"""Upper bound of the expressions of a program: the static size of the buffer's type."""

SIZES_BUFFER = "nova_sizes"
"""The name of the buffer of values in a module."""

_CURRENT: ContextVar[SizeValues | None] = ContextVar("size_values", default=None)


def declare_sizes(module: ir.Module, main: Any, values: dict[str, int]) -> Any:
    """The buffer of the values of sizes, which the runtime fills, as a global of the module."""
    SIZE_VALUES.set(main, tuple(values))
    type_ = ir.MemRefType.get([MOST_VALUES], ir.IndexType.get())
    with ir.InsertionPoint.at_block_begin(module.body), main.location:
        return memref.global_(SIZES_BUFFER, type_, sym_visibility="private")


class SizeValues:
    """Loads the values of expressions in one kernel; `numbers` has the position of each text.

    With `by_terms`, only dims and quotients are loaded, and other expressions computed from them:
    a device function has a parameter for each loaded value.
    """

    def __init__(self, kernel: Any, numbers: dict[str, int], *, by_terms: bool = False):
        self._by_terms = by_terms
        self._block = kernel.entry_block
        self._location = kernel.location
        self._numbers = numbers
        self._values: dict[str, Any] = {}
        self._sizes: dict[str, SizeExpr] = {}
        type_ = ir.MemRefType.get([MOST_VALUES], ir.IndexType.get())
        self._buffer = self._block.add_argument(type_, self._location)
        with ir.InsertionPoint.at_block_begin(self._block), self._location:
            # Values are computed before this op, in the order in which they are needed first.
            self._end = arith.constant(ir.IndexType.get(), 0).owner

    def value_of(self, size: Size) -> Any:
        """The value of a size that may be static."""
        if isinstance(size, SizeExpr):
            return self.value(size)
        return arith.constant(ir.IndexType.get(), size)

    def value(self, size: SizeExpr) -> Any:
        """The value of `size`, as an `index`."""
        text = str(size)
        if text not in self._values:
            is_atom = len(size.terms) == 1 and _is_atom(*size.terms[0])
            computed = self._by_terms and not is_atom
            self._sizes[text] = size
            self._values[text] = self._compute(size) if computed else self._load(text)
        return self._values[text]

    def load(self, size: SizeExpr) -> Any:
        """The value of a size, loaded as a whole."""
        return self._load(str(size))

    def size_of(self, value: Any) -> SizeExpr | None:
        """The size that `value` is; None if it is another value."""
        return next((self._sizes[text] for text, v in self._values.items() if v == value), None)

    def _compute(self, size: SizeExpr) -> Any:
        """The value of a polynomial, from those of its atoms."""
        atoms = {
            atom: self.value(SizeExpr(((((atom, 1),), 1),)))
            for monomial, _ in size.terms
            for atom, _ in monomial
        }
        with ir.InsertionPoint(self._end), self._location:
            total = None
            for monomial, coefficient in size.terms:
                factors = [atoms[atom] for atom, power in monomial for _ in range(power)]
                if coefficient != 1 or not factors:
                    factors.append(arith.constant(ir.IndexType.get(), coefficient))
                term = reduce(arith.muli, factors)
                total = term if total is None else arith.addi(total, term)
        return total

    def _load(self, text: str) -> Any:
        number = self._numbers.setdefault(text, len(self._numbers))
        if number >= MOST_VALUES:
            raise LoweringError(f"the program has more than {MOST_VALUES} symbolic sizes")
        with ir.InsertionPoint(self._end), self._location:
            return memref.load(self._buffer, [arith.constant(ir.IndexType.get(), number)])

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use this kernel for the values that `index` emits."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


def load_size(size: Size) -> Any:
    """The value of a size before a launch: no arithmetic of it is shared with the launch."""
    values = _CURRENT.get()
    if values is None or not isinstance(size, SizeExpr):
        return arith.constant(ir.IndexType.get(), size)
    return values.load(size)


def loaded_size(value: Any) -> SizeExpr | None:
    """The size that `value` is in the kernel that is lowered; None if it is another value."""
    values = _CURRENT.get()
    return None if values is None else values.size_of(value)


def _is_atom(monomial: Any, coefficient: int) -> bool:
    """Whether a term is a dim, a quotient or an extremum, and nothing else."""
    return coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1


def size_value(size: SizeExpr) -> Any:
    """The value of `size` in the kernel that is lowered; before, the op `nova.size`."""
    values = _CURRENT.get()
    return create_size(size) if values is None else values.value(size)


def create_size(size: SizeExpr) -> Any:
    """The op `nova.size` at the insertion point: its result."""
    return ir.Operation.create(
        SIZE, results=[ir.IndexType.get()], attributes={"expr": ir.StringAttr.get(str(size))}
    ).result
