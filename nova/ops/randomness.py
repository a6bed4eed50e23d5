"""Random rows: a counter-based generator, so the same seed gives the same bits on every target.

Element i of a random tensor is word 0 of Philox-4x32-10 (Salmon et al., "Parallel random numbers:
as easy as 1, 2, 3", 2011) with counter (i, stream) and the seed as key. Elements do not depend on
each other, so tiles may be computed in any order. The seed is an operand: it can change
from run to run without a new compile.
"""

from __future__ import annotations

from math import pi, prod
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, f32, float_of, i64
from nova.core.sizes import known_less
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import as_tensor, number
from nova.ops.rules import Types, int_value, seed_operand, size_tuple
from nova.ops.table import REQUIRED, Op, register

Attrs = dict[str, Any]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = 0xFFFFFFFF
# The 24 high bits of a word, so that every result is exact in f32 and below 1.
_UNIT = 2.0**-24


def philox(counter: Any, key: Any, multiply: Any, rounds: int = _ROUNDS) -> list[Any]:
    """Philox-4x32 of four counter words and two key words, each a 64-bit integer below 2**32.

    `multiply(x, constant)` returns the (high, low) words of x * constant. Works on any type with
    `^`, `+` and `&`: numpy arrays in the reference, scalars of a lowered body.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        high0, low0 = multiply(c0, _MULTIPLIERS[0])
        high1, low1 = multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return [c0, c1, c2, c3]


def code_constants(stream: int) -> set[int]:
    """The integers in the code of a draw of `stream`: no symbolic size may look like one."""
    products = [stream * m for m in _MULTIPLIERS]
    words = {word for p in products for word in (p >> 32, p & _LOW)}
    return {*_MULTIPLIERS, *_KEY_STEPS, _LOW, *words}


def philox_numpy(counter: Any, key: Any, rounds: int = _ROUNDS) -> list[np.ndarray]:
    """`philox` of uint64 arrays."""

    def multiply(x: np.ndarray, constant: int) -> tuple[np.ndarray, np.ndarray]:
        product = x * np.uint64(constant)
        return product >> np.uint64(32), product & np.uint64(_LOW)

    with np.errstate(over="ignore"):
        return philox(counter, key, multiply, rounds)


def drawn_shape(attrs: Attrs) -> tuple[Any, ...]:
    """The attribute `shape`; an error for a negative size."""
    shape = size_tuple(attrs["shape"], "shape")
    if any(known_less(n, 0) for n in shape):
        raise AttributeValueError(f"shape {shape} has a negative size")
    return shape


def _uniform_canon(ins: Types, attrs: Attrs) -> Attrs:
    shape, stream = drawn_shape(attrs), int_value(attrs["stream"], "stream")
    if not 0 <= stream <= _LOW:
        raise AttributeValueError(f"stream {stream} is not in 0..2**32-1")
    return {"shape": shape, "stream": stream}


def check_seed(seed: TensorType) -> None:
    """An error unless the seed is one number."""
    if seed.rank:
        raise ShapeError(f"the seed is one number, not of shape {seed.shape}")


def _drawn_type(ins: Types, attrs: Attrs) -> TensorType:
    check_seed(ins[0])
    return TensorType(attrs["shape"], f32)


def _uniform_numpy(seed: np.ndarray, *, shape: Any, stream: int) -> np.ndarray:
    at = np.arange(prod(shape), dtype=np.uint64)
    bits = np.asarray(seed).astype(np.uint64)
    low, shift = np.uint64(_LOW), np.uint64(32)
    counter = [at & low, at >> shift, np.full_like(at, stream), np.zeros_like(at)]
    words = philox_numpy(counter, [bits & low, bits >> shift])
    drawn = (words[0] >> np.uint64(8)).astype(np.float32) * np.float32(_UNIT)
    return drawn.reshape(shape)


def _uniform_lower(b: Any, out: TensorType, seed: Any, *, shape: Any, stream: int) -> Any:
    def body(s: Any, key: Any) -> Any:
        at = s.const(0, i64)
        for axis, n in enumerate(shape):
            at = at * n + s.index(axis)

        def high_word(x: Any) -> Any:
            return s.binary("shr_u", x, s.const(32, i64))

        def multiply(x: Any, constant: int) -> tuple[Any, Any]:
            product = x * constant
            return high_word(product), product & _LOW

        counter = [at & _LOW, high_word(at), s.const(stream, i64), s.const(0, i64)]
        words = philox(counter, [key & _LOW, high_word(key)], multiply)
        return s.cast(s.binary("shr_u", words[0], s.const(8, i64)), f32) * _UNIT

    return b.pointwise(out, [seed], body)


def _normal(F: Any, seed: Any, *, shape: Any) -> Any:
    # Box-Muller on two streams; 1 - u is in (0, 1], so the logarithm is finite.
    radius = F.sqrt(F.log(1.0 - F.uniform(seed, shape=shape, stream=0)) * -2.0)
    return radius * F.cos(F.uniform(seed, shape=shape, stream=1) * (2.0 * pi))


def _dropout(F: Any, x: Any, seed: Any, p: float = 0.5, training: bool = True) -> Any:
    p = number("dropout", "p", p)
    if not 0 <= p <= 1:
        raise AttributeValueError(f"dropout: p must be in 0..1, not {p!r}")
    x = as_tensor(F, x)
    x = x if x.dtype.is_float else F.cast(x, dtype=float_of(x.dtype))
    if not training or p == 0:
        return x
    # Drawn even if p is 1: a wrong seed is an error for every p.
    is_kept = F.uniform(seed, shape=x.shape) >= p
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    return F.where(is_kept, x * scale, 0.0)


def seed_type(dtypes: tuple[Any, ...]) -> tuple[Any, ...]:
    return (seed_operand(dtypes[0]),)


ROWS: tuple[Op, ...] = (
    Op(
        "uniform",
        "f32 numbers drawn evenly from [0, 1) by Philox-4x32-10: a function of seed, position and "
        "stream only.",
        operands=("seed",),
        attrs={"shape": REQUIRED, "stream": 0},
        cast=seed_type,
        canon=_uniform_canon,
        infer=_drawn_type,
        numpy=_uniform_numpy,
        lower=_uniform_lower,
        tags=frozenset({"nograd", "random"}),
        domain="index",
    ),
    Op(
        "normal",
        "f32 numbers drawn from the standard normal distribution, by Box-Muller over uniform.",
        operands=("seed",),
        attrs={"shape": REQUIRED},
        cast=seed_type,
        canon=lambda ins, attrs: {"shape": drawn_shape(attrs)},
        infer=_drawn_type,
        compose=_normal,
        tags=frozenset({"nograd", "random"}),
        domain="index",
    ),
    Op(
        "dropout",
        "Each element zeroed with probability p and the rest scaled by 1 / (1 - p); x itself when "
        "not training.",
        operands=("x", "seed"),
        build=_dropout,
        methods=("dropout",),
        tags=frozenset({"random"}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
