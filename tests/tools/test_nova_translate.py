"""nova-translate: what goes in and comes out, the stages, and messages with line and caret."""

# ruff: noqa: E501 (MLIR text)

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.artifact.format import load_artifact
from nova.errors import ArtifactError, ImportedProgramError, PipelineError, TargetError
from nova.runtime.executor import Executable
from nova.tools.nova_translate import main

PROGRAM = """func.func @main(%x: tensor<8x16xf32> {nova.name = "x"}, %w: tensor<16x4xf32>) -> tensor<8x4xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %1 = stablehlo.tanh %0 : tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}
"""
WRONG = PROGRAM.replace(
    "stablehlo.tanh %0 :", "stablehlo.custom_call @f(%0) : (tensor<8x4xf32>) ->"
)
X = np.linspace(-1, 1, 128, dtype="f4").reshape(8, 16)
W = np.linspace(-1, 1, 64, dtype="f4").reshape(16, 4)
STAGES = ["stablehlo", "linalg", "kernels", "buffers", "loops", "llvm", "ll"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    return path


def run_file(path: Path) -> np.ndarray:
    return Executable(load_artifact(path)).program(X, W)


def test_file_in_file_out(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "program.nova"
    assert main([str(source), "-o", str(target)]) == 0
    assert capfd.readouterr() == ("", "")
    np.testing.assert_allclose(run_file(target), np.tanh(X @ W), rtol=1e-6, atol=1e-6)
    names = [spec.name for spec in load_artifact(target).manifest.args]
    assert names == ["x", "arg1"]


def test_stdin_and_stdout(tmp_path: Path) -> None:
    """In a process of its own, as a shell runs it; `so` is the same file."""
    command = [sys.executable, "-m", "nova.tools.nova_translate", "-", "--emit", "so", "-o", "-"]
    completed = subprocess.run(command, input=PROGRAM.encode(), capture_output=True, check=True)
    assert completed.stderr == b""
    path = tmp_path / "out.nova"
    path.write_bytes(completed.stdout)
    np.testing.assert_allclose(run_file(path), np.tanh(X @ W), rtol=1e-6, atol=1e-6)
    assert completed.stdout == nova.translate(PROGRAM).data, "the same input gives the same bytes"


MARKS = {
    "linalg": r"linalg\.generic",
    "kernels": r"nova\.kernel",
    "buffers": r"memref<",
    "loops": r"scf\.for",
    "llvm": r"llvm\.func",
    "ll": r"define .*@kernel_0\(",
    "asm": r"kernel_0:",
}


@pytest.mark.parametrize("stage", MARKS)
def test_emit(source: Path, stage: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main([str(source), "--emit", stage, "--target", "x86_64-v3"]) == 0
    assert re.search(MARKS[stage], capfdbinary.readouterr().out.decode())


def test_emit_obj(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "program.o"
    assert main([str(source), "--emit", "obj", "--target", "x86_64", "-o", str(path)]) == 0
    data = path.read_bytes()
    assert data[:4] == b"\x7fELF" and data[16] == 1, "a relocatable object"
    assert int.from_bytes(data[18:20], "little") == 62 and b"kernel_0" in data


@pytest.mark.parametrize(("emit", "mark"), [("asm", b"fmla"), ("obj", b"\x7fELF")])
def test_cross_compiling(
    source: Path, emit: str, mark: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main([str(source), "--emit", emit, "--target", "aarch64"]) == 0
    out = capfdbinary.readouterr().out
    assert mark in out
    if emit == "obj":
        assert int.from_bytes(out[18:20], "little") == 183, "EM_AARCH64"


@pytest.mark.parametrize("stage", ["linalg", "kernels", "buffers", "loops"])
def test_starting_from_a_dumped_stage(source: Path, tmp_path: Path, stage: str) -> None:
    folder, first, second = tmp_path / "stages", tmp_path / "a.nova", tmp_path / "b.nova"
    assert main([str(source), "-o", str(first), "--dump-stages", str(folder)]) == 0
    files = {path.stem.partition("-")[2]: path for path in folder.iterdir()}
    assert list(files) == STAGES or sorted(files) == sorted(STAGES)
    assert main([str(files[stage]), "--start-from", stage, "-o", str(second)]) == 0
    a, b = load_artifact(first), load_artifact(second)
    assert a.stages()["ll"] == b.stages()["ll"]
    assert a.manifest.args == b.manifest.args and a.manifest.outputs == b.manifest.outputs
    np.testing.assert_array_equal(run_file(second), run_file(first))


def test_starting_from_llvm(source: Path, tmp_path: Path) -> None:
    folder, first = tmp_path / "stages", tmp_path / "a.nova"
    assert main([str(source), "-o", str(first), "--dump-stages", str(folder)]) == 0
    for stage, file in (("llvm", "5-llvm.mlir"), ("ll", "6-ll.ll")):
        translation = nova.translate(folder / file, start_from=stage, emit="asm")
        assert "kernel_0:" in translation.data.decode()
        with pytest.raises(PipelineError, match=f"the stage {stage} has kernels only"):
            nova.translate(folder / file, start_from=stage)


def test_u8_and_bool_survive_every_stage() -> None:
    text = """func.func @main(%m: tensor<4xi1>, %x: tensor<4xui8>) -> (tensor<4xui8>, tensor<4xi1>) {
  %c = stablehlo.constant dense<2> : tensor<4xui8>
  %0 = stablehlo.divide %x, %c : tensor<4xui8>
  %1 = stablehlo.select %m, %0, %x : tensor<4xi1>, tensor<4xui8>
  %2 = stablehlo.not %m : tensor<4xi1>
  return %1, %2 : tensor<4xui8>, tensor<4xi1>
}
"""
    full = nova.translate(text)
    mask, x = np.array([1, 0, 1, 0], "?"), np.array([200, 201, 5, 255], "u1")
    expected = np.where(mask, x // 2, x)
    for stage in ("linalg", "kernels", "buffers", "loops"):
        later = nova.translate(full.stages[stage], start_from=stage)
        assert later.signature == full.signature
        actual, flipped = later.load()(mask, x)
        np.testing.assert_array_equal(actual, expected)
        np.testing.assert_array_equal(flipped, ~mask)


def test_timing(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(source), "-o", str(tmp_path / "x.nova"), "--timing"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == [*STAGES, "object", "artifact", "total"]


def test_stages_before_a_failure_are_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "two_matmuls.mlir"
    source.write_text("""func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = stablehlo.dot %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = stablehlo.dot %0, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}""")
    folder, output = tmp_path / "stages", tmp_path / "x.nova"
    words = [str(source), "-o", str(output), "--timing", "--dump-stages"]
    with nova.knobs.override(max_workspace=1):  # which the stage buffers refuses
        assert main([*words, str(folder)]) == 1
        lines = capfd.readouterr().err.splitlines()
        # A folder that cannot be written does not hide why the stage failed.
        assert main([*words, "/dev/null/x"]) == 1
        message = capfd.readouterr().err
    assert [line.split()[-1] for line in lines[1:5]] == [*STAGES[:3], "total"]
    assert "max_workspace allows 1" in lines[5] and not output.exists()
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"{i}-{stage}.mlir" for i, stage in enumerate(STAGES[:3])]
    assert "max_workspace allows 1" in message and "could not be written" in message


def test_a_byte_order_mark_is_skipped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, output = tmp_path / "bom.mlir", tmp_path / "x.nova"
    path.write_text(PROGRAM, encoding="utf-8-sig")
    assert main([str(path), "-o", str(output)]) == 0
    np.testing.assert_allclose(run_file(output), np.tanh(X @ W), rtol=1e-5, atol=1e-6)
    assert nova.translate("\ufeff" + PROGRAM, emit="linalg").data
    path.write_text("func.func @main() { oops }", encoding="utf-8-sig")
    assert main([str(path), "-o", str(output)]) == 1
    first, line, caret = capfd.readouterr().err.splitlines()[:3]
    column = int(first.split(":")[2])
    assert line == "func.func @main() { oops }" and caret == " " * (column - 1) + "^"


def test_a_folder_is_no_output(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([str(source), "-o", str(tmp_path)]) == 1
    assert f"{tmp_path}: cannot write the file: it is a folder" in capfd.readouterr().err
    with pytest.raises(ArtifactError, match="Is a directory"):
        nova.translate(PROGRAM, emit="linalg").save(tmp_path)
    with pytest.raises(ImportedProgramError, match="no NUL character"):
        nova.translate("a\0b")


def test_the_input_is_no_output(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, link = source.read_text(), source.with_name("link.mlir")
    link.symlink_to(source)
    for output in (source, link):
        assert main([str(source), "-o", str(output)]) == 1
        assert "is the input, which would be lost" in capfd.readouterr().err
    assert source.read_text() == text


def test_several_targets_share_the_first_stages() -> None:
    """Stages that depend on the target are there for each of them."""
    from nova.compiler.driver import build_module
    from nova.compiler.recorder import Recorder
    from nova.core.settings import Settings
    from nova.frontends.import_mlir import import_program
    from nova.frontends.source import read_source

    imported = import_program(read_source(PROGRAM))
    recorder = Recorder()
    settings = [Settings(target="x86_64-v4"), Settings(target="x86_64")]
    codes = build_module(imported.module, settings, recorder, after="linalg")
    variants = [code.variant for code in codes]
    assert [v.target.name for v in variants] == ["x86_64-v4", "x86_64"]
    assert list(recorder.texts) == [
        "kernels",
        "buffers",
        *(f"{stage}@x86_64-v4" for stage in ("loops", "llvm", "ll")),
        *(f"{stage}@x86_64" for stage in ("loops", "llvm", "ll")),
    ]
    alone = nova.translate(PROGRAM, targets="x86_64")
    assert recorder.texts["ll@x86_64"] == alone.stages["ll"]
    assert all(v.objects and v.tables.launches for v in variants)


def test_messages_have_line_and_caret(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.mlir"
    path.write_text(WRONG)
    assert main([str(path), "-o", str(tmp_path / "x.nova")]) == 1
    first, line, caret = capfd.readouterr().err.splitlines()[:3]
    assert first.startswith(f"{path}:3:8: error: stablehlo.custom_call @f: ")
    assert line.lstrip().startswith("%1 = stablehlo.custom_call") and caret == " " * 7 + "^"
    path.write_text("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %y\n}\n")
    assert main([str(path)]) == 1
    err = capfd.readouterr().err
    assert err.startswith(f"{path}:2:") and err.count("^") == err.count("return %y") == 1
    assert not (tmp_path / "x.nova").exists()


# (arguments, exit status, what stderr has)
REFUSED = [
    (["--entry", "other"], r"no function @other: it has @main[\s\S]*--entry main"),
    (["--target", "cuda:80"], "did you mean 'cuda:sm_80'"),
    (["--target", "x86_65"], "did you mean 'x86_64'"),
    (["--target", "x86_64", "--target", "aarch64"], "of one architecture"),
    (["--target", "cpu", "--target", "cpu"], "given twice"),
    (["--emit", "nova"], "is never in the nova dialect"),
    (["--emit", "asm", "--target", "x86_64", "--target", "x86_64-v3"], "different for each target"),
    (["--start-from", "loops", "--emit", "linalg"], "linalg comes before loops"),
    (["--dump-stages", "/dev/null/x"], "--dump-stages"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=lambda a: str(a))
def test_refused(
    source: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out"
    assert main([str(source), "-o", str(output), *arguments]) == 1
    out, err = capfd.readouterr()
    assert re.search(message, err) and out == "" and "Traceback" not in err
    assert __file__ not in err  # the line that calls the tool
    assert not output.exists()


def test_missing_input_and_unwritable_output(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "missing.mlir")]) == 1
    assert "No such file" in capfd.readouterr().err
    assert main([str(source), "-o", str(tmp_path / "no" / "folder" / "x.nova")]) == 1
    assert "Traceback" not in capfd.readouterr().err


def test_python_says_the_same() -> None:
    with pytest.raises(PipelineError, match="did you mean 'linalg'"):
        nova.translate(PROGRAM, emit="lingalg")
    with pytest.raises(TargetError, match="no target"):
        nova.translate(PROGRAM, targets=())
    with pytest.raises(PipelineError, match="stopped at linalg"):
        nova.translate(PROGRAM, emit="linalg").load()


def test_what_a_translation_is(tmp_path: Path) -> None:
    translation = nova.translate(PROGRAM)
    assert list(translation.stages) == STAGES
    assert list(translation.metrics) == [*STAGES, "object", "artifact"]
    translation.save(tmp_path / "x.nova")
    assert (tmp_path / "x.nova").read_bytes() == translation.data
    np.testing.assert_allclose(translation.load()(X, W), np.tanh(X @ W), rtol=1e-6, atol=1e-6)
