"""Attributes of modules that are computed from other parameters, with torch's names.

`module.weight` is computed at each access from the parameters in `module.parametrizations.weight`:
`original`, or `original0`, `original1`, ... where the parametrization divides it into several.
"""

from __future__ import annotations

from typing import Any

from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import ModuleError
from nova.graph import Tensor
from nova.graph.transforms import as_tensor
from nova.nn.containers import ModuleDict
from nova.nn.module import Module
from nova.nn.parameter import Parameter


class ParametrizationList(Module):
    """The originals of one attribute, and the modules that compute it from them, in order."""

    def __init__(self, parameter: Parameter):
        self.count = 0
        self.is_divided = False
        self.original: Parameter | None = parameter

    @property
    def originals(self) -> list[Parameter]:
        """The parameters that are trained."""
        names = [name for name in vars(self) if name.startswith("original")]
        return [getattr(self, name) for name in names if getattr(self, name) is not None]

    def append(self, parametrization: Module) -> None:
        """Add a module; the first one may divide the parameter, by its `right_inverse`."""
        inverse = getattr(parametrization, "right_inverse", None)
        if inverse is not None:
            assert self.original is not None
            values = inverse(self.original)
            is_divided = isinstance(values, tuple | list)
            values = tuple(values) if is_divided else (values,)
            if is_divided and self.count:
                raise ModuleError(
                    "the second parametrization of an attribute divides its parameter",
                    where=str(user_location()),
                    hint="register it first",
                )
            arrays = [as_tensor(value).numpy() for value in values]
            trained = self.original.requires_grad
            if is_divided:
                del self.original
                self.is_divided = True
                for i, array in enumerate(arrays):
                    setattr(self, f"original{i}", Parameter(array, trained))
            else:
                self.original.data[...] = arrays[0]
        setattr(self, str(self.count), parametrization)
        self.count += 1

    def forward(self) -> Tensor:
        value = getattr(self, "0")(*self.originals)
        for i in range(1, self.count):
            value = getattr(self, str(i))(value)
        result: Tensor = value
        return result


class _Compute:
    """The attribute of a module from its parametrization."""

    def __init__(self, name: str):
        self._name = name

    def __call__(self, module: Any) -> Tensor:
        value: Tensor = module.parametrizations[self._name]()
        return value


@user_facing
def register_parametrization(module: Module, tensor_name: str, parametrization: Module) -> Module:
    """Let `parametrization` compute a parameter of `module` from one that is trained instead.

    The parametrization has `forward(original)`; with `right_inverse(value)` it sets the originals,
    several of them if that is a tuple.
    """
    parts: Any = vars(module).get("parametrizations")
    if parts is not None and tensor_name in parts:
        parts[tensor_name].append(parametrization)
        return module
    parameter = vars(module).get(tensor_name)
    if not isinstance(parameter, Parameter):
        raise ModuleError(
            f"{type(module).__name__} has no parameter {tensor_name!r}",
            where=str(user_location()),
            hint="name a parameter of the module itself, such as weight",
        )
    if parts is None:
        parts = ModuleDict()
        module.register_module("parametrizations", parts)
    originals = ParametrizationList(parameter)
    originals.append(parametrization)
    parts[tensor_name] = originals
    delattr(module, tensor_name)
    module._computed = (*module._computed, (tensor_name, _Compute(tensor_name)))
    return module


@user_facing
def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations, or one of this attribute."""
    parts: Any = vars(module).get("parametrizations")
    return parts is not None and (tensor_name is None or tensor_name in parts)


@user_facing
def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Let the attribute be a parameter again: its current value, or the original one."""
    if not is_parametrized(module, tensor_name):
        raise ModuleError(
            f"{tensor_name!r} of {type(module).__name__} has no parametrization",
            where=str(user_location()),
        )
    parts: Any = vars(module)["parametrizations"]
    originals = parts[tensor_name]
    if leave_parametrized:
        trained = originals.originals[0].requires_grad
        parameter = Parameter(getattr(module, tensor_name).numpy(), trained)
    elif originals.is_divided:
        raise ModuleError(
            f"{tensor_name!r} has several original parameters",
            where=str(user_location()),
            hint="leave_parametrized=True keeps its current value",
        )
    else:
        parameter = originals.original
    module._computed = tuple(item for item in module._computed if item[0] != tensor_name)
    del parts[tensor_name]
    if not len(parts):
        delattr(module, "parametrizations")
    setattr(module, tensor_name, parameter)
    return module
