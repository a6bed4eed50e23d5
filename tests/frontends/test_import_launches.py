"""Hand-written launches: both forms of them, on the simulated device; and what is refused."""

# ruff: noqa: E501 (MLIR text)

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova.artifact.format import read_artifact
from nova.errors import (
    ArtifactError,
    CodegenError,
    ImportedProgramError,
    PipelineError,
    SimulationError,
    UnsupportedOpError,
)
from nova.tools.nova_translate import main

SIZES = """  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
"""
# t = 3 x by two blocks; w = w + t by one block of two rows.
LAUNCHES = f"""func.func @main(%x: memref<64xf32> {{nova.name = "x"}}, %w: memref<64xf32> {{nova.name = "w"}}) {{
{SIZES}  %three = arith.constant 3.0 : f32
  %t = memref.alloc() : memref<64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c2, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) {{
    %0 = arith.muli %bx, %c32 : index
    %i = arith.addi %0, %tx : index
    %1 = memref.load %x[%i] : memref<64xf32>
    %2 = arith.mulf %1, %three : f32
    memref.store %2, %t[%i] : memref<64xf32>
    gpu.terminator
  }}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c2, %sz = %c1) {{
    %0 = arith.muli %ty, %c32 : index
    %i = arith.addi %0, %tx : index
    %1 = memref.load %t[%i] : memref<64xf32>
    %2 = memref.load %w[%i] : memref<64xf32>
    %3 = arith.addf %1, %2 : f32
    memref.store %3, %w[%i] : memref<64xf32>
    gpu.terminator
  }}
  memref.dealloc %t : memref<64xf32>
  return
}}
"""
# Reverses 64 numbers through dynamic shared memory: y[i] = exp(x[63 - i]).
OUTLINED = """module attributes {gpu.container_module} {
  gpu.module @code {
    gpu.func @reverse(%x: memref<64xf32>, %y: memref<64xf32>) kernel {
      %c0 = arith.constant 0 : index
      %c63 = arith.constant 63 : index
      %i = gpu.thread_id x
      %bytes = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %s = memref.view %bytes[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<64xf32, #gpu.address_space<workgroup>>
      %0 = memref.load %x[%i] : memref<64xf32>
      %1 = math.exp %0 : f32
      memref.store %1, %s[%i] : memref<64xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %j = arith.subi %c63, %i : index
      %2 = memref.load %s[%j] : memref<64xf32, #gpu.address_space<workgroup>>
      memref.store %2, %y[%i] : memref<64xf32>
      gpu.return
    }
  }
  func.func @main(%x: memref<64xf32>) -> memref<64xf32> {
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %bytes = arith.constant 256 : i32
    %y = memref.alloc() : memref<64xf32>
    gpu.launch_func @code::@reverse blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) dynamic_shared_memory_size %bytes args(%x : memref<64xf32>, %y : memref<64xf32>)
    return %y : memref<64xf32>
  }
}
"""


def load(text: str, tmp_path: Path, **options: Any) -> nova.runtime.model.Model:
    path = tmp_path / "program.nova"
    nova.translate(text, targets=("cuda:sm_80", "cuda:sm_90a"), **options).save(path)
    return nova.load(path, device="sim")


def test_launches_in_order(tmp_path: Path) -> None:
    """What kernels write of the arguments is updated in place; temporaries are workspace."""
    model = load(LAUNCHES, tmp_path)
    x, w = np.arange(64, dtype="f4"), np.ones(64, "f4")
    assert model.run([x], [w]) == ()
    np.testing.assert_array_equal(w, 3 * x + 1)
    model.run([x], [w])
    np.testing.assert_array_equal(w, 6 * x + 1)


def test_the_file_of_launches() -> None:
    artifact = read_artifact(nova.translate(LAUNCHES, targets="cuda:sm_80").data)
    args = [(a.name, a.role, a.donated) for a in artifact.manifest.args]
    assert args == [("x", "input", False), ("w", "param", True)]
    assert artifact.manifest.outputs == () and artifact.manifest.source == "outlined"
    tables = artifact.tables(0)
    shapes = [(k.device.grid, k.device.block) for k in tables.kernels if k.device]
    assert shapes == [((2, 1, 1), (32, 1, 1)), ((1, 1, 1), (32, 2, 1))]
    assert tables.workspace_size == 256 and len(tables.launches) == 2
    assert [buffer.kind for buffer in tables.buffers] == ["arg", "workspace", "arg"]


def test_a_module_of_device_code(tmp_path: Path) -> None:
    model = load(OUTLINED, tmp_path)
    x = np.linspace(-2, 2, 64, dtype="f4")
    np.testing.assert_allclose(model.forward(x), np.exp(x[::-1]), rtol=1e-6)


def test_a_function_is_launched_many_times(tmp_path: Path) -> None:
    """The buffers of the second launch are those of the first, the other way round."""
    launch = next(line for line in OUTLINED.splitlines() if "gpu.launch_func" in line)
    again = launch.replace("%x :", "%a :").replace("%y :", "%x :").replace("%a :", "%y :")
    text = OUTLINED.replace(launch, f"{launch}\n{again}\n{launch}")
    model = load(text, tmp_path)
    x = np.linspace(-2, 1, 64, dtype="f4")
    before = x.copy()
    (actual,) = [model.run([], [x])]
    np.testing.assert_allclose(actual, np.exp(np.exp(np.exp(before[::-1]))), rtol=1e-5)
    np.testing.assert_allclose(x, np.exp(np.exp(before)), rtol=1e-5)


def test_functions_are_inlined_and_sizes_computed(tmp_path: Path) -> None:
    text = LAUNCHES.replace("@main", "@step").replace(
        "%c32 = arith.constant 32 : index",
        "%c16 = arith.constant 16 : index\n  %c32 = arith.muli %c16, %c2 : index",
    )
    text += """func.func @twice(%x: memref<64xf32>, %w: memref<64xf32>) {
  func.call @step(%x, %w) : (memref<64xf32>, memref<64xf32>) -> ()
  func.call @step(%x, %w) : (memref<64xf32>, memref<64xf32>) -> ()
  return
}
"""
    model = load(text, tmp_path, entry="twice")
    x, w = np.arange(64, dtype="f4"), np.ones(64, "f4")
    model.run([x], [w])
    np.testing.assert_array_equal(w, 6 * x + 1)


def test_views_and_constants(tmp_path: Path) -> None:
    text = f"""memref.global "private" constant @table : memref<4xf32> = dense<[1.0, 2.0, 4.0, 8.0]>
func.func @main(%x: memref<2x2xf32>) {{
{SIZES}  %table = memref.get_global @table : memref<4xf32>
  %flat = memref.collapse_shape %x [[0, 1]] : memref<2x2xf32> into memref<4xf32>
  %c4 = arith.constant 4 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c4, %sy = %c1, %sz = %c1) {{
    %0 = memref.load %flat[%tx] : memref<4xf32>
    %1 = memref.load %table[%tx] : memref<4xf32>
    %2 = arith.mulf %0, %1 : f32
    memref.store %2, %flat[%tx] : memref<4xf32>
    gpu.terminator
  }}
  return
}}
"""
    x = np.ones((2, 2), "f4")
    load(text, tmp_path).run([], [x])
    np.testing.assert_array_equal(x, [[1, 2], [4, 8]])


def test_stages(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """From the tool: the text of the stage compiles again, and PTX comes out."""
    source = tmp_path / "p.mlir"
    source.write_text(LAUNCHES)
    words = ["--target", "cuda:sm_80", "--emit"]
    assert main([str(source), *words, "outlined"]) == 0
    text = capfd.readouterr().out
    assert re.search(r"func\.call|call @launch_0\(", text)
    again = nova.translate(text, targets="cuda:sm_80", start_from="outlined")
    full = nova.translate(LAUNCHES, targets="cuda:sm_80")
    assert list(full.stages) == ["gpu", "outlined", "nvvm", "ll", "ptx"]
    assert again.stages["ptx"] == full.stages["ptx"] and again.signature == full.signature
    assert main([str(source), *words, "ptx"]) == 0
    assert capfd.readouterr().out.count(".entry") == 2


# (what is replaced, by what, error, message, line of the text)
REFUSED: list[tuple[str, str, type[nova.NovaError], str, int]] = [
    ("%2 = arith.mulf %1, %three : f32", "%2 = func.call @outside(%1) : (f32) -> f32", UnsupportedOpError, "func.call has no device code", 11),
    ("%2 = arith.mulf %1, %three : f32", "%2 = arith.mulf %1, %three : f32\n    gpu.printf \"here\"", UnsupportedOpError, "gpu.printf has no device code", 12),
    ("%c32 = arith.constant 32", "%c32 = arith.constant 2048", UnsupportedOpError, "2x1x1 blocks of 2048x1x1 threads", 7),
    ("%c32 = arith.constant 32", "%c32 = arith.constant -5", UnsupportedOpError, "of -5x1x1 threads", 7),
    ("%c2 = arith.constant 2", "%c2 = arith.constant 99999999999", UnsupportedOpError, "a launch of 99999999999x1x1 blocks", 7),
    ('%w: memref<64xf32> {nova.name = "w"}', "%w: memref<64xf32>, %v: memref<64xf32, strided<[2]>>", ImportedProgramError, "rows one after the other", 1),
    ('%w: memref<64xf32> {nova.name = "w"}', "%w: memref<64xf32>, %v: memref<?xf32>", ImportedProgramError, "a static shape", 1),
    ('%w: memref<64xf32> {nova.name = "w"}', "%w: memref<64xf32>, %v: tensor<64xf32>", ImportedProgramError, "launches work on memrefs", 1),
    ('%w: memref<64xf32> {nova.name = "w"}', "%w: memref<64xf32>, %v: memref<4xindex>", ImportedProgramError, "an argument has the type memref<4xindex>", 1),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[3]}-{row[4]}")
def test_refused(row: tuple[str, str, type[nova.NovaError], str, int]) -> None:
    old, new, error, message, line = row
    text = LAUNCHES.replace(old, new, 1)
    assert text != LAUNCHES
    text = text.replace('%x: memref<64xf32> {nova.name = "x"}', "%x: memref<64xf32>")
    if "@outside" in new:
        text += "func.func private @outside(f32) -> f32\n"
    with pytest.raises(error, match=message) as caught:
        nova.translate(text, targets="cuda:sm_80")
    assert caught.value.where is not None and f":{line}:" in caught.value.where, caught.value.where


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('llvm.call_intrinsic "llvm.x86.sse2.pause"() : () -> ()', "llvm.x86.sse2.pause"),
        ('llvm.call_intrinsic "llvm.nvvm.unheard.of"() : () -> ()', "llvm.nvvm.unheard.of"),
        ("%8 = arith.divsi %5, %7 : i128", "llvm.sdiv of integers wider than 64 bits"),
    ],
)
def test_what_llvm_would_abort_on_is_refused(line: str, message: str) -> None:
    """A process that is gone would be the only sign of it."""
    begin = "%6 = arith.fptosi %1 : f32 to i64\n    %7 = arith.extsi %6 : i64 to i128\n    %5 = arith.muli %7, %7 : i128"
    end = "%9 = arith.trunci %{} : i128 to i64\n    %2 = arith.sitofp %9 : i64 to f32"
    lines = f"{begin}\n    {line}\n    {end.format(8 if '%8' in line else 7)}"
    text = LAUNCHES.replace("%2 = arith.mulf %1, %three : f32", lines)
    with pytest.raises(CodegenError, match=re.escape(message)) as caught:
        nova.translate(text, targets="cuda:sm_80")
    assert caught.value.where is not None and ":14:" in caught.value.where


def test_a_wrong_text_of_llvm_is_refused() -> None:
    """LLVM's parser would end the process, because of a flag that MLIR's texts have."""
    text = nova.translate(LAUNCHES, targets="cuda:sm_80").stages["ll"]
    assert "Debug Info Version" in text
    wrong = text.replace("fadd float", "fadd float undefined, undefined\n  %x = fadd float", 1)
    for broken in (wrong, re.sub(r"(?m)^  ret void$", "  br label %0", text, count=1)):
        with pytest.raises(CodegenError, match="LLVM does not take the module"):
            nova.translate(broken, targets="cuda:sm_80", start_from="ll", emit="ptx")


def test_work_that_no_table_holds_is_refused() -> None:
    text = nova.translate(LAUNCHES, targets="cuda:sm_80").stages["outlined"]
    text = re.sub(r"nova.work = \d+", "nova.work = -1", text)
    with pytest.raises(ArtifactError, match="an amount of work is negative"):
        nova.translate(text, targets="cuda:sm_80", start_from="outlined")


def test_reads_behind_an_array_are_found_where_another_follows(tmp_path: Path) -> None:
    """Arrays of a whole number of blocks of memory lie close together on the device."""
    text = LAUNCHES.replace("memref.load %x[%i]", "memref.load %x[%j]").replace(
        "    %1 = memref.load %x", "    %j = arith.addi %i, %c32 : index\n    %1 = memref.load %x"
    )
    model = load(text, tmp_path)
    with pytest.raises(SimulationError, match="0 bytes after the end of a buffer of 256 bytes"):
        model.run([np.ones(64, "f4")], [np.ones(64, "f4")])


def test_results_are_buffers_of_their_own() -> None:
    text = OUTLINED.replace("return %y", "return %x")
    with pytest.raises(ImportedProgramError, match="not a buffer of its own"):
        nova.translate(text, targets="cuda:sm_80")


def test_async_launches_are_refused_in_the_text_of_a_stage() -> None:
    """A program may have tokens, which its import drops: in the stage `outlined` they are wrong."""
    text = nova.translate(OUTLINED, targets="cuda:sm_80").stages["outlined"]
    text = text.replace("gpu.launch_func", "%done = gpu.launch_func async")
    with pytest.raises(UnsupportedOpError, match="asynchronous"):
        nova.translate(text, targets="cuda:sm_80", start_from="outlined")


def test_only_for_devices(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PipelineError, match="launches device code, which cpu cannot run"):
        nova.translate(LAUNCHES)
    with pytest.raises(PipelineError, match="launches device code, which x86_64 cannot run"):
        nova.translate(LAUNCHES, targets=("cuda:sm_80", "x86_64"))
    with pytest.raises(PipelineError, match="begins at outlined, and kernels is before it"):
        nova.translate(LAUNCHES, targets="cuda:sm_80", emit="kernels")
    with pytest.raises(PipelineError, match="never in the nova dialect"):
        nova.translate(LAUNCHES, targets="cuda:sm_80", emit="nova")
    source = tmp_path / "p.mlir"
    source.write_text(LAUNCHES.replace("memref.dealloc %t", "memref.dealloc %nothing"))
    assert main([str(source), "--target", "cuda:sm_80"]) == 1
    assert re.search(r"p\.mlir:\d+:\d+: error: .*undeclared SSA value", capfd.readouterr().err)
