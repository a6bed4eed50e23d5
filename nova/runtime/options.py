"""Options of calls that nobody knows: the errors say which there are.

Called by `Model` and by `nova.compiler`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova.errors import AttributeValueError, UnknownKeywordError
from nova.graph.location import user_location


def check_place(outputs: str) -> None:
    """Refuse what is no place for results."""
    if outputs not in ("host", "device"):
        raise AttributeValueError(
            f"outputs is {outputs!r}",
            where=str(user_location()),
            hint="it is 'host', 'device' or None",
        )


def unknown_keyword(
    function: str, unknown: Mapping[str, Any], known: Sequence[str]
) -> UnknownKeywordError:
    """The error for a keyword that a function does not have."""
    from difflib import get_close_matches  # only on the way to an error

    name = next(iter(unknown))
    close = get_close_matches(name, known, 1)
    return UnknownKeywordError(
        f"{function} has no keyword {name!r}",
        where=str(user_location()),
        hint=f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}",
    )
