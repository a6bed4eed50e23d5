"""Hostile and damaged files through `nova inspect`: it names the check, and executes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from batches import run_batch
from hostile_rows import ROWS, Row
from planted import PLANTS, plant_code
from surgery import Surgery, canonical

from nova.tools.nova import main

SIZE = 1000
BATCHES = [0, 1, *(pytest.param(batch, marks=pytest.mark.slow) for batch in range(2, 5))]
NIGHTLY, LARGE = 20, 5000


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_refused_by_the_right_check(
    row: Row, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = row.make(tmp_path, (sound / f"{row.base}.nova").read_bytes())
    status = main(["inspect", str(path)])
    listing = capsys.readouterr()
    if row.check == "cpu-features":  # nothing is wrong with the file: it shows what is missing
        assert status == 0 and ("warp-drive" in listing.out or "neon" in listing.out)
        return
    assert status == 1 and listing.out == ""
    assert re.match(f"nova inspect: check '{row.check}' failed: ", listing.err), listing.err


@pytest.mark.parametrize("batch", BATCHES)
def test_damaged_files(batch: int, sound: Path, tmp_path: Path) -> None:
    outcomes = run_batch("inspect", sound, batch * SIZE, SIZE, tmp_path)
    assert outcomes.total() == SIZE
    assert outcomes["sealed: shown"] > SIZE / 20
    assert len(outcomes) > 40


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(NIGHTLY))
def test_more_damaged_files(batch: int, sound: Path, tmp_path: Path) -> None:
    outcomes = run_batch("inspect", sound, 1_000_000 + batch * LARGE, LARGE, tmp_path)
    assert outcomes.total() == LARGE


@pytest.mark.parametrize("name", PLANTS)
def test_planted_code_does_not_run(
    name: str, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark, path = tmp_path / "mark", tmp_path / "planted.nova"
    check = plant_code(name, (sound / "full.nova").read_bytes(), path, mark)
    assert main(["inspect", str(path)]) == 1
    assert f"check '{check}'" in capsys.readouterr().err
    assert not mark.exists()


def test_names_cannot_move_the_cursor(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a file calls its tensors is shown, not obeyed by the terminal."""
    path = tmp_path / "hostile.nova"
    file = Surgery((sound / "full.nova").read_bytes())
    result = file.manifest
    result["key"] = {"\x1b[2J": "\x1b]0;title\x07"}
    result["producer"] = "\x1b[31mnova\r\u202e"
    result["args"][0]["name"] = "\x1b[H\u2028x"
    file.set_manifest(canonical(result))
    path.write_bytes(file.seal())
    assert main(["inspect", str(path)]) == 0
    listing = capsys.readouterr().out
    assert listing.replace("\n", "").isprintable() and "x1b[2J" in listing
    assert main(["inspect", "--json", str(path)]) == 0
    listing = capsys.readouterr().out
    assert json.loads(listing)["producer"] == result["producer"]
    assert listing.replace("\n", "").isprintable()
