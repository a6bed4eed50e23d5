"""The discrete Fourier transform along the last axis, on pairs of parts and on joined parts.

In: a pair (real part, imaginary part or None) of tensors, or a tensor with a last axis of both.
Out: the same of the transform, by the row `dft` (nova/ops/complex/fourier.py). Transforms of real
numbers are complex ones of half the length. Called by `functions.py` and by ONNX rows.
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

_DIRECT = 32
"""The longest transform to real numbers that is one matmul."""


def joined(x: Pair) -> Any:
    """A pair as one tensor, with a last axis of two."""
    return F.stack([x[0], F.zeros_like(x[0]) if x[1] is None else x[1]], axis=-1)


def parts_of(x: Any) -> Pair:
    """The pair of a tensor with a last axis of two."""
    return x[..., 0], x[..., 1]


def transform(x: Pair, n: int, sign: int, scale: float = 1.0) -> Pair:
    """scale * sum over j of x[j] * exp(sign * 2 pi i j k / n), along the last axis of size n."""
    if n == 1:
        re, im = x
        return re * scale, F.zeros_like(re) if im is None else im * scale
    return parts_of(F.dft(joined(x), sign=sign, scale=scale))


def transform_real(x: Any, n: int, scale: float = 1.0) -> Pair:
    """The first n // 2 + 1 terms of the forward transform of a real tensor."""
    half = n // 2
    if n % 2 or n < 4:
        return _map(transform((x, None), n, -1, scale), lambda part: part[..., : half + 1])
    # Even and odd elements are the parts of a complex row of half the length.
    pairs = F.reshape(x, (*x.shape[:-1], half, 2))
    spectrum = parts_of(F.dft(pairs, sign=-1, scale=scale / 2))
    (a, b), (c, d) = _with_mirror(_map(spectrum, _closed))
    odd = multiply(F, (F.add(b, d), F.sub(c, a)), _constants(_half_roots(n, -1), spectrum))
    return F.add(F.add(a, c), odd[0]), F.add(F.sub(b, d), odd[1])


def transform_to_real(x: Pair, n: int, scale: float = 1.0) -> Any:
    """The real tensor of n elements whose forward transform starts with x, times n * scale."""
    half = n // 2
    if n <= _DIRECT:
        both = F.concat([x[0], x[1]], axis=-1)
        return F.matmul(both, constant(_real_matrix(n, scale), x[0].dtype))
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
    pairs = joined(_map(spectrum, lambda part: part[..., :half]))
    return F.reshape(F.dft(pairs, sign=1, scale=scale), (*x[0].shape[:-1], n))


# --- helpers --------------------------------------------------------------------------------------


def _map(x: Pair, function: Callable[[Any], Any]) -> Pair:
    return function(x[0]), function(x[1])


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


@lru_cache(maxsize=64)
def _real_matrix(n: int, scale: float) -> np.ndarray:
    """The real sequence of a row of parts of half a spectrum."""
    steps = np.arange(n // 2 + 1)
    roots = _unit(np.outer(steps, np.arange(n)) % n, n, 1) * scale
    counts = np.where((steps == 0) | (2 * steps == n), 1.0, 2.0)[:, None]
    return np.concatenate([roots.real * counts, -roots.imag * counts])


def _half_roots(n: int, sign: int) -> np.ndarray:
    return _unit(np.arange(n // 2 + 1), n, sign)


def _inner(count: int, ends: int) -> list[float]:
    """Ones, with a zero at the start, and with `ends` = 2 one at the end."""
    return [0.0, *[1.0] * (count - ends), *[0.0] * (ends - 1)]


def _unit(steps: np.ndarray, n: int, sign: int) -> np.ndarray:
    return np.asarray(np.exp(sign * 2j * np.pi * (steps / n)))
