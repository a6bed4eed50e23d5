"""Sound files for the tests of this folder, compiled once a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from sound_files import write_sound_files


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sound files."""
    folder = tmp_path_factory.mktemp("sound")
    write_sound_files(folder)
    return folder
