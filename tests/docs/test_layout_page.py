"""docs/layout.md: every folder and every key file is where the page says."""

from __future__ import annotations

import re
from pathlib import Path

from page_blocks import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/layout.md").read_text().splitlines()
    if line.startswith(("| `", "| - `"))
]


def test_folders_and_key_files_exist() -> None:
    parent, checked = ROOT, 0
    for folder_cell, _, _, key_cell in ROWS:
        names = re.findall(r"`([^`]+)`", folder_cell)
        if folder_cell.startswith("- "):
            folders = [parent / name for name in names]
        else:
            folders = [ROOT / name for name in names]
            parent = folders[0]
        assert all(folder.exists() for folder in folders), folder_cell
        around = {p for folder in folders for p in (folder, folder.parent)}
        for key in re.findall(r"`([^`]+)`", key_cell):
            assert any((folder / key).is_file() for folder in around), f"{folder_cell}: {key}"
            checked += 1
    assert checked > 40


def test_every_package_is_on_the_page() -> None:
    named = {name.strip("/") for row in ROWS for name in re.findall(r"`([^`]+)`", row[0])}
    packages = {p.parent for p in (ROOT / "nova").glob("*/__init__.py")}
    sources = {p for p in (ROOT / "native/src").iterdir() if p.is_dir()}
    named |= {str(Path(name).parent) for name in named}
    missing = [p for p in packages if str(p.relative_to(ROOT)) not in named]
    missing += [p for p in sources if p.name not in named]
    assert missing == []
