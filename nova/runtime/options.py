"""Checks call options whose values may be invalid. Called by `Model`."""

from __future__ import annotations

from nova.core.location import user_location
from nova.errors import AttributeValueError


def check_place(outputs: str) -> None:
    """Refuse an invalid location for results."""
    if outputs not in ("host", "device"):
        raise AttributeValueError(
            f"outputs is {outputs!r}",
            where=str(user_location()),
            hint="it is 'host', 'device' or None",
        )
