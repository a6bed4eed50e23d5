"""`--emit obj`: an object that gcc links, and that exports what a file does."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from memrefs import Entry

import nova
from nova.artifact.elf.runtime_object import why_no_runtime
from nova.core.targets import host_arch, parse_target
from nova.errors import PipelineError
from nova.tools.nova_translate import main

SOURCE = """
func.func @main(%x: tensor<5x16xf32>, %w: tensor<16x10xf32>) -> (tensor<5x10xf32>, tensor<i64>) {
  %c = nova.constant dense<0.25> : tensor<10xf32>
  %0 = nova.matmul %x, %w : (tensor<5x16xf32>, tensor<16x10xf32>) -> tensor<5x10xf32>
  %1 = nova.add %0, %c : tensor<5x10xf32>, tensor<10xf32>
  %2 = nova.tanh %1 : tensor<5x10xf32>
  %3 = nova.argmax %2 : tensor<5x10xf32>
  return %2, %3 : tensor<5x10xf32>, tensor<i64>
}
"""
RESULTS = [(2, np.dtype("f4")), (0, np.dtype("i8"))]
HERE = host_arch([parse_target("cpu")])

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc links the object")
needs_runtime = pytest.mark.skipif(bool(why_no_runtime(HERE)), reason="there is no C runtime")


def run(*command: str | Path) -> str:
    completed = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with program.mlir, program.o and, linked from it, program.so."""
    folder = tmp_path_factory.mktemp("object")
    (folder / "program.mlir").write_text(SOURCE)
    source, target = str(folder / "program.mlir"), str(folder / "program.o")
    assert main([source, "--emit", "obj", "-o", target]) == 0
    assert main([source, "-o", str(folder / "program.nova")]) == 0
    run("gcc", "-shared", "-fPIC", "-o", folder / "program.so", folder / "program.o")
    return folder


def arrays() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.standard_normal(shape, np.float32) for shape in ((5, 16), (16, 10))]


def functions(path: Path, *flags: str) -> set[str]:
    lines = [line.split() for line in run("nm", *flags, path).splitlines()]
    return {words[-1] for words in lines if words[-2] == "T"}


@needs_gcc
@needs_runtime
def test_the_object_exports_what_the_file_does(built: Path) -> None:
    expected = functions(built / "program.nova", "-D")
    assert {"_mlir_ciface_main", "nova_open", "nova_run", "nova_last_error"} <= expected
    assert any(name.startswith("kernel_") for name in expected)
    assert expected <= functions(built / "program.o")
    assert functions(built / "program.so", "-D") == expected


@needs_gcc
@needs_runtime
def test_the_linked_object_is_called(built: Path) -> None:
    entry, (x, w) = Entry(built / "program.so"), arrays()
    for _ in range(3):
        value, index = entry([x, w], RESULTS)
        expected = np.tanh(x @ w + np.float32(0.25))
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
        assert index == expected.argmax()
    identical, _ = Entry(built / "program.nova")([x, w], RESULTS)
    np.testing.assert_array_equal(value, identical)
    with pytest.raises(RuntimeError, match="argument 0"):
        entry([x[:, ::2], w], RESULTS)
    with pytest.raises(RuntimeError, match="size 4 of axis 0 is not 5"):
        entry([x[:4], w], RESULTS)


C_PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { float *allocated, *aligned; int64_t offset, sizes[2], strides[2]; } matrix;
typedef struct { int64_t *allocated, *aligned; int64_t offset; } scalar;
typedef struct { matrix y; scalar best; } results;
void _mlir_ciface_main(results *, matrix *, matrix *);
int nova_last_error(void *);

int main(void)
{
    float x[80], w[160];
    for (int i = 0; i < 80; i++) x[i] = (float)(i % 7) / 8;
    for (int i = 0; i < 160; i++) w[i] = (float)(i % 5) / 16;
    matrix a = {x, x, 0, {5, 16}, {16, 1}}, b = {w, w, 0, {16, 10}, {10, 1}};
    results r;
    _mlir_ciface_main(NULL, &a, &b); /* an error, and nothing else */
    if (nova_last_error(NULL) == 0)
        return 2;
    _mlir_ciface_main(&r, &a, &b);
    if (nova_last_error(NULL) != 0)
        return 3;
    for (int i = 0; i < 50; i++)
        printf("%a\n", r.y.aligned[i]);
    printf("%d\n", (int)*r.best.aligned);
    free(r.y.allocated);
    free(r.best.allocated);
    return 0;
}
"""


@needs_gcc
@needs_runtime
@pytest.mark.parametrize("flags", [(), ("-static-pie",), ("-no-pie", "-Wl,--gc-sections")], ids=str)
def test_a_c_program_with_the_object_inside(
    built: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "main.c").write_text(C_PROGRAM)
    build = (
        "gcc",
        "-O1",
        *flags,
        "-o",
        tmp_path / "main",
        tmp_path / "main.c",
        built / "program.o",
    )
    completed = subprocess.run([*map(str, build)], capture_output=True, text=True)
    if completed.returncode and "-static-pie" in flags:
        pytest.skip("there is no static C library")
    assert completed.returncode == 0, completed.stderr
    *values, best = run(tmp_path / "main").split()
    x = (np.arange(80) % 7 / 8).astype("f4").reshape(5, 16)
    w = (np.arange(160) % 5 / 16).astype("f4").reshape(16, 10)
    expected = np.tanh(x @ w + np.float32(0.25))
    result = np.array([float.fromhex(value) for value in values]).reshape(5, 10)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert result.reshape(-1)[int(best)] == result.max()


@needs_gcc
@needs_runtime
def test_weights_and_updates_of_a_program(tmp_path: Path) -> None:
    """Params that the program carries are inside, and donated ones are changed in place."""
    w = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3)
    X, W = nova.tensor(np.ones((2, 4), "f4"), name="X"), nova.tensor(w, name="W")
    program = nova.compile(X @ W, inputs=[X], params=[W])
    program.save(tmp_path / "full.nova", weights="embed")
    full = nova.load(tmp_path / "full.nova")
    (tmp_path / "full.o").write_bytes(nova.translate(full, emit="obj").data)
    run("gcc", "-shared", "-o", tmp_path / "full.so", tmp_path / "full.o")
    x = np.arange(8, dtype="f4").reshape(2, 4)
    [value] = Entry(tmp_path / "full.so")([x, None], [(2, np.dtype("f4"))])
    np.testing.assert_allclose(value, x @ w, rtol=1e-6)

    step = nova.compile(W.sum(), params=[W], updates={W: W * 2})
    (tmp_path / "step.o").write_bytes(nova.translate(step, emit="obj").data)
    run("gcc", "-shared", "-o", tmp_path / "step.so", tmp_path / "step.o")
    state = w.copy()
    [total] = Entry(tmp_path / "step.so")([state], [(0, np.dtype("f4"))])
    np.testing.assert_allclose(total, w.sum(), atol=1e-6)
    np.testing.assert_array_equal(state, w * 2)


@pytest.mark.slow
def test_the_object_of_another_architecture() -> None:
    second = "aarch64" if HERE == "x86_64" else "x86_64"
    data = nova.translate(SOURCE, targets=second, emit="obj").data
    assert data[:4] == b"\x7fELF" and int.from_bytes(data[16:18], "little") == 1
    assert int.from_bytes(data[18:20], "little") == {"aarch64": 183, "x86_64": 62}[second]
    assert b"kernel_0\0" in data


def test_the_object_of_kernels_alone_has_no_entry() -> None:
    text = nova.translate(SOURCE, emit="ll").data.decode()
    data = nova.translate(text, start_from="ll", emit="obj").data
    assert b"kernel_0\0" in data and b"_mlir_ciface_main" not in data


def test_an_object_is_not_loaded() -> None:
    with pytest.raises(PipelineError, match="stopped at obj"):
        nova.translate(SOURCE, emit="obj").load()


@needs_gcc
@needs_runtime
def test_two_libraries_in_one_process(built: Path, tmp_path: Path) -> None:
    """Each has a runtime of its own, and finds its own program."""
    second = SOURCE.replace("0.25", "0.75")
    (tmp_path / "other.o").write_bytes(nova.translate(second, emit="obj").data)
    run("gcc", "-shared", "-o", tmp_path / "other.so", tmp_path / "other.o")
    (x, w), values = arrays(), []
    for path in (built / "program.so", tmp_path / "other.so"):
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        values.append(Entry(path)([x, w], RESULTS)[0])
    for value, bias in zip(values, (0.25, 0.75), strict=True):
        np.testing.assert_allclose(value, np.tanh(x @ w + bias), rtol=1e-4, atol=1e-5)
