"""Autotuning: tries schedules of a program's kernels on this machine, within a time limit.

`tune_settings` takes a module and the settings of a compile, and returns settings with the schedule
overrides that it found. Called by `nova.api.compile` and `nova.api.translate` when `tune=` is set.
Kernels are compiled and timed one by one (`trial.py`) on random arguments (`arguments.py`);
`search.py` walks through the variants that `nova/codegen/cpu/search_space.py` lists.
"""

from __future__ import annotations

from nova.tuning.search import tune_settings

__all__ = ["tune_settings"]
