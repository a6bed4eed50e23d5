"""Forward hooks of modules, as torch's: they see, and may replace, arguments and results.

Hooks run when the graph is built, on graph values, so what they compute is part of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.core.location import user_location
from nova.core.records import record
from nova.errors import ModuleError


@record
class Hook:
    """A function that is called before or after each forward."""

    function: Callable[..., Any]
    before: bool


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


def add_hook(module: Any, function: Callable[..., Any], *, before: bool) -> HookHandle:
    """Register a hook of a module."""
    if not callable(function):
        raise ModuleError(
            f"{function!r} is not a function", where=str(user_location()), hint="pass a function"
        )
    hook = Hook(function, before)
    module._hooks = (*module._hooks, hook)
    return HookHandle(module, hook)


def call_with_hooks(
    module: Any, hooks: tuple[Hook, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The forward of `module` with its hooks."""
    for hook in hooks:
        if hook.before and (changed := hook.function(module, args)) is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    result = module.forward(*args, **kwargs)
    for hook in hooks:
        if not hook.before and (changed := hook.function(module, args, result)) is not None:
            result = changed
    return result
