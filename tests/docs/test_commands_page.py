"""docs/commands.md and docs/cache.md: their commands run and print what the pages show."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from page_blocks import ROOT, read_blocks, run_python

import nova
from nova.api.compile import clear_memory_cache
from nova.tools.nova import main, make_parser


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and settings of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nova.knobs, "_assigned", {"cache_dir": tmp_path / "cache"})
    clear_memory_cache()
    return tmp_path


def matches(output: str, listing: str) -> bool:
    """Whether `shown` is how `said` starts; `…` stands for anything on its line, or for lines."""
    pattern = ""
    for line in listing.rstrip("\n").split("\n"):
        if line == "…":
            pattern += r"(?:.*\n)+?"
            continue
        parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
        pattern += r"\s*" + r"\s*.*\s*".join(parts) + r"[^\S\n]*\n"
    return re.match(pattern, output) is not None


def test_commands_page(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_python("docs/commands.md")
    ran = 0
    for block in read_blocks("docs/commands.md", "console"):
        for command, listing in re.findall(
            r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE
        ):
            tool, *words = shlex.split(command)
            assert tool == "nova"
            assert main(words) == 0, capsys.readouterr().err
            output = capsys.readouterr().out
            assert matches(output, listing), f"docs/commands.md:{block.line}: {command}\n{output}"
            ran += 1
    assert ran == 13
    np.testing.assert_array_equal(np.load("y.npy").shape, (4, 2))


def test_every_command_and_option_is_on_the_page() -> None:
    page = (ROOT / "docs/commands.md").read_text()

    def check(parser: argparse.ArgumentParser) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for sub in action.choices.values():
                    assert f"`{sub.prog}" in page, f"{sub.prog} is not on the page"
                    check(sub)
            for option in action.option_strings:
                if option not in ("-h", "--version"):
                    assert f"{option}" in page, f"{parser.prog} {option} is not on the page"

    check(make_parser())


@pytest.mark.parametrize("name", ["opt", "translate"])
def test_tools_of_their_own_are_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"| [`nova-{name}`](" in (ROOT / "docs/commands.md").read_text()
    with pytest.raises(SystemExit) as caught:
        main([name, "model.mlir"])
    assert caught.value.code == 2
    assert f"'{name}' is not a command of nova: use nova-{name}" in capsys.readouterr().err


def test_cache_page(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_python("docs/cache.md")
    (listing,) = [b for b in read_blocks("docs/cache.md", "text") if b.before == "<!-- stderr -->"]
    assert matches(capsys.readouterr().err, listing.text)


def test_matching_finds_differences() -> None:
    assert matches("a  1\nb\nc\n", "a  …\n…\nc\n") and matches("a\n\nb\n", "a\n\nb\n")
    assert not matches("a\nb\n", "a\nc\n") and not matches("a\nb\n", "a 1\nb\n")
