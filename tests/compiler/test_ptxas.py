"""Cubins: finding the assembler, what it says, what is refused, files with both kinds of code."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.artifact.cubins import ptxas
from nova.artifact.cubins.ptxas import KernelUse, assemble, find_ptxas, ptxas_version, read_uses
from nova.artifact.format import read_artifact
from nova.errors import PtxasError, TargetError
from nova.tools.nova_translate import main

PROGRAM = """func.func @main(%x: tensor<300xf32>) -> tensor<300xf32> {
  %0 = "nova.exp"(%x) : (tensor<300xf32>) -> tensor<300xf32>
  return %0 : tensor<300xf32>
}
"""
SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'wide_kernel' for 'sm_80'
ptxas info    : Function properties for wide_kernel
    48 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 368 bytes cmem[0]
ptxas info    : Compile time = 7.156 ms
ptxas info    : Compiling entry function 'small_kernel' for 'sm_80'
ptxas info    : Function properties for small_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 368 bytes cmem[0]
"""
real = pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")


def write_program(folder: Path, script: str) -> Path:
    path = folder / "ptxas"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_what_the_assembler_says() -> None:
    assert read_uses(SAID) == {
        "wide_kernel": KernelUse(registers=255, stack=48, spilled=48),
        "small_kernel": KernelUse(registers=10, stack=0, spilled=0),
    }


def test_spills_are_refused_unless_allowed(tmp_path: Path) -> None:
    (tmp_path / "said").write_text(SAID)
    program = write_program(tmp_path, f"cat {tmp_path}/said >&2; echo code > kernels.cubin")
    with nova.knobs.override(ptxas=program):
        with pytest.raises(PtxasError, match="wide_kernel spills 48 bytes with 255") as caught:
            assemble("", "sm_80")
        assert "small_kernel" not in str(caught.value)
        assert "NOVA_SPILLS=wide_kernel" in str(caught.value)
        with nova.knobs.override(spills="other,wide_kernel"):
            assert assemble("", "sm_80").cubin == b"code\n"


def test_its_log_is_in_the_error(tmp_path: Path) -> None:
    program = write_program(tmp_path, "echo 'kernels.ptx, line 7; error: Unknown' >&2; exit 2")
    with (
        nova.knobs.override(ptxas=program),
        pytest.raises(PtxasError, match=r"does not take the code for sm_90a:\n.*line 7; error"),
    ):
        assemble("", "sm_90a")


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write_program(tmp_path, "exit 0")
    with nova.knobs.override(ptxas=program):
        assert find_ptxas() == program
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ptxas() == program
    monkeypatch.setenv("PATH", "/nowhere")
    site = tmp_path / "site" / "nvidia" / "cu13" / "bin"
    site.mkdir(parents=True)
    packaged = write_program(site, "exit 0")
    # An own name: the package may be installed and loaded here.
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path / "site" / "nvidia")]})
    monkeypatch.setattr(ptxas, "find_spec", lambda name: spec if name == "nvidia" else None)
    assert find_ptxas() == packaged
    monkeypatch.setattr(ptxas, "find_spec", lambda name: None)
    assert find_ptxas() is None


def test_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(ptxas, "find_spec", lambda name: None)
    with pytest.raises(PtxasError, match="there is no ptxas here") as caught:
        nova.translate(PROGRAM, targets="cuda:sm_80", cubin=True)
    assert "nvidia-cuda-nvcc" in str(caught.value)
    assert nova.translate(PROGRAM, targets="cuda:sm_80").data, "PTX needs none"
    with (
        nova.knobs.override(ptxas=tmp_path / "missing"),
        pytest.raises(PtxasError, match="there is no program"),
    ):
        find_ptxas()
    odd = write_program(tmp_path, "echo nothing")
    with nova.knobs.override(ptxas=odd), pytest.raises(PtxasError, match="is it a ptxas"):
        ptxas_version()
    with nova.knobs.override(ptxas=odd), pytest.raises(PtxasError, match="wrote no cubin"):
        assemble("", "sm_80")
    odd.write_bytes(b"\x7fELF and nothing else")
    for use in (ptxas_version, lambda: assemble("", "sm_80")):
        ptxas._version_of.cache_clear()
        with nova.knobs.override(ptxas=odd), pytest.raises(PtxasError, match="does not run"):
            use()


@real
def test_a_file_with_both(tmp_path: Path) -> None:
    source, output = tmp_path / "p.mlir", tmp_path / "p.nova"
    source.write_text(PROGRAM)
    words = ["--target", "x86_64", "--target", "cuda:sm_80", "--target", "cuda:sm_90a", "--cubin"]
    assert main([str(source), "-o", str(output), *words]) == 0
    artifact = read_artifact(output.read_bytes())
    images = [(image.kind, image.arch) for image in artifact.manifest.devices]
    assert images == [
        ("ptx", "sm_80"),
        ("cubin", "sm_80"),
        ("ptx", "sm_90a"),
        ("cubin", "sm_90a"),
    ]
    code = artifact.section(".nova.device")
    for image in artifact.manifest.devices:
        start = bytes(code[image.offset : image.offset + 4])
        assert (start == b"\x7fELF") == (image.kind == "cubin")
    x = np.linspace(-1, 1, 300, dtype="f4")
    np.testing.assert_allclose(nova.load(output).forward(x), np.exp(x), rtol=1e-6)


@real
def test_the_same_program_gives_the_same_cubin() -> None:
    a, b = (nova.translate(PROGRAM, targets="cuda:sm_80", cubin=True) for _ in range(2))
    assert a.data == b.data and a.metrics["cubin"]["bytes"] > 0


@real
def test_ptx_that_is_wrong_is_refused() -> None:
    text = nova.translate(PROGRAM, targets="cuda:sm_80", emit="ptx").data.decode()
    assembled = assemble(text, "sm_80")
    assert assembled.kernels["kernel_0_kernel"].registers > 0
    with pytest.raises(PtxasError, match=r"not take kernel_0_kernel for sm_80:\n(.|\n)*line"):
        assemble(text.replace("st.global", "st.nowhere"), "sm_80")


def test_cubins_are_for_devices() -> None:
    with pytest.raises(TargetError, match="none for x86_64"):
        nova.translate(PROGRAM, targets="x86_64", cubin=True)
