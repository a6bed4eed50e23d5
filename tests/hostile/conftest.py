"""Sound files for the tests of this folder, compiled once a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from sound_files import write_sound_files
from stage_texts import write_seeds


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sound files."""
    folder = tmp_path_factory.mktemp("sound")
    write_sound_files(folder)
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the sound texts."""
    path = tmp_path_factory.mktemp("texts") / "seeds.json"
    write_seeds(path)
    return path
