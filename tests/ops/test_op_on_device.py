"""Every row on a device: forward in every type of the op, and gradients, against the interpreter.

The cases are those of the CPU's tests, and so are the tolerances: device code has the same
expansions of functions and adds in a fixed order. Only attention in f16 and bf16 is allowed more:
it rounds the probabilities to that type before they are multiplied with the values.
"""

from __future__ import annotations

from typing import Any

import pytest
from op_cases import Built
from op_programs import interpret, run, run_all
from op_reference import TOLERANCE, check
from op_samples import SAMPLES
from test_op_forward import builds
from test_op_gradient import CLOSE, DIFFERENTIABLE, all_weighted

import nova
from nova.dtypes import bf16, dtype, f16
from nova.graph.interpret import evaluate

_ATTENTION = {"scaled_dot_product_attention", "attention_gradient"}


def _tolerance(built: Built, kind: object) -> tuple[float, float] | None:
    if built.name in _ATTENTION and kind in (f16, bf16):
        relative = TOLERANCE[kind][0]
        return 4 * relative, 2 * relative
    return None


@pytest.mark.parametrize("name", SAMPLES)
def test_forward(name: str, on_device: dict[str, Any]) -> None:
    built = builds(name, SAMPLES[name])
    for case, results in zip(built, run_all(built, **on_device), strict=True):
        for got, want in zip(results, interpret(case), strict=True):
            tolerance = _tolerance(case, dtype(got.dtype))
            rounds = SAMPLES[name].rounds
            check(got, want, f"{case.title} on the device", rounds=rounds, tolerance=tolerance)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient(name: str, on_device: dict[str, Any]) -> None:
    items = all_weighted(name)
    inputs = [t for w in items for t in w.inputs]
    outputs = [t for w in items for t in w.grads]
    arrays = [a for w in items for a in w.arrays]
    wanted = evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
    results = run(nova.compile(outputs, inputs=inputs, **on_device), arrays)
    titles = [w.built for w in items for _ in w.grads]
    for got, want, built in zip(results, wanted, titles, strict=True):
        check(got, want, f"gradient of {built.title} on the device", tolerance=CLOSE[built.type])
