"""`nova.translate` to files: several targets, another architecture, weights, signatures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.api import load as loading
from nova.api.compile import clear_memory_cache
from nova.artifact.elf import runtime_object
from nova.artifact.sign import make_key_pair
from nova.core.targets import parse_target
from nova.errors import (
    ArgumentNameError,
    ArgumentShapeError,
    ArtifactError,
    ImportedProgramError,
    PipelineError,
    RecompileWarning,
    TargetError,
    WeightsError,
)
from nova.frontends.safetensors import write_safetensors
from nova.runtime.model import Model
from nova.tools.nova import main as nova_main
from nova.tools.nova_translate import main as translate_main

HOST = parse_target("cpu")
FOREIGN = "aarch64" if HOST.arch == "x86_64" else "x86_64"
X86 = pytest.mark.skipif(HOST.arch != "x86_64", reason="compares variants of x86-64")
STABLEHLO = """
func.func @main(%x: tensor<5x7xf32> {nova.name = "x"}, %w: tensor<7x6xf32> {nova.name = "w"},
                %b: tensor<6xf32> {nova.name = "b"}) -> tensor<5x6xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<5x7xf32>, tensor<7x6xf32>) -> tensor<5x6xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<6xf32>) -> tensor<5x6xf32>
  %2 = stablehlo.add %0, %1 : tensor<5x6xf32>
  %3 = stablehlo.tanh %2 : tensor<5x6xf32>
  return %3 : tensor<5x6xf32>
}
"""
UPDATED = """
func.func @main(%x: tensor<4xf32> {nova.name = "x"},
                %n: tensor<i32> {nova.name = "n", tf.aliasing_output = 0 : i32})
    -> (tensor<i32>, tensor<4xf32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.add %n, %one : tensor<i32>
  %1 = stablehlo.add %x, %x : tensor<4xf32>
  return %0, %1 : tensor<i32>, tensor<4xf32>
}
"""
RNG = np.random.default_rng(0)
X, W = RNG.random((5, 7), "f4"), RNG.random((7, 6), "f4")
B = RNG.random(6, "f4")
WANTED = np.tanh(X @ W + B)


def dialect_text() -> str:
    x, w, b = (nova.tensor(a, name=n) for a, n in ((X, "x"), (W, "w"), (B, "b")))
    return nova.compile(nova.tanh(x @ w + b), inputs=[x, w, b]).mlir_source


def check(model: Model, *arrays: np.ndarray) -> None:
    np.testing.assert_allclose(model(*arrays), WANTED, rtol=2e-6)


# --- several targets ------------------------------------------------------------------------------


@X86
@pytest.mark.parametrize("order", [1, -1])
def test_the_best_of_several_targets_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], order: int
) -> None:
    path = tmp_path / "both.nova"
    created = nova.translate(STABLEHLO, targets=["x86_64-v3", "x86_64-v4", "x86_64"][::order])
    created.save(path)
    model = created.load()
    best = next(
        name
        for name in ("x86_64-v4", "x86_64-v3", "x86_64")
        if set(parse_target(name).features) <= set(HOST.features)
    )
    assert type(model) is Model and model.target == best
    assert model.why.startswith(f"{best} of x86_64-v4, x86_64-v3, x86_64")
    check(model, X, W, B)
    with nova.knobs.override(log="load"):
        check(nova.load(path), X, W, B)
    assert f"[load] {model.why}\n" in capsys.readouterr().err
    assert nova_main(["inspect", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["chosen"]["why"] == model.why and result["source"] == "linalg"
    assert [v["target"] for v in result["variants"]] == ["x86_64-v4", "x86_64-v3", "x86_64"]
    shared = ["stablehlo", "linalg", "kernels", "buffers"]
    assert result["stages"][:4] == shared and "ll@x86_64-v3" in result["stages"]
    assert list(created.stages) == result["stages"]


@X86
def test_every_variant_gives_the_result(tmp_path: Path) -> None:
    """Each target alone: what this CPU can run, runs; the rest is refused before it is mapped."""
    for name in ("x86_64", "x86_64-v3", "x86_64-v4"):
        created = nova.translate(STABLEHLO, targets=name)
        if set(parse_target(name).features) <= set(HOST.features):
            check(created.load(), X, W, B)
        else:
            with pytest.raises(ArtifactError, match=f"{name} needs"):
                created.load()


def test_the_same_input_gives_the_same_bytes() -> None:
    first, second = (nova.translate(STABLEHLO, targets=("x86_64-v3", "x86_64")) for _ in range(2))
    assert first.data == second.data


def test_the_number_of_threads_does_not_change_the_bytes() -> None:
    layers = "".join(
        f"  %w{i} = stablehlo.constant dense<0.5> : tensor<64x{64 + i}xf32>\n"
        f"  %p{i} = stablehlo.dot_general %x{i}, %w{i}, contracting_dims = [1] x [0]"
        f" : (tensor<64x64xf32>, tensor<64x{64 + i}xf32>) -> tensor<64x{64 + i}xf32>\n"
        f"  %x{i + 1} = stablehlo.slice %p{i} [0:64, 0:64]"
        f" : (tensor<64x{64 + i}xf32>) -> tensor<64x64xf32>\n"
        for i in range(7)
    )
    text = (
        "func.func @main(%x0: tensor<64x64xf32>) -> tensor<64x64xf32> {\n"
        f"{layers}  return %x7 : tensor<64x64xf32>\n}}"
    )
    created = []
    for threads in (1, 4):
        with nova.knobs.override(threads=threads):
            created.append(nova.translate(text, targets="x86_64-v3").data)
    assert created[0] == created[1]


def test_targets_of_one_file() -> None:
    with pytest.raises(TargetError, match="of one architecture: x86_64 is x86_64, aarch64 is"):
        nova.translate(STABLEHLO, targets=("x86_64", "aarch64"))
    with pytest.raises(PipelineError, match="asm is different for each target"):
        nova.translate(STABLEHLO, targets=("x86_64", "x86_64-v3"), emit="asm")


# --- another architecture -------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["stablehlo", "nova"])
def test_a_file_for_another_machine_opens_and_is_compiled_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "foreign.nova"
    created = nova.translate(STABLEHLO if text == "stablehlo" else dialect_text(), targets=FOREIGN)
    created.save(path)
    with pytest.raises(ArtifactError, match=f"{FOREIGN} needs a CPU of {FOREIGN}"):
        created.load()
    assert nova_main(["inspect", str(path)]) == 0
    assert f"nothing: {FOREIGN} needs" in capsys.readouterr().out
    source = "linalg" if text == "stablehlo" else "nova"
    with (
        nova.knobs.override(log="load,cache", cache_dir=tmp_path / "cache"),
        pytest.warns(RecompileWarning, match=f"compiled again from its {source}"),
    ):
        model = nova.load(path)
        check(model, X, W, B)
        clear_memory_cache()
        again = nova.load(path)
    assert (model.origin, again.origin) == ("compiled", "disk")
    assert model.target == "cpu" and [a.name for a in model.signature.inputs] == ["x", "w", "b"]
    assert f"compiling it again from its {source}" in capsys.readouterr().err
    check(again, X, W, B)


def test_updates_and_weights_survive_compiling_again(tmp_path: Path) -> None:
    path = tmp_path / "foreign.nova"
    created = nova.translate(UPDATED, targets=FOREIGN, weights={"n": np.array(5, "i4")})
    created.save(path)
    with pytest.warns(RecompileWarning):
        model = nova.load(path)
    count, doubled = model.forward(np.ones(4, "f4"))
    np.testing.assert_array_equal(doubled, np.full(4, 2))
    assert count == model.params["n"] == 6
    model.save(tmp_path / "here.nova")
    again = nova.load(tmp_path / "here.nova")
    again.forward(np.ones(4, "f4"))
    assert again.params["n"] == 7
    assert [a.name for a in again.signature.params] == ["n"]


def test_the_command_names_results_that_are_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nova.translate(UPDATED, weights={"n": np.array(5, "i4")}).save("model.nova")
    assert nova_main(["run", "model.nova", "--random", "--repeat", "3", "--out", "out"]) == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["y0.npy", "y1.npy"]
    assert np.load("out/y0.npy") == 6, "of the first run"


def test_without_text_or_compiler_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "foreign.nova"
    nova.translate(STABLEHLO, targets=FOREIGN).save(path)
    monkeypatch.setattr(loading, "missing_packages", lambda: ["torch-mlir"])
    with pytest.raises(ArtifactError, match="cpu-features") as caught:
        nova.load(path)
    assert "pip install torch-mlir" in caught.value.hint


def test_the_tool_says_that_there_is_no_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.mlir").write_text(STABLEHLO)
    output = f"files for {FOREIGN} have no C entry points: no compiler"
    monkeypatch.setattr(runtime_object, "_find", lambda arch: (None, output))
    assert translate_main(["in.mlir", "--target", FOREIGN, "-o", "out.nova"]) == 0
    assert capsys.readouterr().err == f"nova-translate: note: {output}\n"
    assert translate_main(["in.mlir", "--emit", "linalg", "-o", "out.mlir"]) == 0
    assert capsys.readouterr().err == ""


def test_files_for_this_machine_have_entry_points(tmp_path: Path) -> None:
    path = tmp_path / "here.nova"
    nova.translate(STABLEHLO).save(path)
    symbols = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    assert " T _mlir_ciface_main" in symbols and " T nova_open" in symbols


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["stablehlo", "nova"])
def test_arguments_with_values_become_params(tmp_path: Path, text: str) -> None:
    source = STABLEHLO if text == "stablehlo" else dialect_text()
    created = nova.translate(source, weights={"w": W, "b": B})
    model = created.load()
    assert [a.name for a in model.signature.inputs] == ["x"]
    assert [a.name for a in model.signature.params] == ["w", "b"]
    check(model, X)
    created.save(tmp_path / "model.nova")
    loaded = nova.load(tmp_path / "model.nova")
    np.testing.assert_allclose(loaded.forward(X), WANTED, rtol=2e-6)
    assert not loaded.params["w"].flags.writeable


def test_weights_in_the_middle_of_the_arguments(tmp_path: Path) -> None:
    """Params follow the inputs, in any order of the source."""
    write_safetensors(tmp_path / "w.safetensors", {"w": W})
    model = nova.translate(STABLEHLO, weights=tmp_path / "w.safetensors").load()
    assert [(a.name, a.role) for a in model.signature.arguments] == [
        ("x", "input"),
        ("b", "input"),
        ("w", "param"),
    ]
    np.testing.assert_allclose(model.run([X, B]), WANTED, rtol=2e-6)


def test_a_compiled_program_with_its_values() -> None:
    x, w = nova.tensor(X, name="x"), nova.tensor(W, name="w")
    program = nova.compile(x @ w, inputs=[x], params=[w])
    model = nova.translate(program, targets="x86_64", weights=program.params).load()
    np.testing.assert_allclose(model.forward(X), X @ W, rtol=2e-6)
    assert model.target == "x86_64"
    np.testing.assert_allclose(nova.translate(program).load().forward(X), X @ W, rtol=2e-6)
    with pytest.raises(WeightsError, match="no value for 'w'"):
        nova.translate(program.mlir_source).load().forward(X)


def test_values_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ArgumentNameError, match="no argument 'v'"):
        nova.translate(STABLEHLO, weights={"v": W})
    with pytest.raises(ArgumentShapeError, match=r"'w' has shape \(6, 7\)"):
        nova.translate(STABLEHLO, weights={"w": W.T})
    with pytest.raises(PipelineError, match="weights are kept in the file, and ll is requested"):
        nova.translate(STABLEHLO, weights={"w": W}, emit="ll")
    with pytest.raises(ArtifactError, match=r"gone\.safetensors"):
        nova.translate(STABLEHLO, weights=tmp_path / "gone.safetensors")


# --- the tool: signatures and weights -------------------------------------------------------------


def test_the_tool_signs_and_embeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.mlir").write_text(STABLEHLO)
    private, public = make_key_pair("key")
    write_safetensors("w.safetensors", {"w": W, "b": B})
    words = ["in.mlir", "-o", "out.nova", "--weights", "w.safetensors", "--sign", str(private)]
    assert translate_main(words) == 0
    with nova.knobs.override(trusted_keys=public):
        np.testing.assert_allclose(nova.load("out.nova").forward(X), WANTED, rtol=2e-6)
    created = nova.translate(STABLEHLO, weights="w.safetensors")
    assert created.sign(private).data == Path("out.nova").read_bytes()
    assert translate_main(["in.mlir", "-o", "no.nova", "--sign", "gone.pem"]) == 1
    assert "cannot read the key" in capsys.readouterr().err and not Path("no.nova").exists()
    assert translate_main(["in.mlir", "-o", "no.ll", "--emit", "ll", "--sign", str(private)]) == 1
    assert "only a .nova file is signed" in capsys.readouterr().err
    with pytest.raises(PipelineError, match="stopped at ll: there is no program to sign"):
        nova.translate(STABLEHLO, emit="ll").sign(private)


@pytest.mark.parametrize("mode", ["u1", "i1", "?", "f4"])
def test_a_later_stage_without_saying_so(mode: str) -> None:
    """Its types say less than the signature that it carries."""
    arguments = (np.arange(16).reshape(4, 4) * 13 % 256).astype(mode)
    x = nova.tensor(arguments, name="x")
    text = nova.compile(nova.flip(x, 0), inputs=[x]).stages["linalg"]
    model = nova.translate(text).load()
    assert model.run([arguments]).dtype == arguments.dtype
    np.testing.assert_array_equal(model.run([arguments]), arguments[::-1])
    if mode == "u1":
        for wrong in (text.replace('"u8"', '"f64"'), text.replace("i64: 4, 4", "i64: 4, 5")):
            with pytest.raises(ImportedProgramError, match=r"nova.signature does not say"):
                nova.translate(wrong)
