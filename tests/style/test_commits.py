"""`.ci/check-commits`: which subjects it refuses, in which range, and clones without history."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sources import ROOT

SCRIPT = ROOT / ".ci" / "check-commits"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="source packages have no .ci/")


def git(folder: Path, *args: str) -> str:
    """Run git with an identity and nothing of the user's configuration."""
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    command = ["git", *settings, "-C", str(folder), *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, subject: str) -> str:
    git(folder, "commit", "--allow-empty", "-m", subject)
    return git(folder, "rev-parse", "HEAD")


def check(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


@pytest.mark.parametrize(
    ("subject", "complaint"),
    [
        ("passes: fold transposes into the matmul", ""),
        ("ir, passes: copy modules in one place", ""),
        ("native/scheduler: pass the deque to its thief", ""),
        ("Fold transposes", "is not `area: phrase`"),
        ("passes:fold transposes", "is not `area: phrase`"),
        ("passes: folded transposes", "imperative"),
        ("passes: folds transposes", "imperative"),
        ("passes: folding transposes", "imperative"),
        ("passes: fold transposes.", "period"),
        ("passes: fold tränsposes", "ASCII"),
        ("passes: " + "x" * 64, ""),
        ("passes: " + "x" * 65, "73 characters"),
    ],
)
def test_subjects(repository: Path, subject: str, complaint: str) -> None:
    base = commit(repository, "Anything goes before the base")
    commit(repository, subject)
    result = check(repository, base)
    assert result.returncode == (1 if complaint else 0), result.stderr
    assert complaint in result.stderr
    assert complaint or "1 subjects are good" in result.stdout


def test_merges_are_not_checked(repository: Path) -> None:
    base = commit(repository, "base: start")
    git(repository, "checkout", "-q", "-b", "side")
    commit(repository, "side: add a commit")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "Merge branch 'side'", "side")
    result = check(repository, base)
    assert result.returncode == 0 and "1 subjects are good" in result.stdout


def test_a_shallow_clone(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = commit(repository, "base: start")
    commit(repository, "Wrong, and out of reach")
    clone = tmp_path_factory.mktemp("clone")
    git(clone, "clone", "-q", "--depth", "1", repository.as_uri(), "shallow")
    result = check(clone / "shallow", base)
    assert result.returncode == 0 and "not in this clone" in result.stdout


def test_a_folder_without_history(tmp_path: Path) -> None:
    result = check(tmp_path)
    assert result.returncode == 0 and "no git history here" in result.stdout


def test_the_default_base_is_a_commit() -> None:
    base = SCRIPT.with_name("commits-base").read_text().strip()
    assert len(base) == 40 and int(base, 16)
