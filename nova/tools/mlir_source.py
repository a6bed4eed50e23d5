"""MLIR text on its way into a tool, and its lines on the way out in messages.

In: the bytes of a file. Out: checked text, split at `// -----` with line numbers kept, and
diagnostics printed with the source line and a caret. Called by `nova-opt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nova.errors import MLIRSyntaxError, NovaError
from nova.mlir.diagnostics import Diagnostic

SEPARATOR = "// -----"
# MLIR's parser recurses, and at some thousand levels overflows the stack, which kills the process.
MAX_NESTING = 500
# Characters shown on either side of the caret: a dense constant can be one line of megabytes.
LINE_WINDOW = 100

_BRACKETS = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|->|[<>=]=|([(\[{<])|([)\]}>])')
_PLACE = re.compile(r"(.*):(\d+):(\d+)")


def decode_source(data: bytes, filename: str) -> str:
    """The text of a file that MLIR can be given without danger."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        raise MLIRSyntaxError(
            "this is not MLIR text: the byte here is not UTF-8", where=_place(filename, before)
        ) from None
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match.group(1):
            depth += 1
            if depth > MAX_NESTING:
                raise MLIRSyntaxError(
                    f"brackets are nested more than {MAX_NESTING} deep",
                    where=_place(filename, text[: match.start()]),
                )
        elif match.group(2):
            depth = max(0, depth - 1)
    return text


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
    lines = text.splitlines()
    if diagnostic.file == filename and 0 < diagnostic.line <= len(lines):
        column = max(0, diagnostic.col - 1)
        start = max(0, column - LINE_WINDOW)
        line = lines[diagnostic.line - 1][start : column + LINE_WINDOW]
        # Tabs stay tabs, so that the caret stands under its character on any terminal.
        indent = re.sub(r"[^\t]", " ", line[: column - start])
        output += f"{line}\n{indent}^\n"
    return output + "".join(render_diagnostic(note, filename, text) for note in diagnostic.notes)


def describe_error(error: NovaError) -> Diagnostic:
    """An error that Nova raised, in the form of those that MLIR emits."""
    place = _PLACE.fullmatch(error.where or "")
    notes = [*getattr(error, "__notes__", ())] + ([error.hint] if error.hint else [])
    return Diagnostic(
        severity="error",
        message=error.what if place or not error.where else f"{error.what} at {error.where}",
        file=place.group(1) if place else "",
        line=int(place.group(2)) if place else 0,
        col=int(place.group(3)) if place else 0,
        notes=tuple(Diagnostic("note", note) for note in notes),
    )


def _place(filename: str, before: str) -> str:
    return f"{filename}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
