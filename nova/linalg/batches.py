"""What the functions of this folder share: operands as batches of matrices in a type to compute in.

A batch has shape (batch, rows, columns); the leading axes of the user's tensors are flattened.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import DType, bf16, f16, f32, float_of, i64, promote_all, real_of
from nova.core.location import user_location
from nova.core.sizes import is_static
from nova.errors import GradientError, ShapeError, SymbolicSizeError
from nova.graph.custom_gradient import custom_vjp
from nova.graph.transforms import as_tensor
from nova.ops import F
from nova.ops.rules import broadcast_shapes

# Factorizations of half precision matrices compute in f32.
_COMPUTED = {f16: f32, bf16: f32}


def as_matrices(name: str, *operands: Any, square: bool = False) -> list[Any]:
    """The operands as float or complex tensors of one type whose last two axes are matrices."""
    tensors = [as_tensor(x) for x in operands]
    common = float_of(promote_all([t.dtype for t in tensors]))
    for t in tensors:
        if len(t.shape) < 2:
            raise ShapeError(f"{name}: {t.shape} is not a batch of matrices")
        if not all(is_static(n) for n in t.shape):
            raise SymbolicSizeError(
                f"{name}: {t.shape} has symbolic sizes", hint="compile it for static sizes"
            )
    if square and tensors[0].shape[-1] != tensors[0].shape[-2]:
        raise ShapeError(f"{name}: matrices of {tensors[0].shape[-2:]} are not square")
    return [cast(t, common) for t in tensors]


def cast(x: Any, type_: DType) -> Any:
    """`x` in another type; no node if it has that type."""
    return x if x.dtype is type_ else F.cast(x, dtype=type_)


def compute_type(type_: DType) -> DType:
    """The type that a factorization of matrices of `type_` computes in."""
    return _COMPUTED.get(type_, type_)


def flat(x: Any) -> Any:
    """(batch, rows, columns), in the type to compute in."""
    x = cast(x, compute_type(x.dtype))
    return F.reshape(x, (prod(x.shape[:-2]), *x.shape[-2:]))


def restored(x: Any, batch: tuple[int, ...], type_: DType) -> Any:
    """A result of a batch with the user's leading axes and type.

    Real results of complex matrices, such as singular values, stay real.
    """
    if type_.is_complex and not x.dtype.is_complex:
        type_ = real_of(type_)
    return cast(F.reshape(x, (*batch, *x.shape[1:])), type_)


def without_gradient(message: str, hint: str, a: Any, *values: Any) -> tuple[Any, ...]:
    """Values that are computed from `a`; a gradient of them is a GradientError."""

    def forward(a: Any, value: Any) -> Any:
        return value, ()

    def backward(residuals: Any, grad: Any) -> Any:
        raise GradientError(message, where=str(location), hint=hint)

    location = user_location()
    marked = custom_vjp(lambda a, value: value)
    marked.defvjp(forward, backward)
    return tuple(marked(a, value) for value in values)


def transposed(x: Any) -> Any:
    """The transposes of matrices."""
    return F.swapaxes(x, -1, -2)


def adjoint(x: Any) -> Any:
    """The conjugate transposes of matrices; of real ones the transposes."""
    return transposed(F.conj(x))


def squared(x: Any) -> Any:
    """|x|^2 of each element, real."""
    if not x.dtype.is_complex:
        return x * x
    return F.square(F.real(x)) + F.square(F.imag(x))


def identities(batch: int, n: int, type_: DType) -> Any:
    """A batch of identity matrices."""
    return F.expand(F.eye(n, dtype=type_), (batch, n, n))


def _at(*position: Any) -> Any:
    return F.stack([cast(as_tensor(i), i64) for i in position])


def column(x: Any, j: Any) -> Any:
    """Column j of each matrix, (batch, rows, 1)."""
    return F.dynamic_slice(x, _at(0, 0, j), slice_sizes=(x.shape[0], x.shape[1], 1))


def row(x: Any, i: Any) -> Any:
    """Row i of each matrix, (batch, 1, columns)."""
    return F.dynamic_slice(x, _at(0, i, 0), slice_sizes=(x.shape[0], 1, x.shape[2]))


def with_column(x: Any, j: Any, values: Any) -> Any:
    """The matrices with other values in column j."""
    return F.dynamic_update_slice(x, values, _at(0, 0, j))


def with_row(x: Any, i: Any, values: Any) -> Any:
    """The matrices with other values in row i."""
    return F.dynamic_update_slice(x, values, _at(0, i, 0))


def diagonals(x: Any) -> Any:
    """The main diagonals of matrices."""
    return F.diagonal(x)


def broadcast_batches(a: Any, b: Any) -> tuple[Any, Any]:
    """Both operands with their common leading axes."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return F.expand(a, (*batch, *a.shape[-2:])), F.expand(b, (*batch, *b.shape[-2:]))
