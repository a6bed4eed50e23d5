"""Progress of `nova.fit` on stderr: one line that is redrawn, or a line for every epoch."""

from __future__ import annotations

import shutil
import sys
from time import perf_counter

from nova import knobs
from nova.errors import AttributeValueError
from nova.train.history import History

_REFRESH_SECONDS = 0.1
_BAR = 20


class Quiet:
    """Prints nothing; defines the interface of the others."""

    def start(self, total: int, done: int, epochs: int) -> None:
        """Total steps, steps already done, total epochs."""

    def step(self, epoch: int, batch: int, batches: int, history: History) -> None:
        """Called after every step, with its epoch and batch."""

    def end_epoch(self, epoch: int, history: History) -> None:
        """Called after the last step of an epoch."""

    def close(self) -> None:
        """Called at the end, also after an error."""


class Lines(Quiet):
    """A line for every epoch, for log files."""

    def start(self, total: int, done: int, epochs: int) -> None:
        self._total, self._epochs = total, epochs
        self._done = self._first = done
        self._began = perf_counter()

    def step(self, epoch: int, batch: int, batches: int, history: History) -> None:
        self._done += 1

    def end_epoch(self, epoch: int, history: History) -> None:
        title = f"epoch {epoch + 1}/{self._epochs}"
        sys.stderr.write(f"{title}  loss {history.latest_loss():.6g}  {self._pace()}\n")
        sys.stderr.flush()

    def _pace(self) -> str:
        elapsed = perf_counter() - self._began
        steps = max(1, self._done - self._first)
        rate = steps / max(elapsed, 1e-9)
        left = (self._total - self._done) / rate
        speed = f"{rate:.0f} steps/s" if rate >= 10 else f"{1 / rate:.3g} s/step"
        return f"{speed}  ETA {clock(left)}" if self._done < self._total else f"{speed}  done"


class Terminal(Lines):
    """One line that is redrawn."""

    def start(self, total: int, done: int, epochs: int) -> None:
        super().start(total, done, epochs)
        self._next = 0.0
        self._line = ""

    def step(self, epoch: int, batch: int, batches: int, history: History) -> None:
        self._done += 1
        now = perf_counter()
        if now < self._next and self._done < self._total:
            return
        self._next = now + _REFRESH_SECONDS
        filled = round(_BAR * self._done / self._total)
        bar = "━" * filled + "─" * (_BAR - filled)
        self._line = (
            f"epoch {epoch + 1}/{self._epochs}  batch {batch + 1}/{batches}  {bar}  "
            f"loss {history.latest_loss():.6g}  {self._pace()}"
        )
        # A line that wraps cannot be redrawn.
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{self._line[:width]}")
        sys.stderr.flush()

    def end_epoch(self, epoch: int, history: History) -> None:
        """The line continues into the next epoch."""

    def close(self) -> None:
        if self._line:
            sys.stderr.write("\n")
            sys.stderr.flush()


def choose_progress(choice: str) -> Quiet:
    """The reporter that `progress=` of `fit` selects; "auto" follows the knob."""
    if choice not in ("auto", "on", "off"):
        raise AttributeValueError(f"progress is {choice!r}", hint="it is 'auto', 'on' or 'off'")
    if choice == "auto":
        choice = knobs.get("progress")
    if choice == "off":
        return Quiet()
    return Terminal() if sys.stderr.isatty() else Lines()


def clock(seconds: float) -> str:
    """Seconds as 1:05 or 2:01:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
