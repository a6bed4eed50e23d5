"""Reading the fenced blocks of a Markdown page, for the tests that run them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its line, and the line of prose before it."""

    language: str
    text: str
    line: int
    before: str


def read_blocks(page: str, language: str | None = None) -> list[Block]:
    """The blocks of a page, given by its path from the root, in order."""
    text = (ROOT / page).read_text()
    blocks = []
    for result in _FENCE.finditer(text):
        before = text[: result.start()].rstrip().rpartition("\n")[2]
        line = text.count("\n", 0, result.start()) + 1
        blocks.append(Block(result[1], result[2], line, before))
    return [b for b in blocks if language in (None, b.language)]


def run_python(page: str, namespace: dict[str, object] | None = None) -> dict[str, object]:
    """Run the Python blocks of a page one after the other; errors point at the page's lines."""
    namespace = {} if namespace is None else namespace
    for block in read_blocks(page, "python"):
        source = "\n" * block.line + block.text
        exec(compile(source, str(ROOT / page), "exec"), namespace)
    return namespace
