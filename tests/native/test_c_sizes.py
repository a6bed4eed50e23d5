"""The C API with symbolic sizes, under sanitizers and through memref descriptors."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from tests.support.c_build import MEMORY, NATIVE, THREADS, build_test
from tests.support.symbolic_programs import B, symbolic_program

COLUMNS, ROWS = 24, 80


def scan_rows(x: Any, w: Any) -> Any:
    """A loop over rows, whose number is symbolic, and a branch over all of them."""
    rows = nova.scan(lambda c, row: (c * 0.5 + row, c + row), w, x)[1]
    return nova.cond(rows.sum() > 100, lambda v: v + w, lambda v: v * 2, rows)


def scan_calls(folder: Path) -> Any:
    """The same with a file that computes one step, and its values of the weights."""
    c, row = (nova.input((COLUMNS,), name=name) for name in ("c", "row"))
    half = nova.tensor(np.full(COLUMNS, 0.5, "f4"), name="half")
    step = nova.compile([c * half + row, c + row], inputs=[c, row], params=[half])
    step.save(folder / "step.nova", weights="embed")
    loaded = nova.load(folder / "step.nova")
    return lambda x, w: nova.scan(lambda c, row: nova.call(loaded, c, row), w, x)[1] * 2


@pytest.fixture(scope="module", params=["softmax", "control flow", "specialized", "called file"])
def path(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sizes")
    if request.param == "softmax":
        shapes = [(B, COLUMNS), (COLUMNS,)]
        symbolic_program(lambda x, w: nova.softmax(x + w) * x, shapes, folder)
    else:
        x = nova.input((nova.dim("B", min=0), COLUMNS), name="x")
        w = nova.input((COLUMNS,), name="w")
        sizes = [3, 7, 70] if request.param == "specialized" else []
        body = scan_rows if request.param != "called file" else scan_calls(folder)
        program = nova.compile(body(x, w), inputs=[x, w], specialize=sizes)
        program.save(folder / "symbolic.nova")
    return folder / "symbolic.nova"


@pytest.mark.parametrize("sanitizers", [MEMORY, THREADS])
def test_models_for_sizes(path: Path, sanitizers: str) -> None:
    program = build_test(NATIVE / "tests" / "api" / "run_sizes.c", sanitizers)
    result = subprocess.run([program, path], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    head, *lines = result.stdout.splitlines()
    assert head == "-1 24 -1"
    loaded = nova.load(path)
    w = np.arange(COLUMNS, dtype="f4")
    for rows, line in enumerate(lines):
        x = (np.arange(rows * COLUMNS) % 7).astype("f4").reshape(rows, COLUMNS)
        expected = float(np.asarray(loaded(x, w), "f8").sum())
        assert all(abs(float(text) - expected) <= 0.1 for text in line.split()), (rows, line)
    assert len(lines) == ROWS


class _Vector(ctypes.Structure):
    _fields_ = (
        ("allocated", ctypes.c_void_p),
        ("aligned", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("extents", ctypes.c_int64 * 2),
    )


class _Matrix(ctypes.Structure):
    _fields_ = (*_Vector._fields_[:3], ("extents", ctypes.c_int64 * 4))


def test_descriptors_carry_sizes(path: Path) -> None:
    library = ctypes.CDLL(str(path))
    w = np.arange(COLUMNS, dtype="f4")
    loaded = nova.load(path)
    for rows in (3, 0, 70):
        x = np.random.default_rng(rows).standard_normal((rows, COLUMNS)).astype("f4")
        result = _Matrix()
        address = x.ctypes.data
        matrix = _Matrix(address, address, 0, (rows, COLUMNS, COLUMNS, 1))
        vector = _Vector(w.ctypes.data, w.ctypes.data, 0, (COLUMNS, 1))
        library._mlir_ciface_main(ctypes.byref(result), ctypes.byref(matrix), ctypes.byref(vector))
        assert result.allocated and tuple(result.extents) == (rows, COLUMNS, COLUMNS, 1)
        values = np.ctypeslib.as_array(
            ctypes.cast(result.aligned, ctypes.POINTER(ctypes.c_float)), (max(rows, 1), COLUMNS)
        )[:rows]
        np.testing.assert_array_equal(values, loaded(x, w))
    wrong = _Matrix(0, 0, 0, (5, COLUMNS + 1, COLUMNS, 1))
    result = _Matrix()
    library._mlir_ciface_main(ctypes.byref(result), ctypes.byref(wrong), ctypes.byref(vector))
    assert not result.allocated
