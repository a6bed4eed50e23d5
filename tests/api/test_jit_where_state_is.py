"""State of jitted functions in places other than plain names: each change is seen."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import nova
from nova import nn

X = np.arange(6, dtype="f4").reshape(2, 3)


@dataclass(slots=True)
class Slotted:
    scale: float = 2.0


class Base:
    __slots__ = ("__factor", "scale")

    def __init__(self) -> None:
        self.scale = 2.0
        self.__factor = 1.0

    def multiply(self, x: Any) -> Any:
        return x * self.scale * self.__factor

    def set_factor(self, value: float) -> None:
        self.__factor = value


class Derived(Base):
    __slots__ = "__dict__"

    @nova.jit
    def compiled(self, x: Any) -> Any:
        return self.multiply(x)


config = types.ModuleType("config_of_a_test")


def _changes_of_list(
    make: Callable[[list[float]], Callable[..., Any]],
) -> tuple[Callable[..., Any], Callable[[], None]]:
    values = [2.0]

    def change() -> None:
        values[0] = 3.0

    return make(values), change


def _default(values: list[float]) -> Callable[..., Any]:
    def function(x: Any, scale: list[float] = values) -> Any:
        return x * scale[0]

    return function


def _keyword_default(values: list[float]) -> Callable[..., Any]:
    table = {"a": values}

    def function(x: Any, *, scale: dict[str, list[float]] = table) -> Any:
        return x * scale["a"][0]

    return function


def _function_in_dict(values: list[float]) -> Callable[..., Any]:
    table = {"scale": [lambda x: x * values[0]]}
    return lambda x: table["scale"][0](x)


def _function_of_module(values: list[float]) -> Callable[..., Any]:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.activation = lambda x: x * values[0]

        def forward(self, x: Any) -> Any:
            return self.activation(x)

    return Model()


@pytest.mark.parametrize(
    "make",
    [
        _default,
        _keyword_default,
        lambda values: partial(lambda scale, x: x * scale[0], values),
        lambda values: partial(lambda x, scale: x * scale[0], scale=values),
        _function_in_dict,
        _function_of_module,
    ],
    ids=["default", "keyword", "partial", "partial keyword", "function in dict", "attribute"],
)
def test_lists_that_no_name_holds(make: Callable[[list[float]], Callable[..., Any]]) -> None:
    function, change = _changes_of_list(make)
    compiled = nova.jit(function)
    assert np.array_equal(compiled(X), X * 2)
    change()
    assert np.array_equal(compiled(X), X * 3)


def test_slots_are_state() -> None:
    settings, plain, derived = Slotted(), Base(), Derived()
    compiled = nova.jit(lambda x: x * settings.scale)
    bound = nova.jit(plain.multiply)
    assert all(np.array_equal(f(X), X * 2) for f in (compiled, bound, derived.compiled))
    settings.scale = plain.scale = derived.scale = 3.0
    assert all(np.array_equal(f(X), X * 3) for f in (compiled, bound, derived.compiled))
    plain.set_factor(2.0)
    derived.set_factor(2.0)
    assert all(np.array_equal(f(X), X * 6) for f in (bound, derived.compiled))


def test_names_of_other_modules_are_state() -> None:
    vars(config).update(scale=2.0)
    exec("def multiply(x):\n    return x * scale", vars(config))
    read, called = nova.jit(lambda x: x * config.scale), nova.jit(lambda x: config.multiply(x))
    assert np.array_equal(read(X), X * 2) and np.array_equal(called(X), X * 2)
    vars(config).update(scale=3.0)
    assert np.array_equal(read(X), X * 3) and np.array_equal(called(X), X * 3)


def test_the_sign_of_zero_and_nan() -> None:
    second = 0.0
    compiled = nova.jit(lambda x: nova.atan2(x * 0.0, nova.full_like(x, second)))
    assert np.array_equal(compiled(X), X * 0)
    second = -0.0
    assert np.array_equal(compiled(X), np.full_like(X, np.pi))
    for _ in range(3):
        second = float("nan")
        assert np.isnan(compiled(X)).all()
    assert compiled.cache_info().misses == 3


def test_class_methods_compile_for_each_class() -> None:
    class Scale:
        scale: ClassVar[float] = 2.0

        @classmethod
        @nova.jit
        def of(cls, x: Any) -> Any:
            return x * cls.scale

    class Other(Scale):
        scale = 3.0

    assert np.array_equal(Scale.of(X), X * 2) and np.array_equal(Other.of(X), X * 3)
    assert np.array_equal(Scale().of(X), X * 2) and Scale.of.cache_info().misses == 1


class Kind(Enum):
    FIRST = 2
    SECOND = 3


Pair = namedtuple("Pair", "scale")


@pytest.mark.parametrize(
    ("first", "second", "read"),
    [
        (Kind.FIRST, Kind.SECOND, lambda value: value.value),
        (Pair(2.0), Pair(3.0), lambda value: value.scale),
        (slice(2, 5), slice(3, 5), lambda value: value.start),
        (range(2), range(3), len),
        (Fraction(2), Fraction(3), float),
        (types.MappingProxyType({"a": 2.0}), types.MappingProxyType({"a": 3.0}), lambda v: v["a"]),
    ],
    ids=["enum", "namedtuple", "slice", "range", "fraction", "mapping"],
)
def test_names_of_any_kind_of_value_are_state(
    first: Any, second: Any, read: Callable[[Any], float]
) -> None:
    value = first
    compiled = nova.jit(lambda x: x * read(value))
    assert np.array_equal(compiled(X), X * 2)
    value = second
    assert np.array_equal(compiled(X), X * 3)
    value = first
    assert np.array_equal(compiled(X), X * 2)


@pytest.mark.parametrize("make", [OrderedDict, partial(defaultdict, float), type("D", (dict,), {})])
def test_kinds_of_dicts_and_lists_are_state(make: Callable[..., Any]) -> None:
    table, queue = make({"a": 2.0}), deque([1.0])
    compiled = nova.jit(lambda x: x * table["a"] * queue[0])
    assert np.array_equal(compiled(X), X * 2)
    table["a"] = 3.0
    assert np.array_equal(compiled(X), X * 3)
    queue[0] = 2.0
    assert np.array_equal(compiled(X), X * 6)


def test_a_jitted_function_in_a_trace_is_part_of_it() -> None:
    weight, table = nn.Parameter(np.ones(3, "f4")), np.ones(3, "f4")
    inner, second = nova.jit(lambda: weight * 2.0), nova.jit(lambda x, k: x * k)
    inner(), second(table, 2.0)  # compiled before, too
    outer = nova.jit(lambda x: x + inner() + second(table, 2.0))
    assert np.array_equal(outer(X), X + 4)
    weight.data[...] = 2.0
    assert np.array_equal(outer(X), X + 6)
    table[...] = 3.0
    assert np.array_equal(outer(X), X + 10)
