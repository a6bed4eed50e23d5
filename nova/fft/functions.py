"""The functions of `numpy.fft`, on tensors: any axes, lengths and norms, with gradients.

A transform of f16, bf16 and integers computes in f32. Sizes of the transformed axes are static;
others may be symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, complex_of, real_of
from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.fft.transform import joined
from nova.graph.spelling import takes_torch_keywords
from nova.graph.transforms import as_tensor
from nova.ops import F
from nova.ops.rules import resolve_axis, static_axis

_NORMS = ("backward", "ortho", "forward")


@takes_torch_keywords
@user_facing
def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The discrete Fourier transform along an axis, which is cut or padded with zeros to n."""
    return _complex_transform("fft", x, n, axis, norm, -1)


@takes_torch_keywords
@user_facing
def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`."""
    return _complex_transform("ifft", x, n, axis, norm, 1)


@takes_torch_keywords
@user_facing
def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The transform of a real tensor: the n // 2 + 1 terms of frequencies that are not negative."""
    x = _real_operand("rfft", x)
    moved, size, axis = _moved("rfft", x, n, axis)
    terms = F.rdft(moved, scale=_scale("rfft", norm, size, -1))
    return F.from_parts(_back(terms, axis))


@takes_torch_keywords
@user_facing
def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `rfft`: n real elements, by default 2 * (m - 1) for m terms."""
    return _to_real("irfft", x, n, axis, norm, 1)


@takes_torch_keywords
@user_facing
def hfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The transform of a sequence with Hermitian symmetry, of which x is the first half."""
    return _to_real("hfft", F.conj(as_tensor(x)), n, axis, norm, -1)


@takes_torch_keywords
@user_facing
def ihfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`."""
    x = _real_operand("ihfft", x)
    moved, size, axis = _moved("ihfft", x, n, axis)
    terms = F.rdft(moved, scale=_scale("ihfft", norm, size, 1))
    return F.conj(F.from_parts(_back(terms, axis)))


@takes_torch_keywords
@user_facing
def fftn(x: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`fft` along several axes (all by default), with sizes s."""
    return _several("fftn", x, s, axes, norm, -1)


@takes_torch_keywords
@user_facing
def ifftn(x: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse of `fftn`."""
    return _several("ifftn", x, s, axes, norm, 1)


@takes_torch_keywords
@user_facing
def fft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """`fftn` along two axes."""
    return _several("fft2", x, s, axes, norm, -1)


@takes_torch_keywords
@user_facing
def ifft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `fft2`."""
    return _several("ifft2", x, s, axes, norm, 1)


@takes_torch_keywords
@user_facing
def rfftn(x: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`rfft` along the last of several axes, then `fft` along the others."""
    return _real_several("rfftn", x, s, axes, norm)


@takes_torch_keywords
@user_facing
def rfft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """`rfftn` along two axes."""
    return _real_several("rfft2", x, s, axes, norm)


@takes_torch_keywords
@user_facing
def irfftn(x: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse of `rfftn`."""
    return _to_real_several("irfftn", x, s, axes, norm)


@takes_torch_keywords
@user_facing
def irfft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `rfft2`."""
    return _to_real_several("irfft2", x, s, axes, norm)


@takes_torch_keywords
@user_facing
def fftfreq(n: int, d: float = 1.0, dtype: Any = "f32") -> Any:
    """The frequencies of the terms of `fft`, for samples at distance d."""
    return F.cast(np.fft.fftfreq(*_checked("fftfreq", n, d)), dtype=dtype)


@takes_torch_keywords
@user_facing
def rfftfreq(n: int, d: float = 1.0, dtype: Any = "f32") -> Any:
    """The frequencies of the terms of `rfft`."""
    return F.cast(np.fft.rfftfreq(*_checked("rfftfreq", n, d)), dtype=dtype)


def _checked(name: str, n: Any, d: Any) -> tuple[int, float]:
    """A positive number of samples, and a distance other than 0."""
    if isinstance(n, bool) or not hasattr(n, "__index__") or int(n) < 1:
        raise AttributeValueError(
            f"{name}: n must be a positive int, not {n!r}", where=str(user_location())
        )
    if isinstance(d, bool) or not isinstance(d, int | float | np.number) or d == 0:
        raise AttributeValueError(
            f"{name}: d must be a number other than 0, not {d!r}", where=str(user_location())
        )
    return int(n), float(d)


@takes_torch_keywords
@user_facing
def fftshift(x: Any, axes: Any = None) -> Any:
    """The terms with frequency 0 in the middle of the axes (all by default)."""
    return _shifted(as_tensor(x), axes, 1)


@takes_torch_keywords
@user_facing
def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return _shifted(as_tensor(x), axes, -1)


# --- helpers --------------------------------------------------------------------------------------


def _complex_transform(name: str, x: Any, n: Any, axis: Any, norm: Any, sign: int) -> Any:
    x = as_tensor(x)
    return F.from_parts(_along(name, _parts(x), n, _axis(name, x, axis), norm, sign))


def _parts(x: Any) -> Any:
    """A tensor as a real one, with a last axis of the real and the imaginary part."""
    if x.dtype.is_complex:
        return F.as_parts(x)
    return joined((F.cast(x, dtype=real_of(complex_of(x.dtype))), None))


def _along(name: str, parts: Any, n: Any, axis: int, norm: Any, sign: int) -> Any:
    """The transform of a tensor with a last axis of parts, along another axis."""
    numbers = TensorType(parts.shape[:-1], complex_of(parts.dtype))
    size = static_axis(numbers, axis, f"{name} transforms")
    length = size if n is None else _length(name, n)
    if length < 1:
        raise AttributeValueError(f"{name}: an axis of size {length} has no transform")
    parts = _resized(parts, axis, size, length)
    scale = _scale(name, norm, length, sign)
    rank = len(parts.shape)
    if axis == rank - 2:
        return F.dft(parts, sign=sign, scale=scale)
    # Axes after the transformed one are columns.
    shape = parts.shape
    matrices = F.reshape(parts, (*shape[: axis + 1], prod(shape[axis + 1 : -1]), 2))
    return F.reshape(F.dft(matrices, sign=sign, scale=scale, columns=True), shape)


def _resized(x: Any, axis: int, size: int, length: int) -> Any:
    """An axis cut, or padded with zeros, to a length."""
    if length < size:
        return x[(*(slice(None),) * axis, slice(length))]
    if length == size:
        return x
    rank = len(x.shape)
    return F.pad(x, (0,) * rank, [length - size if i == axis else 0 for i in range(rank)])


def _to_real(name: str, x: Any, n: Any, axis: Any, norm: Any, sign: int) -> Any:
    x = as_tensor(x)
    if not x.dtype.is_complex:
        x = F.cast(x, dtype=complex_of(x.dtype))
    axis = _axis(name, x, axis)
    terms = static_axis(x.type, axis, f"{name} transforms")
    size = 2 * (terms - 1) if n is None else _length(name, n)
    if size < 1:
        raise AttributeValueError(
            f"{name}: {terms} terms give {size} elements", hint="pass n, the size of the result"
        )
    parts = _resized(F.as_parts(x), axis, terms, size // 2 + 1)
    last = len(x.shape) - 1
    parts = parts if axis == last else F.moveaxis(parts, axis, -2)
    result = F.irdft(parts, n=size, scale=_scale(name, norm, size, sign))
    return result if axis == last else F.moveaxis(result, -1, axis)


def _back(terms: Any, axis: int) -> Any:
    """Terms and parts on the last axes, with the terms on the axis of the elements."""
    return terms if axis == len(terms.shape) - 2 else F.moveaxis(terms, -2, axis)


def _several(name: str, x: Any, s: Any, axes: Any, norm: Any, sign: int) -> Any:
    x = as_tensor(x)
    pairs = _sizes_and_axes(name, x, s, axes)
    parts = _parts(x)
    for size, axis in reversed(pairs):
        parts = _along(name, parts, size, axis, norm, sign)
    return F.from_parts(parts)


def _real_several(name: str, x: Any, s: Any, axes: Any, norm: Any) -> Any:
    x = _real_operand(name, x)
    *others, (size, axis) = _sizes_and_axes(name, x, s, axes)
    x = rfft(x, size, axis, norm)
    for size, axis in reversed(others):
        x = _complex_transform(name, x, size, axis, norm, -1)
    return x


def _to_real_several(name: str, x: Any, s: Any, axes: Any, norm: Any, sign: int = 1) -> Any:
    x = as_tensor(x)
    *others, (last, axis) = _sizes_and_axes(name, x, s, axes)
    for size, other in others:
        x = _complex_transform(name, x, size, other, norm, sign)
    return _to_real(name, F.conj(x) if sign < 0 else x, last, axis, norm, sign)


@takes_torch_keywords
@user_facing
def hfftn(x: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`fft` along all but the last of several axes, then `hfft` along that."""
    return _to_real_several("hfftn", x, s, axes, norm, -1)


@takes_torch_keywords
@user_facing
def hfft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """`hfftn` along two axes."""
    return _to_real_several("hfft2", x, s, axes, norm, -1)


@takes_torch_keywords
@user_facing
def ihfftn(x: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse of `hfftn`."""
    return _from_real_several("ihfftn", x, s, axes, norm)


@takes_torch_keywords
@user_facing
def ihfft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of `hfft2`."""
    return _from_real_several("ihfft2", x, s, axes, norm)


def _from_real_several(name: str, x: Any, s: Any, axes: Any, norm: Any) -> Any:
    x = _real_operand(name, x)
    *others, (size, axis) = _sizes_and_axes(name, x, s, axes)
    x = ihfft(x, size, axis, norm)
    for size, axis in reversed(others):
        x = _complex_transform(name, x, size, axis, norm, 1)
    return x


def _sizes_and_axes(name: str, x: Any, s: Any, axes: Any) -> list[tuple[int | None, int]]:
    if axes is None:
        count = len(x.shape) if s is None else len(s)
        axes = range(-count, 0)
    axes = [_axis(name, x, axis) for axis in _items(axes)]
    sizes: Sequence[Any] = [None] * len(axes) if s is None else _items(s)
    if len(sizes) != len(axes) or not axes or len(set(axes)) != len(axes):
        raise AttributeValueError(f"{name}: sizes {s} for axes {axes}", hint="one size per axis")
    return [(None if n in (None, -1) else n, axis) for n, axis in zip(sizes, axes, strict=True)]


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list | range) else [value]


def _real_operand(name: str, x: Any) -> Any:
    x = as_tensor(x)
    if x.dtype.is_complex:
        raise DTypeError(
            f"{name}: {x.type} is not real", hint="use fft, or take nova.real(x) of it"
        )
    part = real_of(complex_of(x.dtype))
    return x if x.dtype is part else F.cast(x, dtype=part)


def _axis(name: str, x: Any, axis: Any) -> int:
    if not x.shape:
        raise ShapeError(f"{name}: a 0-d tensor has no axis to transform")
    return resolve_axis(axis, len(x.shape))


def _moved(name: str, x: Any, n: Any, axis: Any) -> tuple[Any, int, int]:
    """The tensor with the axis last and of size n, that size, and the axis."""
    axis = _axis(name, x, axis)
    size = static_axis(x.type, axis, f"{name} transforms")
    length = size if n is None else _length(name, n)
    if length < 1:
        raise AttributeValueError(f"{name}: an axis of size {length} has no transform")
    resized = _resized(x, axis, size, length)
    last = axis == len(x.shape) - 1
    return resized if last else F.moveaxis(resized, axis, -1), length, axis


def _length(name: str, n: Any) -> int:
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 1:
        raise AttributeValueError(f"{name}: n must be a positive int, not {n!r}")
    return int(n)


def _scale(name: str, norm: Any, n: int, sign: int) -> float:
    norm = "backward" if norm is None else norm
    if norm not in _NORMS:
        raise AttributeValueError(
            f"{name}: norm {norm!r} is unknown", hint=f"it is one of {', '.join(_NORMS)}"
        )
    if norm == "ortho":
        return 1 / sqrt(n)
    return 1 / n if (norm == "backward") == (sign > 0) else 1.0


def _shifted(x: Any, axes: Any, direction: int) -> Any:
    for axis in range(len(x.shape)) if axes is None else _items(axes):
        size = static_axis(x.type, resolve_axis(axis, len(x.shape)), "fftshift rolls")
        x = F.roll(x, size // 2 if direction > 0 else -(size // 2), axis)
    return x
