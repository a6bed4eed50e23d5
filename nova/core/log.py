"""What Nova says on stderr while it works: topic lines, and the progress of long compiles.

In: `log("compile", "...")` and `with progress(...)` from the compile path, the cache and the
executor. Out: `[compile] ...` lines for the topics in the knob `log`; on a terminal, a progress
line for what takes longer than a second. Costs one dictionary read when a topic is off. A process
that compiles for another one gives its lines to that one (`redirect`).
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
    """Whether lines of `topic` are printed; ask before building an expensive message."""
    return topic in knobs.get("log")


def log(topic: str, message: str) -> None:
    """Print `[topic] message` on stderr when the topic is on."""
    if topic not in knobs.get("log"):
        return
    if _elsewhere is not None:
        _elsewhere(topic, message)
    else:
        # One write a line, so that lines of several threads do not mix.
        sys.stderr.write("".join(f"[{topic}] {line}\n" for line in message.splitlines()))


def redirect(function: Callable[[str, str], None]) -> None:
    """From now on, give `function` the topic and the message instead of printing them."""
    global _elsewhere
    _elsewhere = function


class Progress:
    """How far some work is: the worker calls `advance`, the painter reads the fields."""

    def __init__(self, title: str, total: int | None):
        self.title = title
        self.total = total
        self.done = 0
        self.current = ""

    def advance(self, current: str, done: int | None = None) -> None:
        """Say what is being worked on now, and how many of `total` parts are done."""
        self.current = current
        if done is not None:
            self.done = done

    def __str__(self) -> str:
        count = f" {self.done}/{self.total}" if self.total else ""
        return f"{self.title}{count}{' ' if self.current else ''}{self.current}"


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Progress]:
    """Show the progress of the block once it has taken a second, as the knob `progress` says."""
    state = Progress(title, total)
    if not _wanted():
        yield state
        return
    finished = threading.Event()
    painter = threading.Thread(
        target=_paint, args=(state, finished), name="nova-progress", daemon=True
    )
    try:
        painter.start()
    except RuntimeError:  # no thread is left: the work goes on unseen
        yield state
        return
    try:
        yield state
    finally:
        finished.set()
        painter.join()


def _wanted() -> bool:
    choice = knobs.get("progress")
    # Topic lines already tell how far a compile is; a line that redraws itself would cut them up.
    return choice == "on" or (choice == "auto" and sys.stderr.isatty() and not enabled("compile"))


def _paint(state: Progress, finished: threading.Event) -> None:
    if finished.wait(DELAY_SECONDS) or not _one_painter.acquire(blocking=False):
        return
    try:
        if not sys.stderr.isatty():
            _paint_lines(state, finished)
        elif (bar := _make_rich_bar()) is not None:
            _paint_rich(bar, state, finished)
        else:
            _paint_terminal(state, finished)
    finally:
        _one_painter.release()


def _repeat(draw: Callable[[], None], finished: threading.Event) -> None:
    while True:
        draw()
        if finished.wait(REFRESH_SECONDS):
            return


def _paint_lines(state: Progress, finished: threading.Event) -> None:
    """A new line for each change: what a log file can hold."""
    last = ""

    def draw() -> None:
        nonlocal last
        if (text := str(state)) != last:
            sys.stderr.write(f"{text}\n")
            last = text

    _repeat(draw, finished)


def _paint_terminal(state: Progress, finished: threading.Event) -> None:
    """One line that redraws itself and disappears."""

    def draw() -> None:
        sys.stderr.write(f"\r\x1b[K{state}")
        sys.stderr.flush()

    _repeat(draw, finished)
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def _make_rich_bar() -> RichProgress | None:
    """A bar that disappears when done; None where `rich`, a dependency of the tools, is absent."""
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
        _repeat(lambda: bar.update(task, description=str(state), completed=state.done), finished)
