"""`nova.jit(static_argnums=..., static_argnames=...)`: arguments that are Python values.

A static argument is part of the program: the function is jitted once for each combination of
values, with these arguments bound. The programs of a combination are those of its `JitFunction`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any

from nova import knobs
from nova.api.compiled import Compiled
from nova.api.jit import CacheInfo, Forgotten, JitFunction, Options
from nova.api.jit_arguments import call_signature
from nova.core.frozen_attributes import Sealed
from nova.core.location import user_location
from nova.core.single_flight import SingleFlight
from nova.core.user_facing import user_facing_class
from nova.errors import ArgumentTypeError, AttributeValueError

if TYPE_CHECKING:
    from nova.runtime.futures import RunFuture

Transform = Callable[[Callable[..., Any], tuple[int, ...]], Callable[..., Any]]
"""(function without its static arguments, the positions that these had) -> a function for it."""


@user_facing_class
class StaticJitFunction(Sealed):
    """A function compiled per signature and per combination of values of its static arguments."""

    __name__: str
    has_no_state = True  # of its own: `nova.graph.state` looks at the function inside

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        argnums: Any,
        argnames: Any,
        transform: Transform | None = None,
    ):
        self._parameters = list(call_signature(function).parameters.values())
        self._positions, self._names = _resolve(self._parameters, argnums, argnames)
        _wrap(self, function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._function, self._options, self._transform = function, options, transform
        self._jitted: SingleFlight[JitFunction] = SingleFlight(knobs.get("jit_programs"))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As an attribute of a class: the function with `self` bound, kept by the object."""
        if instance is None:
            return self
        name = f"jit of {getattr(self, '__qualname__', self.__name__)}"
        bound = vars(instance).get(name)
        if not isinstance(bound, _StaticJitMethod):
            method = self._function.__get__(instance, owner)
            bound = _StaticJitMethod(
                method, self._options, None, tuple(self._names), self._transform
            )
            vars(instance)[name] = bound
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        jitted, args, kwargs = self._bound(args, kwargs)
        return jitted(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Compiled:
        """The program for such arguments, compiled and not run."""
        jitted, args, kwargs = self._bound(args, kwargs)
        return jitted.lower(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> RunFuture:
        """Start a run and return its future."""
        jitted, args, kwargs = self._bound(args, kwargs)
        return jitted.submit(*args, **kwargs)

    def cache_info(self) -> CacheInfo:
        """Hits, misses and programs, of all values of the static arguments together."""
        infos = [jitted.cache_info() for jitted in self._jitted.values()]
        return CacheInfo(
            hits=sum(i.hits for i in infos),
            misses=sum(i.misses for i in infos),
            size=sum(i.size for i in infos),
            bound=knobs.get("jit_programs"),
            evictions=sum(i.evictions for i in infos),
            symbolic=sum(i.symbolic for i in infos),
            specialized=sum(i.specialized for i in infos),
        )

    def explain(self) -> str:
        """Why programs were compiled, for each combination of static values."""
        return "\n".join(jitted.explain() for jitted in self._jitted.values())

    def __repr__(self) -> str:
        names = ", ".join(sorted(self._names))
        return f"<jitted {self.__name__}, static {names}>"

    def _bound(self, args: Any, kwargs: Any) -> tuple[JitFunction, Any, Any]:
        """The function for the static values of a call, and the other arguments."""
        fixed = {i: a for i, a in enumerate(args) if i in self._positions}
        named = {n: v for n, v in kwargs.items() if n in self._names}
        key = tuple((where, _typed(value)) for where, value in (*fixed.items(), *named.items()))
        try:
            hash(key)
        except TypeError:
            where, value = next((w, v) for w, v in (*fixed.items(), *named.items()) if _fails(v))
            name = self._parameters[where].name if isinstance(where, int) else where
            raise ArgumentTypeError(
                f"{self.__name__}: the static argument {name!r} is a {type(value).__name__}, "
                "which is not hashable",
                where=str(user_location()),
                hint="pass a tuple, a string or a number, or an object with __hash__ and __eq__",
            ) from None
        jitted, _ = self._jitted.get(key, lambda: self._jit(fixed, named))
        others = tuple(a for i, a in enumerate(args) if i not in fixed)
        return jitted, others, {n: v for n, v in kwargs.items() if n not in named}

    def _jit(self, fixed: dict[int, Any], named: dict[str, Any]) -> JitFunction:
        function = self._function

        def bound(*args: Any, **kwargs: Any) -> Any:
            feed = iter(args)
            count = len(args) + len(fixed)
            full = [fixed[i] if i in fixed else next(feed) for i in range(count)]
            return function(*full, **kwargs, **named)

        _wrap(bound, function)
        remaining = [
            p
            for i, p in enumerate(self._parameters)
            if i not in self._positions and p.name not in self._names
        ]
        vars(bound)["__signature__"] = inspect.Signature(remaining)
        transform = self._transform
        final = bound if transform is None else transform(bound, tuple(sorted(fixed)))
        return JitFunction(final, self._options)

    def _transformed(self, transform: Transform) -> StaticJitFunction:
        """The function whose programs are those of the transform, with the same options."""
        inner = self._transform

        def both(function: Callable[..., Any], positions: tuple[int, ...]) -> Callable[..., Any]:
            return transform(function if inner is None else inner(function, positions), positions)

        return StaticJitFunction(self._function, self._options, None, tuple(self._names), both)


def _wrap(wrapper: Any, function: Callable[..., Any]) -> None:
    """Attributes of a function are copied; attributes of a module are its state."""
    updated = ("__dict__",) if isinstance(function, FunctionType) else ()
    update_wrapper(wrapper, function, updated=updated)


def _typed(value: Any) -> Any:
    """A key of a value: 1, 1.0 and True differ, inside of tuples and dataclasses too."""
    if isinstance(value, tuple):
        return type(value), tuple(map(_typed, value))
    if isinstance(value, float):
        return float, value.hex()  # -0.0 is not 0.0, and NaN is NaN
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), value, tuple(_typed(getattr(value, f.name)) for f in fields(value))
    return type(value), value


class _StaticJitMethod(StaticJitFunction):
    """A jitted method: kept by the object; its copies create their own."""

    def __reduce__(self) -> Any:
        return Forgotten, ()


def _fails(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return True
    return False


def _resolve(
    parameters: list[inspect.Parameter], argnums: Any, argnames: Any
) -> tuple[frozenset[int], frozenset[str]]:
    """The positions and the names of the static arguments; each follows from the other."""
    positions = set()
    for number in _items(argnums, int, "static_argnums"):
        position = number + len(parameters) if number < 0 else number
        if not 0 <= position < len(parameters):
            raise AttributeValueError(
                f"static_argnums {number}: the function has {len(parameters)} parameters",
                where=str(user_location()),
            )
        positions.add(position)
    names = set(_items(argnames, str, "static_argnames"))
    known = [p.name for p in parameters]
    for name in names:
        if name not in known:
            raise AttributeValueError(
                f"static_argnames {name!r}: the function has no such parameter",
                where=str(user_location()),
                hint=f"it has {', '.join(known) or 'none'}",
            )
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positions |= {i for i, p in enumerate(parameters) if p.name in names and p.kind in positional}
    return frozenset(positions), frozenset(names | {parameters[i].name for i in positions})


def _items(value: Any, type_: type, option: str) -> Iterable[Any]:
    items = () if value is None else value if isinstance(value, tuple | list) else (value,)
    for item in items:
        if not isinstance(item, type_) or isinstance(item, bool):
            raise AttributeValueError(
                f"{option} {value!r}: a {type(item).__name__} is not a parameter",
                where=str(user_location()),
                hint="pass ints for static_argnums, strings for static_argnames",
            )
    return items
