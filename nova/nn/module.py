"""`Module`: parameters and other modules under names, and a `forward` that builds graph.

Attributes that are Parameters or Modules are its parts, in the order in which they were set; there
is nothing to register and no `super().__init__()` to call. Called with arrays a module wraps them,
so `model(x).numpy()` works on data as well as in a traced program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from nova.core.dlpack import is_array
from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import ModuleError
from nova.graph import Tensor, tensor
from nova.graph.capture import Holder, current_capture
from nova.nn.parameter import Parameter
from nova.nn.state import LoadReport, copy_into, read_state, write_state


class Module(Holder):
    """Base of layers and models: set parts as attributes, and write `forward`."""

    training = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; every module has its own."""
        raise ModuleError(
            f"{type(self).__name__} has no forward",
            where=str(user_location()),
            hint="define forward(self, x) in the class",
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`, with arrays among the arguments as tensors."""
        capture = current_capture()
        if capture is not None and capture.enter(self):
            self.parameters()  # which names them, for the program
        return self.forward(*map(_wrap, args), **{k: _wrap(v) for k, v in kwargs.items()})

    # --- parts ----------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules that are attributes of this one, with their names."""
        return ((name, part) for name, part in _parts(self) if isinstance(part, Module))

    def children(self) -> Iterator[Module]:
        """The modules that are attributes of this one, each once."""
        return iter({id(child): child for _, child in self.named_children()}.values())

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """This module ("") and all below it, each once under its first name."""
        return _first_names((n, p) for n, p in _walk(self) if isinstance(p, Module))

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Dotted names and parameters, each once under its first name.

        Programs call them that as well, unless they were made with a name: the names of
        `state_dict`, by which weights are found again.
        """
        return _first_names(self._all_parameters())

    def parameters(self) -> list[Parameter]:
        """The parameters, each once, in the order of `named_parameters`."""
        return [parameter for _, parameter in self.named_parameters()]

    def _all_parameters(self) -> list[tuple[str, Parameter]]:
        """Every name; a tied parameter is there once per name."""
        found = [(n, p) for n, p in _walk(self) if isinstance(p, Parameter)]
        for name, parameter in _first_names(found):
            parameter.name_after(name)
        return found

    # --- modes ----------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Training behaviour (dropout) in this module and all below it."""
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self) -> Self:
        """`train(False)`."""
        return self.train(False)

    def freeze(self) -> Self:
        """Let training leave the parameters of this module, and of all below it, as they are."""
        for parameter in self.parameters():
            parameter.requires_grad = False
        return self

    def unfreeze(self) -> Self:
        """Let training change the float parameters of this module and of all below it."""
        for parameter in self.parameters():
            parameter.requires_grad = parameter.dtype.is_float
        return self

    # --- state ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """The arrays themselves by name; a tied parameter is there under every name."""
        return {name: parameter.data for name, parameter in self._all_parameters()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """Copy values into the arrays, which stay where they are; nothing is copied on an error.

        Without `strict` names may be missing or unknown: the report says which.
        """
        return copy_into(self._all_parameters(), state, strict)

    def save(self, path: str | Path) -> None:
        """Write the state as a safetensors file, which appears whole or not at all.

        A tied parameter is stored once, with its other names in the file's metadata.
        """
        write_state(path, self._all_parameters())

    def load(self, path: str | Path, strict: bool = True) -> LoadReport:
        """Read a safetensors file into the arrays; parameters tied in the file are tied here."""
        state, tied = read_state(path)
        report = self.load_state_dict({**state, **{a: state[n] for a, n in tied.items()}}, strict)
        named = dict(self._all_parameters())
        for alias, name in tied.items():
            if alias in named and name in named:
                self._tie(alias, named[name])
        return report

    def _tie(self, name: str, parameter: Parameter) -> None:
        path, _, attribute = name.rpartition(".")
        module = next(p for n, p in _walk(self) if n == path)
        setattr(module, attribute, parameter)

    def __repr__(self) -> str:
        lines = [f"({name}): {part!r}" for name, part in _parts(self)]
        inner = "".join("\n  " + line.replace("\n", "\n  ") for line in lines)
        return f"{type(self).__name__}({inner}\n)" if inner else f"{type(self).__name__}()"


@user_facing
@contextmanager
def replaced(model: Module, values: Mapping[Parameter, Tensor]) -> Iterator[None]:
    """Inside, what `model` holds as these parameters are the given tensors (casts of them, say).

    Not for two threads at once on one model. A replaced parameter is no part of the model inside.
    """
    changed: list[tuple[Module, str, Parameter]] = []
    for module in list(model.modules()):
        for name, part in list(_parts(module)):
            if isinstance(part, Parameter) and part in values:
                changed.append((module, name, part))
    try:
        for module, name, part in changed:
            vars(module)[name] = values[part]
        yield
    finally:
        for module, name, part in changed:
            vars(module)[name] = part


# --- walking --------------------------------------------------------------------------------------


def _parts(module: Module) -> Iterator[tuple[str, Any]]:
    """The attributes that are parameters or modules, in the order in which they were set."""
    for name, value in vars(module).items():
        if isinstance(value, Parameter | Module):
            yield name, value
        elif isinstance(value, list | tuple | dict):
            _refuse_hidden(module, name, value)


def _refuse_hidden(module: Module, name: str, value: Any) -> None:
    """A part inside of a plain container has no name: it would silently not be trained."""
    items = value.values() if isinstance(value, dict) else value
    if any(isinstance(item, Parameter | Module) for item in items):
        raise ModuleError(
            f"{type(module).__name__}.{name} is a {type(value).__name__} with modules or "
            "parameters inside, which are not found there",
            hint="use nn.ModuleList, or an attribute for each",
        )


def _walk(
    module: Module, prefix: str = "", above: tuple[Module, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """A module and everything below it, in order, under every name."""
    if any(module is m for m in above):
        raise ModuleError(f"{type(module).__name__} contains itself, as {prefix!r}")
    yield prefix, module
    for name, part in _parts(module):
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(part, Module):
            yield from _walk(part, path, (*above, module))
        else:
            yield path, part


def _first_names(named: Any) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, part in named:
        if id(part) not in seen:
            seen.add(id(part))
            yield name, part


def _wrap(value: Any) -> Any:
    return tensor(value) if not isinstance(value, Tensor) and is_array(value) else value
