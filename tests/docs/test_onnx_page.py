"""docs/onnx.md runs, and docs/onnx-node-tests.md has the outcomes of today."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT, read_blocks, run_python

pytest.importorskip("onnx")

from onnx_cases import cases, outcome

from nova.tools.nova_translate import main


def test_onnx_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_python("docs/onnx.md")
    [block] = read_blocks("docs/onnx.md", "console")
    for command in block.text.splitlines():
        prompt, tool, *words = shlex.split(command)
        assert (prompt, tool) == ("$", "nova-translate")
        assert main(words) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_the_page_of_node_tests_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("onnx_nodes", None)
    from onnx_nodes import PAGE, render_page

    outcomes = {case.name: outcome(case, compiled=False) for case in cases("node")}
    assert PAGE.read_text() == render_page(outcomes)
