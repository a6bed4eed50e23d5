"""MLIR diagnostics as plain records.

In: all diagnostics of a context while `capture_diagnostics` is open. Out: a list of frozen
`Diagnostic`s that stay valid after the context is destroyed. Called by `run_pipeline` and
`nova-opt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nova.core.records import record
from nova.ir.bindings import ir


@record
class Diagnostic:
    """One error, warning, note or remark; `line` is 0 if MLIR knows no position."""

    severity: str
    message: str
    file: str = ""
    line: int = 0
    col: int = 0
    notes: tuple[Diagnostic, ...] = ()

    @property
    def where(self) -> str | None:
        """`file:line:col`, `file:line` of a Python line, or None if MLIR knows no position."""
        if not self.line:
            return None
        column = f":{self.col}" if self.col else ""
        return f"{self.file or '-'}:{self.line}{column}"

    def __str__(self) -> str:
        return f"{self.where or '<unknown>'}: {self.severity}: {self.message}"


@contextmanager
def capture_diagnostics(context: ir.Context) -> Iterator[list[Diagnostic]]:
    """Collect all diagnostics of `context`, instead of stderr or MLIRError."""
    collected: list[Diagnostic] = []

    def keep(diagnostic: ir.Diagnostic) -> bool:
        collected.append(_record(diagnostic))
        return True

    handler = context.attach_diagnostic_handler(keep)
    # Without this flag errors bypass handlers and exist only inside the MLIRError.
    emitted_before = context.emit_error_diagnostics
    context.emit_error_diagnostics = True
    try:
        yield collected
    finally:
        context.emit_error_diagnostics = emitted_before
        handler.detach()


def file_position(location: ir.Location) -> tuple[str, int, int]:
    """The innermost (file, line, col) of a location; ("", 0, 0) if there is none.

    A named location wraps its position, a call site starts at its callee (the user's line), and a
    fused location takes the first part that has a position.
    """
    if isinstance(location, ir.FileLineColLoc):
        return location.filename, location.start_line, location.start_col
    if isinstance(location, ir.NameLoc):
        return file_position(location.child_loc)
    if isinstance(location, ir.CallSiteLoc):
        inner = file_position(location.callee)
        return inner if inner[1] else file_position(location.caller)
    if isinstance(location, ir.FusedLoc):
        for part in location.locations:
            position = file_position(part)
            if position[1]:
                return position
    return "", 0, 0


def place_of(location: ir.Location) -> str:
    """A location for messages: `file:line:col` if it has a position, else as MLIR prints it."""
    return Diagnostic("note", "", *file_position(location)).where or str(location)


def _record(diagnostic: ir.Diagnostic) -> Diagnostic:
    file, line, col = file_position(diagnostic.location)
    return Diagnostic(
        severity=diagnostic.severity.name.lower(),
        message=diagnostic.message,
        file=file,
        line=line,
        col=col,
        notes=tuple(_record(note) for note in diagnostic.notes),
    )
