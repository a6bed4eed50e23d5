"""Processors by LLVM's names: what LLVM says of them, and what code for them may use."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

import nova
from nova.artifact.format import read_artifact
from nova.compiler.cpu.cpu_probe import Caller, known_names, probe, processors
from nova.compiler.driver import build
from nova.core.cpu_features import BASES, FLAGS, UNPROBED
from nova.core.cpus import PROCESSORS, processor_features
from nova.core.settings import Settings
from nova.core.targets import NAMES, llvm_cpu, parse_target
from nova.errors import ArtifactError, TargetError
from nova.plan import build_plan

ISSUED = (
    *("haswell", "skylake-avx512", "icelake-server", "sapphirerapids", "znver2", "znver4"),
    *("znver5", "neoverse-n1", "neoverse-v2", "apple-m1", "diamondrapids", "novalake", "bdver2"),
)
ALL = [(arch, name) for arch, table in PROCESSORS.items() for name in table]


@functools.cache
def instructions(arch: str) -> tuple[str, ...]:
    """LLVM's features that can be asked for by inlining: the baseline lacks them."""
    names = known_names(arch)[1]
    [base] = probe(arch, [Caller(BASES[arch])], names)
    return tuple(name for name in names if name not in base)


def issued(arch: str) -> list[str]:
    return [name for name in ISSUED if name in PROCESSORS[arch]]


@pytest.mark.slow
@pytest.mark.parametrize("arch", PROCESSORS)
def test_the_table_is_what_llvm_says(arch):
    table = {name: set(processor_features(arch, name)) for name in PROCESSORS[arch]}
    reported = {name: set(features) for name, features in processors(arch).items()}
    assert table == reported, "run python -m nova.compiler.cpu.cpu_probe"


WITH_AN_EXIT_HANDLER = """
import ctypes, os, time
from nova.compiler.cpu.cpu_probe import usable
process = os.getpid()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def handler(_):
    if os.getpid() != process:
        time.sleep(60)
ctypes.CDLL(None).__cxa_atexit(handler, None, None)
print(usable("x86_64", ["i386", "haswell"]))
"""


def test_exit_handlers_of_other_libraries_do_not_run_in_forks():
    """LLVM ends the process that asks it for 64-bit code of an i386."""
    completed = subprocess.run(
        [sys.executable, "-c", WITH_AN_EXIT_HANDLER], capture_output=True, text=True, timeout=30
    )
    assert completed.stdout == "['haswell']\n", completed.stderr


@pytest.mark.parametrize("arch", PROCESSORS)
def test_rows_of_the_table_are_what_llvm_says(arch):
    assert set(PROCESSORS[arch]) <= set(known_names(arch)[0])
    names = issued(arch)
    requested = [feature for feature in FLAGS[arch] if feature not in UNPROBED]
    for name, reported in zip(names, probe(arch, list(map(Caller, names)), requested), strict=True):
        assert processor_features(arch, name) - set(UNPROBED) == reported, name


@pytest.mark.parametrize("name", ISSUED)
def test_llvm_names_are_targets(name):
    target = parse_target(name)
    assert target.name == target.cpu == llvm_cpu(target) == name
    assert target.vector_bits in (128, 256, 512)


def test_wide_vectors_and_tiles_follow_from_the_table():
    bits = {n: parse_target(n).vector_bits for n in ("nehalem", "bdver2", "znver3", "znver5")}
    assert bits == {"nehalem": 128, "bdver2": 128, "znver3": 256, "znver5": 512}
    assert parse_target("sapphirerapids").has_bf16_tiles
    assert not parse_target("znver4").has_bf16_tiles
    assert parse_target("znver4").has_fast_bf16_dot
    assert not parse_target("cooperlake").has_fast_bf16_dot
    assert parse_target("apple-m1").arch == "aarch64"


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("arch", PROCESSORS)
def test_code_uses_what_is_listed_and_nothing_else(arch, every):
    """Of all features that LLVM knows, the code of a target may use those that its files list.

    diamondrapids and novalake have APX, bdver2 has FMA4 and XOP: Nova's loader knows none of them.
    """
    chosen = PROCESSORS[arch] if every else issued(arch)
    names = [n for n in (*NAMES, *chosen) if parse_target(n).arch == arch]
    targets = [parse_target(name) for name in names]
    callers = [Caller(t.llvm_base(), t.llvm_features()) for t in targets]
    requested = instructions(arch)
    for target, has in zip(targets, probe(arch, callers, requested), strict=True):
        # Those of the baseline were not asked for.
        assert has == set(target.features) - set(UNPROBED) - {"neon"}, target.name


def test_features_of_the_loader_are_those_of_the_table():
    registered = {f for table in FLAGS.values() for f in table}
    assert all(processor_features(arch, name) <= registered for arch, name in ALL)


@pytest.mark.parametrize("name", ["diamondrapids", "novalake", "bdver2", "haswell"])
def test_a_file_lists_what_its_code_needs(name):
    """A loader refuses the file where a listed feature is missing; nothing else is in its code."""
    x = nova.tensor(np.linspace(-1, 1, 67, dtype="f4"), name="x")
    program = build(build_plan([nova.exp(x) * x + 1], [x], []), Settings(target=name), {})
    artifact = read_artifact(program.data)
    [variant] = artifact.manifest.variants
    assert variant.target == name and variant.cpu == name
    assert set(variant.features) == set(processor_features("x86_64", name))
    local = set(parse_target("cpu").features)
    compiled = functools.partial(nova.compile, nova.exp(x) * x + 1, inputs=[x], target=name)
    if set(variant.features) <= local:
        np.testing.assert_allclose(compiled().run([x.data]), np.exp(x.data) * x.data + 1, rtol=1e-6)
    elif parse_target("cpu").arch == "x86_64":
        with pytest.raises(ArtifactError, match="cpu-features"):
            compiled()


@pytest.mark.parametrize(
    "text, meant",
    [
        ("haswel", "haswell"),
        ("Haswell", "haswell"),
        ("zen4", "znver4"),
        ("neoverse_n1", "neoverse-n1"),
        ("apple-m11", "apple-m1"),
        ("sapphire-rapids", "sapphirerapids"),
        ("x86-64-v2", "x86_64-v2"),
    ],
)
def test_unknown_names_say_what_was_meant(text, meant):
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    assert f"did you mean {meant!r}" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["i686", "pentium4", "generic", "help", "prescott"])
def test_names_without_64_bit_code_are_refused(name):
    with pytest.raises(TargetError, match="unknown target"):
        parse_target(name)
