"""The user's source line that created a node.

Frames inside the nova package and the standard library's wrappers are skipped, so errors and
MLIR locations point at the line that the user wrote.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_inherited: ContextVar[Location | None] = ContextVar("nova_location", default=None)


class Location(NamedTuple):
    """A file and a line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_location() -> Location:
    """The innermost frame outside Nova, or the location inherited from `at`."""
    inherited = _inherited.get()
    if inherited is not None:
        return inherited
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def find_user_location() -> Location | None:
    """The same; None on a thread that Nova started, which has no frame of the user."""
    location = user_location()
    return None if location.file == threading.__file__ else location


@contextmanager
def at(location: Location) -> Iterator[None]:
    """Nodes created inside carry `location`: a gradient points at the line of its forward op."""
    token = _inherited.set(location)
    try:
        yield
    finally:
        _inherited.reset(token)
