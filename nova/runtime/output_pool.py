"""The memory of large dropped results: kept for a while, and reused.

In: the knob `output_pool`, when a program is created and whenever it changes. Out: the limit of the
native pool; `nova.output_pool.info()` describes it, `nova.output_pool.clear()` empties it. `model`
calls `settle`. An override inside a block also applies to the whole process.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from nova import _native, knobs
from nova.core.user_facing import user_facing
from nova.errors import KnobError

_KEEP_SECONDS = 5.0
_settled: list[int] = []
_is_following = False


class Info(NamedTuple):
    """State and counters of the pool; sizes are bytes."""

    limit: int
    """The limit on idle bytes."""
    idle_bytes: int
    idle_count: int
    live_bytes: int
    """Bytes of live results."""
    live_count: int
    reused: int
    """Results that reused memory of dropped ones."""
    mapped: int
    """Results in fresh memory of the system."""


@user_facing
def info() -> Info:
    """The current state of the pool."""
    settle()
    return Info(*_native.outputs_info())


@user_facing
def clear() -> None:
    """Return the memory of dropped results to the system now; results in use stay."""
    _native.clear_outputs()


def settle() -> None:
    """Apply the knob to the pool, and follow later changes."""
    global _is_following
    _is_following = True
    if not _settled:
        _apply()


def _apply() -> None:
    limit = knobs.get("output_pool")
    if _settled != [limit]:
        _native.configure_outputs(limit, _KEEP_SECONDS)
        _settled[:] = [limit]


def _follow(is_known: bool) -> None:
    if not _is_following:
        return
    if is_known:
        _apply()
        return
    with suppress(KnobError):  # the next program reads the environment again, and reports it
        _native.configure_outputs(knobs.peek("output_pool"), _KEEP_SECONDS)
    _settled.clear()


knobs.watch(("output_pool",), _follow)
