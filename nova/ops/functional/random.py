"""Random tensors by seed: every function draws from the counter-based `uniform` and `normal`.

The same seed gives the same bits on every target. Seeds are operands: they may change from run to
run without a new compile.
"""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import dtype as dtype_of
from nova.core.dtypes import f32, i64
from nova.errors import AttributeValueError, ShapeError
from nova.ops.functional.common import as_floats, as_tensor, function, number, to_dtype
from nova.ops.rules import int_value, resolve_axis
from nova.ops.table import Op, register

# `uniform` has 24 random bits.
_MOST_VALUES = 1 << 24
# Streams of their own, so that functions of one seed do not draw the same numbers.
_STREAMS = {"randint": 2, "bernoulli": 3, "categorical": 4, "permutation": 5}


def _rand(F: Any, seed: Any, shape: Any, dtype: Any = f32) -> Any:
    return to_dtype(F, F.uniform(seed, shape=shape), dtype_of(dtype))


def _randn(F: Any, seed: Any, shape: Any, dtype: Any = f32) -> Any:
    return to_dtype(F, F.normal(seed, shape=shape), dtype_of(dtype))


def _randint(F: Any, seed: Any, low: int, high: int, shape: Any, dtype: Any = i64) -> Any:
    first, last = int_value(low, "randint: low"), int_value(high, "randint: high")
    if not 0 < last - first <= _MOST_VALUES:
        raise AttributeValueError(f"randint: {first}..{last} has not 1 to 2**24 values")
    drawn = F.uniform(seed, shape=shape, stream=_STREAMS["randint"])
    # Exact: 24 bits times a range of up to 24 bits fits the mantissa of f64.
    wide = F.floor(F.cast(drawn, dtype="f64") * float(last - first))
    return F.cast(F.cast(wide, dtype=i64) + first, dtype=dtype_of(dtype))


def _bernoulli(F: Any, p: Any, seed: Any) -> Any:
    (p,) = as_floats(F, p)
    drawn = F.uniform(seed, shape=p.shape, stream=_STREAMS["bernoulli"])
    return F.cast(drawn < p, dtype=p.dtype)


def _categorical(F: Any, logits: Any, seed: Any, axis: int = -1) -> Any:
    (logits,) = as_floats(F, logits)
    axis = resolve_axis(axis, len(logits.shape))
    if not logits.shape[axis]:
        raise ShapeError(f"categorical: no classes in {logits.shape}")
    drawn = F.uniform(seed, shape=logits.shape, stream=_STREAMS["categorical"])
    # The largest of logits plus Gumbel noise is a sample of softmax(logits).
    noise = -F.log(-F.log(drawn + 2.0**-25))
    return F.argmax(F.detach(logits) + noise, axis=axis)


def _permutation(F: Any, seed: Any, n: int) -> Any:
    count = int_value(n, "permutation: n")
    if count < 0:
        raise AttributeValueError(f"permutation: n must be at least 0, not {count}")
    # Two words for each element: ties of the first are ordered by the second.
    first = F.uniform(seed, shape=(count,), stream=_STREAMS["permutation"])
    second = F.uniform(seed, shape=(count,), stream=_STREAMS["permutation"] + 1)
    return F.argsort(F.cast(first, dtype="f64") + F.cast(second, dtype="f64") * 2.0**-24)


def _multinomial(F: Any, probabilities: Any, seed: Any, num_samples: int) -> Any:
    """Samples without replacement: the largest of log p plus Gumbel noise (Efraimidis, 2006)."""
    (weights,) = as_floats(F, probabilities)
    count = int_value(num_samples, "multinomial: num_samples")
    if not weights.shape or not 1 <= count <= weights.shape[-1]:
        raise ShapeError(f"multinomial: {count} samples of {weights.shape}")
    drawn = F.uniform(seed, shape=weights.shape, stream=_STREAMS["categorical"])
    noise = -F.log(-F.log(drawn + 2.0**-25))
    return F.topk(F.log(F.detach(weights)) + noise, count)[1]


def _rand_like(F: Any, x: Any, seed: Any) -> Any:
    x = as_tensor(F, x)
    return _rand(F, seed, x.shape, x.dtype if x.dtype.is_float else f32)


def _randn_like(F: Any, x: Any, seed: Any) -> Any:
    x = as_tensor(F, x)
    return _randn(F, seed, x.shape, x.dtype if x.dtype.is_float else f32)


def _alpha_dropout(F: Any, x: Any, seed: Any, p: float = 0.5, training: bool = True) -> Any:
    return _saturated(F, "alpha_dropout", x, seed, p, training, None)


def _feature_alpha_dropout(F: Any, x: Any, seed: Any, p: float = 0.5, training: bool = True) -> Any:
    return _saturated(F, "feature_alpha_dropout", x, seed, p, training, 2)


def _saturated(
    F: Any, name: str, x: Any, seed: Any, p: float, training: bool, axes: int | None
) -> Any:
    """Alpha dropout with one draw for each index of the first `axes` axes, or of all."""
    rate = number(name, "p", p, 0)
    if rate >= 1:
        raise AttributeValueError(f"{name}: p must be below 1, not {p}")
    (x,) = as_floats(F, x)
    if len(x.shape) < (axes or 0):
        raise ShapeError(f"{name}: {x.shape} is not (batch, channels, ...)")
    if not training or rate == 0:
        return x
    # Klambauer et al., 2017: dropped elements become the negative saturation of selu.
    low = -1.7580993408473766
    scale = ((1 - rate) * (1 + rate * low * low)) ** -0.5
    drawn = x.shape if axes is None else x.shape[:axes]
    kept = F.uniform(seed, shape=drawn) >= rate
    kept = F.reshape(kept, (*drawn, *(1,) * (len(x.shape) - len(drawn))))
    return F.where(kept, x, low) * scale - scale * low * rate


def _feature_dropout(F: Any, x: Any, seed: Any, p: float = 0.5, training: bool = True) -> Any:
    (x,) = as_floats(F, x)
    if len(x.shape) < 2:
        raise ShapeError(f"feature_dropout: {x.shape} is not (batch, channels, ...)")
    scales = F.dropout(F.ones(x.shape[:2], dtype=x.dtype), seed, p=p, training=training)
    scales = F.reshape(scales, (*x.shape[:2], *(1,) * (len(x.shape) - 2)))
    # A dropped infinity is 0, and its product with a scale of 0 is NaN.
    return F.where(F.eq(scales, 0), 0.0, x * scales)


RANDOM = frozenset({"nograd", "random"})
ROWS: tuple[Op, ...] = (
    function("rand", "Numbers drawn evenly from [0, 1).", _rand, operands=("seed",), tags=RANDOM),
    function(
        "randn",
        "Numbers of the standard normal distribution.",
        _randn,
        operands=("seed",),
        tags=RANDOM,
    ),
    function(
        "rand_like",
        "rand in the shape and type of x.",
        _rand_like,
        operands=("x", "seed"),
        tags=RANDOM,
    ),
    function(
        "randn_like",
        "randn in the shape and type of x.",
        _randn_like,
        operands=("x", "seed"),
        tags=RANDOM,
    ),
    function(
        "randint",
        "Integers drawn evenly from low..high-1.",
        _randint,
        operands=("seed",),
        tags=RANDOM,
    ),
    function(
        "bernoulli",
        "1 with probability p, else 0.",
        _bernoulli,
        operands=("p", "seed"),
        tags=RANDOM,
    ),
    function(
        "categorical",
        "A class drawn by the softmax of logits along an axis (the Gumbel-max trick).",
        _categorical,
        operands=("logits", "seed"),
        tags=RANDOM,
    ),
    function(
        "multinomial",
        "num_samples positions of the last axis, drawn by weight without replacement.",
        _multinomial,
        operands=("probabilities", "seed"),
        tags=RANDOM,
    ),
    function(
        "permutation",
        "The numbers 0..n-1 in random order.",
        _permutation,
        operands=("seed",),
        tags=RANDOM,
    ),
    function(
        "alpha_dropout",
        "Dropout that keeps mean and variance, for selu.",
        _alpha_dropout,
        operands=("x", "seed"),
        tags=frozenset({"random"}),
    ),
    function(
        "feature_alpha_dropout",
        "alpha_dropout of whole channels.",
        _feature_alpha_dropout,
        operands=("x", "seed"),
        tags=frozenset({"random"}),
    ),
    function(
        "feature_dropout",
        "Dropout of whole channels.",
        _feature_dropout,
        operands=("x", "seed"),
        tags=frozenset({"random"}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
