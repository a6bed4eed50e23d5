"""MLIR text in a tool: its parts, and its lines on the way out in messages.

In: the text of a file. Out: its parts, split at `// -----` with line numbers kept, and
diagnostics printed with the source line and a caret. Called by `nova-opt` and `nova-translate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nova.errors import NovaError
from nova.ir.context import show_place
from nova.ir.diagnostics import Diagnostic

SEPARATOR = "// -----"
_POSITION = re.compile(r"(.*?):(\d+)(?::(\d+))?")


def split_input(text: str) -> Iterator[str]:
    """The parts between `// -----` lines, each moved down to the line where it was."""
    start = 0
    lines = text.splitlines(keepends=True)
    for index in range(len(lines) + 1):
        if index == len(lines) or lines[index].rstrip() == SEPARATOR:
            yield "\n" * start + "".join(lines[start:index])
            start = index + 1


def render_diagnostic(diagnostic: Diagnostic, filename: str, text: str) -> str:
    """`file:line:col: error: ...` and, for a place in this text, the line with a caret."""
    output = f"{diagnostic.where or filename}: {diagnostic.severity}: {diagnostic.message}\n"
    if diagnostic.file == filename:
        excerpt = show_place(text, diagnostic.line, diagnostic.col)
        # The message of a syntax error may show the place itself.
        output += f"{excerpt}\n" if excerpt and excerpt not in diagnostic.message else ""
    return output + "".join(render_diagnostic(note, filename, text) for note in diagnostic.notes)


def describe_error(error: NovaError, filename: str = "") -> Diagnostic:
    """An error that Nova raised, in the form of those that MLIR emits.

    A place that is all of `filename` is not said again: whoever prints the error names the file.
    """
    position = _POSITION.fullmatch(error.where or "")
    notes = [*getattr(error, "__notes__", ())] + ([error.hint] if error.hint else [])
    return Diagnostic(
        severity="error",
        message=error.what
        if position or error.where in (None, "", filename)
        else f"{error.what} at {error.where}",
        file=position.group(1) if position else "",
        line=int(position.group(2)) if position else 0,
        col=int(position.group(3) or 0) if position else 0,
        notes=tuple(Diagnostic("note", note) for note in notes),
    )
