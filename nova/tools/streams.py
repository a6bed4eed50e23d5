"""Standard streams that the caller of a tool has closed (`<&-`, `>&-`).

Python has None in the place of such a stream, and the next file that is opened would get its
number. Each tool calls `open_closed_streams` first.
"""

from __future__ import annotations

import io
import os
import sys


def open_closed_streams() -> None:
    """Open closed streams so that their use is an OSError, as in other programs; stderr is dropped.

    The null device is opened the wrong way round: reading from stdin and writing to stdout fail.
    Nothing is buffered, or the failed write would be tried again when Python exits.
    """
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_null(os.O_WRONLY, "r")))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(_null(os.O_RDONLY, "w"), write_through=True)
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(_null(os.O_WRONLY, "w"), write_through=True)


def _null(flags: int, mode: str) -> io.FileIO:
    return io.FileIO(os.open(os.devnull, flags), mode)
