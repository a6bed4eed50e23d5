"""Options written as text to typed arguments.

Input: a pass class or a pipeline function, and `key=value` words with their positions. Output: the
pass or pipeline, built. The types come from the annotations: bool, int, float, str, Literal, a
tuple of those (`tiles=4,8`), or any of them `| None`. Called by the pipeline parser.
"""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from nova.passes.base import option_name

# Names of options of format 4 and before.
OPTION_ALIASES = {"islands": "host-regions"}


class OptionError(Exception):
    """An option that does not exist or has a wrong value; the parser adds name and caret."""

    def __init__(self, message: str, position: int | None = None, hint: str | None = None):
        super().__init__(message)
        self.position, self.hint = position, hint


def build(make: Callable[..., Any], options: Sequence[tuple[str, int]]) -> Any:
    """Call `make` with the options; each is a word (`key=value`, or a flag) and its position."""
    parameters = {
        option_name(parameter.name): parameter
        for parameter in inspect.signature(make).parameters.values()
    }
    hints = typing.get_type_hints(make)
    arguments: dict[str, Any] = {}
    for word, position in options:
        key, equals, value = word.partition("=")
        if key not in parameters:
            key = OPTION_ALIASES.get(key, key)
        if key not in parameters:
            raise OptionError(f"no option `{key}`", position, _suggest(key, list(parameters)))
        name = parameters[key].name
        if name in arguments:
            raise OptionError(f"option `{key}` is given twice", position)
        type_ = hints.get(name, str)
        if not equals and type_ is not bool:
            raise OptionError(f"option `{key}` needs a value", position, f"write {key}=...")
        try:
            arguments[name] = parse_value(value if equals else "true", type_)
        except ValueError:
            raise OptionError(
                f"option `{key}` cannot be `{value}`", position, f"it takes {describe(type_)}"
            ) from None
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and parameter.name not in arguments:
            raise OptionError(f"needs the option `{key}`")
    return make(**arguments)


def parse_value(text: str, type_: Any) -> Any:
    """`text` as a value of the annotated type `type_`; ValueError if it does not parse."""
    origin, inner = typing.get_origin(type_), typing.get_args(type_)
    if type_ is bool:
        return _pick(text, {"true": True, "1": True, "false": False, "0": False})
    if type_ in (int, float, str):
        return type_(text)
    if origin is typing.Literal:
        return _pick(text, {str(value): value for value in inner})
    if origin is tuple:
        return tuple(parse_value(part, inner[0]) for part in text.split(",") if part)
    if origin in (typing.Union, types.UnionType):
        return None if text == "none" else parse_value(text, _without_none(inner))
    raise TypeError(f"options of type {type_} have no text form")


def describe(type_: Any) -> str:
    """The accepted values of an option of type `type_`, in words."""
    origin, inner = typing.get_origin(type_), typing.get_args(type_)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin is tuple:
        return f"a comma-separated list: {describe(inner[0])}"
    if origin in (typing.Union, types.UnionType):
        return f"{describe(_without_none(inner))}, or none"
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(type_, "a text")


def _pick(text: str, values: dict[str, Any]) -> Any:
    if text not in values:
        raise ValueError(text)
    return values[text]


def _without_none(alternatives: Sequence[Any]) -> Any:
    return next(type_ for type_ in alternatives if type_ is not type(None))


def _suggest(word: str, names: list[str]) -> str:
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"it has {', '.join(names)}" if names else "it has no options"
