"""Random arguments for timing one kernel.

In: a kernel at the stage `buffers` and the types of its arguments. Out: arrays that are safe to
run it on, or the reason why there are none. Numbers that may be indices lie within every
extent, and are never a zero divisor. Called by `trial.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nova.artifact.manifest import TensorSpec
from nova.core.dtypes import array_dtype
from nova.ir.walk import every_op

_MOST_BYTES = 2 << 30
_DIVISIONS = {
    f"arith.{op}" for op in ("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi")
}


def why_not_run(kernel: Any, specs: Sequence[TensorSpec]) -> str | None:
    """Why a kernel cannot run on random arguments; None if it can."""
    names = {op.name for op in every_op(kernel)}
    if "scf.while" in names:
        return "how often it loops depends on its arguments"
    if "memref.get_global" in names:
        return "it reads constants of the program"
    if any(not array_dtype(spec.dtype).is_float and spec.dtype != "bool" for spec in specs) and (
        "memref.load" in names and names & _DIVISIONS
    ):
        return "its integers are divisors and may be indices as well"
    if sum(prod(s.shape) * array_dtype(s.dtype).itemsize for s in specs) > _MOST_BYTES:
        return "its arguments are too large to make up"
    return None


def make_arguments(kernel: Any, specs: Sequence[TensorSpec]) -> list[np.ndarray]:
    """Arrays for every argument, the same ones at every call."""
    divides = any(op.name in _DIVISIONS for op in every_op(kernel))
    extents = [size for spec in specs for size in spec.shape]
    random = np.random.default_rng(0)
    low, high = (1, 9) if divides else (0, max(1, min(extents, default=1)))
    return [_array(random, spec, low, high) for spec in specs]


def _array(random: np.random.Generator, spec: TensorSpec, low: int, high: int) -> np.ndarray:
    dtype = array_dtype(spec.dtype)
    if dtype.is_float:
        # Neither zero nor so large that their sums overflow, like the values of a model.
        values = random.random(spec.shape, np.float32)
        return np.add(values, 0.125, out=values).astype(dtype.numpy, copy=False)
    if spec.dtype == "bool":
        return random.integers(0, 2, spec.shape).astype(np.bool_)
    return random.integers(low, min(high, 100), spec.shape, endpoint=False).astype(dtype.numpy)
