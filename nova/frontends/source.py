"""Reads the MLIR of a program from any source as a module.

In: a path, text, or bytes (text or bytecode). Out: a parsed module, or an error with file, line and
column. Called by `nova.frontends.import_mlir` and by `nova.api.translate`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nova.errors import ImportedProgramError, unreadable
from nova.frontends.bytecode import MAGIC, text_of_bytecode
from nova.ir.bindings import ir
from nova.ir.context import decode_source, load_stablehlo, make_context, parse_module

_ELF = b"\x7fELF"
# Shardings of jax and PyTorch/XLA, in a dialect that the bindings do not have.
_MESH = re.compile(r"^[ \t]*sdy\.mesh @[^\n]*$", re.MULTILINE)
_CONSTRAINT = re.compile(r"\bsdy\.sharding_constraint (%[\w#]+) <[^\n]*> : (tensor<[^>\n]*>)")


@dataclass(frozen=True)
class Source:
    """The bytes of a program and their name in messages."""

    name: str
    data: bytes

    @property
    def is_bytecode(self) -> bool:
        return self.data.startswith(MAGIC)

    @cached_property
    def text(self) -> str:
        """The program as text; bytecode is printed by MLIR."""
        if self.is_bytecode:
            return text_of_bytecode(self.data, self.name)
        return decode_source(self.data, self.name)


def read_source(program: str | os.PathLike[str] | bytes) -> Source:
    """The program, or the file at its path: a str with a newline or a brace is the text itself."""
    if isinstance(program, bytes | bytearray | memoryview):
        return Source("<bytes>", bytes(program))
    if isinstance(program, str) and ("\n" in program or "{" in program):
        return Source("<text>", program.encode())
    if not os.fspath(program):
        raise ImportedProgramError(
            "the program is an empty string", hint="pass MLIR text, or the path of a file"
        )
    if "\0" in os.fspath(program):
        raise ImportedProgramError(f"a path has no NUL character: {os.fspath(program)!r}")
    try:
        source = Source(os.fspath(program), Path(program).read_bytes())
    except OSError as error:
        raise unreadable(
            ImportedProgramError,
            error,
            "cannot read the program",
            os.fspath(program),
            "pass MLIR text, or the path of a file",
        ) from None
    if source.data.startswith(_ELF):
        raise ImportedProgramError(
            "this is a .nova file or another of code, and no MLIR",
            where=source.name,
            hint="nova.translate(nova.load(path), targets=...) compiles a .nova file for others",
        )
    return source


def parse_source(source: Source) -> ir.Module:
    """The module of a program, in a context with all dialects that Nova imports."""
    context = make_context()
    load_stablehlo(context)  # also for a program without ops of it: `split-complex` creates some
    # Ops of unknown dialects are refused by name later; unknown attributes do not matter.
    context.allow_unregistered_dialects = True
    text = _without_shardings(source.text)
    module = parse_module(text, source.name, context, is_checked=not source.is_bytecode)
    context.allow_unregistered_dialects = False
    return module


def _without_shardings(text: str) -> str:
    if "sdy." not in text:
        return text
    call = r"stablehlo.custom_call @Sharding(\1) : (\2) -> \2"
    return _CONSTRAINT.sub(call, _MESH.sub("", text))
