"""The tools with standard streams that the caller has closed: a message, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
"""
# (module and arguments, redirections, exit status, what stderr says)
CASES = [
    ("nova_opt -", "<&-", 1, "nova-opt: -: Bad file descriptor"),
    ("nova_opt in.mlir", ">&-", 1, "nova-opt: in.mlir: Bad file descriptor"),
    ("nova_opt in.mlir -o out", "<&- >&-", 0, ""),
    ("nova_opt no.mlir", "<&- >&- 2>&-", 1, ""),
    ("nova_translate -", "<&-", 1, "nova-translate: -: Bad file descriptor"),
    ("nova_translate in.mlir --emit linalg", ">&-", 1, "nova-translate: -: Bad file descriptor"),
    ("nova_translate in.mlir -o out --emit linalg", "<&- >&- 2>&-", 0, ""),
    ("nova cache list", ">&-", 1, "nova cache: Bad file descriptor"),
    ("nova inspect no.nova", "<&- >&- 2>&-", 1, ""),
]


@pytest.mark.parametrize(("words", "closed", "status", "message"), CASES)
def test_closed_streams(tmp_path: Path, words: str, closed: str, status: int, message: str) -> None:
    (tmp_path / "in.mlir").write_text(PROGRAM)
    line = f"exec {sys.executable} -m nova.tools.{words} {closed}"
    completed = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stderr.strip()) == (status, message)
    assert completed.stdout == ""
    if status == 0:
        assert "return %" in (tmp_path / "out").read_text(), "nothing else went into the file"
