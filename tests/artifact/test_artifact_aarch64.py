"""A file for AArch64, made on another machine, in the hands of a C program on an emulated one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.artifact.elf import defs as elf
from nova.artifact.elf.runtime_object import runtime_object, why_no_runtime
from nova.artifact.format import read_artifact
from nova.compiler.driver import build
from nova.core.settings import Settings
from nova.plan import build_plan

ROOT = Path(__file__).parents[2]

MAIN = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "nova/ciface.h"
#include "nova/model.h"

typedef struct {
    float *allocated, *aligned;
    int64_t offset, sizes[2], strides[2];
} matrix;

static int fail(const char *where, const nova_error *error)
{
    printf("%s: %s: %s\n", where, error->check, error->text);
    return 1;
}

static void print(const float *values, int count)
{
    for (int i = 0; i < count; i++)
        printf("%.9g ", values[i]);
    printf("\n");
}

int main(int count, char **words)
{
    void *file = dlopen(words[1], RTLD_NOW);
    if (count != 2 || file == NULL)
        return puts(dlerror()), 1;
    void (*entry)(void *, void *, void *) = dlsym(file, "_mlir_ciface_main");
    nova_status (*last)(nova_error *) = dlsym(file, "nova_last_error");
    nova_status (*open)(const char *, nova_model **, nova_error *) = dlsym(file, "nova_open");
    nova_status (*run)(nova_model *, void *const *, void *const *, void *, nova_error *) =
        dlsym(file, "nova_run");
    void (*close)(nova_model *) = dlsym(file, "nova_close");
    nova_error error;
    float x[35], w[21], y[15], z[5];
    for (int i = 0; i < 35; i++)
        x[i % 5 * 7 + i / 5] = 0.01f * (float)(i % 5 * 7 + i / 5) - 0.1f;
    for (int i = 0; i < 21; i++)
        w[i] = 0.02f * (float)i - 0.2f;

    struct { matrix y; float *allocated, *aligned; int64_t offset, size, stride; } out;
    matrix mx = {x, x, 0, {5, 7}, {7, 1}}, mw = {w, w, 0, {7, 3}, {3, 1}};
    entry(&out, &mx, &mw);
    if (out.y.allocated == NULL)
        return last(&error), fail("entry", &error);
    print(out.y.aligned, 15);
    print(out.aligned, 5);
    free(out.y.allocated);
    free(out.allocated);

    const char *paths[] = {NULL, words[1]};
    for (int i = 0; i < 2; i++) {
        nova_model *model;
        void *arguments[] = {x, w}, *outputs[] = {y, z};
        if (open(paths[i], &model, &error) != NOVA_OK)
            return fail("open", &error);
        if (run(model, arguments, outputs, NULL, &error) != NOVA_OK)
            return fail("run", &error);
        print(y, 15);
        print(z, 5);
        close(model);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def graph():
    """A product with a constant table, and a reduction: two results, two arguments."""
    X = nova.tensor(np.zeros((5, 7), np.float32), name="X")
    W = nova.tensor(np.zeros((7, 3), np.float32), name="W")
    table = nova.tensor(np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3))
    return [nova.tanh(X @ W + table), nova.softmax(X, axis=1).max(axis=1)], [X], [W]


@pytest.fixture(scope="module")
def file(graph):
    outputs, inputs, params = graph
    return build(build_plan(outputs, inputs, params), Settings(target="aarch64"), {}).data


def test_file_is_accepted(file):
    """The reader checks all of it, here, where it cannot run."""
    artifact = read_artifact(file)
    assert artifact.manifest.arch == "aarch64"
    header = elf.EHDR.unpack_from(file)
    assert header[2] == 183
    rows = list(elf.PHDR.iter_unpack(file[header[5] : header[5] + header[10] * 56]))
    loaded = [row for row in rows if row[0] == elf.PT_LOAD]
    assert all(row[2] % 65536 == 0 and row[7] == 65536 for row in loaded)


def test_same_file_again(graph, file):
    outputs, inputs, params = graph
    assert build(build_plan(outputs, inputs, params), Settings(target="aarch64"), {}).data == file


def test_c_program_runs_it(graph, file, tmp_path):
    native = os.uname().machine == "aarch64"
    gcc = shutil.which("gcc" if native else "aarch64-linux-gnu-gcc")
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if gcc is None or (emulator is None and not native):
        pytest.skip("a C compiler for AArch64 and qemu-aarch64 are not both installed")
    assert runtime_object("aarch64") is not None, why_no_runtime("aarch64")
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "model.nova").write_bytes(file)
    program = tmp_path / "main"
    include = ROOT / "native/include"
    command = [gcc, "-O1", "-I", include, "-o", program, tmp_path / "main.c", "-ldl"]
    subprocess.run(command, check=True)
    prefix = [] if native else [emulator, "-L", "/usr/aarch64-linux-gnu"]
    completed = subprocess.run(
        [*prefix, program, tmp_path / "model.nova"], capture_output=True, text=True, timeout=120
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    rows = [np.array(line.split(), np.float32) for line in completed.stdout.splitlines()]
    assert len(rows) == 6

    outputs, inputs, params = graph
    x = (0.01 * np.arange(35) - 0.1).astype(np.float32).reshape(5, 7)
    w = (0.02 * np.arange(21) - 0.2).astype(np.float32).reshape(7, 3)
    expected = nova.compile(outputs, inputs=inputs, params=params).run([x], [w])
    for y, z in zip(rows[::2], rows[1::2], strict=True):
        np.testing.assert_allclose(y, expected[0].ravel(), rtol=2e-6, atol=1e-7)
        np.testing.assert_allclose(z, expected[1], rtol=2e-6)
        np.testing.assert_array_equal(y, rows[0])
        np.testing.assert_array_equal(z, rows[1])
