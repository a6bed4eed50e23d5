"""Several code variants in one file: which one runs, why, and what a CPU that fits none is told."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import nova
from nova import _native
from nova.artifact.format import Artifact, read_artifact
from nova.artifact.write import FileSpec, Variant, write_artifact
from nova.compiler.driver import build
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import ArtifactError
from nova.plan import build_plan
from nova.runtime.executor import Executable

x = np.linspace(-2, 2, 12, dtype="f4").reshape(4, 3)
w = np.linspace(0, 1, 6, dtype="f4").reshape(3, 2)

pytestmark = pytest.mark.skipif(
    parse_target("cpu").arch != "x86_64", reason="the variants are for x86-64"
)


@pytest.fixture(scope="module")
def built() -> dict[str, FileSpec]:
    X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
    steps = np.arange(2, dtype="f4")
    plan = build_plan([nova.tanh(X @ W) * 2 + steps], [X], [W])
    names = ("x86_64", "x86_64-v3", "cpu")
    return {name: build(plan, Settings(target=name), {}).contents for name in names}


def file_of(contents: FileSpec, *variants: Variant) -> Artifact:
    return read_artifact(write_artifact(dataclasses.replace(contents, variants=variants)))


def impossible(variant: Variant, name: str) -> Variant:
    """The same code, said to need what no CPU has, and vectors wider than any."""
    features = (*variant.target.features, "zzz-dreams")
    target = dataclasses.replace(variant.target, name=name, features=features, vector_bits=1024)
    return dataclasses.replace(variant, target=target)


@pytest.fixture(scope="module")
def wanted(built: dict[str, FileSpec]) -> np.ndarray:
    return Executable(read_artifact(write_artifact(built["x86_64"]))).program.run([x], [w])


def test_the_best_that_fits_runs(built, wanted):
    variants = [built[name].variants[0] for name in ("x86_64", "cpu")]
    executable = Executable(file_of(built["x86_64"], *variants))
    assert executable.spec.target == "cpu"
    assert executable.why == "cpu of cpu, x86_64"
    assert [k.symbol for k in executable.tables.kernels] == ["kernel_0.cpu"]
    assert np.allclose(executable.program.run([x], [w]), wanted, rtol=1e-5)


@pytest.mark.parametrize("number", [0, 1])
def test_every_variant_gives_the_result(number, built, wanted):
    """Each runs from its own tables and code, and from the constants that both share."""
    variants = [built[name].variants[0] for name in ("x86_64", "x86_64-v3")]
    artifact = file_of(built["x86_64"], *variants)
    first, second = artifact.manifest.variants
    assert first.constants == second.constants
    if artifact.file.missing(number):
        pytest.skip(f"this CPU lacks {artifact.file.missing(number)}")
    program = _native.Program(
        artifact.file.load(number),
        artifact.file.tables(number),
        artifact.file.constants_vaddr(number),
        [(spec.shape, np.dtype("f4"), False) for spec in artifact.manifest.args],
        [(spec.shape, np.dtype("f4"), -1) for spec in artifact.manifest.outputs],
        lambda *_: pytest.fail("the arrays need no conversion"),
        False,
    )
    assert np.allclose(program.run([x], [w]), wanted, rtol=1e-5)


def test_a_better_one_that_does_not_fit_is_passed_over(built, wanted, capfd):
    (plain,) = built["x86_64"].variants
    artifact = file_of(built["x86_64"], plain, impossible(plain, "tomorrow"))
    with nova.knobs.override(log="load"):
        executable = Executable(artifact)
    line = "x86_64 of tomorrow, x86_64; tomorrow needs zzz-dreams"
    assert executable.why == line
    assert f"[load] {line}\n" in capfd.readouterr().err
    assert executable.program.run([x], [w]).tobytes() == wanted.tobytes()


def test_none_fits(built):
    (plain,) = built["x86_64"].variants
    artifact = file_of(built["x86_64"], impossible(plain, "a"), impossible(plain, "b"))
    with pytest.raises(ArtifactError, match=r"(?s)'cpu-features'.*zzz-dreams.*hint: compile it"):
        Executable(artifact)
    for number in range(2):
        with pytest.raises(_native.FileError, match="zzz-dreams"):
            artifact.file.load(number)


def test_code_for_another_machine(built):
    """A file for the other architecture opens and can be looked at; it does not run."""
    X = nova.tensor(x, name="X")
    plan = build_plan([nova.tanh(X)], [X], [])
    artifact = read_artifact(build(plan, Settings(target="aarch64"), {}).data)
    assert artifact.manifest.arch == "aarch64"
    assert artifact.tables(0).kernels[0].symbol in artifact.file.symbols
    with pytest.raises(ArtifactError, match="aarch64"):
        Executable(artifact)
