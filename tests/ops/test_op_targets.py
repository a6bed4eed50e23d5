"""Code of every row for processors of all kinds: complete, and right where this machine can run it.

LLVM calls a library where a processor has no instruction, and which instructions it wants depends
on the processor, the type and the number of elements. Every run goes through a sample, `make
nightly` through all. Rows are compiled together, a few dozen kernels to a program.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from c_build import runtime_sources
from op_cases import build
from op_programs import interpret
from op_reference import check
from op_samples import SAMPLES
from op_targets import TARGETS, check_target, every_case, sampled
from processors import runs_here

from nova.artifact.elf.runtime_object import runtime_object
from nova.compiler.driver import build as compile_plan
from nova.core.dtypes import bf16, bool_, f16, i64
from nova.core.settings import Settings
from nova.graph import FUNCTIONS
from nova.graph.tensor import placeholder
from nova.plan import build_plan

ROOT = Path(__file__).parents[2]
TOGETHER = 60
PARTS = 12
# Ops of one operand without attributes that give an f16: any two can follow each other.
HALVES = [
    name
    for name, sample in SAMPLES.items()
    if f16 in sample.dtypes
    and bool_ in sample.dtypes
    and len(sample.cases[0].operands) == 1
    and not sample.cases[0].attrs
    and sample.cases[0].operands[0].shape == (67,)
    and build(name, sample.cases[0], f16).outputs[0].type.dtype is f16
]
# The ends of the chain of instructions for halves: none, conversions, and arithmetic.
PAIR_TARGETS = ("x86_64", "x86_64-v3", "znver4", "sapphirerapids", "neoverse-n1", "aarch64")


@pytest.fixture
def without_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files for other architectures get no C runtime here: it would be compiled first."""
    for module in ("nova.compiler.cpu.backend", "nova.compiler.driver"):
        monkeypatch.setattr(
            f"{module}.runtime_object",
            lambda arch: runtime_object(arch) if arch == os.uname().machine else None,
        )


@pytest.mark.usefixtures("without_runtime")
@pytest.mark.parametrize("target", TARGETS)
def test_sample_of_all_ops(target: str) -> None:
    check_target(target, sampled(target, 30))


@pytest.mark.slow
@pytest.mark.usefixtures("without_runtime")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS)
def test_all_ops(target: str, part: int) -> None:
    chosen = list(every_case())[part::PARTS]
    for start in range(0, len(chosen), TOGETHER):
        check_target(target, chosen[start : start + TOGETHER])


def check_pairs(target: str, pairs: list[tuple[str, str]]) -> None:
    """Two f16 ops in one kernel: LLVM merges the conversions between them."""
    outputs, inputs = [], []
    for shape, (first, second) in product(((), (67,)), pairs):
        x = placeholder(shape, f16)
        inputs.append(x)
        outputs.append(FUNCTIONS[second](FUNCTIONS[first](x)))
    compile_plan(build_plan(outputs, inputs, []), Settings(target=target), {})


@pytest.mark.usefixtures("without_runtime")
@pytest.mark.parametrize("target", PAIR_TARGETS)
def test_sample_of_pairs_of_halves(target: str) -> None:
    pairs = random.Random(f"pairs for {target}").sample(list(product(HALVES, HALVES)), 8)
    check_pairs(target, [("asinh", "tanh"), *pairs])


@pytest.mark.slow
@pytest.mark.usefixtures("without_runtime")
@pytest.mark.parametrize("first", HALVES)
@pytest.mark.parametrize("target", PAIR_TARGETS)
def test_pairs_of_halves(target: str, first: str) -> None:
    check_pairs(target, [(first, second) for second in HALVES])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["aarch64", "neoverse-n1", "neoverse-v2", "apple-m1"])
def test_results_on_an_emulated_processor(target: str, emulated: list[str], tmp_path: Path) -> None:
    """Numbers of AArch64 code, with instructions for halves and without."""
    chosen = [single for single in sampled(target, 150) if single[2] in (f16, bf16, i64)]
    chosen += sampled(f"{target} in any type", 40)
    built = [build(*single) for single in chosen if "seed" not in str(single[1])]
    inputs = [t for b in built for t in b.inputs]
    outputs = [t for b in built for t in b.outputs]
    file = tmp_path / "model.nova"
    file.write_bytes(
        compile_plan(build_plan(outputs, inputs, []), Settings(target=target), {}).data
    )
    values = b"".join(a.tobytes() for b in built for a in b.arrays)
    completed = subprocess.run(
        [*emulated, str(file)], input=values, capture_output=True, timeout=300
    )
    assert completed.returncode == 0, completed.stderr
    at = 0
    for b in built:
        for private in interpret(b):
            actual = np.frombuffer(completed.stdout, private.dtype, private.size, at).reshape(
                private.shape
            )
            at += private.nbytes
            check(actual, private, f"{b.title} for {target}", rounds=SAMPLES[b.name].rounds)
    assert at == len(completed.stdout)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs a file for AArch64 with values from stdin."""
    gcc = shutil.which("aarch64-linux-gnu-gcc")
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if gcc is None or qemu is None:
        pytest.skip("gcc-aarch64-linux-gnu and qemu-user are not both installed: see the README")
    program = tmp_path_factory.mktemp("aarch64") / "run_file"
    native = ROOT / "native"
    sources = runtime_sources(without=("enclosing_file.c", "ciface.c"))
    include = ["-I", str(native / "include"), "-I", str(native / "src")]
    inputs = [str(native / "tests/api/run_file.c"), *map(str, sources)]
    subprocess.run([gcc, "-std=c11", "-O1", *include, "-o", program, *inputs, "-ldl"], check=True)
    return [qemu, "-cpu", "max", "-L", "/usr/aarch64-linux-gnu", str(program)]


def test_what_runs_here_is_run() -> None:
    """At least the baseline of this machine's own architecture."""
    assert any(runs_here(target) for target in TARGETS)
