"""Fourier transforms of real numbers into half a spectrum and back, along the last axis.

The terms of n real numbers are n // 2 + 1 pairs, on a last axis of two parts. Even and odd elements
are the parts of n / 2 complex numbers: with a kernel, one function transforms those and makes the
terms of them (nova/codegen/cpu/fourier/transform.py); elsewhere the rows are expanded to `dft`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, f32, f64
from nova.core.sizes import is_static
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.ops.complex.fourier import check_scale, is_row
from nova.ops.complex.parts import Pair, multiply
from nova.ops.rules import Types, static_axis
from nova.ops.table import CPU_KERNEL, REQUIRED, Op, register

Attrs = dict[str, Any]

_DIRECT = 32
"""The longest transform to real numbers that is one matmul where there is no kernel."""


# --- columns of the rows ------------------------------------------------------------------------


def _floats(x: TensorType) -> TensorType:
    if x.dtype not in (f32, f64):
        raise DTypeError(f"a transform of f32 or f64, not {x}")
    return x


def _terms_type(ins: Types, attrs: Attrs) -> TensorType:
    x = _floats(ins[0])
    if x.rank < 1 or static_axis(x, -1, "a transform runs along") < 1:
        raise ShapeError(f"{x} has no elements to transform")
    return x.with_shape((*x.shape[:-1], x.shape[-1] // 2 + 1, 2))


def _elements_type(ins: Types, attrs: Attrs) -> TensorType:
    x, n = _floats(ins[0]), attrs["n"]
    if x.rank < 2 or x.shape[-1] != 2 or x.shape[-2] != n // 2 + 1:
        raise ShapeError(f"{x} are not the {n // 2 + 1} terms of {n} elements, in two parts")
    return x.with_shape((*x.shape[:-2], n))


def _scale_canon(ins: Types, attrs: Attrs) -> Attrs:
    return {**attrs, "scale": check_scale(attrs["scale"])}


def _elements_canon(ins: Types, attrs: Attrs) -> Attrs:
    n = attrs["n"]
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise AttributeValueError(f"n is a positive int, not {n!r}")
    return {"n": int(n), "scale": check_scale(attrs["scale"])}


def _terms_numpy(x: np.ndarray, *, scale: float) -> np.ndarray:
    terms = np.fft.rfft(x.astype(np.float64)) * scale
    return np.stack([terms.real, terms.imag], axis=-1).astype(x.dtype)


def _elements_numpy(x: np.ndarray, *, n: int, scale: float) -> np.ndarray:
    z = x[..., 0].astype(np.float64) + 1j * x[..., 1].astype(np.float64)
    return (np.fft.irfft(z, n, norm="forward") * scale).astype(x.dtype)


def _has_kernel(x: TensorType, n: int) -> bool:
    is_whole = all(map(is_static, x.shape)) and 0 not in x.shape
    return is_whole and n % 2 == 0 and is_row(n // 2, x.dtype.itemsize)


def _counts(terms: int, n: int, inner: float) -> np.ndarray:
    """1 for the terms that are their own mirror images, `inner` for the others."""
    at = np.arange(terms)[:, None]
    return np.where((at == 0) | (2 * at == n), 1.0, inner)


def _terms_vjp(F: Any, g: Any, out: Any, x: Any, *, scale: float) -> tuple[Any]:
    n = int(x.shape[-1])
    halved = g * _counts(n // 2 + 1, n, 0.5).astype(g.dtype.numpy)
    return (F.irdft(halved, n=n, scale=scale),)


def _elements_vjp(F: Any, g: Any, out: Any, x: Any, *, n: int, scale: float) -> tuple[Any]:
    return (F.rdft(g, scale=scale) * _counts(n // 2 + 1, n, 2.0).astype(g.dtype.numpy),)


# --- expansions -----------------------------------------------------------------------------------


def _compose_terms(F: Any, x: Any, *, scale: float) -> Any:
    n = int(x.shape[-1])
    half = n // 2
    if n % 2 or n < 4:
        full = F.dft(F.stack([x, F.zeros_like(x)], axis=-1), sign=-1, scale=scale)
        return full[..., : half + 1, :]
    pairs = F.reshape(x, (*x.shape[:-1], half, 2))
    spectrum = F.dft(pairs, sign=-1, scale=scale / 2)
    a, b = (F.concat([p, p[..., :1]], axis=-1) for p in (spectrum[..., 0], spectrum[..., 1]))
    c, d = (F.flip(part, (-1,)) for part in (a, b))
    odd = multiply(F, (F.add(b, d), F.sub(c, a)), _half_roots(n, -1, x))
    return F.stack([F.add(F.add(a, c), odd[0]), F.add(F.sub(b, d), odd[1])], axis=-1)


def _compose_elements(F: Any, x: Any, *, n: int, scale: float) -> Any:
    half, (re, im) = n // 2, (x[..., 0], x[..., 1])
    if n <= _DIRECT:
        matrix = _real_matrix(n, scale).astype(x.dtype.numpy)
        return F.matmul(F.concat([re, im], axis=-1), matrix)
    if n % 2:
        mirror = [F.flip(part[..., 1:], (-1,)) for part in (re, im)]
        inner = np.concatenate([[0.0], np.ones(half)]).astype(x.dtype.numpy)
        full = (
            F.concat([re, mirror[0]], axis=-1),
            F.concat([im * inner, F.neg(mirror[1])], axis=-1),
        )
        return F.dft(F.stack(list(full), axis=-1), sign=1, scale=scale)[..., 0]
    # The imaginary parts of the first and the last term do not count.
    a, b = re, im * np.concatenate([[0.0], np.ones(half - 1), [0.0]]).astype(x.dtype.numpy)
    c, d = (F.flip(part, (-1,)) for part in (a, b))
    odd = multiply(F, (F.sub(a, c), F.add(b, d)), _half_roots(n, 1, x))
    spectrum = F.sub(F.add(a, c), odd[1]), F.add(F.sub(b, d), odd[0])
    pairs = F.stack([part[..., :half] for part in spectrum], axis=-1)
    return F.reshape(F.dft(pairs, sign=1, scale=scale), (*x.shape[:-2], n))


def _half_roots(n: int, sign: int, x: Any) -> Pair:
    roots = np.exp(sign * 2j * np.pi * (np.arange(n // 2 + 1) / n))
    return roots.real.astype(x.dtype.numpy), roots.imag.astype(x.dtype.numpy)


@lru_cache(maxsize=64)
def _real_matrix(n: int, scale: float) -> np.ndarray:
    """The real sequence of a row of parts of half a spectrum."""
    steps = np.arange(n // 2 + 1)
    roots = np.exp(2j * np.pi * (np.outer(steps, np.arange(n)) % n / n)) * scale
    counts = _counts(n // 2 + 1, n, 2.0)
    return np.concatenate([roots.real * counts, -roots.imag * counts])


ROWS = (
    Op(
        "rdft",
        "The first n // 2 + 1 terms of the forward transform of n real numbers on the last axis, "
        "times scale, on a new last axis of two parts; see nova.fft.rfft.",
        attrs={"scale": 1.0},
        canon=_scale_canon,
        infer=_terms_type,
        numpy=_terms_numpy,
        vjp=_terms_vjp,
        compose=_compose_terms,
        lower=lambda b, out, x, scale: b.fourier(
            out, x, int(x.shape[-1]) // 2, form="from_real", sign=-1, scale=scale / 2
        ),
        has_kernel=lambda ins, attrs: _has_kernel(ins[0], int(ins[0].shape[-1])),
        tags=frozenset({"smooth", CPU_KERNEL}),
    ),
    Op(
        "irdft",
        "The n real numbers whose forward transform starts with the terms x, times n * scale; see "
        "nova.fft.irfft.",
        attrs={"n": REQUIRED, "scale": 1.0},
        canon=_elements_canon,
        infer=_elements_type,
        numpy=_elements_numpy,
        vjp=_elements_vjp,
        compose=_compose_elements,
        lower=lambda b, out, x, n, scale: b.fourier(
            out, x, n // 2, form="to_real", sign=1, scale=scale
        ),
        has_kernel=lambda ins, attrs: _has_kernel(ins[0], attrs["n"]),
        tags=frozenset({"smooth", CPU_KERNEL}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
