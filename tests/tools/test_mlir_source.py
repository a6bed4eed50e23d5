"""Text that would crash MLIR is refused, and messages show the place."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from nova.errors import LoweringError, MLIRSyntaxError
from nova.ir.context import LINE_WINDOW, MAX_NESTING, decode_source
from nova.ir.diagnostics import Diagnostic
from nova.tools import nova_opt
from nova.tools.mlir_source import describe_error, render_diagnostic, split_input


def test_nesting_that_would_overflow_the_stack() -> None:
    with pytest.raises(MLIRSyntaxError, match="nested more than") as caught:
        decode_source(b"\n" + b"module {" * 100_000, "deep.mlir")
    assert caught.value.where == f"deep.mlir:2:{8 * MAX_NESTING + 8}"


def test_brackets_that_do_not_nest() -> None:
    for text in ('"((("', "// (((", "->", "a >= b", "()"):
        many = f"{text}\n" * 2 * MAX_NESTING
        assert decode_source(many.encode(), "flat.mlir") == many


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(MLIRSyntaxError, match="not UTF-8") as caught:
        decode_source(b"ML\n \xef R", "x.mlir")
    assert caught.value.where == "x.mlir:2:2"


def test_parts_keep_their_lines() -> None:
    assert list(split_input("a\n// -----\nb\n// -----  \nc")) == ["a\n", "\n\nb\n", "\n\n\n\nc"]
    assert list(split_input("a\n  // ----- no\n")) == ["a\n  // ----- no\n"]


def test_caret_follows_tabs_and_long_lines() -> None:
    diagnostic = Diagnostic("error", "bad", "f", 1, 3, (Diagnostic("note", "why"),))
    assert (
        render_diagnostic(diagnostic, "f", "\tab")
        == "f:1:3: error: bad\n\tab\n\t ^\nf: note: why\n"
    )
    far = Diagnostic("error", "bad", "f", 1, 100_001)
    _, line, caret = render_diagnostic(far, "f", "x" * 100_000 + "y" + "z" * 1000).splitlines()
    assert len(line) == 2 * LINE_WINDOW and line[caret.index("^")] == "y"


def test_nova_error_as_diagnostic() -> None:
    error = LoweringError("no rule", where="a.py:3:4", hint="add one")
    error.add_note("in pass `p`")
    assert describe_error(error) == Diagnostic(
        "error",
        "no rule",
        "a.py",
        3,
        4,
        (Diagnostic("note", "in pass `p`"), Diagnostic("note", "add one")),
    )
    assert describe_error(LoweringError("x", where="op foo")).message == "x at op foo"


def test_stdin_and_failure_keep_the_output_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = tmp_path / "out.mlir"
    output.write_text("precious")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"func.func @f() {\n  oops\n}")))
    assert nova_opt.main(["-", "-o", str(output)]) == 1
    assert "<stdin>:2:3: error: custom op 'oops' is unknown" in capsys.readouterr().err
    assert output.read_text() == "precious"


def test_deep_input_exits_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"module {" * 50_000)))
    assert nova_opt.main([]) == 1
    assert (
        "<stdin>:1:4008: error: brackets are nested more than 500 deep" in capsys.readouterr().err
    )
