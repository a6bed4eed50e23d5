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
from test_op_forward import builds
from test_op_gradient import DIFFERENTIABLE, check_torch, weighted

from nova.core.dtypes import DType, f32, f64

# Cases whose gradients every test run looks at; the others are for `make nightly`.
FEW = 4
# On a device attention in f16 and bf16 is a product, a softmax and a product, each rounded.
ROUNDS = {"attention_gradient": 6, "scaled_dot_product_attention": 4}


def check_all(name: str, built: list[Built], options: dict[str, Any]) -> None:
    sample = SAMPLES[name]
    rounds = max(sample.rounds, ROUNDS.get(name, 1))
    for b, results in zip(built, run_all(built, **options), strict=True):
        for actual, want in zip(results, reference(sample, b), strict=True):
            check(actual, want, b.title, rounds=rounds)


@pytest.mark.parametrize("name", SAMPLES)
def test_forward(name: str, on_device: dict[str, Any]) -> None:
    check_all(name, builds(name, SAMPLES[name]), on_device)


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
