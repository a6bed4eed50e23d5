"""Reads the tree for the tests of style: files, names, and prose with line numbers.

A name is an identifier; prose is a comment, a docstring, a message, or a line of Markdown outside
its code blocks. A string of one word is data, not prose.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = (".py", ".pyi", ".c", ".h")

_C_TOKEN = re.compile(
    r"/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)|\"(?P<text>(?:\\.|[^\"\\\n])*)\"|'(?:\\.|[^'\\\n])+'"
    r"|(?P<name>[A-Za-z_]\w*)",
    re.DOTALL,
)
_PYTHON_TOKEN = re.compile(
    r"\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|(?P<comment>#[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Text:
    """A name or a piece of prose of a file, and the line where it starts."""

    line: int
    text: str


@cache
def tracked_files() -> tuple[str, ...]:
    """Paths of the tree relative to its root: git's list, or all files where there is no git."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        paths = listing.stdout.splitlines()
    else:
        folders = ("nova", "native", "tests", "docs", "examples", "benchmarks")
        paths = [str(p.relative_to(ROOT)) for f in folders for p in (ROOT / f).rglob("*")]
    return tuple(sorted(p for p in paths if "__pycache__" not in p and (ROOT / p).is_file()))


def files_under(folders: tuple[str, ...], suffixes: tuple[str, ...]) -> list[str]:
    """The files of folders (`nova/`) or single files (`README.md`) with one of the suffixes."""
    return [p for p in tracked_files() if p.startswith(folders) and p.endswith(suffixes)]


def identifiers(tree: ast.AST) -> Iterator[Text]:
    """Every use of a name: variables, parameters, attributes, functions, classes, keywords."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield Text(node.lineno, node.id)
        elif isinstance(node, ast.arg):
            yield Text(node.lineno, node.arg)
        elif isinstance(node, ast.Attribute):
            yield Text(node.lineno, node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield Text(node.lineno, node.name)
        elif isinstance(node, ast.keyword) and node.arg:
            yield Text(node.lineno, node.arg)


@lru_cache(maxsize=2)  # all trees together are a gigabyte, which every garbage collection walks
def parse_python(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def _python_prose(path: str) -> Iterator[Text]:
    for node in ast.walk(parse_python(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield Text(node.lineno + offset, line)
    source = (ROOT / path).read_text()
    for match in _PYTHON_TOKEN.finditer(source):
        if match["comment"]:
            yield Text(source.count("\n", 0, match.start()) + 1, match["comment"])


def _c_texts(path: str) -> Iterator[tuple[str, Text]]:
    source = (ROOT / path).read_text()
    line, end = 1, 0
    for match in _C_TOKEN.finditer(source):
        line += source.count("\n", end, match.start())
        end = match.start()
        if match["name"] is not None:
            yield "name", Text(line, match["name"])
        elif match["text"] is not None:
            if " " in match["text"]:
                yield "prose", Text(line, match["text"])
        elif comment := match["block"] or match["line"]:
            for offset, part in enumerate(comment.splitlines()):
                yield "prose", Text(line + offset, part)


def _markdown_prose(path: str) -> Iterator[Text]:
    fenced = False
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield Text(number, line)


@cache
def names_of(path: str) -> tuple[Text, ...]:
    """The identifiers of a Python or C file, and the words of the file's own name."""
    stem = Text(0, Path(path).stem)
    if path.endswith((".py", ".pyi")):
        return (stem, *identifiers(parse_python(path)))
    if path.endswith((".c", ".h")):
        return (stem, *(text for role, text in _c_texts(path) if role == "name"))
    return (stem,)


@cache
def words_of_names(path: str) -> dict[str, list[Text]]:
    """The names of a file by the words that they are made of."""
    words: dict[str, list[Text]] = {}
    for name in names_of(path):
        for word in split_name(name.text):
            words.setdefault(word, []).append(name)
    return words


@cache
def prose_of(path: str) -> tuple[Text, ...]:
    """The lines of comments, docstrings, messages and Markdown of a file."""
    if path.endswith((".py", ".pyi")):
        return tuple(_python_prose(path))
    if path.endswith((".c", ".h")):
        return tuple(text for role, text in _c_texts(path) if role == "prose")
    if path.endswith(".md"):
        return tuple(_markdown_prose(path))
    return ()


@cache
def split_name(name: str) -> tuple[str, ...]:
    """The words of an identifier: `RowPanels` and `row_panels` are both row, panels."""
    return tuple(w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name))


@cache
def joined_prose(path: str) -> str:
    """All prose of a file, for a search that mostly ends without a match."""
    return "\n".join(text.text for text in prose_of(path))
