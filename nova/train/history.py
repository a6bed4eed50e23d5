"""The losses of a training run: as numbers, as text, as a PNG. `nova.fit` returns one."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from nova.artifact.files import write_atomically
from nova.train.png_chart import draw_png
from nova.train.text_chart import draw_text


class History:
    """The loss of every step; `print` draws the curve, `save_png` writes it."""

    def __init__(
        self,
        losses: Iterable[float] = (),
        epoch_ends: Iterable[int] = (),
        validation: Iterable[float] = (),
    ):
        self._losses = array("d", losses)
        self._epoch_ends = [int(n) for n in epoch_ends]
        self._validation = [float(v) for v in validation]

    def record(self, loss: float) -> None:
        """Add the loss of one step."""
        self._losses.append(loss)

    def end_epoch(self) -> None:
        """The steps since the last call are one epoch."""
        self._epoch_ends.append(len(self._losses))

    def record_validation(self, loss: float) -> None:
        """Add the validation loss of an epoch."""
        self._validation.append(loss)

    @property
    def validation_losses(self) -> np.ndarray:
        """The validation loss of every epoch; empty without a validation."""
        return np.array(self._validation, np.float64)

    @property
    def steps(self) -> int:
        """The number of steps so far."""
        return len(self._losses)

    @property
    def losses(self) -> np.ndarray:
        """The loss of every step, as f64."""
        return np.array(self._losses, np.float64)

    @property
    def epoch_ends(self) -> tuple[int, ...]:
        """The number of steps at the end of each epoch."""
        return tuple(self._epoch_ends)

    @property
    def epoch_losses(self) -> np.ndarray:
        """The mean loss of every complete epoch."""
        starts = [0, *self._epoch_ends[:-1]]
        losses = self.losses
        bounds = zip(starts, self._epoch_ends, strict=True)
        return np.array([losses[low:high].mean() for low, high in bounds], np.float64)

    def latest_loss(self) -> float:
        """The mean loss of the current epoch, or of the one that has just ended."""
        ends = [end for end in self._epoch_ends[-2:] if end < len(self._losses)]
        return float(np.array(self._losses[ends[-1] if ends else 0 :], np.float64).mean())

    def save_png(self, path: str | os.PathLike[str], *, log: bool | None = None) -> None:
        """Write the curve as a PNG of 960 x 540, which needs matplotlib (the extra `plot`).

        `log` selects a logarithmic scale, which requires positive losses; None chooses.
        """
        png = draw_png(self.losses, self.epoch_ends, log=log)
        write_atomically(Path(path), png, sync=False)

    def __str__(self) -> str:
        return draw_text(self.losses)

    def __repr__(self) -> str:
        last = f", the last loss {self._losses[-1]:.6g}" if self._losses else ""
        return f"<History of {self.steps} steps, {len(self._epoch_ends)} epochs{last}>"
