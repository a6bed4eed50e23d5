"""The discrete Fourier transform along an axis, of real tensors with a last axis of two parts.

The row `dft` has a kernel for CPUs where n is a product of small primes and a row fits into a
core's private cache: Stockham's algorithm (nova/codegen/cpu/fourier/transform.py). Elsewhere it is
expanded:

- a long transform is one of rows and one of columns, with twiddle factors in between (Cooley and
  Tukey 1965, in the four steps of Bailey 1990);
- a length with a large prime factor is a convolution of a length 2^k (Bluestein 1970);
- others, on a device, are matmuls with constant matrices: one with the DFT matrix for a short
  length, else one for each of several factors. Factors up to 32 cost more operations than radix 2,
  but those are of GEMM kernels, on the matrix units of a device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, f32, f64
from nova.core.sizes import is_static
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.complex.parts import Pair, multiply
from nova.ops.rules import Types, is_real, static_axis
from nova.ops.table import CPU_KERNEL, REQUIRED, Op, register

Attrs = dict[str, Any]

_DIRECT = 64
"""The longest transform that is one matmul, if a longer one can be split."""
_LARGEST_FACTOR = 32
_LARGEST_PRIME = 128
"""A length without small factors above this is transformed by Bluestein's algorithm."""
_KERNEL_PRIMES = (2, 3, 5, 7, 11, 13)
_LEAST_ROW, _ROW_BYTES = 8, 128 << 10
"""The kernel transforms rows of this length or more, and of this many bytes at most."""
_COLUMNS, _COLUMN_BYTES = 8, 256 << 10
"""It transforms columns if as many as a vector has take this many bytes at most."""


# --- columns of the row -------------------------------------------------------------------------


def _canon(ins: Types, attrs: Attrs) -> Attrs:
    sign = attrs["sign"]
    if not is_real(sign) or sign not in (-1, 1):
        raise AttributeValueError(f"sign is -1 or 1, not {sign!r}")
    return {**attrs, "sign": int(sign), "scale": check_scale(attrs["scale"])}


def check_scale(scale: Any) -> float:
    if not is_real(scale):
        raise AttributeValueError(f"scale is a number, not {scale!r}")
    return float(scale)


def _type(ins: Types, attrs: Attrs) -> TensorType:
    (x,) = ins
    if x.dtype not in (f32, f64):
        raise DTypeError(f"a transform of parts in f32 or f64, not {x}")
    axis = _axis(attrs["columns"])
    if x.rank < -axis or static_axis(x, -1, "a transform reads the parts of") != 2:
        raise ShapeError(f"{x} has no last axis of two parts")
    if static_axis(x, axis, "a transform runs along") < 1:
        raise ShapeError(f"an axis of {x.shape[axis]} elements has no transform")
    return x


def _axis(columns: bool) -> int:
    return -3 if columns else -2


def _numpy(x: np.ndarray, *, sign: int, scale: float, columns: bool) -> np.ndarray:
    z = x[..., 0].astype(np.float64) + 1j * x[..., 1].astype(np.float64)
    axis = _axis(columns) + 1
    terms = np.fft.fft(z, axis=axis) if sign < 0 else np.fft.ifft(z, axis=axis, norm="forward")
    return np.stack([terms.real * scale, terms.imag * scale], axis=-1).astype(x.dtype)


def _vjp(F: Any, g: Any, out: Any, x: Any, *, sign: int, scale: float, columns: bool) -> Any:
    return (F.dft(g, sign=-sign, scale=scale, columns=columns),)


def _has_kernel(ins: Types, attrs: Attrs) -> bool:
    (x,) = ins
    n = x.shape[_axis(attrs["columns"])]
    if not all(map(is_static, x.shape)) or 0 in x.shape:
        return False
    if not attrs["columns"]:
        return is_row(int(n), x.dtype.itemsize)
    return (
        int(n) > 1
        and _is_smooth(int(n))
        and int(n) * x.dtype.itemsize * 2 * _COLUMNS <= _COLUMN_BYTES
    )


def _lower(b: Any, out: TensorType, x: Any, *, sign: int, scale: float, columns: bool) -> Any:
    n, form = int(x.shape[_axis(columns)]), "columns" if columns else "rows"
    return b.fourier(out, x, n, form=form, sign=sign, scale=scale)


def is_row(n: int, itemsize: int) -> bool:
    """Whether the kernel takes rows of n elements."""
    return _is_smooth(n) and _LEAST_ROW <= n <= _ROW_BYTES // (2 * itemsize)


def _is_smooth(n: int) -> bool:
    for prime in _KERNEL_PRIMES:
        while n % prime == 0:
            n //= prime
    return n == 1


def _compose(F: Any, x: Any, *, sign: int, scale: float, columns: bool) -> Any:
    if columns:
        rows = F.dft(F.swapaxes(x, -2, -3), sign=sign, scale=scale)
        return F.swapaxes(rows, -2, -3)
    n, itemsize = int(x.shape[-2]), x.dtype.itemsize
    if not is_row(n, itemsize) and (n1 := _row_factor(n, itemsize)):
        return _by_rows(F, x, n1, sign, scale)
    if n > 1 and _first_factor(n) == 1:
        return _bluestein(F, x, n, sign, scale)
    pair = _transform(F, (x[..., 0], x[..., 1]), n, sign, scale)
    return F.stack(list(pair), axis=-1)


def _row_factor(n: int, itemsize: int) -> int:
    """The factor of a long n, at most its root, for which rows and columns have kernels, or 0."""
    if n < _LEAST_ROW**2 or not _is_smooth(n):
        return 0
    factors = (d for d in range(isqrt(n), _LEAST_ROW - 1, -1) if n % d == 0)
    return next((d for d in factors if is_row(n // d, itemsize)), 0)


def _by_rows(F: Any, x: Any, n1: int, sign: int, scale: float) -> Any:
    """n = n1 * n2: transforms of the columns of a matrix, twiddle factors, and of its rows."""
    n2, batch = x.shape[-2] // n1, x.shape[:-2]
    matrix = F.reshape(x, (*batch, n1, n2, 2))
    done = F.dft(matrix, sign=sign, scale=scale, columns=True)
    terms = F.dft(_times(F, done, _twiddles(n2, n1, sign)), sign=sign)
    return F.reshape(F.swapaxes(terms, -2, -3), x.shape)


ROWS = (
    Op(
        "dft",
        "scale * sum over j of x[j] * exp(sign * 2 pi i j k / n) along the axis before the last "
        "one, which has the real and the imaginary part, or with columns before those two; see "
        "nova.fft.fft.",
        attrs={"sign": REQUIRED, "scale": 1.0, "columns": False},
        canon=_canon,
        infer=_type,
        numpy=_numpy,
        vjp=_vjp,
        compose=_compose,
        lower=_lower,
        has_kernel=_has_kernel,
        tags=frozenset({"smooth", CPU_KERNEL}),
    ),
)


def register_rows() -> None:
    register(*ROWS)


# --- matmuls --------------------------------------------------------------------------------------


def _transform(F: Any, x: Pair, n: int, sign: int, scale: float = 1.0) -> Pair:
    n1 = _first_factor(n)
    if n1 == n:
        return _direct(F, x, n, sign, scale)
    if n1 == 1:
        done = _bluestein(F, F.stack(list(x), axis=-1), n, sign, scale)
        return done[..., 0], done[..., 1]
    n2 = n // n1
    batch = x[0].shape[:-1]
    rows = _map(x, lambda part: F.swapaxes(F.reshape(part, (*batch, n1, n2)), -1, -2))
    twiddled = multiply(F, _direct(F, rows, n1, sign), _arrays(_twiddles(n1, n2, sign), x[0]))
    turned = _map(twiddled, lambda part: F.swapaxes(part, -1, -2))
    columns = _transform(F, turned, n2, sign, scale)
    return _map(columns, lambda part: F.reshape(F.swapaxes(part, -1, -2), (*batch, n)))


def _direct(F: Any, x: Pair, n: int, sign: int, scale: float = 1.0) -> Pair:
    """One matmul with the DFT matrix."""
    matrix = _matrix(n, sign, scale).astype(x[0].dtype.numpy)
    parts = F.matmul(F.concat([x[0], x[1]], axis=-1), matrix)
    return parts[..., :n], parts[..., n:]


def _bluestein(F: Any, x: Any, n: int, sign: int, scale: float) -> Any:
    """With jk = (j^2 + k^2 - (k - j)^2) / 2 the sum is a convolution with a chirp."""
    chirp, spectrum = _chirp(n, sign)
    size, rank = len(spectrum), len(x.shape) - 1
    chirps = _arrays(chirp, x)
    low, high = (0,) * rank, (*(0,) * (rank - 1), size - n)
    turned = multiply(F, (x[..., 0], x[..., 1]), chirps)
    padded = F.stack([F.pad(part, low, high) for part in turned], axis=-1)
    terms = F.dft(padded, sign=-1)
    product = multiply(F, (terms[..., 0], terms[..., 1]), _arrays(spectrum, x))
    back = F.dft(F.stack(list(product), axis=-1), sign=1, scale=scale / size)
    return F.stack(list(multiply(F, (back[..., :n, 0], back[..., :n, 1]), chirps)), axis=-1)


def _times(F: Any, x: Any, w: np.ndarray) -> Any:
    """Numbers whose parts are on the last axis, times constants."""
    across = np.stack([w.real, w.real], axis=-1).astype(x.dtype.numpy)
    turned = np.stack([-w.imag, w.imag], axis=-1).astype(x.dtype.numpy)
    return F.add(F.mul(x, across), F.mul(F.flip(x, (-1,)), turned))


def _map(x: Pair, function: Callable[[Any], Any]) -> Pair:
    return function(x[0]), function(x[1])


def _arrays(values: np.ndarray, x: Any) -> Pair:
    """The parts of constants, in the type of x."""
    return values.real.astype(x.dtype.numpy), values.imag.astype(x.dtype.numpy)


# --- constants: computed in f64, with angles reduced as integers ----------------------------------


def _first_factor(n: int) -> int:
    """The factor that is split off a length; n if it is not split, 1 if it has no small factor."""
    if n <= _DIRECT:
        return n
    factors = [d for d in range(2, _LARGEST_FACTOR + 1) if n % d == 0]
    if not factors:
        return n if n <= _LARGEST_PRIME else 1
    balanced = [d for d in factors if n // d <= _LARGEST_FACTOR]
    return min(balanced, key=lambda d: d + n // d) if balanced else max(factors)


@lru_cache(maxsize=64)
def _matrix(n: int, sign: int, scale: float) -> np.ndarray:
    """[re, im] of a row of parts [re, im]."""
    steps = np.arange(n)
    roots = _unit(np.outer(steps, steps) % n, n, sign) * scale
    upper = np.concatenate([roots.real, roots.imag], axis=1)
    lower = np.concatenate([-roots.imag, roots.real], axis=1)
    return np.concatenate([upper, lower])


def _twiddles(n1: int, n2: int, sign: int) -> np.ndarray:
    return _unit(np.outer(np.arange(n2), np.arange(n1)) % (n1 * n2), n1 * n2, sign)


@lru_cache(maxsize=16)
def _chirp(n: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """exp(sign * pi i j^2 / n), and the transform of its conjugate of a length 2^k."""
    steps = np.arange(n)
    chirp = _unit(steps * steps % (2 * n), 2 * n, sign)
    padded = np.zeros(1 << (2 * n - 2).bit_length(), complex)
    padded[:n] = chirp.conj()
    padded[-n + 1 :] = chirp.conj()[:0:-1]
    return chirp, np.fft.fft(padded)


def _unit(steps: np.ndarray, n: int, sign: int) -> np.ndarray:
    return np.asarray(np.exp(sign * 2j * np.pi * (steps / n)))
