"""The user's source line that created a node.

Frames inside the nova package and the standard library's wrappers are skipped, so errors and
MLIR locations point at the line that the user wrote.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

_WRAPPERS = (contextlib.__file__, functools.__file__)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Warnings that were shown, by file: each is shown once for a line, as by `warnings.warn`.
_shown: dict[str, dict[Any, Any]] = {}
_inherited: ContextVar[Location | None] = ContextVar("nova_location", default=None)


class Location(NamedTuple):
    """A file and a line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _is_inside(file: str) -> bool:
    return file.startswith(_PACKAGE) or file in _WRAPPERS


def user_location() -> Location:
    """The innermost frame outside Nova, or the location inherited from `at`."""
    inherited = _inherited.get()
    if inherited is not None:
        return inherited
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def find_user_location() -> Location | None:
    """The same; None on a thread that Nova started, which has no frame of the user."""
    location = user_location()
    return None if location.file == threading.__file__ else location


def warn_user(warning: Warning) -> None:
    """Issue a warning at the line that the user wrote."""
    file, line = user_location()
    warnings.warn_explicit(warning, type(warning), file, line, registry=_shown.setdefault(file, {}))


@contextmanager
def at(location: Location) -> Iterator[None]:
    """Nodes created inside carry `location`: a gradient points at the line of its forward op."""
    token = _inherited.set(location)
    try:
        yield
    finally:
        _inherited.reset(token)
