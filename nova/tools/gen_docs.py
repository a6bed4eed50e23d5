"""Pages of the documentation, and stubs for type checkers, that are tables in the code.

In: the tables (`nova/knobs.py`, `nova/errors.py`, `nova/ops/`, `nova/ir/attributes.py`,
`nova/frontends/onnx/`). Out:
Markdown files under `docs/` and `.pyi` files, written by `python -m nova.tools.gen_docs`; with
`--check` nothing is written and stale pages are an error, which is what the tests and CI run. A new
page is a row in `PAGES` and a function that renders it.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

from nova import errors, knobs
from nova.tools.attributes_page import render_attributes
from nova.tools.onnx_page import render_onnx
from nova.tools.ops_page import render_ops
from nova.tools.stubs import render_methods, render_package

HEADER = "<!-- Written by `python -m nova.tools.gen_docs`: change the table in {source}. -->\n\n"


def render_knobs() -> str:
    """The page of settings."""
    lines = [
        HEADER.format(source="nova/knobs.py") + "# Settings",
        "",
        "Every setting is an environment variable, an attribute of `nova.knobs` and a keyword of",
        "`nova.knobs.override`. An override wins over an assignment, an assignment over the",
        "environment. An empty variable counts as not set, except `NOVA_TRUSTED_KEYS`, where it is",
        "an error. A wrong value is an error when the setting is first used. Of a variable that",
        "starts with `NOVA_` and is not in this table there is one warning at the import if its",
        "name is close to one of these; others belong to other programs.",
        "",
        "```python",
        "nova.knobs.cache = False                             # for this process",
        'with nova.knobs.override(log="compile", threads=1):  # for this thread and block',
        "    ...",
        "```",
        "",
        "| variable | Python | takes | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for knob in knobs.KNOBS.values():
        cells = (
            f"`{knob.variable}`",
            f"`knobs.{knob.name}`",
            knob.kind.takes,
            knob.default_text,
            knob.doc,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def render_errors() -> str:
    """The page of errors, under the headings of the file."""
    lines = [
        HEADER.format(source="nova/errors.py") + "# Errors",
        "",
        "Every mistake has its own class, and every class is a `nova.NovaError`. A message says",
        "what was wrong, where (your line, or the op in the IR) and what to do; the three are also",
        "the attributes `what`, `where` and `hint`. Where Python has a class for the kind of",
        "mistake, the error is one of those too, so that `except ValueError` works.",
    ]
    for line in inspect.getsource(errors).splitlines():
        if heading := re.fullmatch(r"# --- (.+?) -+", line):
            lines += ["", f"## {heading[1].capitalize()}", "", "| class | also | when |"]
            lines.append("|---|---|---|")
        elif match := re.match(r"class (\w+)\(", line):
            lines += [] if match[1] == "NovaError" else [_error_row(getattr(errors, match[1]))]
    return "\n".join(lines) + "\n"


def _error_row(error: type[Exception]) -> str:
    bases = [f"`{b.__name__}`" for b in error.__bases__ if b is not errors.NovaError]
    when = inspect.cleandoc(error.__doc__ or "").replace("\n", " ").replace("|", "\\|")
    return f"| `{error.__name__}` | {', '.join(bases)} | {when} |"


def _ops_page() -> str:
    return HEADER.format(source="nova/ops/") + render_ops()


def _onnx_page() -> str:
    return HEADER.format(source="nova/frontends/onnx/") + render_onnx()


def _attributes_page() -> str:
    return HEADER.format(source="nova/ir/attributes.py") + render_attributes()


PAGES: dict[str, Callable[[], str]] = {
    "docs/attributes.md": _attributes_page,
    "docs/errors.md": render_errors,
    "docs/knobs.md": render_knobs,
    "docs/onnx-ops.md": _onnx_page,
    "docs/ops.md": _ops_page,
    "nova/__init__.pyi": render_package,
    "nova/graph/op_methods.pyi": render_methods,
}


def find_stale(root: Path) -> list[str]:
    """The pages under `root` whose text differs from the tables."""
    return [
        page
        for page, render in PAGES.items()
        if not (root / page).is_file() or (root / page).read_text() != render()
    ]


def main(argv: list[str] | None = None) -> int:
    """Write the pages, or check them; the return value is the exit status."""
    parser = argparse.ArgumentParser(prog="gen_docs", description="Write the generated docs pages.")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the repository")
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    args = parser.parse_args(argv)
    stale = find_stale(args.root)
    for page in stale:
        if args.check:
            print(f"{page} is stale: run python -m nova.tools.gen_docs", file=sys.stderr)
        else:
            (args.root / page).parent.mkdir(parents=True, exist_ok=True)
            (args.root / page).write_text(PAGES[page]())
            print(f"wrote {page}")
    return 1 if stale and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
