"""The examples run, and reach what they promise."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import nova

EXAMPLES = Path(__file__).parents[2] / "examples"
STAGES = ("plan", "nova", "linalg", "kernels", "buffers", "loops", "llvm", "ll", "object")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = load("demo")
    monkeypatch.chdir(tmp_path)
    demo.main()
    output = capsys.readouterr().out
    for stage in STAGES:
        assert f"\n  {stage} " in output
    assert "\n  artifact " in output
    assert "from cache" not in output
    assert "bit for bit" in output
    assert float(re.search(r"([\d.]+)% on \d+ test images", output)[1]) > 97
    model = nova.load(tmp_path / "digits.nova")
    assert [a.name for a in model.signature.arguments] == ["images"]
    assert (tmp_path / "digits.safetensors").exists()


def test_linear_regression() -> None:
    result = load("linear_regression").main()
    assert np.allclose(result, [2, -3, 0.5], atol=0.01)


def test_attention_block() -> None:
    first, last = load("attention_block").main()
    assert last < first / 10


def test_every_example_is_tested() -> None:
    assert {p.stem for p in EXAMPLES.glob("*.py")} == {
        "attention_block",
        "char_gpt",
        "demo",
        "digits",
        "dqn",  # tests/examples/test_more_examples.py
        "gpt",
        "linear_regression",
        "llama",  # tests/examples/test_llama.py
        "lstm_lm",  # tests/examples/test_more_examples.py
        "model_zoo",
        "neural_ode",  # tests/examples/test_more_examples.py
    }
