"""Folders stay small enough to read their listing, files small enough to hold one concept."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

from sources import ROOT, SOURCES, files_under, tracked_files

MOST_FILES = 20
MOST_LINES = 600
FOLDERS = ("nova/", "native/", "tests/", "docs/")

# Folder: why it is larger.
EXCEPTIONS = {"docs": "a page a topic, and addresses of pages do not move"}


def test_no_folder_has_too_many_files() -> None:
    sizes = Counter(
        str(PurePosixPath(path).parent) for path in tracked_files() if path.startswith(FOLDERS)
    )
    large = {f: n for f, n in sizes.items() if n > MOST_FILES and f not in EXCEPTIONS}
    assert not large, f"more than {MOST_FILES} files in a folder: {large}"


def test_no_source_file_is_too_long() -> None:
    sizes = {
        path: len((ROOT / path).read_text().splitlines())
        for path in files_under((*FOLDERS, "examples/", "benchmarks/", ".ci/"), SOURCES)
    }
    # Stubs are written by `gen_docs`: a line for each function of the op table.
    long = {p: n for p, n in sizes.items() if n > MOST_LINES and not p.endswith(".pyi")}
    assert not long, f"more than {MOST_LINES} lines in a file: {long}"


def test_names_of_test_files_are_unique() -> None:
    """pytest imports a test file by its name alone: two of one name stop every run."""
    names = Counter(PurePosixPath(path).name for path in files_under(("tests/",), (".py",)))
    assert [n for n, count in names.items() if count > 1 and n != "conftest.py"] == []
