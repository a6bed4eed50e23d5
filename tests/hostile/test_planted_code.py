"""Code that would run when a file is loaded: looking at it and refusing it runs nothing.

The code makes a file. That it does so under `dlopen` is shown first, else it would prove nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from planted import PLANTS, assemble, plant_code
from surgery import Surgery

import nova
from nova import _native
from nova.artifact.format import load_artifact, read_artifact
from nova.errors import ArtifactError


def refuse(path: Path, check: str) -> None:
    """Every way to open the file ends with the check."""
    data = path.read_bytes()
    with pytest.raises(_native.FileError) as caught:
        _native.File(path)
    assert re.match(check, caught.value.check)
    for open_it in (
        lambda: read_artifact(data),
        lambda: load_artifact(path),
        lambda: nova.load(path),
    ):
        with pytest.raises(ArtifactError, match=f"check '{check}"):
            open_it()


def load_with_dlopen(path: Path) -> None:
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True)


@pytest.mark.parametrize("name", PLANTS)
def test_planted_in_a_sound_file(name: str, sound: Path, tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "planted.nova"
    check = plant_code(name, (sound / "full.nova").read_bytes(), path, mark)
    load_with_dlopen(path)
    assert mark.exists(), "the code is not alive"
    mark.unlink()
    refuse(path, check)
    assert not mark.exists()


def test_constructor_of_gcc(tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "planted.nova"
    (tmp_path / "plant.c").write_text(
        "#include <fcntl.h>\n"
        "__attribute__((constructor)) static void plant(void)\n"
        f'{{ (void)creat("{mark}", 0600); }}\n'
    )
    command = ["gcc", "-shared", "-fPIC", "plant.c", "-o", path.name]
    subprocess.run(command, cwd=tmp_path, check=True)
    load_with_dlopen(path)
    assert mark.exists(), "the code is not alive"
    mark.unlink()
    refuse(path, "(elf|segment)-")
    assert not mark.exists()


def test_a_sound_file_runs_nothing_when_it_is_opened(sound: Path, tmp_path: Path) -> None:
    """The first byte of every kernel and of the runtime would make the file; nobody calls them."""
    mark, path = tmp_path / "mark", tmp_path / "planted.nova"
    file = Surgery((sound / "full.nova").read_bytes())
    code = assemble(tmp_path, mark)
    for kernel in range(4):
        file.put(f"{len(code)}s", file.get("Q", file.table("kernel", kernel)), code)
    path.write_bytes(file.seal())
    artifact = load_artifact(path)
    assert artifact.stages() and artifact.tables(0).kernels and artifact.weights()
    model = nova.load(path)
    assert model.signature.inputs and model.params and model.kernels
    assert not mark.exists()
