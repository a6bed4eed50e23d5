"""The generated pages are up to date, and a stale one is found and rewritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova import knobs
from nova.tools import gen_docs

ROOT = Path(__file__).parents[2]


def test_pages_in_the_repository_are_up_to_date() -> None:
    assert gen_docs.find_stale(ROOT) == [], "run python -m nova.tools.gen_docs"


def test_knobs_page_has_every_knob() -> None:
    page = gen_docs.render_knobs()
    for knob in knobs.KNOBS.values():
        assert f"| `{knob.variable}` | `knobs.{knob.name}` | {knob.kind.takes} |" in page


def test_stale_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gen_docs.main(["--root", str(tmp_path), "--check"]) == 1
    assert "docs/knobs.md is stale" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()
    assert gen_docs.main(["--root", str(tmp_path)]) == 0
    assert gen_docs.main(["--root", str(tmp_path), "--check"]) == 0
