"""The training examples at small size: they run, and they learn."""

import runpy
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    module = runpy.run_path(str(EXAMPLES / name))
    return module


def test_digits_are_read_right(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)  # the example writes into the current folder
    module = load("digits.py", monkeypatch)
    assert module["main"]() > 0.97
    assert (tmp_path / "digits.safetensors").exists() and (tmp_path / "digits.nova").exists()
    assert "test images" in capsys.readouterr().out


def test_char_gpt_learns_and_writes(monkeypatch, capsys):
    module = load("char_gpt.py", monkeypatch)
    small = ["--steps", "40", "--width", "32", "--layers", "1", "--context", "24", "--sample", "30"]
    assert module["main"]([*small, "--batch", "8"]) < 3.0
    assert "The keeper" in capsys.readouterr().out
