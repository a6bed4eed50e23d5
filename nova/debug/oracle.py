"""The numpy oracle over plans: the expected value of every step.

In: a plan and the arrays of its arguments. Out: the values of its slots by the numpy interpreter
(`nova/graph/interpret.py`), which shares only the op table with the compiled path. With `Noise`,
every intermediate value is perturbed by a few units in the last place: the change of the results is
the allowed difference between two correct computations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from nova.core.dtypes import DType, TensorType, dtype
from nova.graph.interpret import op_value
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
        self.slots: list[np.ndarray] = []

    def run(self, steps: int | None = None) -> list[np.ndarray]:
        """The slots of the first `steps` steps (all of them by default)."""
        for step in self.plan.steps[len(self.slots) : steps]:
            value = step_value(step, [self.value(a) for a in step.args], self.noise)
            if self.noise is not None:
                value = self.noise.move(value, step.out_type.dtype)
            self.slots.append(value)
        return self.slots

    def value(self, arg: Arg) -> np.ndarray:
        return arg_value(self.plan, arg, self.arrays, self.slots)


def arg_value(
    plan: Plan, arg: Arg, arrays: Sequence[np.ndarray], slots: Sequence[np.ndarray]
) -> np.ndarray:
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


def step_value(step: Step, arrays: Sequence[np.ndarray], noise: Noise | None = None) -> np.ndarray:
    """The result of one step for the values of its arguments."""
    types = [TensorType(a.shape, dtype(a.dtype)) for a in arrays]
    perturb = None if noise is None else noise.move
    return op_value(OPS[step.op], types, arrays, step.attrs, step.out_type, perturb)
