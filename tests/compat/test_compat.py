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
FILES = sorted(FOLDER.glob("format/*.nova"))

on_x86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the files hold code for x86-64"
)


def recorded(path: Path) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    with np.load(path.with_suffix(".npz")) as result:
        inputs = [result[f"input{i}"] for i in range(3)]
        outputs = [result[f"output{i}"] for i in range(3)]
        return inputs, outputs, result["param_count"]


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
    for result, expected in zip(results, outputs, strict=True):
        assert result.dtype == expected.dtype
        assert result.tobytes() == expected.tobytes()
    assert model.params["count"] == count


# --- files for GPUs -------------------------------------------------------------------------------

GPU_FILES = sorted([*FOLDER.glob("devices/*.nova"), *FOLDER.glob("mixed/*.nova")])


def test_versions_with_gpus_have_their_files() -> None:
    """Format 3 brought them."""
    expected = [
        f"{mode}-{n}" for mode in ("devices", "mixed") for n in range(3, FORMAT_VERSION + 1)
    ]
    assert [path.stem for path in GPU_FILES] == expected


@pytest.mark.parametrize("path", GPU_FILES, ids=lambda path: path.stem)
def test_a_file_holds_code_for_a_cpu_and_two_gpus(path: Path) -> None:
    artifact = load_artifact(path)
    manifest = artifact.manifest
    assert f"-{manifest.format_version}" in path.stem
    assert [v.target for v in manifest.variants] == ["x86_64", "cuda:sm_90a", "cuda:sm_80"]
    assert sorted(image.arch for image in manifest.devices) == ["sm_80", "sm_90a"]
    for number in (1, 2):
        tables = artifact.tables(number)
        cores = {tables.kernels[launch.kernel].core for launch in tables.launches}
        mixed = {"to_host", "to_device"} <= cores and bool({"matrix", "vector"} & cores)
        assert mixed == path.stem.startswith("mixed")


@on_x86_64
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("path", GPU_FILES, ids=lambda path: path.stem)
def test_steps_are_those_recorded(path: Path, device: str) -> None:
    """To the bit on the CPU; a GPU sums in another order."""
    model = nova.load(path, device=device)
    with np.load(path.with_suffix(".npz")) as result:
        expected = {name: result[name] for name in result.files}
    updated = expected["w"].copy()
    results = model.run([expected["x"]], [updated])
    private = {"loss": results[0], "weights": results[1], "updated": updated}
    for name, array in private.items():
        assert np.asarray(array).dtype == expected[name].dtype
        if device == "cpu":
            assert np.asarray(array).tobytes() == expected[name].tobytes()
        else:
            np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
    assert not np.array_equal(updated, expected["w"])


def test_released_files_are_not_made_again() -> None:
    with pytest.raises(SystemExit, match="a released file stays as it is"):
        run_path(str(FOLDER / "make.py"), run_name="__main__")
