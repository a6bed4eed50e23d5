"""The memory of large results that were dropped: kept for a while, and handed out again.

In: the knob `output_pool`, when a program is made and whenever it changes. Out: the limit of the
native store; `nova.output_pool.info()` says what is in it, `nova.output_pool.clear()` empties it.
`model` calls `settle`. An override is for the whole process as well, inside of its block.
"""

from __future__ import annotations

from typing import NamedTuple

from nova import _native, knobs
from nova.core.user_facing import user_facing

_KEEP_SECONDS = 5.0
_settled: list[int] = []


class Info(NamedTuple):
    """What the store holds and has done; sizes are bytes."""

    limit: int
    """Idle bytes that are kept at most."""
    idle_bytes: int
    idle_count: int
    live_bytes: int
    """Of results that somebody holds."""
    live_count: int
    reused: int
    """Results in memory of dropped ones."""
    mapped: int
    """Results in fresh memory of the system."""


@user_facing
def info() -> Info:
    """The state of the store at this moment."""
    settle()
    return Info(*_native.outputs_info())


@user_facing
def clear() -> None:
    """Give the memory of dropped results back to the system now; results in use stay."""
    _native.clear_outputs()


def settle() -> None:
    """Bring the store to what the knob says; from then on, changes are followed."""
    if not _settled:
        _apply()


def _apply() -> None:
    limit = knobs.get("output_pool")
    if _settled != [limit]:
        _native.configure_outputs(limit, _KEEP_SECONDS)
        _settled[:] = [limit]


def _follow(known: bool) -> None:
    if not known:
        _settled.clear()
    elif _settled:
        _apply()


knobs.watch(("output_pool",), _follow)
