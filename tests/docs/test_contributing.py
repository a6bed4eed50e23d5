"""CONTRIBUTING.md, followed literally on a copy of the package.

A block stands behind the sentence that says what to do with it: "Create `file`:", "In `file`, below
`line`:" or "Check it:". Each section is done in order, and its checks run in a new process.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT, Block, read_blocks

from nova import _native

_CREATE = re.compile(r"Create `([^`]+)`:")
_INSERT = re.compile(r"In `([^`]+)`, below `([^`]+)`:")
# An editable installation answers imports of nova by itself; the copy has to come first.
_START = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__name__.startswith("ScikitBuild")]
sys.path.insert(0, {root!r})
import nova
assert nova.__file__.startswith({root!r}), nova.__file__
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree with the package and nothing built but its native parts."""
    shutil.copytree(ROOT / "nova", tmp_path / "nova", ignore=shutil.ignore_patterns("*.pyc"))
    native = Path(_native.__file__)
    if not (tmp_path / "nova" / native.name).exists():
        shutil.copy(native, tmp_path / "nova")
        shutil.copytree(native.parent / "embedded", tmp_path / "nova/embedded")
    return tmp_path


@pytest.mark.parametrize("section", ["An op", "A pass", "A target"])
def test_worked_example(section: str, copy: Path) -> None:
    checked = 0
    for block in blocks_of(section):
        if result := _CREATE.fullmatch(block.before):
            path = copy / result[1]
            assert not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            if path.suffix == ".mlir":
                run_text_test(copy, path)
        elif result := _INSERT.fullmatch(block.before):
            path = copy / result[1]
            before, line, after = path.read_text().partition(f"\n{result[2]}\n")
            assert line, f"{result[1]} has no line `{result[2]}`"
            path.write_text(before + line + block.text + after)
        else:
            assert block.before == "Check it:", f"line {block.line}: {block.before}"
            run(copy, block.text)
            checked += 1
    assert checked


def blocks_of(section: str) -> list[Block]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    start = text[: text.index(f"\n## {section}\n")].count("\n") + 1
    remaining = [n for n, line in enumerate(text.splitlines(), 1) if line.startswith("## ")]
    end = min((n for n in remaining if n > start + 1), default=len(text))
    return [b for b in read_blocks("CONTRIBUTING.md") if start < b.line < end]


def run(root: Path, code: str, *args: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", _START.format(root=str(root)) + code, *args],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def run_text_test(root: Path, path: Path) -> None:
    """A file under tests/filecheck, by its RUN line."""
    result = re.search(r"RUN: %nova-opt %s (.*) \| %filecheck %s", path.read_text())
    assert result
    tool = "from nova.tools.nova_opt import main\nsys.exit(main(sys.argv[1:]))"
    text = run(root, tool, str(path), *result[1].split())
    check = [sys.executable, "-m", "filecheck", str(path)]
    completed = subprocess.run(check, input=text, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
