"""The text tests of this folder, one pytest case a file, all in this process.

A RUN line is `[not] %nova-opt ARGS [2>&1] [| %filecheck ARGS]`, with `%s` for the file and `%t`
for a temporary name: the part of lit's language that these files use. `lit tests/filecheck`
runs the same files with a process for each command, where starting MLIR takes most of the time.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from filecheck.parser import Parser

from nova.tools import nova_opt

ROOT = Path(__file__).parent
FILES = sorted(ROOT.rglob("*.mlir"))
TOOLS: dict[str, Callable[[list[str]], int]] = {"%nova-opt": nova_opt.main}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file(path: Path, tmp_path: Path) -> None:
    lines = read_run_lines(path.read_text())
    assert lines, f"{path} has no RUN line"
    for line in lines:
        run_line(line, path, tmp_path / "t")


def test_lit_agrees() -> None:
    lit = [sys.executable, "-m", "lit.main", "-q", str(ROOT / "tools" / "split-input-file.mlir")]
    completed = subprocess.run(lit, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    shutil.rmtree(ROOT / "Output", ignore_errors=True)
    shutil.rmtree(ROOT / "tools" / "Output", ignore_errors=True)


def read_run_lines(text: str) -> list[str]:
    """The commands after `RUN:`; a backslash at the end joins a line with the next one."""
    joined = ""
    lines = []
    for line in text.splitlines():
        _, result, command = line.partition("RUN:")
        if result:
            joined += command.strip()
            if joined.endswith("\\"):
                joined = joined[:-1]
            else:
                lines.append(joined)
                joined = ""
    return lines


def run_line(line: str, path: Path, temporary: Path) -> None:
    """Run the tool of a RUN line, and check its output when it goes into filecheck."""
    command, *checks = split_at_pipes(
        [word.replace("%s", str(path)).replace("%t", str(temporary)) for word in shlex.split(line)]
    )
    must_fail = command[0] == "not"
    tool, *arguments = command[1:] if must_fail else command
    assert tool in TOOLS, f"{path}: this runner does not know `{tool}`"
    stdout, stderr = io.StringIO(), io.StringIO()
    if "2>&1" in arguments:
        arguments.remove("2>&1")
        stderr = stdout
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            status = TOOLS[tool](arguments)
        except SystemExit as stopped:  # argparse, on --help and usage errors
            status = int(stopped.code or 0)
    output = f"{path}\n{line}\nstdout:\n{stdout.getvalue()}\nstderr:\n{stderr.getvalue()}"
    assert (status != 0) == must_fail, f"exit status {status} from {output}"
    for check in checks:
        assert check[0] == "%filecheck", f"{path}: only %filecheck may follow a pipe"
        verdict = run_filecheck(check[1:], stdout.getvalue())
        assert verdict is None, f"{verdict}\nfrom {output}"


def split_at_pipes(words: list[str]) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def run_filecheck(arguments: list[str], text: str) -> str | None:
    """What filecheck complains about; None when the text is as expected."""
    options = parse_argv_options(["filecheck", *arguments])
    complaints = io.StringIO()
    with contextlib.redirect_stdout(complaints), contextlib.redirect_stderr(complaints):
        status = Matcher(options, FInput("<output>", text), Parser.from_opts(options)).run()
    return complaints.getvalue() or "filecheck failed" if status else None
