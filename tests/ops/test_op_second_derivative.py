"""Second derivatives of the smooth rows, compiled in f64, against torch's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from op_cases import Case, build
from op_programs import compile_all, run
from op_reference import check, gradients_or_zeros, torch_gradients
from op_samples import SAMPLES

import nova
from nova.core.dtypes import f64
from nova.graph.autodiff import gradients
from nova.graph.tensor import placeholder
from nova.ops import OPS

SMOOTH = [n for n in SAMPLES if "smooth" in OPS[n].tags]
CLOSE = (1e-9, 1e-11)


FEW, MOST = 2, 6


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivative(name: str) -> None:
    check_second(name, SAMPLES[name].cases[:FEW])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SMOOTH if len(SAMPLES[n].cases) > FEW])
def test_second_derivative_of_more_cases(name: str) -> None:
    check_second(name, SAMPLES[name].cases[FEW:MOST])


def check_second(name: str, cases: Sequence[Case]) -> None:
    """The gradient of the gradient's weighted sum, over operands and the first weights."""
    inputs, outputs, arrays, expected = [], [], [], []
    for case in cases:
        built = build(name, case, f64)
        rng = np.random.default_rng(len(built.title))
        sources = [built.inputs[i] for i in built.sources]
        first = [np.asarray(rng.standard_normal(t.shape)) for t in built.outputs]
        second = [np.asarray(rng.standard_normal(t.shape)) for t in sources]
        marks = [placeholder(a.shape, f64) for a in (*first, *second)]
        weights, turns = marks[: len(first)], marks[len(first) :]
        loss = _weighted_sum(built.outputs, weights)
        slope = _weighted_sum(gradients(loss, sources), turns)
        inputs += [*built.inputs, *marks]
        arrays += [*built.arrays, *first, *second]
        outputs += gradients(slope, sources)
        leaves, grads = torch_gradients(SAMPLES[name], case, built.arrays, built.sources, first)
        total = sum((g * torch.from_numpy(s)).sum() for g, s in zip(grads, second, strict=True))
        for i, want in enumerate(gradients_or_zeros(total, leaves)):
            expected.append((f"operand {built.sources[i]} of {built.title}", want.detach().numpy()))
    results = run(compile_all(inputs, outputs), arrays)
    for (title, want), actual in zip(expected, results, strict=True):
        check(actual, want, f"second derivative: {title}", tolerance=CLOSE)


def _weighted_sum(values: list, weights: list) -> nova.Tensor:
    terms = [nova.sum(v * w) for v, w in zip(values, weights, strict=True)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
