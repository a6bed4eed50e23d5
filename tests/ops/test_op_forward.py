"""Every row forward: compiled code against the numpy interpreter and against torch or numpy.

The first case of a sample runs in every type of the op, all cases in f32, and the large ones, whose
kernels are cut into tiles, in f32; `make nightly` runs more cases in every type, and all in f64.
"""

from __future__ import annotations

import pytest
from op_cases import Built, Case, Sample, build, varies
from op_programs import interpret, run_all
from op_reference import check, reference
from op_samples import SAMPLES

from nova.core.dtypes import DType, f32, f64

Typed = list[tuple[Case, DType]]


def split_types(name: str, sample: Sample) -> tuple[Typed, Typed]:
    """The first case in every type and all in f32; and the other cases that have every type."""
    if not any(any(varies(name, c)) for c in sample.cases):
        return [(c, f32) for c in sample.cases], []
    # A sample that asks for many cases in every type, such as that of `cast`, is about types.
    often = min(1, sample.typed) if sample.typed <= 3 else sample.typed
    first: Typed = []
    more: Typed = []
    for d in sample.dtypes:
        for i, c in enumerate(sample.cases):
            if d == f32 or i < (sample.typed if d == sample.usual else often):
                first.append((c, d))
            elif i < sample.typed:
                more.append((c, d))
    return first, more


def build_all(name: str, pairs: Typed) -> list[Built]:
    return [build(name, c, d) for c, d in pairs]


def check_all(sample: Sample, built: list[Built]) -> None:
    for b, results in zip(built, run_all(built), strict=True):
        expected, oracle = reference(sample, b), interpret(b)
        for actual, want, private in zip(results, expected, oracle, strict=True):
            check(private, want, f"the numpy column of {b.title}", rounds=sample.rounds)
            check(actual, want, b.title, rounds=sample.rounds)
            check(actual, private, f"{b.title} against the interpreter", rounds=sample.rounds)


@pytest.mark.parametrize("name", SAMPLES)
def test_forward(name: str) -> None:
    first, _ = split_types(name, SAMPLES[name])
    check_all(SAMPLES[name], build_all(name, first))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if split_types(n, s)[1]])
def test_forward_in_more_types(name: str) -> None:
    _, more = split_types(name, SAMPLES[name])
    check_all(SAMPLES[name], build_all(name, more))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n, s in SAMPLES.items() if f64 in s.dtypes and len(s.cases) > s.typed]
)
def test_forward_in_f64(name: str) -> None:
    cases = SAMPLES[name].cases[SAMPLES[name].typed :]
    check_all(SAMPLES[name], [build(name, c, f64) for c in cases])


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.large])
def test_forward_large(name: str) -> None:
    check_all(SAMPLES[name], [build(name, c, f32) for c in SAMPLES[name].large])
