"""Names, comments, docstrings, messages and pages use the field's words, not private ones."""

from __future__ import annotations

import private_words
import pytest
from private_words import RULES, Rule, allowed
from sources import files_under, joined_prose, prose_of, split_name, words_of_names

FOLDERS = ("nova/", "native/", "docs/", "examples/", ".ci/")
PAGES = ("README.md", "CONTRIBUTING.md")
SUFFIXES = (".py", ".pyi", ".c", ".h", ".md")


def refused_in(path: str, rule: Rule) -> list[str]:
    """The lines of a file that a rule refuses."""
    words = words_of_names(path)
    lines = [f"{path}:{name.line}: `{name.text}`" for w in rule.names for name in words.get(w, [])]
    if rule.pattern and rule.pattern.search(joined_prose(path)):
        lines += [
            f"{path}:{prose.line}: {prose.text.strip()}"
            for prose in prose_of(path)
            if rule.pattern.search(prose.text)
        ]
    return lines


@pytest.mark.parametrize("name", sorted(RULES))
def test_private_words(name: str) -> None:
    rule = RULES[name]
    refused = [
        line
        for path in files_under((*FOLDERS, *PAGES), SUFFIXES)
        if path.startswith(rule.folders) and not allowed(path, name)
        for line in refused_in(path, rule)
    ]
    assert not refused, f"{name!r}: say {rule.instead}\n" + "\n".join(refused)


def test_every_exception_is_needed() -> None:
    for path, name in private_words.EXCEPTIONS:
        files = files_under((path,), SUFFIXES)
        assert files, f"{path} is gone"
        assert any(refused_in(file, RULES[name]) for file in files), (path, name)


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("behind", "the ops behind the matmul", True),
        ("turn", "one turn of the loop", True),
        ("turn", "each in turn, and then turns into a call", False),
        ("is no", "a scalar is no tensor", True),
        ("is no", "there is no such file", False),
        ("products", "matrix products of f32", True),
        ("products", "dot products of pairs", False),
        ("apart", "they run apart", True),
        ("apart", "apart from the first", False),
        ("mixed", "a mixed program", True),
        ("mixed", "mixed precision", False),
    ],
)
def test_patterns(name: str, text: str, refused: bool) -> None:
    pattern = RULES[name].pattern
    assert pattern and bool(pattern.search(text)) == refused


def test_words_of_names() -> None:
    assert split_name("_RowPanels2") == ("row", "panels", "2")
    assert split_name("nova_PTXParser") == ("nova", "ptx", "parser")
