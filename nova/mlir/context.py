"""Contexts and parsing: the doors into MLIR, with errors that say file, line and column."""

from __future__ import annotations

import re
from typing import Any

from nova.errors import MLIRSyntaxError
from nova.mlir.bindings import ir
from nova.mlir.dialect import load_dialect

_POSITION = re.compile(r'loc\("(.*)":(\d+):(\d+)')


def make_context() -> ir.Context:
    """A context with every upstream dialect and the nova dialect; not shared between threads."""
    context = ir.Context()
    # One compile is one thread of work; kernels are compiled in parallel at the LLVM level.
    context.enable_multithreading(False)
    load_dialect(context)
    return context


def parse_module(text: str, filename: str, context: ir.Context) -> ir.Module:
    """The module that `text` says; MLIRSyntaxError with file:line:col where it does not."""
    errors: list[tuple[str, str]] = []

    def keep(diagnostic: Any) -> bool:
        errors.append((str(diagnostic.location), diagnostic.message))
        return True

    handler = context.attach_diagnostic_handler(keep)
    try:
        with context:
            return ir.Module.parse(text)
    except ir.MLIRError as error:
        location, message = errors[0] if errors else ("", str(error))
        raise _syntax_error(text, filename, location, message) from None
    finally:
        handler.detach()


def _syntax_error(text: str, filename: str, location: str, message: str) -> MLIRSyntaxError:
    match = _POSITION.search(location)
    if not match:
        return MLIRSyntaxError(message, where=filename)
    line, column = int(match[2]), int(match[3])
    lines = text.splitlines()
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    caret = " " * max(0, column - 1) + "^"
    return MLIRSyntaxError(
        f"{filename}:{line}:{column}: error: {message}\n{shown}\n{caret}",
        where=f"{filename}:{line}:{column}",
    )
