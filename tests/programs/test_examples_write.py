"""The examples write into the current folder, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nova

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_digits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    before = {path for path in EXAMPLES.rglob("*") if "__pycache__" not in path.parts}
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import digits; digits.main(epochs=1)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"digits.nova", "digits.safetensors"}
    assert "saved digits.safetensors and digits.nova" in completed.stdout
    assert before == {path for path in EXAMPLES.rglob("*") if "__pycache__" not in path.parts}
    program = nova.load(tmp_path / "digits.nova")
    shape = program.signature.inputs[0].type.shape
    assert np.isfinite(program(np.zeros(shape, np.float32))).all()


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.stem)
def test_no_example_writes_beside_itself(path: Path) -> None:
    text = path.read_text()
    assert "tempfile" not in text and "parents[" not in text, "write into the current folder"
