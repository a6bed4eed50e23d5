"""Links to files are followed, and what is no file is refused at once, whatever is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.artifact.files import open_regular
from nova.errors import ArtifactError, NovaError
from nova.frontends.safetensors import read_metadata, read_safetensors

W = np.arange(6, dtype="f4").reshape(3, 2)
X = np.ones((2, 3), "f4")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A program, and its weights beside it, in a folder of their own."""
    x, w = nova.tensor(X, name="x"), nova.tensor(W, name="w")
    (tmp_path / "blobs").mkdir()
    path = tmp_path / "blobs" / "model.nova"
    nova.compile(x @ w, inputs=[x], params=[w]).save(path, weights="external", params=[W])
    return path


def test_a_link_to_a_program(model: Path, tmp_path: Path) -> None:
    """As in the cache of a hub, where names are links to contents."""
    link, again = tmp_path / "model.nova", tmp_path / "again.nova"
    link.symlink_to(os.path.relpath(model, tmp_path))
    again.symlink_to(link)
    for path in (link, again):
        np.testing.assert_allclose(nova.load(path).run([X]), X @ W)


def test_links_to_both_files(model: Path, tmp_path: Path) -> None:
    for path in model.parent.iterdir():
        (tmp_path / path.name).symlink_to(path)
    np.testing.assert_allclose(nova.load(tmp_path / "model.nova").run([X]), X @ W)


def test_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "link.nova").symlink_to(tmp_path / "nothing")
    with pytest.raises(ArtifactError, match="No such file"):
        nova.load(tmp_path / "link.nova")


def pipe(path: Path) -> None:
    os.mkfifo(path)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": pipe,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("mode", KINDS)
def test_what_is_no_file(mode: str, model: Path, tmp_path: Path) -> None:
    path = tmp_path / f"odd-{mode}"
    KINDS[mode](path)
    with pytest.raises(NovaError, match="not a regular file"):
        nova.load(path)
    with pytest.raises(NovaError, match="not a regular file"):
        nova.load(model, weights=path)
    (sibling,) = model.parent.glob("*.safetensors")
    sibling.unlink()
    KINDS[mode](sibling)
    with pytest.raises(NovaError, match="not a regular file"):
        nova.load(model)
    for read in (read_safetensors, read_metadata):
        with pytest.raises(NovaError, match="not a regular file"):
            read(path)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(path)
