"""Contexts, parsing and printing: the entry points to MLIR; errors give file, line and column.

In: MLIR text, or a module that was built op by op. Out: a verified module, or an MLIRSyntaxError at
the location of the MLIR error; or the text of a module. Called by the compile stages, the tools and
the passes.
"""

from __future__ import annotations

import dataclasses
import os
import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from nova.errors import MLIRSyntaxError
from nova.ir.attributes import accept_old_names
from nova.ir.bindings import ir, passmanager, stablehlo
from nova.ir.custom_syntax import Rewritten, to_generic
from nova.ir.diagnostics import Diagnostic, capture_diagnostics
from nova.ir.dialect import OP_NAMES, infer_type, load_dialect
from nova.ir.linalg.attribute_cache import attribute_cache
from nova.ir.resources import constants_of, take_constants

# MLIR's recursive parser overflows the stack at some thousand levels, which kills the process.
MAX_NESTING = 500
# Characters shown on either side of the caret: a dense constant can be one line of megabytes.
LINE_WINDOW = 100

_LOADED = (
    *("affine", "arith", "bufferization", "cf", "func", "irdl", "linalg", "llvm", "math", "memref"),
    *("scf", "tensor", "ub", "vector"),
)

# Possessive, so that a string of many megabytes leaves no places to come back to.
_BRACKETS = re.compile(r'"(?:[^"\\\n]++|\\.)*+"|//[^\n]*|->|[<>=]=|([(\[{<])|([)\]}>])')
# Everything else; the first alternative is the most frequent one.
_NOT_BRACKETS = re.compile(
    r'(?:[^()\[\]{}<>"/=-]++|"(?:[^"\\\n]++|\\.)*+"|//[^\n]*|->|[<>=]=|[^()\[\]{}<>])++'
)
# Begins with literal text, which Python searches for forty times as fast as `^`.
_FUNCTION = re.compile(r"\n  func\.func (?:private )?@(\w+)\(")
_ONE_BRACKET = str.maketrans("[{<]}>", "((()))")


# The next context of a process that is idle between compiles: see `prepare_context`.
_PREPARED: list[ir.Context] = []


def make_context() -> ir.Context:
    """A context with every upstream dialect, StableHLO and nova; not shared between threads.

    Dialects whose ops Nova's code creates are loaded. Others are loaded when text or a pass needs
    them, because loading all of them takes longer than compiling a small function.
    """
    try:
        return _PREPARED.pop()
    except IndexError:
        return _create_context()


def prepare_context() -> None:
    """Create the context of the next `make_context` in advance, which takes milliseconds."""
    if not _PREPARED:
        _PREPARED.append(_create_context())


def _create_context() -> ir.Context:
    context = ir.Context(load_on_create_dialects=[])
    for name in _LOADED:
        context.get_dialect_descriptor(name)
    # A compile uses one thread in MLIR; kernels are compiled in parallel in LLVM.
    context.enable_multithreading(False)
    load_dialect(context)
    stablehlo.register_dialect(context, load=False)
    return context


def load_device_dialects(context: ir.Context) -> None:
    """Load the dialects of device code, before the first op of them."""
    for name in ("gpu", "nvvm"):
        context.get_dialect_descriptor(name)


def parse_module(
    text: str, filename: str, context: ir.Context, *, is_checked: bool = False
) -> ir.Module:
    """Parse `text`; MLIRSyntaxError with file:line:col on failure.

    The nesting of a text that `is_checked` is known to be in bounds: see `decode_source`.
    """
    compact = take_constants(text, constants_of(context))
    if not is_checked:
        check_nesting(compact, filename)
    diagnostics: list[Diagnostic] = []
    try:
        return parse_text(compact, filename, context, diagnostics)
    except ir.MLIRError as error:
        raise _syntax_error(diagnostics, str(error), compact, filename) from None
    except MLIRSyntaxError as error:
        raise _show_line(error, compact) from None


def parse_text(
    text: str, filename: str, context: ir.Context, diagnostics: list[Diagnostic]
) -> ir.Module:
    """Parse a text in which nova ops may have their custom syntax.

    `diagnostics` gains those of MLIR, with positions in the original text. Raises MLIRError, or
    MLIRSyntaxError for an op in the custom syntax, if the text does not parse.
    """
    generic = to_generic(
        text, filename, OP_NAMES, lambda *args: _infer_result(*args, context=context)
    )
    if "chlo." in text:
        load_stablehlo(context)
    with capture_diagnostics(context) as collected:
        try:
            module = ir.Module.parse(generic.text, context)
            accept_old_names(module, generic.text)
            return module
        finally:
            diagnostics += [
                _before_edits(in_file(d, filename), filename, generic) for d in collected
            ]


def load_stablehlo(context: ir.Context) -> None:
    """Load StableHLO and CHLO: the parser knows CHLO only after a pass that creates ops of it."""
    with context, ir.Location.unknown():
        empty = ir.Module.create()
    text = "builtin.module(func.func(stablehlo-complex-math-expander))"
    passmanager.PassManager.parse(text, context).run(empty.operation)


def _before_edits(diagnostic: Diagnostic, filename: str, generic: Rewritten) -> Diagnostic:
    column = diagnostic.col
    if diagnostic.file == filename:
        column = generic.original_column(diagnostic.line, column)
    notes = tuple(_before_edits(note, filename, generic) for note in diagnostic.notes)
    return dataclasses.replace(diagnostic, col=column, notes=notes)


def _infer_result(
    name: str, types: Sequence[str], attributes: str, aliases: str, *, context: ir.Context
) -> str:
    """The result type by the rules of the op table; types and attributes are text."""
    text = (
        f"{aliases}\nfunc.func private @f({', '.join(types)}) attributes {{given = {attributes}}}"
    )
    with capture_diagnostics(context) as diagnostics:
        try:
            module = ir.Module.parse(text, context)  # owns the function
        except ir.MLIRError as error:
            raise MLIRSyntaxError(diagnostics[0].message if diagnostics else str(error)) from None
    [function] = module.body.operations
    values = {item.name: item.attr for item in function.attributes["given"]}
    with context, ir.Location.unknown():
        return str(infer_type(name, function.type.inputs, values))


def verify_module(module: ir.Module) -> None:
    """Verify a module that was built in memory; MLIRSyntaxError at the invalid op."""
    with capture_diagnostics(module.context) as diagnostics, attribute_cache():
        try:
            module.operation.verify()
        except ir.MLIRError as error:
            raise _syntax_error(diagnostics, str(error), "", "") from None


def print_op(op: Any, *, use_local_scope: bool = False, enable_debug_info: bool = False) -> str:
    """The text of an op that is known to be valid; printing would verify it again.

    The bindings call Python for every word of a text that they return, and for none of a text that
    they write to a file. A file in memory takes less than half of the time of `get_asm`.
    """
    flags = {
        "assume_verified": True,
        "use_local_scope": use_local_scope,
        "enable_debug_info": enable_debug_info,
    }
    with os.fdopen(os.memfd_create("nova-text"), "rb") as file:
        path = f"/proc/self/fd/{file.fileno()}"
        if not os.path.exists(path):  # a system without /proc
            return str(op.get_asm(**flags))
        op.print(file=path, **flags)
        return file.read().decode()


def function_texts(text: str) -> dict[str, str]:
    """The functions in the text of a module, by name, without those with odd characters in it.

    To compare, count or search texts is much faster than to walk the ops.
    """
    heads = list(_FUNCTION.finditer(text))
    starts = [head.start() + 1 for head in heads] + [len(text)]
    # The end of the module follows the last function.
    return {
        head[1]: text[start:end].rstrip("} \n")
        for head, (start, end) in zip(heads, pairwise(starts), strict=True)
    }


def decode_source(data: bytes, filename: str) -> str:
    """The text of a file, checked to be safe for MLIR's parser."""
    try:
        text = data.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        raise MLIRSyntaxError(
            "this is not MLIR text: the byte here is not UTF-8", where=place_after(filename, before)
        ) from None
    check_nesting(text, filename)
    return text


def check_nesting(text: str, filename: str) -> None:
    """Refuse text whose brackets are nested deeper than MLIR's parser can handle."""
    if _most_nesting(text) <= MAX_NESTING:
        return
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match.group(1):
            depth += 1
            if depth > MAX_NESTING:
                raise MLIRSyntaxError(
                    f"brackets are nested more than {MAX_NESTING} deep",
                    where=place_after(filename, text[: match.start()]),
                )
        elif match.group(2):
            depth = max(0, depth - 1)


def _most_nesting(text: str) -> int:
    """A bound of the nesting of brackets, by string functions: much faster than to look at each."""
    plain = _NOT_BRACKETS.sub("", text).translate(_ONE_BRACKET)
    rounds = 0
    while rounds <= MAX_NESTING and "()" in plain:
        plain = plain.replace("()", "")  # innermost pairs: one level of all
        rounds += 1
    return rounds + plain.count("(")


def place_after(filename: str, before: str) -> str:
    """`file:line:col` of the character after the text `before`."""
    return f"{filename}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def show_place(text: str, line: int, col: int) -> str:
    """The line of `text` and a caret under its column; empty if there is no such line."""
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return ""
    column = max(0, col - 1)
    start = max(0, column - LINE_WINDOW)
    excerpt = lines[line - 1][start : column + LINE_WINDOW]
    # Tabs stay tabs, so the caret is under its character on any terminal.
    indent = re.sub(r"[^\t]", " ", excerpt[: column - start])
    return f"{excerpt}\n{indent}^"


def in_file(diagnostic: Diagnostic, filename: str) -> Diagnostic:
    """Replace `-`, MLIR's name for text without a name, by `filename`."""
    return dataclasses.replace(
        diagnostic,
        file=filename if diagnostic.file == "-" else diagnostic.file,
        notes=tuple(in_file(note, filename) for note in diagnostic.notes),
    )


def _show_line(error: MLIRSyntaxError, text: str) -> MLIRSyntaxError:
    """The error with the line that it names, and a caret."""
    _, line, column = str(error.where).rsplit(":", 2)
    excerpt = show_place(text, int(line), int(column))
    return MLIRSyntaxError(f"{error.what}\n{excerpt}", where=error.where, hint=error.hint)


def _syntax_error(
    diagnostics: list[Diagnostic], otherwise: str, text: str, filename: str
) -> MLIRSyntaxError:
    errors = [in_file(d, filename) for d in diagnostics if d.severity == "error"]
    if not errors:
        return MLIRSyntaxError(otherwise, where=filename or None)
    # A diagnostic with a position is more useful than the first one.
    first = next((e for e in errors if e.where), errors[0])
    excerpt = show_place(text, first.line, first.col) if first.file == filename else ""
    message = f"{first.message}\n{excerpt}" if excerpt else first.message
    return MLIRSyntaxError(message, where=first.where or filename or None)
