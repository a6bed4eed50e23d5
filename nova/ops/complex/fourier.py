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
from nova.ops.rules import Types, static_axis
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


# --- columns of the row -------------------------------------------------------------------------


def _canon(ins: Types, attrs: Attrs) -> Attrs:
    if attrs["sign"] not in (-1, 1):
        raise AttributeValueError(f"sign is -1 or 1, not {attrs['sign']!r}")
    return {"sign": int(attrs["sign"]), "scale": float(attrs["scale"])}


def _type(ins: Types, attrs: Attrs) -> TensorType:
    (x,) = ins
    if x.dtype not in (f32, f64):
        raise DTypeError(f"a transform of parts in f32 or f64, not {x}")
    if x.rank < 2 or static_axis(x, -1, "a transform reads the parts of") != 2:
        raise ShapeError(f"{x} has no last axis of two parts")
    if static_axis(x, -2, "a transform runs along") < 1:
        raise ShapeError(f"an axis of {x.shape[-2]} elements has no transform")
    return x


def _numpy(x: np.ndarray, *, sign: int, scale: float) -> np.ndarray:
    z = x[..., 0].astype(np.float64) + 1j * x[..., 1].astype(np.float64)
    terms = np.fft.fft(z) if sign < 0 else np.fft.ifft(z, norm="forward")
    return np.stack([terms.real * scale, terms.imag * scale], axis=-1).astype(x.dtype)


def _vjp(F: Any, g: Any, out: Any, x: Any, *, sign: int, scale: float) -> tuple[Any]:
    return (F.dft(g, sign=-sign, scale=scale),)


def _has_kernel(ins: Types, attrs: Attrs) -> bool:
    (x,) = ins
    return all(map(is_static, x.shape)) and _is_row(int(x.shape[-2]), x.dtype.itemsize)


def _is_row(n: int, itemsize: int) -> bool:
    """Whether the kernel takes rows of n elements."""
    return _is_smooth(n) and _LEAST_ROW <= n <= _ROW_BYTES // (2 * itemsize)


def _is_smooth(n: int) -> bool:
    for prime in _KERNEL_PRIMES:
        while n % prime == 0:
            n //= prime
    return n == 1


def _compose(F: Any, x: Any, *, sign: int, scale: float) -> Any:
    n, itemsize = int(x.shape[-2]), x.dtype.itemsize
    if not _is_row(n, itemsize) and (n1 := _row_factor(n, itemsize)):
        return _by_rows(F, x, n1, sign, scale)
    pair = _transform(F, (x[..., 0], x[..., 1]), n, sign, scale)
    return F.stack(list(pair), axis=-1)


def _row_factor(n: int, itemsize: int) -> int:
    """The factor of a long n, at most its root, for which rows and columns have kernels, or 0."""
    if n < _LEAST_ROW**2 or not _is_smooth(n):
        return 0
    factors = (d for d in range(isqrt(n), _LEAST_ROW - 1, -1) if n % d == 0)
    return next((d for d in factors if _is_row(n // d, itemsize)), 0)


def _by_rows(F: Any, x: Any, n1: int, sign: int, scale: float) -> Any:
    """n = n1 * n2: transforms of the columns of a matrix, twiddle factors, and of its rows."""
    n2, batch = x.shape[-2] // n1, x.shape[:-2]
    columns = F.swapaxes(F.reshape(x, (*batch, n1, n2, 2)), -2, -3)
    done = F.dft(columns, sign=sign, scale=scale)
    twiddled = multiply(F, (done[..., 0], done[..., 1]), _arrays(_twiddles(n1, n2, sign), x))
    rows = F.swapaxes(F.stack(list(twiddled), axis=-1), -2, -3)
    terms = F.dft(rows, sign=sign, scale=1.0)
    return F.reshape(F.swapaxes(terms, -2, -3), x.shape)


ROWS = (
    Op(
        "dft",
        "scale * sum over j of x[j] * exp(sign * 2 pi i j k / n) along the axis before the last "
        "one, which has the real and the imaginary part; nova.fft has the usual transforms.",
        attrs={"sign": REQUIRED, "scale": 1.0},
        canon=_canon,
        infer=_type,
        numpy=_numpy,
        vjp=_vjp,
        compose=_compose,
        lower=lambda b, out, x, sign, scale: b.fourier(x, sign, scale),
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
        return _bluestein(F, x, n, sign, scale)
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


def _bluestein(F: Any, x: Pair, n: int, sign: int, scale: float) -> Pair:
    """With jk = (j^2 + k^2 - (k - j)^2) / 2 the sum is a convolution with a chirp."""
    chirp, spectrum = _chirp(n, sign)
    size = len(spectrum)
    rank = len(x[0].shape)
    low, high = (0,) * rank, (*(0,) * (rank - 1), size - n)
    chirps = _arrays(chirp, x[0])
    padded = _map(multiply(F, x, chirps), lambda part: F.pad(part, low, high))
    terms = F.dft(F.stack(list(padded), axis=-1), sign=-1)
    product = multiply(F, (terms[..., 0], terms[..., 1]), _arrays(spectrum, x[0]))
    back = F.dft(F.stack(list(product), axis=-1), sign=1, scale=scale / size)
    return multiply(F, (back[..., :n, 0], back[..., :n, 1]), chirps)


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
