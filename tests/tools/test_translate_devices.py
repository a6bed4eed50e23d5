"""nova-translate for devices: their stages, files for CPUs and devices, and what is refused."""

# ruff: noqa: E501 (MLIR text)

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.artifact.format import load_artifact, read_artifact
from nova.errors import PipelineError
from nova.tools.nova_translate import main

PROGRAM = """func.func @main(%x: tensor<64x96xf32> {nova.name = "x"}, %w: tensor<96x32xf32>) -> tensor<64x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x96xf32>, tensor<96x32xf32>) -> tensor<64x32xf32>
  %1 = stablehlo.tanh %0 : tensor<64x32xf32>
  return %1 : tensor<64x32xf32>
}
"""
STAGES = ["stablehlo", "linalg", "kernels", "buffers", "device", "outlined", "nvvm", "ll", "ptx"]
X = np.linspace(-1, 1, 64 * 96, dtype="f4").reshape(64, 96)
W = np.linspace(-1, 1, 96 * 32, dtype="f4").reshape(96, 32)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def whole() -> nova.api.translate.Translation:
    return nova.translate(PROGRAM, targets="cuda:sm_80")


MARKS = {
    "linalg": r"linalg\.generic",
    "kernels": r"nova\.kernel",
    "buffers": r"memref<",
    "device": r"gpu\.launch blocks\(",
    "outlined": r"gpu\.launch_func @kernel_0_kernel::@kernel_0_kernel|gpu\.func @kernel_0_kernel\(.*kernel",
    "nvvm": r"llvm\.func @kernel_0_kernel\(.*nvvm\.kernel",
    "ll": r"define ptx_kernel void @kernel_0_kernel\(",
    "ptx": r"\.target sm_80\n[\s\S]*\.visible \.entry kernel_0_kernel\(",
}


@pytest.mark.parametrize("stage", MARKS)
def test_emit(source: Path, stage: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main([str(source), "--emit", stage, "--target", "cuda:sm_80"]) == 0
    out, err = capfdbinary.readouterr()
    assert re.search(MARKS[stage], out.decode()) and err == b""


@pytest.mark.parametrize("stage", ["nvvm", "ll"])
def test_emitted_device_code_is_that_of_the_file(stage: str) -> None:
    file = nova.translate(PROGRAM, targets="cuda:sm_80", cubin=True)
    artifact = read_artifact(file.data)
    code = artifact.section(".nova.device")
    images = {
        row.kind: bytes(code[row.offset : row.offset + row.size])
        for row in artifact.manifest.devices
    }
    for emit in ("ptx", "cubin"):
        emitted = nova.translate(PROGRAM, targets="cuda:sm_80", emit=emit)
        assert emitted.data == images[emit]
        text = file.stages[stage]
        later = nova.translate(text, targets="cuda:sm_80", start_from=stage, emit=emit)
        assert later.data == images[emit]
        assert list(later.metrics)[-1] == emit


def test_every_architecture_gets_its_code(source: Path) -> None:
    for arch in ("sm_89", "sm_90a", "sm_120a"):
        ptx = nova.translate(source, targets=f"cuda:{arch}", emit="ptx").data.decode()
        assert f".target {arch}\n" in ptx


def test_the_stages_of_a_device(whole: nova.api.translate.Translation) -> None:
    assert list(whole.stages) == STAGES
    assert list(whole.metrics) == [*STAGES, "artifact"]
    artifact = read_artifact(whole.data)
    (image,) = artifact.manifest.devices
    assert (image.kind, image.arch) == ("ptx", "sm_80")
    code = artifact.section(".nova.device")[image.offset : image.offset + image.size]
    assert bytes(code).decode() == whole.stages["ptx"]


@pytest.mark.parametrize("stage", ["linalg", "kernels", "buffers", "device", "outlined"])
def test_starting_from_a_stage(whole: nova.api.translate.Translation, stage: str) -> None:
    later = nova.translate(whole.stages[stage], targets="cuda:sm_80", start_from=stage)
    assert later.stages["ptx"] == whole.stages["ptx"]
    a, b = read_artifact(whole.data), read_artifact(later.data)
    assert a.manifest.args == b.manifest.args and a.manifest.outputs == b.manifest.outputs
    (kernel,) = a.tables(0).kernels
    assert kernel.device is not None and kernel == replace(
        b.tables(0).kernels[0], location=kernel.location
    )
    assert a.tables(0).launches == b.tables(0).launches
    assert a.tables(0).buffers == b.tables(0).buffers


@pytest.mark.parametrize("stage", ["nvvm", "ll"])
def test_starting_from_kernels(whole: nova.api.translate.Translation, stage: str) -> None:
    text = whole.stages[stage]
    later = nova.translate(text, targets="cuda:sm_80", start_from=stage, emit="ptx")
    assert later.data.decode() == whole.stages["ptx"]
    with pytest.raises(PipelineError, match="has kernels only") as caught:
        nova.translate(text, targets="cuda:sm_80", start_from=stage)
    assert "outlined or before, or emit ptx" in str(caught.value)


def test_the_same_program_gives_the_same_bytes(whole: nova.api.translate.Translation) -> None:
    assert nova.translate(PROGRAM, targets="cuda:sm_80").data == whole.data


def test_one_file_for_a_cpu_and_two_devices(source: Path, tmp_path: Path) -> None:
    output, folder = tmp_path / "model.nova", tmp_path / "stages"
    words = ["--target", "x86_64", "--target", "cuda:sm_80", "--target", "cuda:sm_90a"]
    assert main([str(source), "-o", str(output), "--dump-stages", str(folder), *words]) == 0
    artifact = load_artifact(output)
    assert [v.target for v in artifact.manifest.variants] == ["x86_64", "cuda:sm_90a", "cuda:sm_80"]
    images = [(image.kind, image.arch) for image in artifact.manifest.devices]
    assert images == [("ptx", "sm_80"), ("ptx", "sm_90a")]
    actual = nova.load(output).forward(X, W)
    # In f64: sums of 96 terms in f32 differ by the order of a CPU's BLAS.
    np.testing.assert_allclose(actual, np.tanh(X.astype("f8") @ W), rtol=1e-5, atol=3e-5)
    names = {path.stem.partition("-")[2] for path in folder.iterdir()}
    assert {"loops@x86_64", "kernels@cuda", "ptx@cuda:sm_80", "nvvm@cuda:sm_90a"} <= names
    alone = nova.translate(PROGRAM, targets="cuda:sm_80")
    assert artifact.stages()["ptx@cuda:sm_80"] == alone.stages["ptx"]


# (arguments, what stderr has)
REFUSED = [
    (["--target", "cuda:sm_80", "--emit", "loops"], "not a stage for cuda:sm_80"),
    (["--target", "x86_64", "--emit", "ptx"], "not a stage for x86_64"),
    (["--target", "x86_64", "--start-from", "outlined"], "not a stage for x86_64"),
    (["--target", "cuda:sm_80", "--start-from", "nvvm", "--emit", "device"], "device comes before"),
    (["--target", "cuda:sm_80", "--target", "cuda:sm_90a", "--emit", "ptx"], "give one target"),
    (["--target", "cuda:sm_80", "--target", "x86_64", "--emit", "ll"], "give one target"),
    (["--target", "cuda:sm_80", "--target", "cuda:sm_80"], "given twice"),
    (["--target", "cuda:sm_30"], "unknown target 'cuda:sm_30'"),
    (["--target", "cuda:sm_80", "--start-from", "nvvm", "--emit", "ptx"], "not of the stage nvvm"),
    (["--target", "cuda:sm_80", "--start-from", "outlined"], "not of the stage outlined"),
    (["--target", "cuda:sm_80", "--start-from", "ll", "--emit", "ptx"], "LLVM does not take"),
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
    assert re.search(message, err), err
    assert out == "" and "Traceback" not in err and not output.exists()


def test_the_note_is_of_the_host(source: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A file for devices only has the runtime of this machine in it."""
    assert main([str(source), "--target", "cuda:sm_80"]) == 0
    out, err = capfdbinary.readouterr()
    assert out[:4] == b"\x7fELF" and err == b""
