"""Random numbers of models: initial weights, and seeds of random ops.

Initializers draw from the generator that `manual_seed` sets. A random op (dropout) takes its seed
from `next_seed`; a compiled step enters `seeded` with a tensor, so that every run draws new numbers
without another compile. In a jitted function a seed is a run-time argument, drawn before each run
as it is without `jit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import ControlFlowError
from nova.graph import Tensor, tensor
from nova.graph.capture import Capture, current_capture, current_region
from nova.ops import F

# The stride between seeds: the seeds of one base do not overlap those of adjacent bases.
_STRIDE = 1_000_003


@dataclass
class _Base:
    """The base seed of a `seeded` block, and the number of seeds drawn."""

    value: Tensor
    capture: Capture | None
    """The trace of the block: its seeds are then part of the graph."""
    count: int = 0

    def take(self) -> int:
        """The offset of the next seed from the base."""
        self.count += 1
        return (self.count - 1) * _STRIDE


_generator = [np.random.default_rng(0)]
_base: ContextVar[_Base | None] = ContextVar("nova_seed_base", default=None)


@user_facing
def manual_seed(seed: int) -> None:
    """Reset the generator of initializers and of seeds outside `seeded` to `seed`."""
    _generator[0] = np.random.default_rng(seed)


@user_facing
def default_generator() -> np.random.Generator:
    """The generator that `manual_seed` set; it starts at seed 0."""
    return _generator[0]


@user_facing
def next_seed() -> Tensor:
    """The seed of one random op, a new one at each call, as a 0-d i64 tensor."""
    if current_region() == "loop":
        raise ControlFlowError(
            "a random layer inside a loop would draw the same numbers in every iteration",
            where=str(user_location()),
            hint="pass the op a seed of the iteration: nova.dropout(x, seed + i)",
        )
    base = _base.get()
    capture = current_capture()
    if capture is not None and capture.lifts_seeds and not (base and base.capture is capture):
        return capture.seed(draw_seed)
    if base is None:
        # One element and not 0-d: a number would be part of the program, and each need a compile.
        return F.reshape(tensor(draw_seed().reshape(1)), ())
    return F.add(base.value, base.take())


def draw_seed() -> np.ndarray:
    """The value of the next seed, as a 0-d array: that of `next_seed` outside a trace."""
    base = _base.get()
    if base is None:
        return np.asarray(default_generator().integers(2**63 - 1))
    with np.errstate(over="ignore"):
        return np.asarray(base.value.numpy() + np.int64(base.take()))


@user_facing
@contextmanager
def seeded(base: Tensor | int) -> Iterator[None]:
    """Inside, the k-th call of `next_seed` (from 0) gives `base + k * 1_000_003`."""
    value = base if isinstance(base, Tensor) else tensor(base)
    token = _base.set(_Base(value, current_capture()))
    try:
        yield
    finally:
        _base.reset(token)
