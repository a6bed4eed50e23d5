"""docs/importing.md: its programs and commands run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from page_blocks import read_blocks, run_python

from nova.tools.nova_translate import main


def test_importing_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_python("docs/importing.md")
    [block] = read_blocks("docs/importing.md", "console")
    for command in block.text.splitlines():
        prompt, tool, *words = shlex.split(command)
        assert (prompt, tool) == ("$", "nova-translate")
        assert main(words) == 0, capsys.readouterr().err
    for name in ("layer.nova", "again.nova"):
        assert (tmp_path / name).read_bytes().startswith(b"\x7fELF")
    assert "fmla" in (tmp_path / "layer.s").read_text()
