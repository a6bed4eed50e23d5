"""The parts of the harness: choosing tables, checking results, sharing inputs, waiting for rest."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run
import workloads
from harness.case import Case, WrongResult, worst_error
from harness.inputs import shared
from harness.onnx_peers import model_of
from harness.pool import Plan
from harness.settle import wait_at_rest
from harness.worker import Worker


def _options(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    return run._parse()


@pytest.mark.parametrize(
    "arguments, workload, tables",
    [
        (["--only", "matmul/1024/2"], "matmul", [("1024", 2)]),
        (["--only", "matmul/1024"], "matmul", [("1024", 1), ("1024", 2)]),
        (["--only", "gelu_chain/erf*/1"], "gelu_chain", [("erf, 16M", 1)]),
        (["--only", "*/*/2", "--only", "softmax"], "softmax", [("", 1)]),
        (["--only", "train_compile_cold"], "train_compile_cold", [("", 0)]),
        (["--only", "matmul/1024"], "softmax", []),
        (["--threads", "2", "softmax"], "softmax", [("", 2)]),
    ],
)
def test_tables_are_chosen_by_pattern(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], workload: str, tables: Any
) -> None:
    assert run._tables(workload, _options(monkeypatch, *arguments)) == tables


@pytest.mark.parametrize("arguments", [["matmull"], ["--only", "matmul/1025"]])
def test_what_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        _options(monkeypatch, *arguments)
    assert ended.value.code == 2


def test_only_a_whole_run_rewrites_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _options(monkeypatch).full_run
    assert _options(monkeypatch, "--rounds", "20", "--json", "x").full_run
    for subset in (["softmax"], ["--quick"], ["--without", "IREE"], ["--only", "softmax"]):
        assert not _options(monkeypatch, *subset).full_run


def test_contenders_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("workloads.softmax")
    plan = _options(monkeypatch, "--quick", "--without", "IREE").plan
    missing = {row["contender"] for row in plan.rows(module, "seconds") if "missing" in row}
    assert missing == {"torch.compile", "IREE"}
    assert not any("missing" in row for row in Plan().rows(module, "seconds"))


def test_a_result_is_held_to_the_oracle() -> None:
    right = [np.linspace(-2.0, 4.0, 1 << 19)]
    assert worst_error([right[0].astype(np.float32)], right, 1e-6) < 1e-7
    assert worst_error([np.zeros((0, 3), np.float32)], [np.zeros((0, 3))], 1e-6) == 0
    for location in (0, right[0].size - 1):
        for value in (right[0][location] + 1e-3, np.nan):
            wrong = right[0].copy()
            wrong[location] = value
            with pytest.raises(WrongResult, match="result 0 is off"):
                worst_error([wrong], right, 1e-6)
    with pytest.raises(WrongResult, match="shape"):
        worst_error([np.zeros(3)], [np.zeros(4)], 1e-6)
    with pytest.raises(WrongResult, match="0 results, 1 wanted"):
        worst_error([], right, 1e-6)


def test_inputs_are_made_once_and_one_table_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_SCRATCH", str(tmp_path))
    created = []

    def make() -> list[np.ndarray]:
        created.append(1)
        return [np.arange(4.0)]

    for _ in range(2):
        np.testing.assert_array_equal(shared("a", make)[0], np.arange(4.0))
    assert len(created) == 1
    shared("b", make)
    assert len(list(tmp_path.iterdir())) == 1


def test_waits_until_a_process_is_at_rest() -> None:
    idle = subprocess.Popen(["sleep", "30"])
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert wait_at_rest(idle.pid) < 0.4
        assert wait_at_rest(busy.pid) >= 0.5  # given up on
    finally:
        for process in (idle, busy):
            process.kill()
            process.wait()
    assert wait_at_rest(idle.pid) < 0.4  # which is gone


@pytest.mark.parametrize("name", workloads.ORDER)
def test_every_workload_has_its_parts(name: str) -> None:
    module = importlib.import_module(f"workloads.{name}")
    assert module.TITLE and module.UNIT in ("us", "ms", "s")
    if module.MODE == "loop":
        assert module.SIZES and module.THREADS and module.TOLERANCE <= 1e-4
        assert callable(module.arrays) and callable(module.oracle)
    else:
        assert module.MODE == "fresh" and set(module.SLOW) <= set(module.CONTENDERS)


@pytest.mark.parametrize(
    "name, size, contender",
    [
        ("matmul", "128", "numpy"),
        ("small_matmul", "96 of 64x64x64", "numpy"),
        ("small_matmul", "8x16x10", "Nova"),
        ("constant_weights", "64x784x512", "Nova, weights constant"),
        ("train_small", "", "Nova, train_step"),
        ("small_step", "", "Nova, Compiled()"),
    ],
)
def test_a_worker_checks_and_times_a_contender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: str, contender: str
) -> None:
    monkeypatch.setenv("BENCH_SCRATCH", str(tmp_path))
    worker = Worker()
    built = worker.build(name, size, contender)
    assert built["error"] <= 1e-5 and built["repeats"] >= 1
    assert 0 < worker.measure(contender)["seconds"] < 1
    assert worker.finish(name, size, contender)["error"] <= 1e-5
    assert not worker.cases and not worker.inputs


def test_a_wrong_contender_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_SCRATCH", str(tmp_path))
    module = importlib.import_module("workloads.matmul")
    wrong = {"wrong": ("numpy", lambda inputs: Case(np.add, inputs))}
    monkeypatch.setattr(module, "CONTENDERS", wrong)
    with pytest.raises(WrongResult):
        Worker().build("matmul", "128", "wrong")


def test_an_onnx_model_by_hand() -> None:
    onnx = pytest.importorskip("onnx")
    x, w = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    nodes = [("MatMul", "xw", "z"), ("Gelu", "z", "y", {"approximate": "tanh"})]
    model = onnx.load_from_string(model_of(nodes, {"x": x}, "y", {"w": w}))
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Gelu"]
    assert [value.name for value in model.graph.initializer] == ["w"]
