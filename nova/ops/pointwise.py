"""Constructors of elementwise rows: `unary`, `binary` and `pointwise` fill the shared columns.

In: the mathematics of a function (numpy reference, scalar body, derivative). Out: an
`Op`. Called by the families elementwise, transcendental and activations. A row's `vjp` states
only the derivative; the sum of a broadcast operand's gradient to its shape is added here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy as np

from nova.core.dtypes import NARROW_FLOATS, DType, accumulator, bool_, i8, promote_all
from nova.ops.rules import same_type
from nova.ops.table import Op

_NARROW = tuple(dtype.numpy for dtype in NARROW_FLOATS)


def in_f32(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """A numpy reference that computes narrow floats in f32 and rounds the result once.

    Overflow and invalid operations are silent: they give inf and NaN, as in compiled code.
    """

    @wraps(function)
    def reference(*arrays: np.ndarray, **attrs: Any) -> np.ndarray:
        narrow = next((a.dtype for a in arrays if a.dtype in _NARROW), None)
        if narrow is not None:
            arrays = tuple(a.astype(np.float32) if a.dtype in _NARROW else a for a in arrays)
        with np.errstate(all="ignore"):
            result = np.asarray(function(*arrays, **attrs))
            is_wide = narrow is not None and result.dtype == np.float32
            return result.astype(narrow) if is_wide else result

    return reference


def pointwise(
    name: str,
    doc: str,
    operands: tuple[str, ...],
    numpy: Callable[..., Any],
    scalar: Callable[..., Any],
    vjp: Callable[..., Any] | None,
    *,
    tags: Iterable[str] = (),
    methods: tuple[str, ...] | None = None,
    rounded: bool = True,
    **more: Any,
) -> Op:
    """An elementwise row.

    `vjp` gives a tuple of gradients, one per operand (None: it is zero); without `vjp` the
    row is 'nograd'. `rounded=False` declares that the numpy reference handles f16 and bf16 itself.
    """
    more.setdefault("infer", same_type)
    return Op(
        name,
        doc,
        operands,
        numpy=in_f32(numpy) if rounded else numpy,
        scalar=scalar,
        vjp=_summed(vjp) if vjp else None,
        methods=(name,) if methods is None else methods,
        tags=frozenset(("elementwise", *tags, *(() if vjp else ("nograd",)))),
        **more,
    )


def _summed(vjp: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """Each gradient summed over the axes along which its operand was broadcast."""

    def summed(F: Any, g: Any, out: Any, *xs: Any, **attrs: Any) -> tuple[Any, ...]:
        gradients = vjp(F, g, out, *xs, **attrs)
        return tuple(
            None if d is None else F.sum_to(d, shape=x.shape)
            for d, x in zip(gradients, xs, strict=True)
        )

    return summed


def unary(
    name: str,
    doc: str,
    numpy: Callable[..., Any],
    scalar: Callable[..., Any],
    vjp: Callable[..., Any] | None,
    **more: Any,
) -> Op:
    """A row of one operand; `vjp(F, g, out, x)` gives the one gradient."""
    return pointwise(name, doc, ("x",), numpy, scalar, _single(vjp) if vjp else None, **more)


def _single(vjp: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    def as_tuple(F: Any, g: Any, out: Any, x: Any, **attrs: Any) -> tuple[Any, ...]:
        return (vjp(F, g, out, x, **attrs),)

    return as_tuple


def binary(
    name: str,
    doc: str,
    numpy: Callable[..., Any],
    scalar: Callable[..., Any],
    vjp: Callable[..., Any] | None,
    *,
    operands: tuple[str, str] = ("x", "y"),
    **more: Any,
) -> Op:
    """A row of two broadcast operands; `vjp(F, g, out, x, y)` gives both gradients."""
    more.setdefault("cast", "same")
    return pointwise(name, doc, operands, numpy, scalar, vjp, **more)


def same_number(types: tuple[DType, ...]) -> tuple[DType, ...]:
    """A `cast` column: the common dtype, where bool computes as i8 (numpy's `//`, `%`, `**`)."""
    common = promote_all(types)
    return (i8 if common is bool_ else common,) * len(types)


def widened(F: Any, x: Any) -> Any:
    """For compose and vjp: f16 and bf16 tensors as f32, all others unchanged."""
    wide = accumulator(x.dtype)
    return x if wide is x.dtype else F.cast(x, dtype=wide)


def narrowed(F: Any, x: Any, dtype: DType) -> Any:
    """For compose and vjp: back to `dtype`; no node if `x` has it."""
    return x if x.dtype is dtype else F.cast(x, dtype=dtype)
