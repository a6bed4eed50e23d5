"""`nova.load`: what a loaded program shows, what it costs, and files without code for this CPU."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.api import compiled
from nova.api import load as loading
from nova.artifact.write import write_artifact
from nova.compiler.driver import build
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import ArtifactError, DeviceArchitectureError, DeviceError, RecompileWarning
from nova.runtime.model import Model

ROOT = Path(__file__).parents[2]
A = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)
FOREIGN = "aarch64" if parse_target("cpu").arch == "x86_64" else "x86_64"


def make_program() -> nova.Compiled:
    x = nova.tensor(A, name="x")
    w = nova.tensor(np.full((3, 4), 0.25, "f4"), name="w")
    step = nova.tensor(np.zeros((), "i8"), name="step")
    y = nova.tanh(x @ w)
    return nova.compile([y, y.sum()], inputs=[x], params=[w, step], updates={step: step + 1})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    created = tmp_path / "model.nova"
    make_program().save(created, weights="embed")
    return created


# --- what it shows --------------------------------------------------------------------------------


def test_the_signature(path: Path) -> None:
    model, program = nova.load(path), make_program()
    assert model.signature == program.signature
    assert str(model.signature).splitlines() == [
        "input   x     f32[2,3]",
        "param   w     f32[3,4]",
        "param   step  i64[]  updated in place",
        "output  y0    f32[2,4]",
        "output  y1    f32[]",
    ]
    first, last = model.signature.inputs[0], model.signature.params[1]
    assert (first.name, first.shape, first.dtype, first.role) == ("x", (2, 3), "f32", "input")
    assert last.donated and not first.donated
    assert [a.name for a in model.signature.arguments] == ["x", "w", "step"]
    assert [str(a.type) for a in model.signature.outputs] == ["f32[2,4]", "f32[]"]
    assert str(nova.compile([], inputs=[]).signature) == ""


def test_looking_inside(path: Path) -> None:
    model, program = nova.load(path), make_program()
    assert isinstance(model, Model) and isinstance(model, nova.Compiled)
    assert model.origin == "file" and model.name == "model.nova"
    assert model.target == program.target and model.why.startswith(model.target)
    assert "\n" not in model.why
    assert model.kernels == program.kernels and len(model.kernels) >= 1
    assert model.workspace_size == program.workspace_size
    assert model.stages == program.stages and model.mlir_source == program.mlir_source
    assert model.plan == program.plan and model.metrics == {}
    assert repr(model).startswith("<Compiled (x: f32[2,3], w: f32[3,4], step: i64[]) -> (f32[2,4]")
    assert repr(model).endswith(", file>")


def test_the_variant_is_logged(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with nova.knobs.override(log="load"):
        model = nova.load(path)
    assert f"[load] {model.why}\n" in capsys.readouterr().err


def test_a_file_without_code_for_devices(path: Path) -> None:
    with pytest.raises(DeviceArchitectureError, match=r"no PTX[\s\S]*such as cuda:sm_80"):
        nova.load(path, device="sim")
    with pytest.raises(DeviceError, match="device 'tpu' is not known"):
        nova.load(path, device="tpu")
    assert nova.load(path, device="cpu") is not None


def test_a_checked_run_of_a_loaded_program(path: Path) -> None:
    with nova.knobs.override(check="1"):
        model = nova.load(path)
        actual, _ = model.forward(A)
    want, _ = make_program().forward(A)
    np.testing.assert_array_equal(actual, want)
    assert model.params["step"] == 1


def test_a_program_in_a_cycle_is_collected(path: Path) -> None:
    """The collector must not take the file's views away before the program that uses them."""
    model = nova.load(path)
    views = model.params
    want, _ = model.forward(A)
    model._itself = model  # type: ignore[attr-defined]
    removed = weakref.ref(model)
    del model
    gc.collect()
    assert removed() is None
    np.testing.assert_allclose(np.tanh(A @ views["w"]), want, rtol=1e-5)


# --- what it costs --------------------------------------------------------------------------------


def test_loading_parses_no_plan_and_unpacks_no_text(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("not needed to run")

    monkeypatch.setattr(compiled, "parse_plan", forbidden)
    monkeypatch.setattr("nova.artifact.format.unpack_texts", forbidden)
    monkeypatch.setattr("nova.artifact.format.unpack_tables", forbidden)
    assert len(nova.load(path).forward(A)) == 2


def test_loading_imports_no_compiler(path: Path) -> None:
    code = """
import sys, numpy as np, nova
model = nova.load(sys.argv[1])
model.forward(np.zeros((2, 3), "f4"))
print(sorted({n.split(".")[0] for n in sys.modules} & {"torch_mlir", "llvmlite", "cryptography"}))
"""
    completed = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == "[]"


# --- several variants ---------------------------------------------------------------------------


def write_variants(path: Path, *needs: str) -> None:
    """The program with a variant for each of `needs`: a feature that it claims, or "" for none."""
    contents = build(make_program().plan, Settings(), {}).contents
    (variant,) = contents.variants
    target = variant.target
    variants = [
        replace(variant, target=replace(target, name=f"made-up{i}", features=features))
        for i, need in enumerate(needs)
        for features in [tuple(sorted({*target.features, need} - {""}))]
    ]
    path.write_bytes(write_artifact(replace(contents, variants=tuple(variants))))


def test_the_best_variant_that_fits_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "several.nova"
    write_variants(path, "", "no-such-feature")
    model = nova.load(path)
    assert model.target == "made-up0"
    assert model.why == ("made-up0 of made-up1, made-up0; made-up1 needs no-such-feature")
    w, step = np.full((3, 4), 0.25, "f4"), np.zeros((), "i8")
    np.testing.assert_array_equal(model(A, w, step)[0], make_program()(A, w, step)[0])


def test_features_that_no_cpu_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "several.nova"
    write_variants(path, "first-feature", "second-feature")
    monkeypatch.setattr(loading, "missing_packages", lambda: ["llvmlite"])
    with pytest.raises(ArtifactError, match="cpu-features") as caught:
        nova.load(path)
    assert "made-up0 needs first-feature" in caught.value.what
    assert "made-up1 needs second-feature" in caught.value.what
    assert "pip install llvmlite" in caught.value.hint


# --- code for another CPU -------------------------------------------------------------------------


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The program compiled for an architecture that this machine is not."""
    created = tmp_path / "foreign.nova"
    created.write_bytes(build(make_program().plan, Settings(target=FOREIGN), {}).data)
    return created


def test_a_file_without_code_for_this_cpu_is_compiled_again(
    foreign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    w, step = np.full((3, 4), 0.25, "f4"), np.zeros((), "i8")
    want, _ = make_program().run([A], [w.copy(), step.copy()])
    with (
        nova.knobs.override(log="load", cache_dir=tmp_path / "cache"),
        pytest.warns(RecompileWarning, match=f"no code for this CPU .{FOREIGN} needs"),
    ):
        model = nova.load(foreign)
    actual, _ = model.run([A], [w, step])
    np.testing.assert_array_equal(actual, want)
    assert step == 1 and model.origin in ("compiled", "memory")
    assert "compiling it again from its plan" in capsys.readouterr().err
    with pytest.warns(RecompileWarning):
        assert nova.load(foreign).origin == "memory"


def test_weights_survive_compiling_again(foreign: Path, tmp_path: Path) -> None:
    w = np.full((3, 4), 0.5, "f4")
    contents = build(make_program().plan, Settings(target=FOREIGN), {}).contents
    weights = {1: memoryview(w), 2: memoryview(np.array(5, "i8"))}
    foreign.write_bytes(write_artifact(replace(contents, weights=weights)))
    with pytest.warns(RecompileWarning):
        model = nova.load(foreign)
    model.forward(A)
    assert model.params["step"] == 6
    model.save(tmp_path / "here.nova")  # for this machine, with the weights it has now
    again = nova.load(tmp_path / "here.nova")
    assert again.params["step"] == 6
    np.testing.assert_array_equal(again.params["w"], w)


def test_without_a_compiler_the_error_says_what_is_missing(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "missing_packages", lambda: ["torch-mlir", "llvmlite"])
    with pytest.raises(ArtifactError, match="cpu-features") as caught:
        nova.load(foreign)
    assert f"{FOREIGN} needs" in caught.value.what and caught.value.where == str(foreign)
    assert re.match(r"pip install torch-mlir==\S+ llvmlite==\S+, and", caught.value.hint)


def test_what_counts_as_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.missing_packages() == []
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert compiled.missing_packages() == ["llvmlite"]
