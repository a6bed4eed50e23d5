"""Many steps in one launch: the parts of stacked arrays, and the programs that repeat a step.

In: the types of arrays with a first axis for the steps, or an iterable of batches, and a compiled
step. Out: the types of one step, and a native program for all of them, or a ring for the batches.
`TrainStep.run_many` calls these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from typing import Any

import numpy as np

from nova.api.compiled import Compiled
from nova.core.dtypes import TensorType
from nova.core.location import user_location
from nova.core.pytree import flatten, unflatten
from nova.errors import GraphError
from nova.runtime.device_arrays import type_on_device
from nova.runtime.ring import SLOTS, Ring

Batch = tuple[np.ndarray, ...]
_MOST = 8
"""Programs that a step keeps."""


def part_types(types: Sequence[TensorType]) -> tuple[int, list[TensorType]]:
    """The number of parts along the first axis of all arrays, and the types of a part."""
    lengths = {type_.shape[0] if type_.shape else None for type_ in types}
    count = next(iter(lengths), None)
    if len(lengths) != 1 or not isinstance(count, int) or count < 1:
        raise GraphError(
            "run_many takes arrays with one part for each step, not "
            f"{', '.join(map(str, types)) or 'none at all'}",
            where=str(user_location()),
            hint="stack the batches along a first axis, which has the same size in all arrays",
        )
    return count, [TensorType(type_.shape[1:], type_.dtype) for type_ in types]


def each_part(arrays: Sequence[Any], count: int) -> Iterator[tuple[Any, ...]]:
    """The arrays of each step, for steps that run one by one."""
    if any(type_on_device(array) is not None for array in arrays):
        raise GraphError(
            "run_many runs these steps one by one, and arrays on a device cannot be cut into parts",
            where=str(user_location()),
            hint='pass host arrays; or use launch="persistent", with two parts or more, each of a '
            "multiple of 16 bytes",
        )
    for i in range(count):
        yield tuple(array[i] for array in arrays)


def stack_results(results: Sequence[Any]) -> Any:
    """The results of several steps as arrays with a first axis for the steps."""
    if not isinstance(results[0], tuple):
        return np.stack(results)
    leaves = [flatten(result)[0] for result in results]
    structure = flatten(results[0])[1]
    return unflatten(structure, [np.stack(column) for column in zip(*leaves, strict=True)])


def is_iterable(batches: Sequence[Any]) -> bool:
    """Whether `run_many` got an iterable of batches, and not arrays."""
    if len(batches) != 1:
        return False
    [source] = batches
    if isinstance(source, list):  # a list of numbers is an array
        return bool(source) and isinstance(source[0], tuple)
    is_array = type_on_device(source) is not None or hasattr(source, "shape")
    return isinstance(source, Iterable) and not is_array and not isinstance(source, tuple)


def each_batch(source: Iterable[Any], narrowed: Callable[[Any], Any]) -> Iterator[Batch]:
    """The arrays of each batch of an iterable; its errors name the batch."""
    iterator = iter(source)
    for number in count():
        try:
            batch = next(iterator)
            arrays = batch if isinstance(batch, (tuple, list)) else (batch,)
            narrow = tuple(narrowed(array) for array in arrays)
        except StopIteration:
            return
        except BaseException as error:
            error.add_note(f"run_many: in batch {number}; the steps of those before it have run")
            raise
        yield narrow


def run_ring(ring: Ring, first: Batch, others: Iterator[Batch]) -> list[tuple[Any, ...]]:
    """Feed the batches to a ring that runs; returns the results of each. Closes the ring."""
    results: list[tuple[Any, ...]] = []

    def take() -> None:
        ring.wait(len(results))
        results.append(ring.read(len(results)))

    try:
        for batch in chain([first], others):
            while ring.pushed - len(results) >= ring.slots:
                take()
            ring.push(ring.check(batch, f"run_many: batch {ring.pushed}"))
    finally:
        ring.close()
    while len(results) < ring.pushed:
        take()
    return results


class RepeatedPrograms:
    """The programs of a step that run it several times in one launch."""

    def __init__(self) -> None:
        self._programs: dict[tuple[Compiled, int], Any] = {}

    def find(self, compiled: Compiled, count: int) -> Any:
        """The native program that runs `count` steps in one launch; None if there is none."""
        key = compiled, count
        if key not in self._programs:
            while len(self._programs) >= _MOST:
                del self._programs[next(iter(self._programs))]
            repeated = getattr(compiled._executable, "repeated", None)
            self._programs[key] = None if repeated is None or count == 1 else repeated(count)
        return self._programs[key]

    def find_ring(self, compiled: Compiled) -> Ring | None:
        """A ring for the batches of a step; None if its program cannot have one."""
        executable: Any = compiled._executable
        key = compiled, 0
        if key not in self._programs:
            while len(self._programs) >= _MOST:
                del self._programs[next(iter(self._programs))]
            refuses: Callable[[], str] = getattr(executable, "refuses_ring", lambda: "no device")
            self._programs[key] = None if refuses() else executable.ring(SLOTS)
        program = self._programs[key]
        return None if program is None else Ring(program)
