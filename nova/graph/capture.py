"""Captures the state that a trace uses: modules, seeds, and values that Python code reads.

`nova.jit` and `nova.train_step` run a function inside `capturing()`. A `Holder` (every
`nova.nn.Module` is one) tells the capture that it was called and rejects changes: Python code
runs once per trace, so a change would be lost in every later run. Seeds become run-time arguments.
Any change of a holder outside a trace increments `generation`, the cheapest guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nova.core.dtypes import TensorType, i64
from nova.core.location import user_location
from nova.core.user_facing import check_call, user_facing_class
from nova.errors import ConcreteValueError, StateAssignedError

if TYPE_CHECKING:
    from nova.graph.tensor import Tensor

# Number of changes of holders, and of objects that belong to them, in this process.
generation = [0]

# Values of at most this many bytes that Python code has read are compared at every call.
_MOST_READ = 4096

_current: ContextVar[Capture | None] = ContextVar("nova_capture", default=None)
_region: ContextVar[str | None] = ContextVar("nova_region", default=None)
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))


class Capture:
    """One trace: the holders that were called, the seeds it takes, and the leaves it has read."""

    def __init__(self, lifts_seeds: bool) -> None:
        self.lifts_seeds = lifts_seeds
        """Whether `seed` supplies the seeds of random ops; else the caller has a base for them."""
        self.holders: dict[int, Any] = {}
        self.seeds: list[tuple[Tensor, Callable[[], np.ndarray]]] = []
        self.read: dict[int, Tensor] = {}
        self.assigned: dict[int, tuple[Tensor, Tensor]] = {}
        """Buffers that every run of the program sets, and their new values."""
        self._created: dict[int, Any] = {}

    def create(self, holder: Any) -> None:
        """A holder was created inside the trace: it may change, as nothing else refers to it."""
        self._created[id(holder)] = holder

    def owns(self, holder: Any) -> bool:
        return id(holder) in self._created

    def enter(self, holder: Any) -> bool:
        """A holder was called; returns whether this is its first call in the trace."""
        if id(holder) in self._created:
            return False
        self.holders.setdefault(id(holder), holder)
        return len(self.holders) == 1

    def seed(self, draw: Callable[[], np.ndarray]) -> Tensor:
        """A 0-d i64 tensor whose value `draw` supplies anew at each run."""
        from nova.graph.tensor import Tensor

        seed = Tensor(TensorType((), i64), name=f"seed{len(self.seeds)}")
        self.seeds.append((seed, draw))
        return seed

    def assign(self, buffer: Tensor, value: Tensor) -> None:
        """Every run of the program sets `buffer` to `value`."""
        self.assigned[id(buffer)] = (buffer, value)

    def latest(self, buffer: Tensor) -> Tensor:
        """The value of a buffer at this point of the trace."""
        return self.assigned.get(id(buffer), (buffer, buffer))[1]

    @property
    def updates(self) -> dict[Tensor, Tensor]:
        """The new values of the buffers that the function has assigned."""
        return dict(self.assigned.values())

    def note_reads(self, value: Tensor) -> None:
        """Python code reads a value: programs are specialized to these values of its leaves."""
        from nova.graph.order import topological

        order = topological([value])
        if any(node.is_placeholder for node in order):
            return  # it has no value: a separate error reports that
        for leaf in order:
            self._note_read(leaf)

    def _note_read(self, leaf: Tensor) -> None:
        if leaf.fixed or leaf.data is None:
            return
        if leaf.type.nbytes > _MOST_READ:
            raise ConcreteValueError(
                f"the values of {leaf!r} are read while a function is traced: later changes of "
                "them would not be seen",
                where=str(user_location()),
                hint="compute with the tensor itself, or read it before the traced function",
            )
        self.read[id(leaf)] = leaf


def current_capture() -> Capture | None:
    """The current trace; None outside a trace."""
    return _current.get()


@contextmanager
def capturing(*, lifts_seeds: bool = True) -> Iterator[Capture]:
    """Inside, the code of a function is traced."""
    capture = Capture(lifts_seeds)
    token = _current.set(capture)
    try:
        yield capture
    finally:
        _current.reset(token)


@contextmanager
def tracing_region(construct: str) -> Iterator[None]:
    """Inside, the region of a "loop" or a "branch" is traced."""
    outer = _region.get()
    token = _region.set("loop" if outer == "loop" else construct)
    try:
        yield
    finally:
        _region.reset(token)


def current_region() -> str | None:
    """ "loop" or "branch" while the region of one is traced; a loop around a branch counts."""
    return _region.get()


def note_change() -> None:
    """State has changed; inside a trace only what it created changes, which no program uses."""
    if _current.get() is None:
        generation[0] += 1


class Holder:
    """An object whose attributes are state of the functions that use it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("nova."):
            user_facing_class(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if cls.__init__ is object.__init__ and (args or kwargs):
            check_call(_no_arguments, cls.__name__, args, kwargs)
        instance = super().__new__(cls)
        capture = _current.get()
        if capture is not None:
            capture.create(instance)
        return instance

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._may_change(name, value):
            raise _assigned(self, name)
        note_change()
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if not self._may_change(name, self):
            raise _assigned(self, name)
        note_change()
        super().__delattr__(name)

    def _may_change(self, name: str, value: Any) -> bool:
        """Allowed outside traces, in the trace that created it, and for an equal value."""
        capture = _current.get()
        if capture is None or capture.owns(self):
            return True
        before = getattr(self, name, _current)
        return value is before or (
            type(value) is type(before) and type(value) in _SIMPLE and value == before
        )


def _no_arguments() -> None:
    """The parameters of a class without a constructor."""


def _assigned(holder: Any, name: str) -> StateAssignedError:
    return StateAssignedError(
        f"{type(holder).__name__}.{name} is assigned while a function that uses it is traced: the "
        "assignment would happen once and not in every run",
        where=str(user_location()),
        hint="call assign(value) of an nn.Buffer, which every run does, or return the new value "
        "and assign it outside; set train() or eval() before the call",
    )
