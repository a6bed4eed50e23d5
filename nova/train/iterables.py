"""Any iterable of batches for `fit`: a torch DataLoader, a list, a generator function's object.

An epoch is one pass over the iterable, or `steps_per_epoch` batches of it. Arrays of any library
become numpy arrays. A resumed run skips the batches of its epoch that were trained before; their
order is the iterable's own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

import numpy as np

from nova.core.dlpack import is_array
from nova.errors import DataError
from nova.graph.tensor import as_array

Batch = tuple[np.ndarray, ...]


class IterableBatches:
    """The interface of `nova.data.Batches` for an iterable."""

    def __init__(self, source: Iterable[Any], steps_per_epoch: int | None):
        self.source = source
        self.position = (0, 0)
        count = steps_per_epoch
        if count is None:
            try:
                count = len(source)  # type: ignore[arg-type]
            except TypeError:
                raise DataError(
                    f"a {type(source).__name__} has no length",
                    hint="pass steps_per_epoch=, the number of batches of an epoch",
                ) from None
        elif type(count) is not int or count < 1:
            raise DataError(f"steps_per_epoch is {count!r}", hint="it is a number of at least 1")
        if not count:
            raise DataError(f"a {type(source).__name__} without batches")
        self._count = count

    def __len__(self) -> int:
        return self._count

    def stream(self, epochs: int) -> Generator[Batch, None, None]:
        """The batches from `position` until `epochs` epochs are complete."""
        epoch, batch = self.position
        items = iter(self.source)
        for _ in range(batch):
            _, items = self._next(items)
        while epoch < epochs:
            item, items = self._next(items)
            batch += 1
            if batch == self._count:
                epoch, batch = epoch + 1, 0
            self.position = (epoch, batch)
            yield as_batch(item)

    def _next(self, items: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
        """The next item; an iterable that has ended starts again."""
        for item in items:
            return item, items
        again = iter(self.source)
        for item in again:
            return item, again
        raise DataError(
            f"the {type(self.source).__name__} ended and has no more batches",
            hint="pass an iterable that starts again, such as a list or a DataLoader",
        )

    def description(self) -> dict[str, Any]:
        """What a checkpoint compares."""
        return {"iterable": type(self.source).__name__, "batches": self._count}


def as_batch(item: Any) -> Batch:
    """One item of an iterable as the arrays of a batch."""
    parts = item if isinstance(item, list | tuple) else (item,)
    for part in parts:
        if not (is_array(part) or isinstance(part, int | float | np.generic)):
            raise DataError(
                f"a batch has a {type(part).__name__}",
                hint="a batch is an array, or a tuple or list of arrays",
            )
    return tuple(np.asarray(as_array(part)) for part in parts)
