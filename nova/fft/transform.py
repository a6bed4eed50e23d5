"""The discrete Fourier transform along the last axis, as matmuls with constant matrices.

In: a pair (real part, imaginary part or None) of tensors. Out: the pair of the transform.

A short length is one matmul with the DFT matrix; as a real matmul, with the parts of a row after
each other. A longer one is split as n = n1 * n2 (Cooley and Tukey 1965): transforms of length n1,
twiddle factors, transforms of length n2. A length with a large prime factor is a convolution of a
power of two (Bluestein 1970). Factors up to 32 cost more operations than radix 2, but those are of
GEMM kernels, on a CPU and on the matrix units of a device. Called by `functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from nova.core.dtypes import DType
from nova.graph.build import constant
from nova.ops import F
from nova.ops.complex.parts import Pair, multiply

_DIRECT = 64
"""The longest transform that is one matmul, if a longer one can be split."""
_LARGEST_FACTOR = 32
_LARGEST_PRIME = 128
"""A length without small factors above this is transformed by Bluestein's algorithm."""


def transform(x: Pair, n: int, sign: int, scale: float = 1.0) -> Pair:
    """scale * sum over j of x[j] * exp(sign * 2 pi i j k / n), along the last axis of size n."""
    n1 = _first_factor(n)
    if n1 == n:
        return _direct(x, n, sign, scale)
    if n1 == 1:
        return _bluestein(x, n, sign, scale)
    n2 = n // n1
    batch = x[0].shape[:-1]
    rows = _map(x, lambda part: F.swapaxes(F.reshape(part, (*batch, n1, n2)), -1, -2))
    twiddled = multiply(F, _direct(rows, n1, sign), _constants(_twiddles(n1, n2, sign), x))
    columns = transform(_map(twiddled, lambda part: F.swapaxes(part, -1, -2)), n2, sign, scale)
    return _map(columns, lambda part: F.reshape(F.swapaxes(part, -1, -2), (*batch, n)))


def transform_real(x: Any, n: int, scale: float = 1.0) -> Pair:
    """The first n // 2 + 1 terms of the forward transform of a real tensor."""
    half = n // 2
    if n % 2 or n <= _DIRECT:
        return _map(transform((x, None), n, -1, scale), lambda part: part[..., : half + 1])
    # Even and odd elements are the parts of a complex row of half the length.
    pairs = F.reshape(x, (*x.shape[:-1], half, 2))
    spectrum = transform((pairs[..., 0], pairs[..., 1]), half, -1, scale / 2)
    (a, b), (c, d) = _with_mirror(_map(spectrum, _closed))
    odd = multiply(F, (F.add(b, d), F.sub(c, a)), _constants(_half_roots(n, -1), spectrum))
    return F.add(F.add(a, c), odd[0]), F.add(F.sub(b, d), odd[1])


def transform_to_real(x: Pair, n: int, scale: float = 1.0) -> Any:
    """The real tensor of n elements whose forward transform starts with x, times n * scale."""
    half = n // 2
    if n <= _DIRECT:
        joined = F.concat([x[0], x[1]], axis=-1)
        return F.matmul(joined, constant(_real_matrix(n, scale), x[0].dtype))
    if n % 2:
        mirror = _map(x, lambda part: F.flip(part[..., 1:], (-1,)))
        full = (
            F.concat([x[0], mirror[0]], axis=-1),
            F.concat([x[1] * _inner(half + 1, 1), F.neg(mirror[1])], axis=-1),
        )
        return transform(full, n, 1, scale)[0]
    # The imaginary parts of the first and the last term do not count.
    (a, b), (c, d) = _with_mirror((x[0], x[1] * _inner(half + 1, 2)))
    odd = multiply(F, (F.sub(a, c), F.add(b, d)), _constants(_half_roots(n, 1), x))
    spectrum = F.sub(F.add(a, c), odd[1]), F.add(F.sub(b, d), odd[0])
    parts = transform(_map(spectrum, lambda part: part[..., :half]), half, 1, scale)
    return F.reshape(F.stack(parts, axis=-1), (*x[0].shape[:-1], n))


# --- steps ----------------------------------------------------------------------------------------


def _direct(x: Pair, n: int, sign: int, scale: float = 1.0) -> Pair:
    """One matmul with the DFT matrix; a real operand needs half of it."""
    matrix = constant(_matrix(n, sign, scale, x[1] is None), x[0].dtype)
    parts = F.matmul(x[0] if x[1] is None else F.concat([x[0], x[1]], axis=-1), matrix)
    return parts[..., :n], parts[..., n:]


def _bluestein(x: Pair, n: int, sign: int, scale: float) -> Pair:
    """With jk = (j^2 + k^2 - (k - j)^2) / 2 the sum is a convolution with a chirp."""
    chirp, spectrum = _chirp(n, sign)
    size = len(spectrum)
    rank = len(x[0].shape)
    low, high = (0,) * rank, (*(0,) * (rank - 1), size - n)
    padded = _map(multiply(F, x, _constants(chirp, x)), lambda part: F.pad(part, low, high))
    product = multiply(F, transform(padded, size, -1), _constants(spectrum, x))
    back = transform(product, size, 1, scale / size)
    return multiply(F, _map(back, lambda part: part[..., :n]), _constants(chirp, x))


def _map(x: Pair, function: Callable[[Any], Any]) -> Pair:
    return function(x[0]), None if x[1] is None else function(x[1])


def _closed(part: Any) -> Any:
    """A periodic sequence with its first element again at the end."""
    return F.concat([part, part[..., :1]], axis=-1)


def _with_mirror(x: Pair) -> tuple[Pair, Pair]:
    """x[k] and x[-k] of a sequence that ends with its first element."""
    return x, _map(x, lambda part: F.flip(part, (-1,)))


def _constants(values: np.ndarray, x: Pair) -> Pair:
    element: DType = x[0].dtype
    return constant(values.real, element), constant(values.imag, element)


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
def _matrix(n: int, sign: int, scale: float, is_real: bool) -> np.ndarray:
    """[re, im] of a row of parts [re, im]; of a real row with `is_real`."""
    steps = np.arange(n)
    roots = _unit(np.outer(steps, steps) % n, n, sign) * scale
    upper = np.concatenate([roots.real, roots.imag], axis=1)
    lower = np.concatenate([-roots.imag, roots.real], axis=1)
    return upper if is_real else np.concatenate([upper, lower])


@lru_cache(maxsize=64)
def _real_matrix(n: int, scale: float) -> np.ndarray:
    """The real sequence of a row of parts of half a spectrum."""
    steps = np.arange(n // 2 + 1)
    roots = _unit(np.outer(steps, np.arange(n)) % n, n, 1) * scale
    counts = np.where((steps == 0) | (2 * steps == n), 1.0, 2.0)[:, None]
    return np.concatenate([roots.real * counts, -roots.imag * counts])


def _twiddles(n1: int, n2: int, sign: int) -> np.ndarray:
    return _unit(np.outer(np.arange(n2), np.arange(n1)) % (n1 * n2), n1 * n2, sign)


def _half_roots(n: int, sign: int) -> np.ndarray:
    return _unit(np.arange(n // 2 + 1), n, sign)


def _inner(count: int, ends: int) -> list[float]:
    """Ones, with a zero at the start, and with `ends` = 2 one at the end."""
    return [0.0, *[1.0] * (count - ends), *[0.0] * (ends - 1)]


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
