"""Loggers of `fit`: losses of steps and metrics of epochs, as CSV or for TensorBoard."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from nova.core.user_facing import user_facing_class
from nova.errors import MissingPackageError


class Logger(Protocol):
    """What `fit` calls: `log` after every step and epoch, `close` at the end."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


@user_facing_class
class CSVLogger:
    """Rows `step,name,value` of a CSV file; a resumed run appends to it."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(os.path.abspath(path))
        self._file: Any = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Append a row for each value."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not self.path.exists() or not self.path.stat().st_size
            self._file = self.path.open("a", newline="")
            self._writer = csv.writer(self._file)
            if is_new:
                self._writer.writerow(["step", "name", "value"])
        for name, value in values.items():
            self._writer.writerow([step, name, repr(float(value))])

    def close(self) -> None:
        """Flush and close the file; a later `log` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


@user_facing_class
class TensorBoardLogger:
    """Scalars for TensorBoard in a folder; needs the package `tensorboardX`."""

    def __init__(self, folder: str | os.PathLike[str]):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise MissingPackageError(
                "TensorBoardLogger needs the package tensorboardX",
                hint="pip install tensorboardX, or use CSVLogger",
            ) from error
        self._writer = SummaryWriter(os.path.abspath(folder))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add the values at this step."""
        for name, value in values.items():
            self._writer.add_scalar(name, float(value), step)

    def close(self) -> None:
        """Flush the file."""
        self._writer.flush()
