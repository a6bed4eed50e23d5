"""The measurement of `benchmarks/torch_speed.py`: interleaved rounds, ratios to the best peer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


def load() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "torch_speed.py"
    spec = importlib.util.spec_from_file_location("torch_speed", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rounds_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load()
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    calls: list[str] = []
    runs = {name: lambda name=name: calls.append(name) for name in ("nova", "eager")}
    times = module.measure(runs, rounds=3)
    assert calls == ["nova", "eager"] * 3
    assert {name: len(values) for name, values in times.items()} == {"nova": 3, "eager": 3}


def test_a_row_has_the_ratio_to_the_best_peer() -> None:
    times = {"nova": [3.0, 2.0], "nova_frozen": [1.5], "eager": [4.0], "openvino": [1.0, 3.0]}
    result = {"model": "m", "times": times, "absent": {}}
    peers = ("nova", "nova_frozen", "eager", "inductor", "openvino")
    expected = "| m | 2.00 (2.50) | 1.50 (1.50) | 4.00 (4.00) | - | 1.00 (2.00) | 0.75 (openvino) |"
    assert load().row(result, peers) == expected


def test_a_peer_gives_eagers_result(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    x = torch.rand(2, 4)
    with torch.no_grad():
        for peer in ("nova", "nova_frozen", "eager"):
            result = torch.as_tensor(load().make_run(peer, model, x, 1, tmp_path)())
            torch.testing.assert_close(result, model(x))
