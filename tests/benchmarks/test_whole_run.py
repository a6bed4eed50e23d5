"""A whole run from command line to page, numbers and picture, with processes that are made up."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import run
import workloads
from bars import BARS
from harness.pool import Plan, environment
from workloads import import_time

PEAKS = {"cores": 2, "core_flops": 1e11, "core_bytes": 1e10, "flops": 2e11, "bytes": 1.5e10}
PHASES = dict.fromkeys(("import", "compiler", "compile", "load", "whole process"), 0.001)


class _Pool:
    def __init__(self, scratch: Path):
        pass

    def ask(self, library: str, threads: int, **request: Any) -> dict[str, Any]:
        assert request == {"do": "peaks"}
        return dict(PEAKS)

    def close(self) -> None:
        pass


def _loop(pool: Any, name: str, module: ModuleType, size: str, threads: int, plan: Plan) -> Any:
    """Every contender as fast as the others, but for one that is wrong."""
    rows = plan.rows(module, "seconds")
    for row in rows:
        if "missing" not in row:
            row["seconds"] = [1e-6, 2e-6, 3e-6]
    if name == "softmax":
        rows[-1]["failed"] = "WrongResult: result 0 is off"
    return rows


def _fresh(scratch: Path, name: str, module: ModuleType, plan: Plan) -> Any:
    rows = plan.rows(module, "phases")
    for row in rows:
        if "missing" not in row:
            row["phases"] = [dict(PHASES)]
    return rows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "Pool", _Pool)
    monkeypatch.setattr(run, "run_loop", _loop)
    monkeypatch.setattr(run, "run_fresh", _fresh)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(import_time, "breakdown", lambda variables: {"numpy": 1.0})
    return tmp_path


def test_a_whole_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == 1
    page = (folder / "RESULTS.md").read_text()
    listing = capsys.readouterr()
    assert listing.out == page
    assert "softmax : IREE WrongResult: result 0 is off" in listing.err
    assert (folder / "results.png").exists() and "(results.png)" in page
    results = json.loads((folder / "results.json").read_text())
    assert [bar["text"] for bar in results["bars"]] == [bar.text for bar in BARS]
    assert all(bar["met"] is not None for bar in results["bars"])
    assert {table["workload"] for table in results["workloads"]} == set(workloads.ORDER)
    for before, line in pairwise(page.splitlines()):
        if before.startswith("|") and line.startswith("|"):
            assert line.count("|") == before.count("|"), line
    for table in results["workloads"]:
        assert table["title"] in page


def test_a_part_of_it_is_printed_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--only", "matmul/*/2", "--json", "-"])
    assert run.main() == 0
    results = json.loads(capsys.readouterr().out)
    assert [table["threads"] for table in results["workloads"]] == [2] * 5
    assert len(results["bars"]) == 5 and results["plot"] == ""
    assert list(folder.iterdir()) == []


def test_all_are_held_to_avx2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOVA_TARGET", "cpu")  # so that what the run sets is undone
    monkeypatch.setattr(run, "hold_to_avx2", lambda folder: {"NOVA_TARGET": "x86_64-v3"})
    wide = {**run.describe(), "vectors": "AVX-512"}
    monkeypatch.setattr(run, "describe", lambda: wide)
    monkeypatch.setattr(sys, "argv", ["run.py", "--avx2", "--only", "matmul/128"])
    assert run.main() == 0
    page = capsys.readouterr().out
    assert "all held to AVX2" in page and "peaks were not measured" in page
    assert environment(folder, 1)["NOVA_TARGET"] == "x86_64-v3"
