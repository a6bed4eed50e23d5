"""Runs compiled code for inspection: plans compiled without checks, on copies of arguments.

In: a plan, arrays and the settings of the program under test. Out: values of slots, results
and updated params. Called by the checked runs and by the reduction of failing programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nova import knobs
from nova.api.compile import compile_settings
from nova.api.compiled import Compiled
from nova.core.dtypes import TensorType, bool_
from nova.core.settings import Settings
from nova.plan import Arg, Input, Param, Plan


def compile_unchecked(plan: Plan, settings: Settings, device: str | None = None) -> Compiled:
    """The plan compiled with the settings of another program, for the same device; not checked.

    Schedules and memory limits are dropped: they were for that program's kernels.
    """
    plain = replace(settings, schedules=(), tune=0.0, max_workspace=None, cubin=False)
    with knobs.override(check="off", log=""):
        return compile_settings(plan, plain, None, device)


@dataclass(frozen=True)
class Outcome:
    """The results and writes of a run: pairs of the name in the plan, and the value."""

    values: tuple[tuple[Arg, np.ndarray], ...]


def run_copy(program: Any, plan: Plan, arrays: Sequence[np.ndarray]) -> Outcome:
    """Run on copies of the arguments, so that the caller's arrays do not change."""
    copies = [np.array(a, order="C") for a in arrays]
    count = len(plan.signature.inputs)
    results = [_poisoned(plan.type_of(r)) for r in plan.results]
    program.run(copies[:count], copies[count:], out=results)
    pairs = list(zip(plan.results, results, strict=True))
    pairs += [(value, copies[count + param]) for param, value in plan.updates]
    updated = {param for param, _ in plan.updates}
    # Arguments that are not updated must be unchanged.
    for i, array in enumerate(copies):
        if (
            i - count not in updated
            and array.tobytes() != np.ascontiguousarray(arrays[i]).tobytes()
        ):
            arg: Arg = Param(i - count) if i >= count else Input(i)
            pairs.append((arg, array))
    return Outcome(tuple(pairs))


def _poisoned(type_: TensorType) -> np.ndarray:
    """An output that is not correct by chance: elements that a run does not write are detected."""
    array = np.empty(type_.shape, type_.dtype.numpy)
    array.reshape(-1).view(np.uint8)[...] = 1 if type_.dtype is bool_ else 0xFF
    return array
