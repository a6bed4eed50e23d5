"""Many cases in one compiled program, run with the arrays of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from op_cases import Built

import nova
from nova.graph import Tensor
from nova.graph.interpret import evaluate


def compile_all(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], **options: Any
) -> nova.Compiled:
    """One program with all outputs; `options` are those of `nova.compile`."""
    return nova.compile(list(outputs), inputs=list(inputs), **options)


def run(program: nova.Compiled, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results as a list, also when there is one; the arguments must not have changed."""
    before = [a.tobytes() for a in arrays]
    results = program.run(list(arrays))
    assert [a.tobytes() for a in arrays] == before, "a run changed its arguments"
    return list(results) if isinstance(results, tuple) else [results]


def run_all(built: Sequence[Built], **options: Any) -> list[list[np.ndarray]]:
    """The outputs of every case, compiled together."""
    inputs = [t for b in built for t in b.inputs]
    outputs = [t for b in built for t in b.outputs]
    arrays = [a for b in built for a in b.arrays]
    results = iter(run(compile_all(inputs, outputs, **options), arrays))
    return [[next(results) for _ in b.outputs] for b in built]


def interpret(built: Built) -> list[np.ndarray]:
    """The outputs of a case by the numpy interpreter."""
    return evaluate(built.outputs, dict(zip(built.inputs, built.arrays, strict=True)))
