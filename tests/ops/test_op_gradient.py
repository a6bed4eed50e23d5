"""Every row's gradient: compiled, against torch's and against finite differences.

The op stands in a sum with random weights. In f64 the gradient agrees with torch to 1e-10 and with
central differences of the compiled function along random directions; in f32 with torch loosely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from op_cases import Built, Case, build, varies
from op_programs import compile_all, run
from op_reference import check, torch_gradients
from op_samples import SAMPLES

import nova
from nova.core.dtypes import DType, f32, f64
from nova.graph import Tensor
from nova.graph.autodiff import gradients
from nova.graph.tensor import placeholder
from nova.ops import OPS

# (relative, relative to the largest element) differences from torch.
CLOSE = {f64: (1e-10, 1e-12), f32: (1e-4, 2e-5)}
STEP = 1e-5
DIRECTIONS = 2
# Cases that every test run looks at; the others are for `make nightly`.
FEW = 4

DIFFERENTIABLE = [n for n, s in SAMPLES.items() if s.grad and "nograd" not in OPS[n].tags]


@dataclass(frozen=True)
class Weighted:
    """A case with the weights of its outputs, their weighted sum and its gradients."""

    built: Built
    inputs: list[Tensor]
    arrays: list[np.ndarray]
    weights: list[np.ndarray]
    loss: Tensor
    grads: list[Tensor]


def weighted(name: str, case: Case, type_: DType) -> Weighted | None:
    """None where the result is not a float: a cast to integers."""
    built = build(name, case, type_)
    outputs = [t for t in built.outputs if t.dtype.is_float]
    if not outputs:
        return None
    rng = np.random.default_rng(len(built.title))
    weights = [rng.standard_normal(t.shape) for t in outputs]
    marks = [placeholder(t.shape, t.dtype) for t in outputs]
    loss = nova.sum(nova.cast(outputs[0] * marks[0], dtype=type_))
    for output, mark in zip(outputs[1:], marks[1:], strict=True):
        loss = loss + nova.sum(output * mark)
    grads = gradients(loss, [built.inputs[i] for i in built.sources])
    arrays = [w.astype(t.dtype.numpy) for w, t in zip(weights, outputs, strict=True)]
    return Weighted(built, [*built.inputs, *marks], [*built.arrays, *arrays], arrays, loss, grads)


def run_weighted(items: list[Weighted], **options: Any) -> tuple[nova.Compiled, list[np.ndarray]]:
    inputs = [t for w in items for t in w.inputs]
    outputs = [t for w in items for t in (w.loss, *w.grads)]
    return compile_all(inputs, outputs, **options), [a for w in items for a in w.arrays]


def check_torch(name: str, items: list[Weighted], **options: Any) -> None:
    program, arrays = run_weighted(items, **options)
    results = iter(run(program, arrays))
    for item in items:
        next(results)
        built = item.built
        flags = varies(name, built.case)
        wide = [a.astype(np.float64) if v else a for a, v in zip(built.arrays, flags, strict=True)]
        weights = [w.astype(np.float64) for w in item.weights]
        expected = torch_gradients(SAMPLES[name], built.case, wide, built.sources, weights)[1]
        for i, want in zip(built.sources, expected, strict=True):
            title = f"gradient of operand {i} of {built.title}"
            check(next(results), want.detach().numpy(), title, tolerance=CLOSE[built.type])


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient(name: str) -> None:
    cases = SAMPLES[name].cases
    check_gradient(name, [*((c, f64) for c in cases[:FEW]), (cases[0], f32)])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if len(SAMPLES[n].cases) > FEW])
def test_gradient_of_more_cases(name: str) -> None:
    check_gradient(name, [(c, f64) for c in SAMPLES[name].cases[FEW:]])


def check_gradient(name: str, chosen: list[tuple[Case, DType]]) -> None:
    """Against torch's, and against differences of the values."""
    items = [w for c, d in chosen if (w := weighted(name, c, d)) is not None]
    check_torch(name, items)
    if name in ("detach", "cast"):
        return  # their gradient is not the derivative, on purpose
    check_differences(name, items)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_in_f32(name: str) -> None:
    cases = SAMPLES[name].cases[1 : SAMPLES[name].typed]
    items = [w for c in cases if (w := weighted(name, c, f32)) is not None]
    if items:
        check_torch(name, items)


def check_differences(name: str, items: list[Weighted]) -> None:
    """All cases at once: each run moves one operand of every f64 case along a direction."""
    program, arrays = run_weighted(items)
    rng = np.random.default_rng(1)
    base = run(program, arrays)
    for operand in range(max(len(w.built.inputs) for w in items)):
        for _ in range(DIRECTIONS):
            moves = [_move(rng, w, operand) for w in items]
            up, down = (
                run(
                    program,
                    [
                        a
                        for w, m in zip(items, moves, strict=True)
                        for a in _moved(w, operand, m, sign)
                    ],
                )
                for sign in (STEP, -STEP)
            )
            _compare(items, operand, moves, base, up, down)


def _move(rng: np.random.Generator, item: Weighted, operand: int) -> np.ndarray | None:
    if item.built.type is not f64 or operand not in item.built.sources:
        return None
    return rng.standard_normal(item.built.arrays[operand].shape)


def _moved(item: Weighted, operand: int, move: np.ndarray | None, step: float) -> list[np.ndarray]:
    if move is None:
        return item.arrays
    arrays = list(item.arrays)
    arrays[operand] = np.asarray(arrays[operand] + step * move)
    return arrays


def _compare(
    items: list[Weighted], operand: int, moves: list, base: list, up: list, down: list
) -> None:
    at = 0
    for item, move in zip(items, moves, strict=True):
        if move is not None:
            gradient = base[at + 1 + item.built.sources.index(operand)]
            with np.errstate(invalid="ignore"):
                slope = (up[at] - down[at]) / (2 * STEP)
                actual = np.sum(np.where(move == 0, 0, gradient * move))
            scale = 1 + abs(base[at]) + np.sum(np.abs(gradient))
            title = f"{item.built.title}: operand {operand}"
            registered = np.isfinite(slope) and np.isfinite(actual)
            assert not registered or abs(slope - actual) <= 1e-6 * scale, (
                f"{title}: {actual} for {slope}"
            )
        at += 1 + len(item.grads)


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if SAMPLES[n].large])
def test_gradient_large(name: str) -> None:
    """Gradients in kernels that are cut into tiles."""
    cases = SAMPLES[name].large[:1]
    check_torch(name, [w for c in cases if (w := weighted(name, c, f32)) is not None])
