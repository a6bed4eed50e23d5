"""The numpy oracle over plans: the expected value of every step.

In: a plan and the arrays of its arguments. Out: the values of its slots by the numpy interpreter
(`nova/graph/interpret.py`), which shares only the op table with the compiled path. With `Noise`,
every intermediate value is perturbed by a few units in the last place: the change of the results is
the allowed difference between two correct computations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from nova.core.dtypes import DType, TensorType, dtype
from nova.graph.interpret import control_values, op_value
from nova.ops import OPS
from nova.plan import Arg, Input, Literal, Param, Plan, Slot, Step

_NOISE_UNITS = 4.0


def epsilon(type_: DType) -> float:
    """The machine epsilon of a float dtype: the distance from 1 to the next number."""
    return float(ml_dtypes.finfo(type_.numpy).eps)


@dataclass(frozen=True)
class Noise:
    """Perturbs float arrays by up to `_NOISE_UNITS` units in the last place, at random."""

    rng: np.random.Generator

    def move(self, array: np.ndarray, type_: DType) -> np.ndarray:
        if not type_.is_float:
            return array
        step = _NOISE_UNITS * epsilon(type_)
        factor = 1.0 + step * self.rng.uniform(-1.0, 1.0, array.shape)
        with np.errstate(all="ignore"):
            return np.asarray(array * factor.astype(np.float64)).astype(type_.numpy)


class Oracle:
    """The values of a plan's arguments and slots, computed step by step."""

    def __init__(self, plan: Plan, arrays: Sequence[np.ndarray], noise: Noise | None = None):
        self.plan = plan
        self.arrays = arrays
        self.noise = noise
        self.slots: list[Any] = []

    def run(self, steps: int | None = None) -> list[Any]:
        """The slots of the first `steps` steps (all of them by default)."""
        for step in self.plan.steps[len(self.slots) : steps]:
            value = step_value(step, [self.value(a) for a in step.args], self.noise)
            if self.noise is not None and not step.results:
                value = self.noise.move(value, step.out_type.dtype)
            self.slots.append(value)
        return self.slots

    def value(self, arg: Arg) -> Any:
        return arg_value(self.plan, arg, self.arrays, self.slots)


def arg_value(plan: Plan, arg: Arg, arrays: Sequence[np.ndarray], slots: Sequence[Any]) -> Any:
    """The value of an argument of a step, from the arguments of the program and the slots."""
    match arg:
        case Input(index):
            return arrays[index]
        case Param(index):
            return arrays[len(plan.signature.inputs) + index]
        case Slot(index):
            return slots[index]
        case Literal(array):
            return array


def _region_values(
    plan: Plan, noise: Noise | None, arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    oracle = Oracle(plan, arrays, noise)
    oracle.run()
    return [oracle.value(result) for result in plan.results]


def step_value(step: Step, arrays: Sequence[Any], noise: Noise | None = None) -> Any:
    """The result of one step for the values of its arguments; of one with regions, a list."""
    if step.results:
        calls = [partial(_region_values, plan, noise) for plan in step.regions]
        return control_values(step.op, calls, arrays, step.attrs, step.results)
    if step.op == "result":
        return arrays[0][step.attrs["index"]]
    types = [TensorType(a.shape, dtype(a.dtype)) for a in arrays]
    perturb = None if noise is None else noise.move
    return op_value(OPS[step.op], types, arrays, step.attrs, step.out_type, perturb)
