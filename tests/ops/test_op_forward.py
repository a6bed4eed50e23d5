"""Every row forward: compiled code against the numpy interpreter and against torch or numpy.

The first cases of a sample run in every type of the op, all cases in f32 (and in f64 by `make
nightly`), and the large ones, whose kernels are cut into tiles, in f32.
"""

from __future__ import annotations

import pytest
from op_cases import Built, Sample, build, varies
from op_programs import interpret, run_all
from op_reference import check, reference
from op_samples import SAMPLES

from nova.core.dtypes import f32, f64


def builds(name: str, sample: Sample) -> list[Built]:
    """The first cases in every type, all others in f32."""
    if not any(any(varies(name, c)) for c in sample.cases):
        return [build(name, c, f32) for c in sample.cases]
    return [
        build(name, c, d)
        for d in sample.dtypes
        for i, c in enumerate(sample.cases)
        if d == f32 or i < sample.typed
    ]


def check_all(sample: Sample, built: list[Built]) -> None:
    for b, results in zip(built, run_all(built), strict=True):
        expected, oracle = reference(sample, b), interpret(b)
        for actual, want, private in zip(results, expected, oracle, strict=True):
            check(private, want, f"the numpy column of {b.title}", rounds=sample.rounds)
            check(actual, want, b.title, rounds=sample.rounds)
            check(actual, private, f"{b.title} against the interpreter", rounds=sample.rounds)


@pytest.mark.parametrize("name", SAMPLES)
def test_forward(name: str) -> None:
    check_all(SAMPLES[name], builds(name, SAMPLES[name]))


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
