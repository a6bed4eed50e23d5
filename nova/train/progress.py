"""Progress of `nova.fit` on stderr: a bar of `rich` on a terminal, else a line for every epoch."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING

from nova import knobs
from nova.errors import AttributeValueError
from nova.train.history import History

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

_REFRESH_SECONDS = 0.1
_BAR_COLUMNS = 20


class Quiet:
    """Prints nothing; defines the interface of the others."""

    def start(self, total: int, completed: int, epochs: int) -> None:
        """Total steps, steps already completed, total epochs."""

    def step(self, epoch: int, batch: int, batches: int, history: History) -> None:
        """Called after every step, with its epoch and batch."""

    def end_epoch(self, epoch: int, history: History) -> None:
        """Called after the last step of an epoch."""

    def close(self) -> None:
        """Called at the end, also after an error."""


class Lines(Quiet):
    """A line for every epoch, for log files."""

    def start(self, total: int, completed: int, epochs: int) -> None:
        self._total, self._epochs = total, epochs
        self._completed = self._first = completed
        self._start_time = perf_counter()

    def step(self, epoch: int, batch: int, batches: int, history: History) -> None:
        self._completed += 1

    def end_epoch(self, epoch: int, history: History) -> None:
        title = f"epoch {epoch + 1}/{self._epochs}"
        sys.stderr.write(f"{title}  loss {history.latest_loss():.6g}  {self._pace()}\n")
        sys.stderr.flush()

    def _pace(self) -> str:
        elapsed = perf_counter() - self._start_time
        steps = max(1, self._completed - self._first)
        rate = steps / max(elapsed, 1e-9)
        remaining = (self._total - self._completed) / rate
        speed = f"{rate:.0f} steps/s" if rate >= 10 else f"{1 / rate:.3g} s/step"
        if self._completed < self._total:
            return f"{speed}  ETA {clock(remaining)}"
        return f"{speed}  done"


class Terminal(Lines):
    """One line that is redrawn, at most every `_REFRESH_SECONDS`; it stays at the end."""

    _bar: RichProgress | None = None

    def start(self, total: int, completed: int, epochs: int) -> None:
        super().start(total, completed, epochs)
        self._next_refresh = 0.0
        # No thread of rich: it would compete with the threads of the step.
        self._bar = _make_bar()
        self._task = self._bar.add_task("", total=total, completed=completed, status="")

    def step(self, epoch: int, batch: int, batches: int, history: History) -> None:
        self._completed += 1
        now = perf_counter()
        if self._bar is None or (now < self._next_refresh and self._completed < self._total):
            return
        self._next_refresh = now + _REFRESH_SECONDS
        self._bar.update(
            self._task,
            completed=self._completed,
            description=f"epoch {epoch + 1}/{self._epochs}  batch {batch + 1}/{batches}",
            status=f"loss {history.latest_loss():.6g}  {self._pace()}",
        )
        if not self._bar.live.is_started:
            self._bar.start()
        self._bar.refresh()

    def end_epoch(self, epoch: int, history: History) -> None:
        """The line continues into the next epoch."""

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def choose_progress(choice: str) -> Quiet:
    """The reporter that `progress=` of `fit` selects; "auto" follows the knob."""
    if choice not in ("auto", "on", "off"):
        raise AttributeValueError(f"progress is {choice!r}", hint="it is 'auto', 'on' or 'off'")
    if choice == "auto":
        choice = knobs.get("progress")
    if choice == "off":
        return Quiet()
    # A runtime-only install has no rich.
    return Terminal() if sys.stderr.isatty() and find_spec("rich") is not None else Lines()


def clock(seconds: float) -> str:
    """Seconds as 1:05 or 2:01:05."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _make_bar() -> RichProgress:
    """The bar, not started; importing rich takes time that only a terminal needs."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    return RichProgress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(_BAR_COLUMNS),
        TextColumn("{task.fields[status]}", markup=False, table_column=Column(no_wrap=True)),
        console=Console(stderr=True),
        auto_refresh=False,
    )
