"""docs/torch.md: its programs run."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import run_python


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torch_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python("docs/torch.md")
