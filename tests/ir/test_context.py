"""Parsing MLIR text: errors have a place, the line with a caret, and nothing twice."""

from __future__ import annotations

import random

import pytest

from nova.compiler.stages import start_from_text
from nova.errors import MLIRSyntaxError
from nova.ir import context
from nova.ir.context import (
    LINE_WINDOW,
    MAX_NESTING,
    make_context,
    parse_module,
    print_op,
    show_place,
)
from nova.ir.diagnostics import Diagnostic, capture_diagnostics


def _error(text: str, filename: str = "dir/f.mlir") -> MLIRSyntaxError:
    with pytest.raises(MLIRSyntaxError) as caught:
        parse_module(text, filename, make_context())
    return caught.value


def test_syntax_error() -> None:
    error = _error("func.func @f() {\n  oops\n}")
    assert error.where == "dir/f.mlir:2:3"
    assert error.what == "custom op 'oops' is unknown (tried 'func.oops' as well)\n  oops\n  ^"
    assert str(error).count("dir/f.mlir") == 1


def test_verifier_error() -> None:
    error = _error('func.func @f() {\n\n  %0 = "nova.neg"() : () -> tensor<f32>\n  return\n}')
    assert error.where == "dir/f.mlir:3:8"
    assert error.what.startswith("'nova.neg' op takes (x), has 0 operands\n")


def test_error_at_a_location_in_another_file() -> None:
    text = (
        'func.func @f() {\n  %0 = "nova.neg"() : () -> tensor<f32> loc("model.py":7:0)\n  return\n}'
    )
    error = _error(text)
    assert error.where == "model.py:7"
    assert "\n" not in error.what, "the line belongs to another file"


def test_error_without_a_place() -> None:
    text = 'func.func @f() {\n  %0 = "nova.neg"() : () -> tensor<f32> loc(unknown)\n  return\n}'
    assert _error(text).where == "dir/f.mlir"


def test_empty_text_is_an_empty_module() -> None:
    assert str(parse_module("", "f.mlir", make_context())).strip() == "module {\n}"


def test_end_of_file() -> None:
    error = _error("func.func @f() {\n")
    assert str(error.where).startswith("dir/f.mlir:")


def test_deep_nesting_is_refused_before_the_parser() -> None:
    error = _error("module {" * 100_000)
    assert error.where == f"dir/f.mlir:1:{8 * MAX_NESTING + 8}"
    assert "nested more than" in error.what


def test_stages_start_from_text_with_the_same_errors() -> None:
    with pytest.raises(MLIRSyntaxError) as caught:
        start_from_text("nonsense", "2-linalg.mlir")
    assert caught.value.where == "2-linalg.mlir:1:1"


def test_context_is_usable_after_an_error() -> None:
    context = make_context()
    for _ in range(3):
        with pytest.raises(MLIRSyntaxError):
            parse_module("(", "f.mlir", context)
        parse_module("func.func @f() {\n  return\n}", "f.mlir", context)


def test_place_in_a_long_line() -> None:
    line, caret = show_place("x" * 5000 + "y" + "z" * 5000, 1, 5001).splitlines()
    assert len(line) == 2 * LINE_WINDOW and line[caret.index("^")] == "y"
    assert show_place("a\nb", 9, 1) == ""


def test_captured_errors_have_notes_and_do_not_stay_captured() -> None:
    context = make_context()
    assert not context.emit_error_diagnostics
    with capture_diagnostics(context) as output, pytest.raises(MLIRSyntaxError):
        parse_module("func.func @f() {\n  oops\n}", "f.mlir", context)
    assert not context.emit_error_diagnostics
    assert all(isinstance(single, Diagnostic) for single in output)


def test_where_of_diagnostics() -> None:
    assert Diagnostic("error", "m", "f", 3, 4).where == "f:3:4"
    assert Diagnostic("error", "m", "f", 3, 0).where == "f:3", "a Python line has no column"
    assert Diagnostic("error", "m", "f").where is None
    assert str(Diagnostic("note", "m")) == "<unknown>: note: m"


@pytest.mark.parametrize("seed", range(8))
def test_the_fast_bound_of_nesting_is_a_bound(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        text = "".join(rng.choices('()[]{}<>-=>/"\\\n ax', k=rng.randrange(40)))
        depth = most = 0
        for match in context._BRACKETS.finditer(text):
            depth = depth + 1 if match[1] else max(0, depth - 1) if match[2] else depth
            most = max(most, depth)
        assert most <= context._most_nesting(text)


def test_the_nesting_that_is_allowed() -> None:
    context.check_nesting("(" * MAX_NESTING + ")" * MAX_NESTING, "f.mlir")
    with pytest.raises(MLIRSyntaxError):
        context.check_nesting("(" * (MAX_NESTING + 1) + ")" * MAX_NESTING, "f.mlir")


@pytest.mark.parametrize("has_proc", [True, False])
def test_printed_text_is_that_of_mlir(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    #map = affine_map<(d0) -> (d0)>
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {name = "\u00e9", map = #map} {
      %y = arith.addf %x, %x : tensor<4xf32> loc("place")
      return %y : tensor<4xf32>
    }
    """
    op = parse_module(text, "f.mlir", make_context()).operation
    if not has_proc:
        monkeypatch.setattr(context.os.path, "exists", lambda path: False)
    assert print_op(op) == op.get_asm()
    assert "#map" not in print_op(op, use_local_scope=True)
    assert print_op(op, use_local_scope=True) == op.get_asm(use_local_scope=True)
    assert print_op(op, enable_debug_info=True) == op.get_asm(enable_debug_info=True)
    inner = op.regions[0].blocks[0].operations[0].operation
    assert print_op(inner) == inner.get_asm()
