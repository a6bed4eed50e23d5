"""Numbered modules: `Sequential` applies them in order, `ModuleList` only stores them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self, overload

from nova.core.location import user_location
from nova.errors import AxisError, ModuleError
from nova.nn.module import Module


class _Numbered(Module):
    """Modules under the names "0", "1", ..."""

    def append(self, module: Module) -> Self:
        """Append a module."""
        setattr(self, str(len(self)), checked_module(module))
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
        setattr(self, self._position(index), checked_module(module))


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


def checked_module(module: Any) -> Module:
    """`module`, or an error if it is something else."""
    if not isinstance(module, Module):
        raise ModuleError(
            f"{module!r} is not a module",
            where=str(user_location()),
            hint="wrap a function in a class with a forward, or use nn.ReLU() and the like",
        )
    return module
