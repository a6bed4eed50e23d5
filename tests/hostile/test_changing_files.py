"""Files that somebody changes while they are read, or after: what was checked is what runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from child import read_arrays
from surgery import Surgery

import nova
from nova.artifact.format import load_artifact
from nova.errors import ArtifactError

LARGE = 2 << 20
SECONDS = 1.5


def grow(data: bytes) -> bytes:
    """The file with so much behind its headers that it is kept in a memfd."""
    file = Surgery(data)
    file.data += bytes(LARGE)
    return file.seal()


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_changed_after_it_was_opened(large: bool, sound: Path, tmp_path: Path) -> None:
    data = (sound / "full.nova").read_bytes()
    data = grow(data) if large else data
    path = tmp_path / "model.nova"
    path.write_bytes(data)
    inputs, _, outputs = read_arrays(sound / "full.npz")
    opened, model = load_artifact(path), nova.load(path)
    with open(path, "r+b") as file:  # the same file, not another one of its name
        file.write(os.urandom(len(data)))
        file.truncate(100)
    assert bytes(opened.data) == data
    assert opened.tables(0).kernels and opened.stages()
    for actual, want in zip(model.run(inputs), outputs, strict=True):
        np.testing.assert_array_equal(actual, want)
    with pytest.raises(ArtifactError):
        load_artifact(path)


def flip(path: Path, stop: threading.Event, pieces: list[bytes]) -> None:
    """Write one content after the other into the same file, without a moment's rest."""
    with open(path, "r+b", buffering=0) as file:
        while not stop.is_set():
            for piece in pieces:
                file.seek(0)
                file.write(piece)


def stretch(path: Path, stop: threading.Event, pieces: list[bytes]) -> None:
    """Let the file grow and shrink."""
    with open(path, "r+b", buffering=0) as file:
        while not stop.is_set():
            for piece in pieces:
                file.seek(0)
                file.write(piece + bytes(100_000))
                file.truncate(len(piece))
                file.truncate(len(piece) // 2)


@pytest.mark.parametrize("change", [flip, stretch])
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_changed_while_it_is_read(
    change: Callable[..., None], large: bool, sound: Path, tmp_path: Path
) -> None:
    """Every read gives one of the whole files or an error, never a mixture."""
    good = (sound / "full.nova").read_bytes()
    bad = bytearray(good)
    location = Surgery(good).sections[".text"]
    bad[location.offset : location.offset + location.size] = bytes(location.size)
    pieces = [good, bytes(bad)]
    if large:
        pieces = [grow(good), grow(good)[:-1] + b"\0"]
    path = tmp_path / "model.nova"
    path.write_bytes(pieces[0])
    inputs, _, outputs = read_arrays(sound / "full.npz")
    stop = threading.Event()
    thread = threading.Thread(target=change, args=(path, stop, pieces))
    thread.start()
    loaded = refused = 0
    ends = time.monotonic() + SECONDS
    try:
        while time.monotonic() < ends:
            try:
                model = nova.load(path)
            except ArtifactError:
                refused += 1
                continue
            loaded += 1
            for actual, want in zip(model.run(inputs), outputs, strict=True):
                np.testing.assert_array_equal(actual, want)
    finally:
        stop.set()
        thread.join()
    assert refused > 0 and loaded + refused > 20
