"""Files of every released format version still load and give the results recorded beside them."""

from __future__ import annotations

import platform
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

import nova
from nova.artifact.format import load_artifact
from nova.artifact.manifest import FORMAT_VERSION

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("format-*.nova"))

on_x86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the files hold code for x86-64"
)


def recorded(path: Path) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    with np.load(path.with_suffix(".npz")) as found:
        inputs = [found[f"input{i}"] for i in range(3)]
        outputs = [found[f"output{i}"] for i in range(3)]
        return inputs, outputs, found["param_count"]


def test_every_version_has_its_file() -> None:
    versions = [int(path.stem.partition("-")[2]) for path in FILES]
    assert versions == list(range(2, FORMAT_VERSION + 1))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_of_its_version(path: Path) -> None:
    manifest = load_artifact(path).manifest
    assert f"format-{manifest.format_version}" == path.stem
    assert [spec.name for spec in manifest.args] == ["x", "index", "mask", "w", "count"]
    assert manifest.weights.kind == "embedded"


@on_x86_64
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_results_are_those_recorded(path: Path) -> None:
    inputs, outputs, count = recorded(path)
    model = nova.load(path)
    results = model.run(inputs)
    for result, wanted in zip(results, outputs, strict=True):
        assert result.dtype == wanted.dtype
        assert result.tobytes() == wanted.tobytes()
    assert model.params["count"] == count


def test_released_files_are_not_made_again() -> None:
    with pytest.raises(SystemExit, match="a released file stays as it is"):
        run_path(str(FOLDER / "make.py"), run_name="__main__")
