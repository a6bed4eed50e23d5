"""Files without code for this CPU, whose text is hostile: compiling it again gives no surprise."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from surgery import Surgery, canonical

import nova
from nova.errors import ArtifactError, NovaError, RecompileWarning


def write(path: Path, sound: Path, stages: dict[str, str]) -> Path:
    """The sound file, for a CPU that nobody has, with other texts."""
    file = Surgery((sound / "full.nova").read_bytes())
    result = file.manifest
    result["key"] = {}
    for variant in result["variants"]:
        variant["features"] = ["warp-drive"]
    file.set_manifest(canonical(result))
    file.set_stages(zlib.compress(canonical(stages)))
    path.write_bytes(file.seal())
    return path


def other_plan() -> str:
    x = nova.tensor(np.ones((2, 3), "f4"), name="x")
    return str(nova.compile(x * 2, inputs=[x]).plan)


@pytest.mark.filterwarnings("ignore::nova.errors.RecompileWarning")
def test_text_of_another_program(sound: Path, tmp_path: Path) -> None:
    """It would run with the weights and under the signature of this one."""
    path = write(tmp_path / "model.nova", sound, {"plan": other_plan()})
    with pytest.raises(ArtifactError, match=r"check 'stages-text' failed: .* another signature"):
        nova.load(path)


@pytest.mark.filterwarnings("ignore::nova.errors.RecompileWarning")
def test_no_text(sound: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "model.nova", sound, {"ll": "define void @k()"})
    with pytest.raises(
        ArtifactError, match=r"(?s)'cpu-features' failed: .* holds no text to compile"
    ):
        nova.load(path)


@pytest.mark.filterwarnings("ignore::nova.errors.RecompileWarning")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "plan {",
        "\0\0\0",
        "plan {\n" * 5000,
        "plan { return slot[99999999999999999999] }",
        "\ud800",
    ],
)
def test_text_that_is_no_plan(text: str, sound: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "model.nova", sound, {"plan": text})
    with pytest.raises(NovaError) as caught:
        nova.load(path)
    assert str(path) in str(caught.value)


def test_the_right_text(sound: Path, tmp_path: Path) -> None:
    stages = nova.load(sound / "full.nova").stages
    path = write(tmp_path / "model.nova", sound, {"plan": stages["plan"]})
    with pytest.warns(RecompileWarning, match="warp-drive"):
        model = nova.load(path)
    with np.load(sound / "full.npz") as arrays:
        actual = model.run([arrays["input0"]])
        np.testing.assert_array_equal(actual[0], arrays["output0"])
