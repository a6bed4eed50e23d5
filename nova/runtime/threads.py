"""Sets up the threads of runs from the knobs `threads`, `policy` and `affinity`.

In: the knobs, when a program is created and whenever one of them changes. Out: the settings of the
native pool; an override applies to runs that the thread inside its block starts. `model` calls
`settle`.
"""

from __future__ import annotations

from nova import _native, knobs

_POLICIES = {"locality": 0, "fifo": 1, "critical-path": 2}
_NAMES = ("threads", "policy", "affinity")
_settled: list[tuple[int, int, bool]] = []


def settle() -> None:
    """Apply the knobs to the pool, and follow later changes."""
    if not _settled:
        _apply()


def _apply() -> None:
    settings = (
        _count(knobs.process_value("threads")),
        _POLICIES[knobs.process_value("policy")],
        bool(knobs.process_value("affinity")),
    )
    if _settled[:] != [settings]:
        _native.configure(*settings)
        _settled[:] = [settings]
    overrides = knobs.overridden()
    _native.override(
        _count(overrides["threads"]) if "threads" in overrides else 0,
        _POLICIES[overrides["policy"]] if "policy" in overrides else -1,
        bool(knobs.get("affinity")),
    )


def _count(threads: int) -> int:
    return min(threads, _native.MAX_THREADS)


def _follow(is_known: bool) -> None:
    if not is_known:
        _settled.clear()
    elif _settled:
        _apply()


knobs.watch(_NAMES, _follow)
