"""`@user_facing`: errors of public functions name the user's line, and what the function takes.

On a function: an error of Nova that has no place gets the line of the call, and a call that does
not fit the signature (an unknown keyword, a missing argument) is an error of Nova too. On a class
it does that for the constructor and for every public method. Calls that are made a million times a
second have no wrapper: they look at their keywords themselves.
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
            # One that fits the signature was raised further inside.
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
            continue  # it looks at its keywords itself
        setattr(cls, name, user_facing(part))
    return cls


def check_call(
    function: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    skipped: int = 0,
) -> None:
    """Raise Nova's error if `function` cannot be called like this.

    The first `skipped` parameters are given by Nova, and no concern of the caller.
    """
    parameters = list(signature(function).parameters.values())[skipped:]
    known = [p.name for p in parameters if p.name != "self"]
    if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        for keyword in kwargs:
            if keyword not in known:
                raise unknown_keyword(f"{name}:", {keyword: None}, known) from None
    try:
        signature(function).bind(*[None] * skipped, *args, **kwargs)
    except TypeError as error:
        raise ArgumentCountError(
            f"{name}: {error}", where=str(user_location()), hint=f"it takes ({', '.join(known)})"
        ) from None


def unknown_keyword(
    function: str,
    unknown: Mapping[str, Any],
    known: Sequence[str],
    *,
    by_position: Sequence[str] = (),
) -> UnknownKeywordError:
    """The error for a keyword that a function does not have; some names are given by position."""
    from difflib import get_close_matches  # only on the way to an error

    name = next(iter(unknown))
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known) or 'none'}"
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
