"""Many processes, one cache folder, `kill -9`: nobody loads a damaged entry, no lock stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nova.artifact.cache.disk import DiskCache
from nova.artifact.cache.locks import is_any_locked
from nova.artifact.files import is_temporary, remove_abandoned

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "tests" / "support" / "cache"


def run(script: str, *args: str) -> dict:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Later Pythons warn of any fork of a process that has threads, e.g. those of BLAS.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(SCRIPTS / script), *args]
    completed = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    return json.loads(completed.stdout)


def check_folder(folder: Path) -> None:
    """What the herd left: sound entries, no lock, and no half file after the next writer."""
    cache = DiskCache(folder, 1 << 30)
    assert cache.entries() and cache.verify() == {}
    assert not is_any_locked(folder)
    remove_abandoned(folder)
    names = {path.name for path in folder.iterdir() if path.suffix != ".nova"}
    assert names == {".lock", "CACHEDIR.TAG"}
    assert not any(is_temporary(name) for name in names)


@pytest.mark.parametrize(
    ("mode", "processes", "kills", "seed"),
    [
        ("fake", 24, 8, 0),
        ("compile", 6, 2, 0),
        *(pytest.param("fake", 200, 100, seed, marks=pytest.mark.slow) for seed in range(5)),
        *(pytest.param("compile", 200, 100, seed, marks=pytest.mark.slow) for seed in range(6)),
    ],
)
def test_herd(tmp_path: Path, mode: str, processes: int, kills: int, seed: int) -> None:
    folder = tmp_path / "cache"
    did = run("herd.py", mode, str(folder), str(processes), str(kills), str(seed))
    assert did["failed"] == 0
    assert (did["killed"], did["finished"]) == (kills, processes - kills)
    check_folder(folder)
    if mode == "compile":
        # One process compiles and the others wait; only a killed one is followed by another.
        assert did["builds"] <= did["programs"] + did["killed_building"]
        assert did["killed_building"] > 0 or processes < 200, "no kill hit a compile"


def test_without_kills_a_program_is_compiled_once(tmp_path: Path) -> None:
    did = run("herd.py", "compile", str(tmp_path / "cache"), "12", "0", "3")
    assert did["killed"] == did["failed"] == 0
    assert did["builds"] == did["compiled"] == did["programs"]
    assert did["disk"] == 12 * 6 - did["compiled"] > 20
    check_folder(tmp_path / "cache")


def test_kill_at_every_line(tmp_path: Path) -> None:
    did = run("kill_everywhere.py", str(tmp_path))
    for states in did.values():
        assert states["old"] > 10 and states["new"] > 5
    assert did["file"]["left behind"] > 5, "a killed writer leaves a temporary file, once"
