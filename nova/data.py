"""Batches of arrays, in an order determined by a seed, gathered ahead of the step.

In: arrays with the same number of rows. Out: tuples of batches, to a training loop or
`nova.fit`. Without shuffling a batch is a slice of the arrays, without a copy. Shuffled rows
are gathered into buffers by another thread while the step runs; a buffer is reused once no other
code refers to it. `Batches.position` is the next batch, and may be set.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from math import prod
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from nova.core.location import user_location
from nova.core.user_facing import user_facing_class
from nova.errors import DataError
from nova.graph.other_names import DATA, no_attribute
from nova.graph.tensor import as_array

Batch = tuple[np.ndarray, ...]
# Below this many bytes gathering a batch is faster than handing it to a thread.
_WORTH_A_THREAD = 1 << 17


@user_facing_class
class Batches:
    """Rows of `arrays` in batches; a `for` loop runs to the end of the current epoch.

    The order of epoch `e` is a function of `seed` and `e` alone. With `drop_last` the remaining
    rows at the end of an epoch are dropped, so that all batches have one shape (a step is
    compiled once); without it the last batch is shorter. `prefetch` is the number of batches
    gathered in advance; 0 gathers each on request, as is always done for small ones. The arrays
    of a batch stay unchanged as long as something refers to them (or to views of them); a raw
    address is valid until the next batch is requested. With `shuffle=False` they are the
    caller's own memory: writing to them changes the data.
    """

    def __init__(
        self,
        *arrays: Any,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        prefetch: int = 2,
    ):
        self.arrays = _checked_arrays(arrays)
        self.batch_size = _at_least(1, batch_size, "batch_size")
        self.seed = _at_least(0, seed, "seed")
        self.prefetch = _at_least(0, prefetch, "prefetch")
        self.shuffle, self.drop_last = bool(shuffle), bool(drop_last)
        self.rows = len(self.arrays[0])
        if not len(self):
            raise DataError(
                f"{self.rows} rows make no batch of {batch_size}",
                hint="a smaller batch_size, or drop_last=False" if self.rows else None,
            )
        self._position = (0, 0)
        self._newest: object = None

    def __len__(self) -> int:
        """The number of batches per epoch."""
        full, remainder = divmod(self.rows, self.batch_size)
        return full + (remainder > 0 and not self.drop_last)

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and batch, both from 0, of the next batch; set it to start elsewhere."""
        return self._position

    @position.setter
    def position(self, position: tuple[int, int]) -> None:
        epoch, batch = position
        if not (epoch >= 0 and 0 <= batch < len(self)):
            raise DataError(
                f"there is no batch {batch} in epoch {epoch}: an epoch has {len(self)}",
                where=str(user_location()),
            )
        self._position = (int(epoch), int(batch))
        self._newest = None

    def __iter__(self) -> Generator[Batch, None, None]:
        """The batches from `position` to the end of its epoch."""
        return self.stream(self._position[0] + 1)

    def stream(self, epochs: int) -> Generator[Batch, None, None]:
        """The batches from `position` until `epochs` epochs are complete, counted from the first.

        `position` advances with each batch. Starting another loop, or setting `position`,
        ends this one.
        """
        loop = self._newest = object()
        epoch, batch = self._position
        batches = self._generate(epoch, batch, epochs)
        if self.shuffle and self.prefetch and self._batch_bytes() >= _WORTH_A_THREAD:
            batches = run_ahead(batches, self.prefetch)
        with closing(batches):
            for arrays in batches:
                if self._newest is not loop:
                    raise DataError(
                        "another loop over these batches was started, or their position set",
                        where=str(user_location()),
                        hint="make a second Batches for a second loop",
                    )
                batch += 1
                if batch == len(self):
                    epoch, batch = epoch + 1, 0
                self._position = (epoch, batch)
                yield arrays

    def order(self, epoch: int) -> np.ndarray:
        """The rows of an epoch in the order of its batches."""
        if not self.shuffle:
            return np.arange(self.rows)
        # Only the raw numbers of a bit generator are the same in every numpy version. Two equal
        # ones, of 64 bits each, would leave their order undefined; that does not happen.
        bits = np.random.PCG64(np.random.SeedSequence((self.seed, epoch)))
        return np.argsort(bits.random_raw(self.rows))

    def _generate(self, epoch: int, first: int, epochs: int) -> Generator[Batch, None, None]:
        """The batches from a position on; runs on the thread if there is one."""
        size = self.batch_size
        pools = [_Pool(a, min(size, self.rows), self.prefetch) for a in self.arrays]
        for number in range(epoch, epochs):
            order = self.order(number) if self.shuffle else None
            starts = islice(range(0, len(self) * size, size), first, None)
            first = 0
            for start in starts:
                rows = slice(start, start + size)
                if order is None:
                    yield tuple(a[rows] for a in self.arrays)
                else:
                    yield tuple(pool.gather(order[rows]) for pool in pools)

    def _batch_bytes(self) -> int:
        rows = min(self.batch_size, self.rows)
        return rows * sum(prod(a.shape[1:]) * a.itemsize for a in self.arrays)

    def __repr__(self) -> str:
        epoch, batch = self._position
        return (
            f"<Batches of {self.batch_size} from {self.rows} rows, {len(self)} an epoch; "
            f"next: epoch {epoch}, batch {batch}>"
        )


class _Pool:
    """Buffers for the batches of one array. A buffer that the consumer still uses is not reused."""

    def __init__(self, source: np.ndarray, rows: int, prefetch: int):
        self._source = source
        # numpy gathers integers of the same size fast; dtypes it does not know, slowly.
        self._bits = source.view(f"u{source.itemsize}") if source.itemsize <= 8 else source
        self._shape = (rows, *source.shape[1:])
        # The prefetched ones, one that is being filled, and two that the consumer's loop may
        # hold while it advances from one batch to the next.
        self._most = prefetch + 3
        self._buffers: list[np.ndarray] = []

    def gather(self, rows: np.ndarray) -> np.ndarray:
        out = self._unused()[: len(rows)]
        if self._bits.flags.c_contiguous:
            # The rows are in range; a bounds check would make numpy gather into a copy first.
            np.take(self._bits, rows, axis=0, out=out, mode="clip")
        else:
            out[...] = self._bits[rows]
        return out.view(self._source.dtype)

    def _unused(self) -> np.ndarray:
        buffers = self._buffers
        for i in range(len(buffers)):
            if sys.getrefcount(buffers[i]) == _ONE_HOLDER:
                return buffers[i]
        if len(buffers) >= self._most:
            del buffers[0]  # its holder keeps it alive
        buffers.append(np.empty(self._shape, self._bits.dtype))
        return buffers[-1]


_single = [object()]
_ONE_HOLDER = sys.getrefcount(_single[0])


class _Failure:
    """The thread passes this instead of an item when it failed."""

    def __init__(self, error: BaseException):
        self.error = error


_END = object()


def run_ahead(items: Iterator[Any], most: int) -> Generator[Any, None, None]:
    """The items of an iterator that runs on another thread, up to `most` of them ahead.

    The thread ends with the items, on an error, which is raised here, or when this is closed.
    """
    ready: SimpleQueue[Any] = SimpleQueue()
    allowed: SimpleQueue[bool] = SimpleQueue()
    thread = Thread(target=_work, args=(items, ready, allowed), name="nova-data", daemon=True)
    for _ in range(most):
        allowed.put(True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, _Failure):
                raise item.error
            allowed.put(True)
            yield item
    finally:
        allowed.put(False)
        thread.join()


def _work(items: Iterator[Any], ready: SimpleQueue[Any], allowed: SimpleQueue[bool]) -> None:
    try:
        while allowed.get():
            item = next(items, _END)
            ready.put(item)
            if item is _END:
                return
            del item  # a buffer is free as soon as the consumer drops it
    except BaseException as error:
        ready.put(_Failure(error))


def _checked_arrays(arrays: tuple[Any, ...]) -> Batch:
    if not arrays:
        raise DataError("no arrays to make batches of", hint="Batches(x, y, batch_size=32)")
    checked = tuple(as_array(a) for a in arrays)
    for i, array in enumerate(checked):
        if not array.ndim:
            raise DataError(f"array {i} is one number: it has no rows")
        if len(array) != len(checked[0]):
            raise DataError(
                f"array {i} has {len(array)} rows, array 0 has {len(checked[0])}",
                hint="row i of every array belongs to the same example",
            )
    return checked


def _at_least(least: int, value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{name} is {value!r}", hint=f"it is a whole number of at least {least}")
    return int(value)


__all__ = ["Batches", "run_ahead"]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute("module 'nova.data'", name, __all__, DATA)
