"""`Module`: named parameters and submodules, and a `forward` that builds graph.

Attributes that are Parameters or Modules are its parts, in the order of assignment; no
registration and no `super().__init__()` is needed. A module wraps array arguments,
so `model(x).numpy()` works on data as well as in a traced program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from nova.core.dlpack import is_array
from nova.core.dtypes import dtype as as_dtype
from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import ModuleError
from nova.graph import Tensor, tensor
from nova.graph.capture import Holder, current_capture
from nova.graph.other_names import MODULE, no_attribute
from nova.nn.hooks import Hook, HookHandle, add_hook, call_with_hooks
from nova.nn.parameter import Buffer, Parameter
from nova.nn.state import LoadReport, copy_into, read_state, write_state
from nova.ops import F


class Module(Holder):
    """Base of layers and models: set parts as attributes, and write `forward`."""

    training = True
    is_initialized: ClassVar[bool] = True
    """Whether it has its parameters; those of a lazy module come with its first call."""
    _hooks: tuple[Hook, ...] = ()
    _computed: tuple[tuple[str, Callable[[Any], Tensor]], ...] = ()
    """Attributes that are computed from parameters at each access: see `nn.utils.parametrize`."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; every module defines its own."""
        raise ModuleError(
            f"{type(self).__name__} has no forward",
            where=str(user_location()),
            hint="define forward(self, x) in the class",
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`, with array arguments wrapped as tensors."""
        capture = current_capture()
        if capture is not None and capture.enter(self):
            self.parameters()  # names them, for the program
        tensors = tuple(map(_wrap, args))
        named = {k: _wrap(v) for k, v in kwargs.items()}
        if not self._hooks:
            return self.forward(*tensors, **named)
        return call_with_hooks(self, self._hooks, tensors, named)

    # --- parts ----------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

        def __getattr__(self, name: str) -> Any:
            for computed, function in self._computed:
                if computed == name:
                    return function(self)
            raise no_attribute(repr(type(self).__name__), name, dir(self), MODULE)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a parameter is replaced by a Tensor, a Module or None only."""
        if any(computed == name for computed, _ in self._computed):
            raise ModuleError(
                f"{name!r} of {type(self).__name__} is computed from other parameters",
                where=str(user_location()),
                hint="remove its parametrization first, or set its original parameters",
            )
        before = self.__dict__.get(name)
        if isinstance(before, Parameter) and not (
            value is None or isinstance(value, (Tensor, Module))
        ):
            raise _not_a_part(self, name, before, value)
        super().__setattr__(name, value)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct submodules, with their names."""
        return ((name, part) for name, part in _parts(self) if isinstance(part, Module))

    def children(self) -> Iterator[Module]:
        """The direct submodules, each once."""
        return iter({id(child): child for _, child in self.named_children()}.values())

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """This module ("") and all below it, each once under its first name."""
        return _first_names((n, p) for n, p in _walk(self) if isinstance(p, Module))

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Dotted names and parameters, each once under its first name.

        Programs use these names as well, unless a parameter was created with a name: these are the
        names of `state_dict`, by which weights are loaded.
        """
        named = self._all_parameters()
        return _first_names((n, p) for n, p in named if not isinstance(p, Buffer))

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        """Dotted names and buffers: arrays that are saved with the module and not trained."""
        named = self._all_parameters()
        return _first_names((n, p) for n, p in named if isinstance(p, Buffer))

    def buffers(self) -> list[Buffer]:
        """The buffers, each once, in the order of `named_buffers`."""
        return [buffer for _, buffer in self.named_buffers()]

    def parameters(self) -> list[Parameter]:
        """The parameters, each once, in the order of `named_parameters`."""
        return [parameter for _, parameter in self.named_parameters()]

    def _all_parameters(self) -> list[tuple[str, Parameter]]:
        """Every name of a parameter or buffer; a tied one appears once per name."""
        parts = list(_walk(self))
        for name, part in parts:
            if isinstance(part, Module) and not part.is_initialized:
                raise ModuleError(
                    f"{part!r} under {name!r} has no parameters yet",
                    where=str(user_location()),
                    hint="call the model once on an example: it tells the sizes",
                )
        named = [(n, p) for n, p in parts if isinstance(p, Parameter)]
        for name, parameter in _first_names(named):
            parameter.name_after(name)
        return named

    def get_submodule(self, path: str) -> Module:
        """The module under a dotted name; "" is this one."""
        return _under(self, path, dict(self._walk_modules()), "module")

    def get_parameter(self, path: str) -> Parameter:
        """The parameter or buffer under a dotted name."""
        return _under(self, path, dict(self._all_parameters()), "parameter")

    def _walk_modules(self) -> Iterator[tuple[str, Module]]:
        return ((name, part) for name, part in _walk(self) if isinstance(part, Module))

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """`setattr(self, name, value)`: torch's spelling."""
        self._register(name, value, Parameter)

    def register_buffer(self, name: str, value: Any) -> None:
        """Set the attribute to a `Buffer` of the array: saved with the module, not trained."""
        is_set = value is None or isinstance(value, Buffer)
        self._register(name, value if is_set else Buffer(value), Buffer)

    def register_module(self, name: str, module: Module | None) -> None:
        """`setattr(self, name, module)`: torch's spelling."""
        self._register(name, module, Module)

    add_module = register_module

    def _register(self, name: str, value: Any, part: type) -> None:
        if value is not None and not isinstance(value, part):
            raise ModuleError(
                f"{value!r} is not a {part.__name__}",
                where=str(user_location()),
                hint=f"pass an nn.{part.__name__}",
            )
        if not name or "." in name or hasattr(type(self), name):
            raise ModuleError(
                f"{name!r} cannot be the name of a part of {type(self).__name__}",
                where=str(user_location()),
                hint="names have no dots and are not methods of the class",
            )
        setattr(self, name, value)

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call `function` on every module below this one, then on this one."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    # --- hooks ----------------------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, args)` before each forward; a result that is not None replaces args.

        Hooks run while a program is traced, on graph values: they are part of it.
        """
        return add_hook(self, hook, before=True)

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, args, result)` after each forward; its result replaces that one.

        A hook that returns None changes nothing.
        """
        return add_hook(self, hook, before=False)

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` when gradients of a call are built.

        Both are tuples of graph values; a result that is not None replaces `grad_input`. Inputs
        that need no gradient have None. The hook runs while a program is traced.
        """
        return add_hook(self, hook, before=False, is_backward=True)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, grad_output)` before the gradients of a call are built.

        A result that is not None replaces `grad_output`.
        """
        return add_hook(self, hook, before=True, is_backward=True)

    # --- modes ----------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout) in this module and all below it."""
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self) -> Self:
        """`train(False)`."""
        return self.train(False)

    def freeze(self) -> Self:
        """Exclude the parameters of this module, and of all below it, from training."""
        for parameter in self.parameters():
            parameter.requires_grad = False
        return self

    def unfreeze(self) -> Self:
        """Include the float parameters of this module, and of all below it, in training."""
        for parameter in self.parameters():
            parameter.requires_grad = parameter.dtype.is_float
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """`unfreeze()`, or `freeze()` with False: torch's spelling."""
        return self.unfreeze() if requires_grad else self.freeze()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of `loss.backward()`, to which the next one would add its own.

        Without `set_to_none` those that exist become zeros. `nova.train_step` needs none of this.
        """
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad = None if set_to_none else F.zeros_like(parameter)

    def to(self, dtype: Any) -> Self:
        """Convert the float parameters and buffers of this module to a dtype such as "bf16".

        A model in bf16 computes in bf16, as its ops promote nothing: that is for inference.
        Training keeps f32 parameters (`nova.train_step(..., precision="bf16")`).
        """
        target = as_dtype(dtype)
        if not target.is_float:
            raise ModuleError(
                f"a model is converted to {target}, which is not a float type",
                where=str(user_location()),
                hint='pass "bf16", "f16", "f32" or "f64"',
            )
        for part in (*self.parameters(), *self.buffers()):
            part.convert(target)
        return self

    def half(self) -> Self:
        """`to("f16")`."""
        return self.to("f16")

    def bfloat16(self) -> Self:
        """`to("bf16")`."""
        return self.to("bf16")

    def float(self) -> Self:
        """`to("f32")`."""
        return self.to("f32")

    def double(self) -> Self:
        """`to("f64")`."""
        return self.to("f64")

    # --- state ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """The arrays themselves by name; a tied parameter appears under every name."""
        return {name: parameter.data for name, parameter in self._all_parameters()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """Copy values into the arrays in place; nothing is copied on an error.

        Without `strict` names may be missing or unknown: the report lists them.
        """
        return copy_into(self._all_parameters(), state, strict)

    def save(self, path: str | Path) -> None:
        """Write the state as a safetensors file, atomically.

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

    def summary(self) -> str:
        """A table of the modules with parameters of their own: name, class, shapes, counts."""
        rows = [("module", "class", "parameters", "count")]
        for name, module in self.named_modules():
            own = [(n, p) for n, p in _parts(module) if isinstance(p, Parameter)]
            if own:
                shapes = ", ".join(f"{n} {list(p.shape)}" for n, p in own)
                total = sum(p.data.size for _, p in own)
                rows.append((name or "(itself)", type(module).__name__, shapes, f"{total:,}"))
        trained = sum(p.data.size for p in self.parameters() if p.requires_grad)
        total = sum(p.data.size for p in {id(p): p for _, p in self._all_parameters()}.values())
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in rows]
        return "\n".join([*(s.rstrip() for s in lines), f"{total:,} numbers, {trained:,} trained"])

    def __repr__(self) -> str:
        lines = [f"({name}): {part!r}" for name, part in _parts(self)]
        inner = "".join("\n  " + line.replace("\n", "\n  ") for line in lines)
        return f"{type(self).__name__}({inner}\n)" if inner else f"{type(self).__name__}()"


@user_facing
@contextmanager
def replaced(model: Module, values: Mapping[Parameter, Tensor]) -> Iterator[None]:
    """Inside, these parameters of `model` are replaced by the tensors (such as casts of them).

    Not thread-safe for one model. Inside, a replaced parameter is not a part of the model.
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


def _under(module: Module, path: str, parts: dict[str, Any], noun: str) -> Any:
    """The part under a dotted name."""
    if path not in parts:
        raise ModuleError(
            f"{type(module).__name__} has no {noun} {path!r}",
            where=str(user_location()),
            hint=f"it has: {', '.join(name for name in parts if name) or 'none'}",
        )
    return parts[path]


# --- traversal ------------------------------------------------------------------------------------


def _parts(module: Module) -> Iterator[tuple[str, Any]]:
    """The attributes that are parameters or modules, in the order of assignment."""
    for name, value in vars(module).items():
        if isinstance(value, Parameter | Module):
            yield name, value
        elif isinstance(value, list | tuple | dict):
            _refuse_hidden(module, name, value)


def _refuse_hidden(module: Module, name: str, value: Any) -> None:
    """A part inside a plain container has no name: it would silently not be trained."""
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
    visited: set[int] = set()
    for name, part in named:
        if id(part) not in visited:
            visited.add(id(part))
            yield name, part


def _wrap(value: Any) -> Any:
    return tensor(value) if not isinstance(value, Tensor) and is_array(value) else value


def _not_a_part(module: Module, name: str, before: Parameter, value: Any) -> ModuleError:
    title, hint = "parameter", f"write m.{name}.data[...] = values, or m.{name} = nn.Parameter(...)"
    if isinstance(before, Buffer):
        title, hint = "buffer", f"write m.{name}.assign(values), or m.{name} = nn.Buffer(...)"
    return ModuleError(
        f"the {title} {name!r} of {type(module).__name__} is replaced by "
        f"{type(value).__name__}, which is not an nn.{type(before).__name__}: the module would "
        "lose it",
        where=str(user_location()),
        hint=hint,
    )
