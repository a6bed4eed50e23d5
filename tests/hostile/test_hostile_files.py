"""Files made by hand to do harm: each is refused by the check that is meant for it."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import pytest
from hostile_rows import ROWS, STAGES, Row

import nova
from nova.api import load as loading
from nova.artifact.format import load_artifact
from nova.errors import ArtifactError


def refuse(row: Row, error: ArtifactError, path: Path) -> None:
    """The error names the check and the file."""
    result = re.match(r"check '([a-z-]+)' failed: ", error.what)
    assert result is not None and re.fullmatch(row.check, result[1]), error.what
    assert str(error).isprintable() or "\n" in str(error)
    if error.where is not None:
        assert str(path) in error.where


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where only the runtime is installed: no file is compiled again."""
    monkeypatch.setattr(loading, "missing_packages", lambda: ["llvmlite"])


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_refused_by_the_right_check(row: Row, sound: Path, tmp_path: Path) -> None:
    path = row.make(tmp_path, (sound / f"{row.base}.nova").read_bytes())
    with pytest.raises(ArtifactError) as caught:
        model = nova.load(path)
        if row in STAGES:
            _ = model.stages
    refuse(row, caught.value, path)
    if row.check == "cpu-features":
        assert load_artifact(path).manifest.variants  # nothing is wrong with the file itself
        return
    with pytest.raises(ArtifactError) as caught:
        load_artifact(path).stages()
    refuse(row, caught.value, path)


def test_there_are_enough_of_them() -> None:
    names = {row.name for row in ROWS}
    assert len(names) == len(ROWS) >= 120
    assert len({row.check for row in ROWS}) >= 50


@pytest.mark.parametrize("name", ["full", "plain", "tasks", "signed"])
def test_the_files_they_are_made_of_are_sound(name: str, sound: Path) -> None:
    """Else they could be refused for something else."""
    assert load_artifact(sound / f"{name}.nova").stages() is not None
    assert nova.load(sound / f"{name}.nova").name == f"{name}.nova"


def test_no_descriptor_and_no_mapping_stays(sound: Path, tmp_path: Path) -> None:
    paths = []
    for number, row in enumerate(ROWS):
        if row not in STAGES and row.check != "cpu-features":
            (tmp_path / str(number)).mkdir()
            data = (sound / f"{row.base}.nova").read_bytes()
            paths.append(row.make(tmp_path / str(number), data))
    before = open_things()
    for _ in range(3):
        for path in paths:
            with pytest.raises(ArtifactError):
                load_artifact(path)
    assert open_things() == before


def open_things() -> tuple[int, int]:
    """File descriptors, and executable mappings: a refused file must leave neither."""
    gc.collect()  # programs of other tests
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len(os.listdir("/proc/self/fd")), sum("x" in line.split()[1] for line in maps)
