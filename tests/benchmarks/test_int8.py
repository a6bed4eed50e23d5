"""The benchmark of integer matmuls: Nova is exact, and the table has a row for each case."""

from __future__ import annotations

import int8
import pytest


def test_small_matmuls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    for name in ("jax", "torch", "onnx", "onnxruntime"):
        pytest.importorskip(name)
    monkeypatch.setattr(int8, "CASES", ((32, 32, 40, "i1", "i1"), (33, 32, 40, "u1", "i1")))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    int8.main(["--rounds", "1"])
    titles, _, *rows = capsys.readouterr().out.strip().splitlines()
    assert titles.split(" | ")[-1] == "Nova / onnxruntime |"
    assert [row.split(" | ")[0] for row in rows] == ["| 32x32x40 i8 i8", "| 33x32x40 u8 i8"]
    # Only onnxruntime saturates, on CPUs without VNNI.
    assert all("inexact" not in cell for row in rows for cell in row.split(" | ")[1:4])
    assert all(len(row.split(" | ")) == len(titles.split(" | ")) for row in rows)
