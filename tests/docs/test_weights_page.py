"""docs/weights.md: its programs run."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import run_python


def test_weights_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    run_python("docs/weights.md")
