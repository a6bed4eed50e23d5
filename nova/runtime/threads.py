"""Sets up the threads of runs from the knobs `threads`, `policy`, `affinity` and `numa`.

In: the knobs, when a program is created and whenever one of them changes. Out: the settings of the
native pool; an override applies to runs that the thread inside its block starts. `model` calls
`settle`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nova import _native, knobs
from nova.errors import KnobError

_POLICIES = {"locality": 0, "fifo": 1, "critical-path": 2}
_NAMES = ("threads", "policy", "affinity", "numa")
_settled: list[tuple[int, int, bool, tuple[int, ...]]] = []
"""The settings of the pool; empty before the first program, and after a reset of the knobs."""
_is_following = False


def settle() -> None:
    """Apply the knobs to the pool, and follow later changes."""
    global _is_following
    _is_following = True
    if not _settled:
        _apply()


def _apply(read: Callable[[str], Any] = knobs.process_value) -> None:
    settings = (
        _count(read("threads")),
        _POLICIES[read("policy")],
        bool(read("affinity")),
        read("numa"),
    )
    if _settled[:] != [settings]:
        _native.configure(*settings)
        _settled[:] = [settings]
    overrides = knobs.overridden()
    _native.override(
        _count(overrides["threads"]) if "threads" in overrides else 0,
        _POLICIES[overrides["policy"]] if "policy" in overrides else -1,
        bool(overrides.get("affinity", settings[2])),
    )


def _count(threads: int) -> int:
    return min(threads, _native.MAX_THREADS)


def _follow(is_known: bool) -> None:
    if not _is_following:
        return
    if is_known:
        _apply()
        return
    with suppress(KnobError):  # the next program reads the environment again, and reports it
        _apply(knobs.peek)
    _settled.clear()


knobs.watch(_NAMES, _follow)
