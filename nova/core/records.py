"""`@record`: a frozen dataclass whose class is created five times as fast.

Nova has hundreds of records, and a quarter of the import time of the compiler went into
generating and compiling their methods: `dataclass(frozen=True)` does that for six methods of every
class. Here only `__init__` is compiled per class; the other methods are closures. To
`dataclasses.fields` and `replace` and to type checkers a record is a dataclass.

`@lazy_property` is a property of a record that is computed on its first use. The
`functools.cached_property` of Python 3.11 takes a lock at each first use, which costs more than
most properties of records. Here two threads may both compute the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Generic, NoReturn, Self, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_T]) -> type[_T]:
    """Make `cls` equivalent to `dataclass(frozen=True)`, except for a few unused features.

    Methods that the class defines itself are kept. Fields may have `compare=False` and
    `repr=False`, and all of them are arguments by position or name; there is no `InitVar`.
    """
    defined = set(vars(cls))
    cls_record = dataclass(init=False, repr=False, eq=False)(cls)  # compiles nothing
    # To mypy, the result of a decorator called as a function is not a dataclass.
    record_fields = fields(cls_record)  # type: ignore[arg-type]
    for name, method in _methods(cls_record, record_fields).items():
        if name not in defined:
            method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
            setattr(cls_record, name, method)
    return cls_record


def _methods(cls: type, record_fields: Sequence[Field[Any]]) -> dict[str, Callable[..., Any]]:
    values = _values([f.name for f in record_fields if f.compare])
    names = [f.name for f in record_fields if f.repr]

    def equal(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(values(self) == values(other))

    def digest(self: Any) -> int:
        return hash(values(self))

    @recursive_repr()
    def show(self: Any) -> str:
        pairs = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({pairs})"

    def refuse_to_set(self: Any, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def refuse_to_delete(self: Any, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    return {
        "__init__": _initializer(cls, record_fields),
        "__eq__": equal,
        "__hash__": digest,
        "__repr__": show,
        "__setattr__": refuse_to_set,
        "__delattr__": refuse_to_delete,
    }


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the attributes with these names."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _initializer(cls: type, record_fields: Sequence[Field[Any]]) -> Callable[..., None]:
    """`__init__`: the only method that must be generated, because its parameters are the fields."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, lines = ["self"], []
    for f in record_fields:
        name, value = f.name, f.name
        if f.default is not MISSING:
            scope[f"_of_{name}"] = f.default
            parameters.append(f"{name}=_of_{name}")
        elif f.default_factory is not MISSING:
            scope[f"_of_{name}"] = f.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_of_{name}() if {name} is _missing else {name}"
        else:
            parameters.append(name)
        lines.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
    # The file name marks it as Nova's code: `user_location` skips it.
    exec(compile(text, f"{__file__}, {cls.__qualname__}", "exec"), scope)
    initializer: Callable[..., None] = scope["__init__"]
    return initializer


class LazyProperty(Generic[_T]):
    """The descriptor: the value goes into the `__dict__` of the object, which is read first."""

    def __init__(self, compute: Callable[[Any], _T]):
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...
    def __get__(self, instance: Any, owner: type) -> Self | _T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value


lazy_property = LazyProperty
