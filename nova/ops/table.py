"""The op table: the columns of a row, and the lookup of rows.

Everything else is derived from the rows: the functions and `Tensor` methods, the dialect ops with
their verifiers, the numpy interpreter, the gradients, the lowering, the docs and the per-op tests.

There are three sorts of row:

- a *primitive* has a `lower` column: its lowering to linalg;
- a *composite* has a `compose` column instead: its expansion into other rows. It survives as
  one op to the nova dialect, where `decompose-composites` expands it. Its gradient is that of the
  expansion unless the row has its own `vjp`;
- *sugar* has a `build` column: an ordinary function over tensors that creates no node of its own.

Columns take their dependencies as arguments and import neither the graph nor MLIR: `F` holds the op
functions (for vjp and compose), `b` is the linalg builder of `nova.ir.linalg.builder` (for lower).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any

from nova.core.dtypes import DType, TensorType, float_of, promote_all
from nova.core.records import record
from nova.errors import UnknownOpError

Attrs = dict[str, Any]


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Any = _Required()
CPU_KERNEL = "cpu kernel"
"""The tag of composites whose kernel is one for CPUs only."""
# Names of operands that are integers whatever the dtypes of the others.
_INDEX_OPERANDS = (
    "index",
    "seed",
    "q_segment",
    "k_segment",
    "key_begin",
    "key_end",
    "row_begin",
    "row_end",
)


@record
class Op:
    """One row.

    name      the op's name: `nova.<name>` in Python and in the dialect.
    operands  names of tensor operands; a trailing `name?` may be left out, `*name` is any number.
    attrs     keyword arguments with defaults; `REQUIRED` where there is none.
    infer     (operand types, canonical attrs) -> result type; raises ShapeError, DTypeError, ...
    canon     (operand types, attrs) -> attrs with negative axes resolved, ints made tuples etc.
    cast      how operands are cast before: 'same' common type, 'float' common float type,
              'none' as they are, or a function types -> types.
    numpy     (*arrays, **attrs) -> array: the reference. Composites may leave it out: the
              interpreter then runs the expansion.
    vjp       (F, g, out, *operands, **attrs) -> one gradient (or None) per operand. `nograd` in
              tags says on purpose that there is none (comparisons, integer results). A composite
              may return NotImplemented: the gradient is then that of its expansion.
    lower     (b, out_type, *values, **attrs) -> MLIR value.
    lower_in_place  like `lower`, but the result may overwrite the first operand.
    scalar    for elementwise rows: (s, *scalars, **attrs) -> scalar; `lower` is derived from it.
    compose   (F, *operands, **attrs) -> tensor.
    has_kernel  for composites: (operand types, canonical attrs) -> whether codegen has a kernel
              for the op itself. It is not expanded then, see `form-attention`.
    build     (F, *args, **kwargs) -> anything.
    advise    (operand shapes) -> a warning for the user's line, or None; asked once per call.
    methods   also a method of Tensor under these names.
    tags      'elementwise', 'reduce', 'view', 'smooth' (twice differentiable almost everywhere,
              for the second-derivative tests), 'nograd', 'random', ...
    domain    how tests draw operands: one of 'real', 'positive', 'unit' (-1..1), 'nonzero',
              'ge1', 'bool', 'index', 'probability', 'sorted'; one per operand or one for all.
    floats    True if results are float even for integer operands.
    """

    name: str
    doc: str
    operands: tuple[str, ...] = ("x",)
    attrs: Attrs = field(default_factory=dict)
    infer: Callable[[tuple[TensorType, ...], Attrs], TensorType] | None = None
    canon: Callable[[tuple[TensorType, ...], Attrs], Attrs] | None = None
    cast: str | Callable[[tuple[DType, ...]], tuple[DType, ...]] = "none"
    numpy: Callable[..., Any] | None = None
    vjp: Callable[..., Any] | None = None
    lower: Callable[..., Any] | None = None
    lower_in_place: Callable[..., Any] | None = None
    scalar: Callable[..., Any] | None = None
    compose: Callable[..., Any] | None = None
    has_kernel: Callable[[tuple[TensorType, ...], Attrs], bool] | None = None
    build: Callable[..., Any] | None = None
    advise: Callable[..., Warning | None] | None = None
    methods: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    domain: str | tuple[str, ...] = "real"

    def __reduce__(self) -> tuple[Any, ...]:
        return (op, (self.name,))  # pickled by name, so that tensors can be pickled and copied

    @property
    def kind(self) -> str:
        if self.build is not None:
            return "sugar"
        return "composite" if self.compose is not None else "primitive"

    def is_index(self, position: int) -> bool:
        """Whether an operand holds indices, ids or a seed: its dtype does not affect the others."""
        return not self.variadic and self.operands[position] in _INDEX_OPERANDS

    def cast_types(self, dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
        """The dtypes that operands of `dtypes` are cast to, by the `cast` column."""
        if callable(self.cast):
            return self.cast(dtypes)
        if self.cast == "none" or not dtypes:
            return dtypes
        common = promote_all(dtypes)
        return (float_of(common) if self.cast == "float" else common,) * len(dtypes)

    @property
    def variadic(self) -> bool:
        return bool(self.operands) and self.operands[0].startswith("*")

    @cached_property
    def min_operands(self) -> int:
        return 1 if self.variadic else sum(not n.endswith("?") for n in self.operands)

    @property
    def max_operands(self) -> int | None:
        return None if self.variadic else len(self.operands)


OPS: dict[str, Op] = {}


def register(*rows: Op) -> None:
    """Add rows to the table; names are unique."""
    for row in rows:
        if row.name in OPS:
            raise ValueError(f"op {row.name!r} has two rows")
        OPS[row.name] = row


def op(name: str) -> Op:
    """The row called `name`."""
    try:
        return OPS[name]
    except KeyError:
        from difflib import get_close_matches

        close = get_close_matches(name, OPS, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else "docs/ops.md lists every op"
        raise UnknownOpError(f"there is no op {name!r}", hint=hint) from None


class Functions:
    """`F.exp(x)`: the op functions by name. The graph binds them on import."""

    def __init__(self) -> None:
        self._bound: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return self._bound[name]
        except KeyError:
            raise AttributeError(f"no op function {name!r}") from None

    def bind(self, functions: dict[str, Callable[..., Any]]) -> None:
        self._bound.update(functions)


F = Functions()
