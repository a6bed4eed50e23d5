"""Hooks of modules, as torch's: they see, and may replace, arguments, results and gradients.

Hooks run when the graph is built, on graph values, so what they compute is part of the program.
A backward hook is the gradient of an identity (`nova.custom_vjp`) of the results and of the
arguments of a call. Several tensors go through one identity, as parts of one vector, so that a hook
sees all their gradients at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.core.dtypes import promote_all
from nova.core.location import user_location
from nova.core.pytree import flatten, unflatten
from nova.core.records import record
from nova.core.user_facing import user_facing
from nova.errors import ModuleError
from nova.graph import Tensor
from nova.graph.custom_gradient import custom_vjp
from nova.graph.transforms import as_tensor
from nova.ops import F


@record
class Hook:
    """A function that is called before or after each forward, or its backward."""

    function: Callable[..., Any]
    before: bool
    is_backward: bool = False


class HookHandle:
    """Returned by a registration: `remove()` ends it; also a context manager."""

    def __init__(self, module: Any, hook: Hook):
        self._module = module
        self._hook = hook

    def remove(self) -> None:
        """Do not call the hook any more."""
        hooks = tuple(hook for hook in self._module._hooks if hook is not self._hook)
        self._module._hooks = hooks

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def add_hook(
    module: Any, function: Callable[..., Any], *, before: bool, is_backward: bool = False
) -> HookHandle:
    """Register a hook of a module."""
    if not callable(function):
        raise ModuleError(
            f"{function!r} is not a function", where=str(user_location()), hint="pass a function"
        )
    hook = Hook(function, before, is_backward)
    module._hooks = (*module._hooks, hook)
    return HookHandle(module, hook)


def call_with_hooks(
    module: Any, hooks: tuple[Hook, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The forward of `module` with its hooks."""
    forward = [hook for hook in hooks if not hook.is_backward]
    for hook in forward:
        if hook.before and (changed := hook.function(module, args)) is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    backward = [hook for hook in hooks if hook.is_backward]
    gradients = _Gradients(module, backward)
    if backward:
        args = gradients.of_inputs(args)
    result = module.forward(*args, **kwargs)
    for hook in forward:
        if not hook.before and (changed := hook.function(module, args, result)) is not None:
            result = changed
    return gradients.of_results(result) if backward else result


class _Gradients:
    """The backward hooks of one call of a module."""

    def __init__(self, module: Any, hooks: list[Hook]):
        self._module, self._hooks = module, hooks
        self._count = 0
        self._has_gradients = False
        self._grad_output: tuple[Tensor, ...] = ()

    def of_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, whose gradients go through the hooks."""
        leaves, structure = flatten(args)
        self._count = sum(_is_float(leaf) for leaf in leaves)
        self._has_gradients = any(_is_float(x) and x.requires_grad for x in leaves)
        changed: tuple[Any, ...] = unflatten(structure, _observed(leaves, self._change_input))
        return changed

    def of_results(self, result: Any) -> Any:
        """The results, whose gradients the hooks see."""
        leaves, structure = flatten(result)
        return unflatten(structure, _observed(leaves, self._change_output))

    def _change_output(self, grads: tuple[Tensor, ...]) -> tuple[Any, ...]:
        for hook in self._hooks:
            if hook.before and (changed := hook.function(self._module, grads)) is not None:
                grads = changed if isinstance(changed, tuple) else (changed,)
        self._grad_output = grads
        if not self._has_gradients:
            for hook in self._hooks:
                if not hook.before:
                    hook.function(self._module, (None,) * self._count, grads)
        return grads

    def _change_input(self, grads: tuple[Tensor, ...]) -> tuple[Any, ...]:
        for hook in self._hooks:
            if hook.before:
                continue
            changed = hook.function(self._module, grads, self._grad_output)
            if changed is not None:
                grads = changed if isinstance(changed, tuple) else (changed,)
        return grads


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype.is_differentiable


def _observed(leaves: list[Any], change: Callable[..., tuple[Any, ...]]) -> list[Any]:
    """The leaves, the float tensors with gradients that `change` has seen and may replace."""
    tensors = [leaf for leaf in leaves if _is_float(leaf)]
    if not tensors:
        return leaves
    changed = iter(_through_identity(tensors, change))
    return [next(changed) if _is_float(leaf) else leaf for leaf in leaves]


def _through_identity(
    tensors: list[Tensor], change: Callable[..., tuple[Any, ...]]
) -> list[Tensor]:
    if len(tensors) == 1:
        return [_identity(lambda grad: change((grad,))[0])(tensors[0])]
    common = promote_all([x.dtype for x in tensors])

    def joined(parts: Any) -> Tensor:
        flat = [F.cast(F.reshape(x, (-1,)), dtype=common) for x in parts]
        result: Tensor = F.concat(flat, axis=0)
        return result

    def divided(vector: Tensor) -> list[Tensor]:
        parts, start = [], 0
        for x in tensors:
            part = F.reshape(F.narrow(vector, 0, start, x.size), x.shape)
            parts.append(F.cast(part, dtype=x.dtype))
            start = start + x.size
        return parts

    both = _identity(lambda grad: joined(change(tuple(divided(grad)))))
    return divided(both(joined(tensors)))


def _identity(change: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    """The identity with gradients that `change` replaces."""
    function = custom_vjp(lambda x: F.reshape(x, x.shape))
    function.defvjp(lambda x: (x, None), lambda _, grad: (change(grad),))
    return function


@user_facing
def gradient_hook(x: Any, hook: Callable[[Tensor], Any]) -> Tensor:
    """`x`, with a hook for its gradient: a result of `hook(gradient)` that is not None replaces it.

    The functional form of `x.register_hook(hook)` of torch: gradients of the returned tensor go
    through the hook.
    """

    def change(grad: Tensor) -> Any:
        changed = hook(grad)
        return grad if changed is None else changed

    return _identity(change)(as_tensor(x))
