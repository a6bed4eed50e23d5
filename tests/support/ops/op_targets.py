"""Cases of every row for code of many processors, in programs of many cases each.

`choose` gives what `test_op_targets.py` compiles: every row in every type that it has, as a scalar,
of one element, odd and large.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import prod

from op_cases import Built, Case, Sample, build, varies
from op_programs import interpret, run_all
from op_reference import check
from op_samples import SAMPLES
from processors import runs_here

from nova.compiler.driver import build as compile_plan
from nova.core.dtypes import DType, f32
from nova.core.settings import Settings
from nova.plan import build_plan

TARGETS = (
    *("x86_64", "x86_64-v2", "x86_64-v3", "x86_64-v4", "haswell", "skylake-avx512"),
    *("icelake-server", "sapphirerapids", "znver2", "znver4", "znver5", "aarch64"),
    *("neoverse-n1", "neoverse-v2", "apple-m1"),
)
Chosen = tuple[str, Case, DType]


def sizes(sample: Sample) -> list[Case]:
    """A case of each kind of size: none, one and several elements, an odd number, a large one."""
    modes: dict[str, Case] = {}
    for case in (*sample.cases, *sample.large[:1]):
        largest = max((d.shape for d in case.operands), key=prod, default=())
        count = prod(largest)
        mode = (
            "scalar"
            if not largest
            else "one"
            if count == 1
            else "large"
            if case in sample.large
            else "odd"
            if count % 8
            else "other"
        )
        if count:
            modes.setdefault(mode, case)
    return list(modes.values())


def every_case() -> Iterator[Chosen]:
    """All that the sweep compiles for each target."""
    for name, sample in SAMPLES.items():
        cases = sizes(sample)
        fixed = not any(any(varies(name, c)) for c in sample.cases)
        for type_ in (f32,) if fixed else sample.dtypes:
            for case in cases:
                yield name, case, type_


def sampled(target: str, count: int) -> list[Chosen]:
    """Some of the cases, always the same ones for a target."""
    return random.Random(f"ops for {target}").sample(list(every_case()), count)


def check_target(target: str, chosen: Sequence[Chosen]) -> None:
    """Compile cases in one program. What this machine can run is run, against the interpreter.

    A function that no object has is an error of the linker.
    """
    built = [build(*single) for single in chosen]
    if runs_here(target):
        for b, results in zip(built, run_all(built, target=target), strict=True):
            compare(b, results)
        return
    inputs = [t for b in built for t in b.inputs]
    outputs = [t for b in built for t in b.outputs]
    compile_plan(build_plan(outputs, inputs, []), Settings(target=target), {})


def compare(built: Built, results: Sequence[object]) -> None:
    rounds = SAMPLES[built.name].rounds
    for actual, private in zip(results, interpret(built), strict=True):
        check(actual, private, f"{built.title} against the interpreter", rounds=rounds)
