"""Pages of the site that are not in docs/, and links to them.

The Markdown is written for the repository: links are paths in the tree. On the site README.md is
the home page; CONTRIBUTING.md, native/README.md and the Markdown of benchmarks/ are pages; examples
and C headers are pages of code. Links follow. A link to a file that is not on the site stays as it
is, and fails the strict build. Called by `hooks.py`; imports nothing of mkdocs.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKDOWN = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks/index.md",
    "benchmarks/RESULTS.md": "benchmarks/results.md",
    "benchmarks/RESULTS-AVX2.md": "benchmarks/results-avx2.md",
    "benchmarks/RESULTS-H200.md": "benchmarks/results-h200.md",
    "benchmarks/RESULTS-CORES.md": "benchmarks/results-cores.md",
    "benchmarks/RESULTS-TORCH.md": "benchmarks/results-torch.md",
    "benchmarks/RESULTS-LLAMA.md": "benchmarks/results-llama.md",
    "benchmarks/SUMS.md": "benchmarks/sums.md",
    "native/README.md": "native.md",
}
IMAGES = {"benchmarks/results.png": "benchmarks/results.png"}
C_API = "c-api.md"
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)(#[^)\s]*)?(?=\))")
_INCLUDE = re.compile(r'^#include "(nova/\w+\.h)"$', re.MULTILINE)
_COMMENT = re.compile(r"/\*(.*?)\*/\n", re.DOTALL)
_FRAME = re.compile(r"^#(?:ifndef|define) \w+_H$|^#include .*$|^#endif$", re.MULTILINE)


def outside_pages() -> dict[str, str]:
    """File of the repository -> page of the site."""
    pages = {source: page for source, page in MARKDOWN.items() if (ROOT / source).exists()}
    for path in sorted((ROOT / "examples").glob("*.py")):
        pages[f"examples/{path.name}"] = f"examples/{path.stem}.md"
    return {**pages, "LICENSE": "license.md"}


def source_of(page: str) -> str:
    """The file of the repository that a page of the site is made of."""
    sources = {target: source for source, target in outside_pages().items()}
    return sources.get(page, f"docs/{page}")


def page_text(source: str) -> str:
    """A file that is not in docs/, as Markdown; code becomes a block."""
    text = (ROOT / source).read_text()
    if source.endswith(".md"):
        return text
    if source.endswith(".py"):
        return f"# `{source}`\n\n```python\n{text}```\n"
    return f"# {source.capitalize()}\n\n```text\n{text}```\n"


def rewrite_links(markdown: str, page: str) -> str:
    """Make the links of a page links between pages of the site."""
    source, targets = source_of(page), outside_pages() | IMAGES

    def rewrite(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        if path in targets:
            path = targets[path]
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        else:
            return match[0]
        return posixpath.relpath(path, posixpath.dirname(page) or ".") + (match[2] or "")

    return LINK.sub(rewrite, markdown)


def c_api() -> str:
    """The public headers, `nova/model.h` first: the first comment as prose, then the code."""
    umbrella = (ROOT / "native/include/nova.h").read_text()
    parts = [f"# C API\n\n{_prose(umbrella)}\n"]
    for name in sorted(_INCLUDE.findall(umbrella), key=lambda name: name != "nova/model.h"):
        text = (ROOT / "native/include" / name).read_text()
        code = re.sub(r"\n{3,}", "\n\n", _FRAME.sub("", _COMMENT.sub("", text, count=1)))
        parts.append(f"## `{name}`\n\n{_prose(text)}\n\n```c\n{code.strip()}\n```\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    """The first comment as Markdown; its indented lines are code."""
    comment = _COMMENT.match(text)
    if comment is None:
        raise ValueError("a public header begins with a comment that says what it is")
    return re.sub(r"^ ?\* ?", "", comment[1].strip(), flags=re.MULTILINE)
