"""Random numbers: Philox streams seeded from torch's generator.

Rows here take `seed`, an i64 of a vector that each call of a program draws from torch's default
generator, so `torch.manual_seed` makes runs repeatable. The numbers have eager's distribution, not
its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.core.dtypes import f32, f64
from nova.frontends.torch.rows.table import Row, cast, row, unsupported

RANDOM: set[str] = set()
"""Names of the rows that take a seed."""


def _random(*names: str) -> Callable[[Row], Row]:
    RANDOM.update(f"aten.{name}" for name in names)
    return row(*names)


def _checked(generator: Any) -> None:
    if generator is not None:
        raise unsupported("random numbers of a generator of the user")


def _uniform(F: Any, seed: Any, shape: Sequence[int], dtype: Any) -> Any:
    if dtype is f64:
        raise unsupported("random numbers of f64")
    return cast(F, F.uniform(seed, shape=tuple(shape)), dtype)


@_random("rand.default", "rand.generator")
def _rand(
    F: Any, size: Any, *, seed: Any, dtype: Any = None, generator: Any = None, **layout: Any
) -> Any:
    _checked(generator)
    return _uniform(F, seed, size, dtype or f32)


@_random("rand_like.default")
def _rand_like(F: Any, x: Any, *, seed: Any, dtype: Any = None, **layout: Any) -> Any:
    return _uniform(F, seed, x.shape, dtype or x.dtype)


@_random("randn.default", "randn.generator")
def _randn(
    F: Any, size: Any, *, seed: Any, dtype: Any = None, generator: Any = None, **layout: Any
) -> Any:
    _checked(generator)
    if dtype is f64:
        raise unsupported("random numbers of f64")
    return cast(F, F.normal(seed, shape=tuple(size)), dtype or f32)


@_random("randn_like.default")
def _randn_like(F: Any, x: Any, *, seed: Any, dtype: Any = None, **layout: Any) -> Any:
    return _randn(F, x.shape, seed=seed, dtype=dtype or x.dtype)


@_random("uniform.default")
def _uniform_between(
    F: Any, x: Any, low: float = 0.0, high: float = 1.0, *, seed: Any, generator: Any = None
) -> Any:
    _checked(generator)
    return cast(F, _uniform(F, seed, x.shape, f32) * (high - low) + low, x.dtype)


@_random("bernoulli.p")
def _bernoulli_p(F: Any, x: Any, p: float = 0.5, *, seed: Any, generator: Any = None) -> Any:
    _checked(generator)
    return cast(F, F.lt(_uniform(F, seed, x.shape, f32), p), x.dtype)


@_random("bernoulli.default")
def _bernoulli(F: Any, x: Any, *, seed: Any, generator: Any = None) -> Any:
    _checked(generator)
    return cast(F, F.lt(_uniform(F, seed, x.shape, f32), cast(F, x, f32)), x.dtype)


@_random("native_dropout.default")
def _native_dropout(F: Any, x: Any, p: float, train: bool | None, *, seed: Any) -> tuple[Any, Any]:
    if train is False:
        return x, F.full(shape=x.shape, value=True, dtype="bool")
    mask = F.ge(_uniform(F, seed, x.shape, f32), p)
    scale = 0.0 if p >= 1 else 1.0 / (1.0 - p)
    return F.where(mask, x * scale, 0.0), mask
