"""The state that a Python function closes over, and its current value.

In: a function, a module, a bound method or another callable. `find_roots` reads, without running
it, which names of its globals and closure cells, and which objects, hold state; functions that it
calls by such a name are read as well. `Roots.snapshot` captures the current state:
numbers, strings and modes by value, tensors and arrays by identity. `nova.jit` compares snapshots
with that of a trace.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from nova.core.records import record
from nova.graph.capture import Holder
from nova.graph.tensor import Tensor

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
# Globals of functions from here are not state of the user.
_LIBRARIES = frozenset({"nova", "numpy", "ml_dtypes", "torch", "jax", "scipy", "pytest", "_pytest"})
_EMPTY = object()
# Of larger containers only the identity and the length are compared at each call.
_MOST_ITEMS = 1000

Name = tuple[Any, str]
"""A dict of globals and a name in it, or a closure cell and its name."""


@record
class Snapshot:
    """State at one moment: the parts compared by value, and the parts compared by identity."""

    values: tuple[Any, ...]
    objects: tuple[Any, ...]

    def is_same(self, snapshot: Snapshot) -> bool:
        objects, others = self.objects, snapshot.objects
        return (
            len(objects) == len(others)
            and all(a is b for a, b in zip(objects, others, strict=True))
            and self.values == snapshot.values
        )


class Roots:
    """The locations of a function's state."""

    def __init__(
        self,
        names: Iterable[Name] = (),
        objects: Iterable[Any] = (),
        read: Iterable[Tensor] = (),
    ):
        self.names = tuple(names)
        self.objects = tuple(objects)
        self.read = tuple(read)

    def __bool__(self) -> bool:
        return bool(self.names or self.objects or self.read)

    def snapshot(self) -> Snapshot:
        """All state as it is now."""
        walk = _Walk()
        for space, name in self.names:
            walk.visit(look_up(space, name))
        for value in self.objects:
            walk.visit_attributes(value)
        for leaf in self.read:
            walk.values.append(None if leaf.data is None else leaf.data.tobytes())
        return Snapshot(tuple(walk.values), tuple(walk.objects))

    def bindings(self) -> tuple[tuple[Any, str, Any], ...]:
        """The names with their current values."""
        return tuple((space, name, look_up(space, name)) for space, name in self.names)

    @property
    def is_volatile(self) -> bool:
        """Whether state may change without a change of a name or a `Holder`."""
        values = [look_up(*name) for name in self.names]
        holders = all(isinstance(value, Holder) for value in self.objects)
        return bool(self.read) or not holders or any(map(_is_volatile, (*values, *self.objects)))

    def extended(self, values: Iterable[Any], read: Iterable[Tensor]) -> Roots:
        """These roots, further objects unless already reached, and leaves that were read."""
        walk = _Walk()
        for name in self.names:
            walk.visit(look_up(*name))
        for value in self.objects:
            walk.visit_attributes(value)
        new = [value for value in values if id(value) not in walk.visited]
        ids = {id(leaf) for leaf in self.read}
        leaves = [leaf for leaf in read if id(leaf) not in ids]
        if not new and not leaves:
            return self
        return Roots(self.names, (*self.objects, *new), (*self.read, *leaves))

    def without_changed(self, before: Mapping[int, Snapshot]) -> Roots:
        """Only the names whose values did not change during the trace.

        A name that the traced code itself assigns, or fills, is an output of the trace.
        """
        unchanged = [n for i, n in enumerate(self.names) if before[i].is_same(_of(look_up(*n)))]
        return (
            self if len(unchanged) == len(self.names) else Roots(unchanged, self.objects, self.read)
        )

    def fields(self) -> dict[str, Snapshot]:
        """The snapshot of each attribute of the objects."""
        return {
            f"{type(value).__name__}.{name}": _of(part)
            for value in self.objects
            for name, part in attributes(value)
            if not getattr(type(part), "has_no_state", False)
        }

    def each(self) -> dict[int, Snapshot]:
        """The snapshot of each name separately, by position."""
        return {i: _of(look_up(*name)) for i, name in enumerate(self.names)}


def look_up(space: Any, name: str) -> Any:
    """The current value of a name; an unbound name has a special value."""
    if type(space) is dict:
        return space.get(name, _EMPTY)
    try:
        return space.cell_contents
    except ValueError:
        return _EMPTY


def _of(value: Any) -> Snapshot:
    walk = _Walk()
    walk.visit(value)
    return Snapshot(tuple(walk.values), tuple(walk.objects))


class _Walk:
    """Collects the parts of values; visits each object with attributes once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.objects: list[Any] = []
        self.visited: dict[int, int] = {}

    def visit(self, value: Any) -> None:
        cls = type(value)
        if cls is float:
            self.values += (cls, _bits(value))
        elif cls is complex:
            self.values += (cls, _bits(value.real), _bits(value.imag))
        elif cls in _PLAIN:
            self.values += (cls, value)
        elif isinstance(value, Tensor):
            self.values.append(value.requires_grad)
            self.objects.append(value)
        elif isinstance(value, np.generic):
            self.values += (cls, value.tobytes())
        elif cls is slice or cls is range:
            self.values.append(cls)
            for part in (value.start, value.stop, value.step):
                self.visit(part)
        elif has_state(value):
            self.visit_attributes(value)
        elif isinstance(value, _CONTAINERS):
            self._visit_items(value)
        elif getattr(cls, "has_no_state", False):
            self.values.append(cls)
        else:
            self.objects.append(value)

    def visit_attributes(self, value: Any) -> None:
        """The attributes of an object, whatever its class."""
        if id(value) in self.visited:
            self.values.append(self.visited[id(value)])
            return
        self.visited[id(value)] = len(self.visited)
        self.objects.append(value)
        # A mode is the same whether it is set on the class or on the object.
        self.values.append(getattr(value, "training", None) if isinstance(value, Holder) else None)
        for name, part in attributes(value):
            if name != "training" and not getattr(type(part), "has_no_state", False):
                self.values.append(name)
                self.visit(part)

    def _visit_items(self, value: Any) -> None:
        if id(value) in self.visited:
            self.values.append(self.visited[id(value)])
            return
        self.visited[id(value)] = len(self.visited)
        self.values += (type(value), len(value))
        if len(value) > _MOST_ITEMS:
            self.objects.append(value)
            return
        if isinstance(value, dict):
            for key in list(value):
                self.visit(key)
                self.visit(value[key])
        else:
            for item in list(value):
                self.visit(item)


def _bits(value: float) -> bytes:
    """A key that distinguishes -0.0 from 0.0, and in which a NaN equals itself."""
    return struct.pack("d", value)


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of an object's attributes, in its dict or in slots."""
    yield from list(getattr(value, "__dict__", {}).items())
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            member = f"_{cls.__name__.lstrip('_')}{name}" if _is_private(name) else name
            if name not in ("__dict__", "__weakref__") and hasattr(value, member):
                yield member, getattr(value, member)


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def has_state(value: Any) -> bool:
    """Whether the attributes of an object are state: modules, dataclasses and namespaces."""
    if isinstance(value, Holder):
        return True
    if isinstance(value, type) or type(value).__module__.partition(".")[0] in _LIBRARIES:
        return False
    return is_dataclass(value) or isinstance(value, SimpleNamespace)


def _is_volatile(value: Any) -> bool:
    """Whether parts of a value can be replaced without changing `generation`."""
    if isinstance(value, Holder):
        return any(_is_volatile(part) for part in vars(value).values())
    if type(value) is tuple:
        return any(_is_volatile(part) for part in value)
    return isinstance(value, _CONTAINERS) or has_state(value)


# --- discovery ------------------------------------------------------------------------------------


def find_roots(function: Callable[..., Any]) -> Roots:
    """The names and objects from which `function`, and the functions it names, take state."""
    search = _Search()
    search.visit(function)
    return Roots(search.names.values(), search.objects.values())


class _Search:
    def __init__(self) -> None:
        self.names: dict[tuple[int, str], Name] = {}
        self.objects: dict[int, Any] = {}
        self._visited: set[int] = set()
        self._seen_parts: set[int] = set()
        self._alive: list[Any] = []

    def visit(self, value: Any) -> None:
        """A callable: its own state, and that of the functions that it names."""
        if id(value) in self._visited:
            return
        self._visited.add(id(value))
        self._alive.append(value)
        if isinstance(value, FunctionType):
            self._visit_function(value)
        elif isinstance(value, MethodType):
            self._hold(value.__self__)
            self.visit(value.__func__)
        elif isinstance(value, partial):
            for part in (*value.args, *value.keywords.values()):
                self._visit_argument(part)
            self.visit(value.func)
        elif getattr(type(value), "has_no_state", False):
            self.visit(value.__wrapped__)
        elif isinstance(value, Holder) or _is_instance_of_user(value):
            self._hold(value)

    def _hold(self, value: Any) -> None:
        if not isinstance(value, type):
            self.objects.setdefault(id(value), value)
            self._visit_methods(value)

    def _visit_methods(self, value: Any) -> None:
        """The code of a user's class may name globals as well, and so may that of its parts."""
        if id(value) in self._seen_parts:
            return
        self._seen_parts.add(id(value))
        for cls in type(value).__mro__:
            if not _is_library(cls.__module__) and cls is not object:
                for part in vars(cls).values():
                    if isinstance(part, FunctionType):
                        self.visit(part)
        for _, part in attributes(value):
            self._visit_part(part)

    def _visit_part(self, value: Any) -> None:
        """A part of an object or container whose values are state: its code is read."""
        if has_state(value):
            self._visit_methods(value)
        elif isinstance(value, _CONTAINERS):
            if id(value) in self._seen_parts or len(value) > _MOST_ITEMS:
                return
            self._seen_parts.add(id(value))
            self._alive.append(value)
            for part in list(value.values() if isinstance(value, dict) else value):
                self._visit_part(part)
        elif isinstance(value, FunctionType | MethodType | partial):
            self.visit(value)

    def _visit_argument(self, value: Any) -> None:
        """A default value, or an argument bound by a partial function."""
        if isinstance(value, _CONTAINERS) and not has_state(
            value
        ):  # no name holds it, so it gets one
            self._visit_name({"": value}, "")
        elif has_state(value):
            self._hold(value)
        elif callable(value):
            self.visit(value)

    def _visit_function(self, function: FunctionType) -> None:
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            self._visit_name(cell, name)
        for part in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._visit_argument(part)
        space = function.__globals__
        if not _is_library(space.get("__name__")):
            names = _global_names(function.__code__)
            for name in names:
                if name in space:
                    self._visit_name(space, name)
                    self._visit_module(space[name], names)

    def _visit_module(self, value: Any, names: set[str]) -> None:
        """Names of another module that code reads as its attributes: `config.scale`."""
        if isinstance(value, ModuleType) and not _is_library(value.__name__):
            for name in names & vars(value).keys():
                self._visit_name(vars(value), name)

    def _visit_name(self, space: Any, name: str) -> None:
        value = look_up(space, name)
        key = id(space), name if type(space) is dict else ""
        self._alive.append(space)
        if has_state(value):
            self.names[key] = space, name
            self._visit_methods(value)
        elif callable(value):
            self.visit(value)
        elif not isinstance(value, ModuleType):
            self.names[key] = space, name
            self._visit_part(value)


def _global_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            names |= _global_names(part)
    return names


def _is_library(module: Any) -> bool:
    top = str(module).partition(".")[0]
    return top in _LIBRARIES or (top in sys.stdlib_module_names and top != "__main__")


def _is_instance_of_user(value: Any) -> bool:
    return not isinstance(value, type) and not _is_library(type(value).__module__)
