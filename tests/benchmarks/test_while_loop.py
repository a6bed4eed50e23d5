"""`benchmarks/while_loop.py`: the loop of Nova and the loop in C have the same results."""

from __future__ import annotations

import shutil

import pytest

needs_cc = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("taskset") is None, reason="needs cc and taskset"
)


@needs_cc
def test_both_loops_have_the_same_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import while_loop

    words = ["while_loop.py", "--iterations", "3", "--rounds", "1"]
    monkeypatch.setattr("sys.argv", words)
    while_loop.main()  # the C program fails if they differ
    assert "ratio" in capsys.readouterr().out
