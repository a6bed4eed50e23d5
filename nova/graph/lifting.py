"""Lifts leaves of a traced graph to run-time arguments of its program.

`Captured.of` takes the graph of a trace: the tensors with data that it uses, and the seeds it
takes, become params of the program. Their arrays are read again before each run. `BoundProgram` is
the fast path of a jitted function: the native program with those arrays, after a state check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nova.core.records import record
from nova.errors import SignatureError
from nova.graph.capture import Capture, generation
from nova.graph.order import topological
from nova.graph.state import Roots, Snapshot, look_up
from nova.graph.tensor import Tensor


class StateChanged(SignatureError):
    """The program is for other state than the current one; users never see this."""

    def __init__(self) -> None:
        super().__init__("the state of the function changed")


@record
class Captured:
    """The params of a traced program: tensors that hold their array in a slot, others, seeds."""

    stored: tuple[Any, ...]
    leaves: tuple[Tensor, ...]
    seeds: tuple[Tensor, ...]
    draws: tuple[Callable[[], np.ndarray], ...]

    @staticmethod
    def of(outputs: Sequence[Tensor], arguments: Sequence[Tensor], capture: Capture) -> Captured:
        """The leaves that `outputs` need other than `arguments`; literals stay literals."""
        leaves = captured_leaves(outputs, arguments)
        # Every seed that was taken is drawn, also an unused one: the generator advances
        # as it does without a program.
        seeds = [seed for seed, _ in capture.seeds]
        draws = [draw for _, draw in capture.seeds]
        return Captured.sorted(leaves, seeds, draws)

    @staticmethod
    def sorted(
        leaves: Sequence[Tensor],
        seeds: Sequence[Tensor] = (),
        draws: Sequence[Callable[[], np.ndarray]] = (),
    ) -> Captured:
        """Leaves that hold their array in a slot, before the others."""
        stored = tuple(leaf for leaf in leaves if _is_stored(leaf))
        others = tuple(leaf for leaf in leaves if not _is_stored(leaf))
        return Captured(stored, others, tuple(seeds), tuple(draws))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the graph, in the order of `read`."""
        return (*self.stored, *self.leaves, *self.seeds)

    @property
    def count(self) -> int:
        return len(self.stored) + len(self.leaves) + len(self.draws)

    def read(self) -> tuple[Any, ...]:
        """The arrays of a run that starts now."""
        return (
            *[tensor.data for tensor in self.stored],
            *[tensor.data for tensor in self.leaves],
            *[draw() for draw in self.draws],
        )

    def fetches(self) -> tuple[Callable[[], None], ...]:
        """The functions that copy newer values of the tensors to their arrays."""
        fetches = {tensor._fetch for tensor in self.stored if tensor._fetch is not None}
        return tuple(fetches)


def captured_leaves(outputs: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[Tensor]:
    """The leaves with data that `outputs` need other than `arguments`; no literals of the code."""
    argument_ids = {id(argument) for argument in arguments}
    return [
        node
        for node in topological(outputs, stop=arguments)
        if node.op is None
        and node.data is not None
        and not node.fixed
        and id(node) not in argument_ids
    ]


def _is_stored(leaf: Tensor) -> bool:
    """Whether the leaf holds its array in a slot `_array`, as `nova.nn.Parameter` does."""
    return hasattr(type(leaf), "_array")


class BoundProgram:
    """A native program with its captured arrays; rejects a call if the state has changed."""

    def __init__(
        self,
        program: Any,
        captured: Captured,
        roots: Roots,
        state: Snapshot,
        generation: int,
        device_array: type | None,
        arrays: tuple[Any, ...] = (),
    ):
        self._program = program
        self._generation = generation
        bindings = roots.bindings()
        self._globals = [b for b in bindings if type(b[0]) is dict]
        self._cells = [b for b in bindings if type(b[0]) is not dict]
        self._volatile = (roots, state) if roots.is_volatile else None
        self._stored = captured.stored
        self._leaves = captured.leaves
        self._fetches = captured.fetches()
        self._device_array = device_array
        self._arrays = arrays
        """Further arguments before the captured ones: arrays that stay on a device."""

    def __call__(self, *args: Any) -> Any:
        if generation[0] != self._generation:
            raise StateChanged
        for space, name, value in self._globals:
            if space.get(name) is not value:
                raise StateChanged
        for space, name, value in self._cells:
            if look_up(space, name) is not value:
                raise StateChanged
        if self._volatile is not None:
            roots, state = self._volatile
            if not roots.snapshot().is_same(state):
                raise StateChanged
        if self._device_array is not None and any(type(a) is not self._device_array for a in args):
            raise StateChanged  # host arrays need a host program
        for fetch in self._fetches:
            fetch()
        stored = [tensor._array for tensor in self._stored]
        if not self._leaves:
            return self._program(*args, *self._arrays, *stored)
        leaves = [leaf.data for leaf in self._leaves]
        return self._program(*args, *self._arrays, *stored, *leaves)
