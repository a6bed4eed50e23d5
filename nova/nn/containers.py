"""Containers of parts: by number (`Sequential`, `ModuleList`, `ParameterList`) or by name.

`Sequential` applies its modules in order; the others only store their parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from nova.core.location import user_location
from nova.errors import AxisError, ModuleError
from nova.nn.module import Module
from nova.nn.parameter import Parameter


class _Numbered(Module):
    """Modules under the names "0", "1", ..."""

    def append(self, module: Module) -> Self:
        """Append a module."""
        setattr(self, str(len(self)), _checked_module(module))
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Append modules."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return sum(1 for _ in self.named_children())

    def __iter__(self) -> Iterator[Module]:
        return (module for _, module in self.named_children())

    def _position(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise AxisError(
                f"module {index} of {len(self)} in a {type(self).__name__}",
                where=str(user_location()),
            )
        return str(index % len(self))

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._position(index), _checked_module(module))


class Sequential(_Numbered):
    """Modules in sequence, each applied to the result of the previous one."""

    def __init__(self, *modules: Module):
        self.extend(modules)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return Sequential(*list(self)[index])
        return getattr(self, self._position(index))


class ModuleList(_Numbered):
    """A list of modules whose parameters belong to the model; it has no `forward`."""

    def __init__(self, modules: Iterable[Module] = ()):
        self.extend(modules)

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return ModuleList(list(self)[index])
        return getattr(self, self._position(index))


def _checked_module(module: Any) -> Module:
    if not isinstance(module, Module):
        raise ModuleError(
            f"{module!r} is not a module",
            where=str(user_location()),
            hint="wrap a function in a class with a forward, or use nn.ReLU() and the like",
        )
    return module


class _Named(Module):
    """Parts under the names that the user chose, in the order of insertion."""

    def __init__(self, parts: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None):
        self.update(parts or {})

    def update(self, parts: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace parts."""
        for name, part in parts.items() if isinstance(parts, Mapping) else parts:
            self[name] = part

    def __setitem__(self, name: str, part: Any) -> None:
        if not isinstance(name, str) or not name or "." in name or hasattr(type(self), name):
            raise ModuleError(
                f"{name!r} cannot be a name in a {type(self).__name__}",
                where=str(user_location()),
                hint="names are strings without dots that are not methods of the container",
            )
        setattr(self, name, self._checked(part))

    def _checked(self, part: Any) -> Any:
        raise NotImplementedError

    def __getitem__(self, name: str) -> Any:
        self._find(name)
        return vars(self)[name]

    def __delitem__(self, name: str) -> None:
        self._find(name)
        delattr(self, name)

    def _find(self, name: str) -> None:
        if name not in self.keys():
            raise ModuleError(
                f"a {type(self).__name__} has no part {name!r}",
                where=str(user_location()),
                hint=f"its parts: {', '.join(self.keys()) or 'none'}",
            )

    def keys(self) -> list[str]:
        """The names, in the order of insertion."""
        return [name for name, part in vars(self).items() if isinstance(part, Parameter | Module)]

    def values(self) -> list[Any]:
        """The parts, in the order of their names."""
        return [vars(self)[name] for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        """Names and parts."""
        return list(zip(self.keys(), self.values(), strict=True))

    def pop(self, name: str) -> Any:
        """Remove a part and return it."""
        part = self[name]
        del self[name]
        return part

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()


class ModuleDict(_Named):
    """Modules by name; it has no `forward`."""

    def _checked(self, part: Any) -> Module:
        return _checked_module(part)


class ParameterDict(_Named):
    """Parameters by name; arrays become parameters."""

    def _checked(self, part: Any) -> Parameter:
        return _as_parameter(part)


class ParameterList(Module):
    """Parameters under the names "0", "1", ...; arrays become parameters."""

    def __init__(self, values: Iterable[Any] = ()):
        self.extend(values)

    def append(self, value: Any) -> Self:
        """Append a parameter."""
        setattr(self, str(len(self)), _as_parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Append parameters."""
        for value in values:
            self.append(value)
        return self

    def __getitem__(self, index: int) -> Parameter:
        return vars(self)[self._position(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._position(index), _as_parameter(value))

    def _position(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise AxisError(
                f"parameter {index} of {len(self)} in a ParameterList", where=str(user_location())
            )
        return str(index % len(self))

    def __len__(self) -> int:
        return sum(isinstance(part, Parameter) for part in vars(self).values())

    def __iter__(self) -> Iterator[Parameter]:
        return (self[i] for i in range(len(self)))


def _as_parameter(value: Any) -> Parameter:
    """A parameter, or an array as a parameter."""
    return value if isinstance(value, Parameter) else Parameter(value)
