"""Nova's output on stderr: log lines by topic, and the progress of long compiles.

In: `log("compile", "...")` and `with progress(...)` from the compile path, the cache and the
executor. Out: `[compile] ...` lines for the topics in the knob `log`; on a terminal, a progress
line for work that takes longer than a second. A disabled topic costs one dictionary read. A process
that compiles for another process forwards its lines to it (`redirect`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nova import knobs

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

DELAY_SECONDS = 1.0
REFRESH_SECONDS = 0.1

_elsewhere: Callable[[str, str], None] | None = None
_one_painter = threading.Lock()  # parallel compiles would overwrite each other's line


def enabled(topic: str) -> bool:
    """Whether lines of `topic` are printed; check before building an expensive message."""
    return topic in knobs.get("log")


def log(topic: str, message: str) -> None:
    """Print `[topic] message` on stderr when the topic is on."""
    if topic not in knobs.get("log"):
        return
    if _elsewhere is not None:
        _elsewhere(topic, message)
    else:
        # One write per line, so that lines of several threads do not interleave.
        sys.stderr.write("".join(f"[{topic}] {line}\n" for line in message.splitlines()))


def redirect(function: Callable[[str, str], None]) -> None:
    """From now on, pass the topic and the message to `function` instead of printing them."""
    global _elsewhere
    _elsewhere = function


class Progress:
    """The progress of some work: the worker calls `advance`, the painter reads the fields."""

    def __init__(self, title: str, total: int | None):
        self.title = title
        self.total = total
        self.completed = 0
        self.current = ""

    def advance(self, current: str, completed: int | None = None) -> None:
        """Set the current item, and how many of `total` parts are done."""
        self.current = current
        if completed is not None:
            self.completed = completed

    def __str__(self) -> str:
        count = f" {self.completed}/{self.total}" if self.total else ""
        return f"{self.title}{count}{' ' if self.current else ''}{self.current}"


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Progress]:
    """Show the progress of the block after one second, as the knob `progress` says."""
    state = Progress(title, total)
    if not _is_enabled():
        yield state
        return
    finished = threading.Event()
    painter = threading.Thread(
        target=_paint, args=(state, finished), name="nova-progress", daemon=True
    )
    try:
        painter.start()
    except RuntimeError:  # no thread available: continue without progress
        yield state
        return
    try:
        yield state
    finally:
        finished.set()
        painter.join()


def _is_enabled() -> bool:
    choice = knobs.get("progress")
    # Topic lines already show the progress of a compile; a redrawn line would break them up.
    return choice == "on" or (choice == "auto" and sys.stderr.isatty() and not enabled("compile"))


def _paint(state: Progress, finished: threading.Event) -> None:
    if finished.wait(DELAY_SECONDS) or not _one_painter.acquire(blocking=False):
        return
    try:
        bar = _make_rich_bar() if sys.stderr.isatty() else None
        if bar is not None:
            _paint_rich(bar, state, finished)
        else:
            _paint_lines(state, finished)
    finally:
        _one_painter.release()


def _repeat(draw: Callable[[], None], finished: threading.Event) -> None:
    while True:
        draw()
        if finished.wait(REFRESH_SECONDS):
            return


def _paint_lines(state: Progress, finished: threading.Event) -> None:
    """A new line for each change, for log files and terminals without `rich`."""
    last = ""

    def draw() -> None:
        nonlocal last
        if (text := str(state)) != last:
            sys.stderr.write(f"{text}\n")
            last = text

    _repeat(draw, finished)


def _make_rich_bar() -> RichProgress | None:
    """A bar that is erased at the end; None in a runtime-only install, which has no `rich`."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return RichProgress(*columns, console=Console(stderr=True), transient=True)


def _paint_rich(bar: RichProgress, state: Progress, finished: threading.Event) -> None:
    with bar:
        task = bar.add_task(str(state), total=state.total)
        _repeat(
            lambda: bar.update(task, description=str(state), completed=state.completed), finished
        )
