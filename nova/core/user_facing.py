"""`@user_facing`: errors of public functions name the user's line and the valid arguments.

On a function: a Nova error without a location gets the line of the call, and a call that does
not match the signature (an unknown keyword, a missing argument) also raises a Nova error. On a
class it wraps the constructor and every public method. Functions that are called a million times a
second have no wrapper: they check their keywords themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from types import FunctionType
from typing import Any, TypeVar

from nova.core.location import user_location
from nova.errors import ArgumentCountError, NovaError, UnknownKeywordError

T = TypeVar("T", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def user_facing(function: T) -> T:
    """`function` with errors that name the user's line."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except NovaError as error:
            if error.where is not None:
                raise
            raise error.located(str(user_location())) from error.__cause__
        except TypeError:
            # A call that matches the signature raised its error further inside.
            check_call(function, _name_of(function, args), args, kwargs)
            raise

    return wrapped  # type: ignore[return-value]


def user_facing_class(cls: C) -> C:
    """A class whose constructor and public methods are user-facing."""
    for name, part in list(vars(cls).items()):
        if not isinstance(part, FunctionType) or (name.startswith("_") and name != "__init__"):
            continue
        parameters = signature(part).parameters.values()
        if name != "__init__" and any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
            continue  # it checks its keywords itself
        setattr(cls, name, user_facing(part))
    return cls


def check_call(
    function: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    skipped: int = 0,
) -> None:
    """Raise Nova's error if `function` cannot be called with these arguments.

    The first `skipped` parameters are passed by Nova, not by the caller.
    """
    try:
        parameters = list(signature(function).parameters.values())[skipped:]
    except ValueError:  # a function of C that does not tell
        return
    names = [p.name for p in parameters if p.name != "self"]
    if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        for keyword in kwargs:
            if keyword not in names:
                raise unknown_keyword(f"{name}:", {keyword: None}, names) from None
    try:
        signature(function).bind(*[None] * skipped, *args, **kwargs)
    except TypeError as error:
        raise ArgumentCountError(
            f"{name}: {error}", where=str(user_location()), hint=f"it takes ({', '.join(names)})"
        ) from None


def unknown_keyword(
    function: str,
    unknown: Mapping[str, Any],
    names: Sequence[str],
    *,
    by_position: Sequence[str] = (),
) -> UnknownKeywordError:
    """The error for an unknown keyword; those in `by_position` are positional."""
    from difflib import get_close_matches  # only for an error message

    name = next(iter(unknown))
    close = get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names) or 'none'}"
    if name in by_position:
        order = ", ".join(by_position[:8]) + (", ..." if len(by_position) > 8 else "")
        hint = f"arrays are given by position: program({order})"
    return UnknownKeywordError(
        f"{function} has no keyword {name!r}",
        where=str(user_location()),
        hint=hint,
    )


def _name_of(function: Any, args: Sequence[Any]) -> str:
    if function.__name__ == "__init__" and args:
        return type(args[0]).__name__
    return str(function.__qualname__)
