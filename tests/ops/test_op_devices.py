"""Every row on a device, forward and backward: simulated in `make test`, real in `make test-gpu`.

The results are held to the same references and the same tolerances as those of the CPU, but where
`ROUNDS` says that a device rounds more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from op_cases import Built, Case, build
from op_programs import run_all
from op_reference import check, reference
from op_samples import SAMPLES
from test_op_forward import Typed, build_all, split_types
from test_op_gradient import DIFFERENTIABLE, check_torch, weighted

from nova.core.dtypes import DType, f32, f64

# Cases that every test run looks at in f32; the others are for `make nightly`.
FEW = 4
# On a device attention in f16 and bf16 is a product, a softmax and a product, each rounded.
ROUNDS = {"attention_gradient": 6, "scaled_dot_product_attention": 4}


def check_all(name: str, built: list[Built], options: dict[str, Any]) -> None:
    sample = SAMPLES[name]
    rounds = max(sample.rounds, ROUNDS.get(name, 1))
    for b, results in zip(built, run_all(built, **options), strict=True):
        for actual, want in zip(results, reference(sample, b), strict=True):
            check(actual, want, b.title, rounds=rounds)


def split_cases(name: str) -> tuple[Typed, Typed]:
    """The first case in every type with a few in f32, and the others."""
    sample = SAMPLES[name]
    first, more = split_types(name, sample)
    early = {id(c) for c in sample.cases[:FEW]}
    few = [(c, d) for c, d in first if d != f32 or id(c) in early]
    return few, [(c, d) for c, d in first if d == f32 and id(c) not in early] + more


@pytest.mark.parametrize("name", SAMPLES)
def test_forward(name: str, on_device: dict[str, Any]) -> None:
    few, _ = split_cases(name)
    check_all(name, build_all(name, few), on_device)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SAMPLES if split_cases(n)[1]])
def test_forward_of_more_cases(name: str, on_device: dict[str, Any]) -> None:
    _, others = split_cases(name)
    check_all(name, build_all(name, others), on_device)


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.large])
def test_forward_large(name: str, on_device: dict[str, Any]) -> None:
    check_all(name, [build(name, c, f32) for c in SAMPLES[name].large], on_device)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient(name: str, on_device: dict[str, Any]) -> None:
    cases: tuple[Case, ...] = SAMPLES[name].cases
    check_gradients(name, [(cases[0], f64), *((c, f32) for c in cases[:FEW])], on_device)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if len(SAMPLES[n].cases) > FEW])
def test_gradient_of_more_cases(name: str, on_device: dict[str, Any]) -> None:
    check_gradients(name, [(c, f32) for c in SAMPLES[name].cases[FEW:]], on_device)


def check_gradients(
    name: str, pairs: Sequence[tuple[Case, DType]], options: dict[str, Any]
) -> None:
    items = [w for c, d in pairs if (w := weighted(name, c, d)) is not None]
    check_torch(name, items, **options)
