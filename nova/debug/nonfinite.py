"""The first NaN or infinity of a run, for `NOVA_CHECK=nan`.

A NaN is reported where it first appears, arguments included. An infinity is reported where a
step computes it from finite operands; an infinity in the arguments, in a constant of the program
(the -inf of a mask) or in an attribute of the op is intended.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any

import numpy as np

from nova.debug.finding import Finding, step_finding, title_of_argument
from nova.debug.oracle import arg_value
from nova.debug.plan_transforms import Program, producer


def find_nonfinite(
    program: Program, slots: Sequence[np.ndarray], kernels: Any = ()
) -> Finding | None:
    """The first step (or argument) that is not finite, and the reason to blame it."""
    plan = program.plan
    for number, array in enumerate(program.arrays):
        if is_nan(array).any():
            title = title_of_argument(plan, number)
            detail = _count(is_nan(array), "NaN")
            return Finding("nonfinite", None, None, title, None, detail, program=program)
    for step in plan.steps:
        value = slots[step.out_slot]
        if step.results or not step.out_type.dtype.is_float:
            continue
        nans = is_nan(value)
        if nans.any():
            return step_finding("nonfinite", program, step, _count(nans, "NaN"), kernels)
        infinite = np.isinf(value.astype(np.float64))
        if not infinite.any() or any(_is_infinite(v) for v in step.attrs.values()):
            continue
        source = producer(plan, step)
        operands = [arg_value(plan, a, program.arrays, slots) for a in source.args]
        if all(np.isfinite(o.astype(np.float64)).all() for o in operands):
            detail = _count(infinite, "infinite") + ", from finite operands"
            return step_finding("nonfinite", program, step, detail, kernels)
    return None


def is_nan(array: np.ndarray) -> np.ndarray:
    """Where a float array is NaN; nowhere for the other dtypes."""
    # Every Nova dtype converts to f64, and only floats give NaN there.
    return np.isnan(array.astype(np.float64))


def _count(bad: np.ndarray, description: str) -> str:
    first = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.shape else ()
    at = f", the first at {list(first)}" if first else ""
    return f"{int(bad.sum())} of {bad.size} elements are {description}{at}"


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and isinf(value)
