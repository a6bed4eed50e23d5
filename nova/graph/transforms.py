"""`grad` and `value_and_grad`: transform functions of tensors to functions of their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from nova.core.location import user_location
from nova.core.pytree import flatten, unflatten
from nova.core.user_facing import user_facing
from nova.errors import ArgumentCountError, GradientError
from nova.graph.autodiff import gradients
from nova.graph.build import settled
from nova.graph.tensor import Tensor, tensor


@user_facing
def value_and_grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """A function that returns `(f(*args), gradients)` for the arguments selected by `argnums`.

    `f` returns one scalar tensor. An int `argnums` gives one gradient, a tuple gives a tuple; the
    gradient of an argument that is a pytree is a pytree of the same structure. With `has_aux`, `f`
    returns a scalar and anything else, which is returned with it: `((value, aux), gradients)`.
    """
    if (jitted := rejit(function, lambda f: value_and_grad(f, argnums, has_aux))) is not None:
        return jitted
    several = isinstance(argnums, tuple)
    positions: tuple[int, ...] = argnums if isinstance(argnums, tuple) else (argnums,)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        if any(not -len(args) <= i < len(args) for i in positions):
            raise ArgumentCountError(
                f"argnums {argnums} with {len(args)} positional arguments",
                where=str(user_location()),
            )
        chosen = [i % len(args) for i in positions]
        nested = {i: flatten(args[i]) for i in chosen}
        leaves = {i: [as_tensor(leaf) for leaf in tensors] for i, (tensors, _) in nested.items()}
        replaced = [
            unflatten(nested[i][1], leaves[i]) if i in nested else a for i, a in enumerate(args)
        ]
        result = function(*replaced, **kwargs)
        if has_aux and not (isinstance(result, tuple) and len(result) == 2):
            raise GradientError(
                "has_aux needs a function that returns a pair: one scalar tensor, and the rest",
                where=str(user_location()),
            )
        value = result[0] if has_aux else result
        if not isinstance(value, Tensor):
            raise GradientError(
                f"grad needs a function that returns one tensor, not {type(value).__name__}",
                where=str(user_location()),
            )
        pieces = iter(gradients(value, [leaf for i in nested for leaf in leaves[i]]))
        grads = {i: unflatten(nested[i][1], [next(pieces) for _ in leaves[i]]) for i in nested}
        return result, tuple(grads[i] for i in chosen) if several else grads[chosen[0]]

    return wrapped


@user_facing
def grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns only the gradients of `f`; see `value_and_grad`.

    With `has_aux` it returns `(gradients, aux)`.
    """
    if (jitted := rejit(function, lambda f: grad(f, argnums, has_aux))) is not None:
        return jitted
    both = value_and_grad(function, argnums, has_aux)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result, grads = both(*args, **kwargs)
        return (grads, result[1]) if has_aux else grads

    return wrapped


def as_tensor(leaf: Any) -> Tensor:
    """An argument of a transformed function as a tensor."""
    return settled(leaf) if isinstance(leaf, Tensor) else tensor(leaf)


def rejit(
    function: Callable[..., Any], transform: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., Any] | None:
    """The transform of a jitted function is jitted with the same options; None for others."""
    again = getattr(function, "_rejit", None)
    return None if again is None else again(transform(function.__wrapped__))  # type: ignore[attr-defined]
