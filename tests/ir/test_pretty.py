"""The custom syntax of the nova dialect: read everywhere, printed, and never mistaken."""

from __future__ import annotations

import io
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dialect_samples import SAMPLES, sample_module

import nova
from nova.compiler.stages import start_from_text
from nova.errors import MLIRSyntaxError
from nova.ir.attention_ops import VARIANTS
from nova.ir.bindings import ir
from nova.ir.context import make_context, parse_module
from nova.ir.custom_syntax import Rewritten, _Edit, to_pretty
from nova.ir.dialect import OP_NAMES
from nova.tools import nova_opt

ATTEND = """
#q = affine_map<(b, i, j, e, f) -> (b, i, e)>
#k = affine_map<(b, i, j, e, f) -> (b, j, e)>
#v = affine_map<(b, i, j, e, f) -> (b, j, f)>
#o = affine_map<(b, i, j, e, f) -> (b, i, f)>
#l = affine_map<(b, i, j, e, f) -> (b, i)>
func.func @main(%q: tensor<2x4x8xf32>, %k: tensor<2x6x8xf32>, %v: tensor<2x6x8xf32>)
    -> (tensor<2x4x8xf32>, tensor<2x4xf32>) {
  %0:2 = nova.attend %q, %k, %v {causal = false, maps = [#q, #k, #v, #o, #l], scale = 1.0 : f64}
      : (tensor<2x4x8xf32>, tensor<2x6x8xf32>, tensor<2x6x8xf32>)
      -> (tensor<2x4x8xf32>, tensor<2x4xf32>)
  return %0#0, %0#1 : tensor<2x4x8xf32>, tensor<2x4xf32>
}
"""


def generic(text: str, context: ir.Context | None = None) -> str:
    """The text of a module as MLIR itself prints it."""
    return str(parse_module(text, "t.mlir", context or make_context()))


def function(body: str, types: str = "tensor<4xf32>") -> str:
    arguments = ", ".join(f"%{name}: {t}" for name, t in zip("xyz", types.split(), strict=False))
    return f"func.func @main({arguments}) {{\n{body}\n  return\n}}\n"


# --- every op -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", SAMPLES)
def test_every_op_is_printed_and_read_again(family: str) -> None:
    context = make_context()
    for sample in SAMPLES[family].values():
        module = sample_module(sample, context)
        text = str(module)
        pretty = to_pretty(text)
        assert f"nova.{sample.op} " in pretty and '"nova.' not in pretty, pretty
        assert generic(pretty, context) == text
        # The type of the result follows from those of the operands.
        short = re.sub(r"(nova\.\w+ %.* : )\((.*)\) -> \S+$", r"\1\2", pretty, flags=re.MULTILINE)
        assert (short != pretty) == bool(len(module.body.operations[0].entry_block.arguments))
        assert generic(short, context) == text


def test_the_samples_have_every_op_of_the_table() -> None:
    ops = {sample.op for cases in SAMPLES.values() for sample in cases.values()}
    remaining = set(OP_NAMES) - ops
    assert remaining == {
        *("constant", "size"),
        *(f"{name}{point}" for name in VARIANTS for point in ("", "_point")),
        *("fourier", "fourier_point"),  # after convert-nova-to-linalg
        "winograd_point",  # of pack-operands
        # in tests/filecheck/dialect/complex.mlir
        *("complex", "real", "imag", "from_parts", "as_parts"),
    }


def test_ops_with_several_results() -> None:
    text = generic(ATTEND)
    assert '"nova.attend"(%arg0, %arg1, %arg2)' in text
    pretty = to_pretty(text)
    assert "%0:2 = nova.attend %arg0, %arg1, %arg2 {causal = false" in pretty
    assert generic(pretty) == text


@pytest.mark.parametrize(
    "value",
    [
        "dense<1.0> : tensor<4xf32>",
        "dense<[1, 2]> : tensor<2xi64>",
        'dense<"0x0000803F0000004000004040"> : tensor<3xf32>',
        "dense<[]> : tensor<0xf32>",
        "dense<true> : tensor<i1>",
        "dense<255> : tensor<3xui8>",
        '{nova.device = "cpu"} dense<0x7FC0> : tensor<3xbf16>',
        "{} dense<[[1.5, -0.0]]> : tensor<1x2xf64>",
    ],
)
def test_constants(value: str) -> None:
    text = generic(function(f"  %0 = nova.constant {value}"))
    assert '"nova.constant"() {' in text
    assert generic(to_pretty(text)) == text and '"nova.' not in to_pretty(text)


def test_optional_operands_that_are_left_out() -> None:
    """MLIR has to be told which ones; the custom syntax says it by their number."""
    short = "  %0 = nova.layer_norm %x : tensor<2x4xf32>"
    text = generic(function(short, "tensor<2x4xf32>"))
    assert "operandSegmentSizes = array<i32: 1, 0, 0>" in text
    assert "operandSegmentSizes" not in to_pretty(text)
    assert generic(to_pretty(text)) == text
    with_attributes = (
        "  %0 = nova.layer_norm %x, %y {eps = 1.0e-3 : f64} : tensor<2x4xf32>, tensor<4xf32>"
    )
    text = generic(function(with_attributes, "tensor<2x4xf32> tensor<4xf32>"))
    assert "operandSegmentSizes = array<i32: 1, 1, 0>" in text and "eps = 1.000000e-03" in text
    assert generic(to_pretty(text)) == text


# --- what is not an op ----------------------------------------------------------------------------

UNTOUCHED = """
// nova.tanh %x : tensor<4xf32>
!four = tensor<4xf32>
#note = "nova.tanh %x : tensor<4xf32>"
module attributes {nova.sum, nova.max = #note, other.text = "a \\" nova.exp %x : f32"} {
  func.func private @nova.tanh(!four)
  func.func @main(%nova.tanh: !four {nova.name = "nova.exp %a"}, %c: i1) -> !four
      attributes {nova.inputs = 1 : i64} {
    %0 = scf.if %c -> (tensor<4xf32>) {
      %t = nova.tanh // a comment: nova.exp %x
        %nova.tanh : !four
      scf.yield %t : !four
    } else {
      func.call @nova.tanh(%nova.tanh) : (!four) -> ()
      %u = "nova.exp"(%nova.tanh) {other.note = #note} : (!four) -> !four loc("nova.sin %x":1:2)
      scf.yield %u : !four
    }
    %1 = linalg.generic {
        indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]}
        ins(%0 : !four) outs(%0 : !four) attrs = {nova.exp} {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
    } -> !four
    %2 = nova.add %1, %0 {nova.device = "cpu"} : !four return %2 : !four
  }
}
"""


def test_strings_comments_regions_and_other_dialects_stay() -> None:
    text = generic(UNTOUCHED)
    assert text.count('"nova.tanh"(') == 1 and text.count('"nova.exp"(') == 1
    assert "attributes {nova.max = " in text and "nova.sum" in text
    assert 'nova.name = "nova.exp %a"' in text and '"a \\22 nova.exp %x : f32"' in text
    assert "@nova.tanh" in text and text.count("nova.add") == 1
    pretty = to_pretty(text)
    assert generic(pretty) == text
    with make_context() as context:
        module = parse_module(UNTOUCHED, "t.mlir", context)
        located = module.operation.get_asm(enable_debug_info=True)
        assert generic(to_pretty(located)) == text


def test_text_without_nova_ops_is_given_back() -> None:
    text = 'module attributes {nova.x = "\\"nova.tanh\\"(%x)"} {}'
    assert to_pretty(text) == text


def test_ops_with_regions_or_properties_stay_generic() -> None:
    text = '%0 = "nova.tanh"(%x) <{a = 1}> : (f32) -> f32\n"nova.tanh"(%x) ({\n}) : (f32) -> f32\n'
    assert to_pretty(text) == text


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("  %0 = nova.tanhh %x : tensor<4xf32>", 8, "there is no op `nova.tanhh`"),
        ("  %0 = nova.tanh %x", 3, "expected `:` and the types"),
        ("  %0 = nova.tanh (%x) : tensor<4xf32>", 18, "expected `:` and the types"),
        ("  %0 = nova.tanh %x : tensor<4xf32", 29, "`<` is never closed"),
        ("  %0 = nova.tanh %x, : tensor<4xf32>", 22, "expected an operand after the comma"),
        ("  %0 = nova.tanh %x : 4", 23, "expected a type"),
        ("  %0 = nova.tanh %x : (tensor<4xf32>)", 3, "expected `->`"),
        ("  %0 = nova.tanh %x {a = ] : tensor<4xf32>", 21, "`{` is never closed"),
        ("  %0 = nova.tanh %x : !unknown", 8, "undefined symbol alias"),
        ("  %0 = nova.tanh %x : tensor<?xf32>", 8, "has no static shape"),
        ("  %0 = nova.sum %x {axis = 7} : tensor<4xf32>", 8, "axis 7 is out of range"),
        ("  %0 = nova.add %x, %x, %x : tensor<4xf32>", 8, "takes (x, y), has 3 operands"),
        ("  %0 = nova.add %x, %x : f32, f32, f32", 26, "3 types for the 2 operands"),
        ("  %0 = nova.attend %x : tensor<4xf32>", 8, "needs the types of its results"),
        ("  %0 = nova.constant 3 : tensor<4xf32>", 22, "expected a value such as dense"),
        ("  %0 = nova.constant dense<1.0>", 3, "expected `:` and the type"),
        # These MLIR finds, in the generic form.
        ("  %0 = nova.tanh %y : tensor<4xf32>", 18, "undeclared SSA value"),
        ("  %0 = nova.add %x, %y : tensor<4xf32>", 21, "undeclared SSA value"),
        ("  %0 = nova.tanh %x : (tensor<4xf32>) -> tensor<5xf32>", 8, "must be f32[4]"),
        ("  %0 = nova.tanh %x {axis = 1} : (tensor<4xf32>) -> tensor<4xf32>", 8, "no attribute"),
        ("  %0 = nova.tanh %x : tensor<4xf32> zebra", 37, "custom op 'zebra' is unknown"),
        ("  %0 = nova.tanh %x {a = @} : (tensor<4xf32>) -> tensor<4xf32>", 27, "expected"),
        ('  %0 = nova.tanh %x {ö = "ü"} : (tensor<4xf32>) -> tensor<4xf32>', 22, "expected"),
    ],
)
def test_mistakes_are_told_where_they_are(line: str, column: int, message: str) -> None:
    text = function(line)
    with pytest.raises(MLIRSyntaxError) as caught:
        parse_module(text, "t.mlir", make_context())
    location = re.fullmatch(r"t\.mlir:(\d+):(\d+)", caught.value.where)
    assert message in caught.value.what
    assert int(location[2]) == column, caught.value
    assert text.splitlines()[int(location[1]) - 1] in caught.value.what


def test_columns_after_several_edits_of_a_line() -> None:
    text = function("  %0 = nova.add %x, %x : tensor<4xf32> %1 = nova.exp %0 : tensor<4xf32> zebra")
    with pytest.raises(MLIRSyntaxError) as caught:
        parse_module(text, "t.mlir", make_context())
    column = text.splitlines()[1].index("zebra") + 1
    assert caught.value.where == f"t.mlir:2:{column}"


def test_every_column_has_an_original() -> None:
    """Random edits: a column outside of them maps to the very same character."""
    draw = random.Random(5)
    for _ in range(50):
        before = "".join(draw.choice("abcdé\n") for _ in range(60))
        edits, position = [], 0
        while position < 50:
            start = position + draw.randrange(8)
            end = start + draw.randrange(3)
            if "\n" in before[start:end]:
                end = start
            edits.append((start, end, draw.choice(["", "X", "XYZ"])))
            position = end + 1
        rewritten = Rewritten(before, [_Edit(*edit) for edit in edits])
        old, new = before.split("\n"), rewritten.text.split("\n")
        assert len(old) == len(new)
        for number, line in enumerate(new, 1):
            for index, character in enumerate(line):
                column = rewritten.original_column(number, len(line[:index].encode()) + 1)
                assert 1 <= column <= len(old[number - 1].encode()) + 1
                if character not in "XYZ":
                    original = old[number - 1].encode()[column - 1 :].decode()
                    assert original[0] == character


# --- everywhere -----------------------------------------------------------------------------------

SEED = """
module {
  func.func @main(%arg0: tensor<8x16xf32>, %arg1: tensor<16x10xf32>, %arg2: tensor<1x10xf32>,
                  %arg3: tensor<8x10xf32>) -> tensor<f32> {
    %0 = nova.matmul %arg0, %arg1 : (tensor<8x16xf32>, tensor<16x10xf32>) -> tensor<8x10xf32>
    %1 = nova.add %0, %arg2 : (tensor<8x10xf32>, tensor<1x10xf32>) -> tensor<8x10xf32>
    %2 = nova.mse_loss %1, %arg3 : (tensor<8x10xf32>, tensor<8x10xf32>) -> tensor<f32>
    return %2 : tensor<f32>
  }
}
"""


def test_programs_in_the_custom_syntax_are_compiled() -> None:
    random = np.random.default_rng(0)
    shapes = ((8, 16), (16, 10), (1, 10), (8, 10))
    arrays = [random.standard_normal(shape, np.float32) for shape in shapes]
    expected = np.square(arrays[0] @ arrays[1] + arrays[2] - arrays[3]).mean()
    np.testing.assert_allclose(nova.translate(SEED).load().forward(*arrays), expected, rtol=1e-5)
    again = nova.translate(SEED, start_from="nova").load()
    np.testing.assert_allclose(again.forward(*arrays), expected, rtol=1e-5)
    start_from_text(SEED, "seed.mlir").operation.verify()


def test_the_source_of_a_program_is_in_the_custom_syntax() -> None:
    x = np.linspace(0, 1, 6, dtype="f4").reshape(2, 3)
    X = nova.tensor(x, name="X")
    program = nova.compile(nova.layer_norm(nova.tanh(X) + 0.5), inputs=[X])
    assert "nova.tanh %arg0 : (tensor<2x3xf32>) -> tensor<2x3xf32>" in program.mlir_source
    assert generic(program.mlir_source) == generic(program.stages["nova"])
    np.testing.assert_array_equal(nova.translate(program.mlir_source).load()(x), program(x))


def test_a_loaded_program_has_its_source_without_mlir(tmp_path: Path) -> None:
    X = nova.tensor(np.ones(3, "f4"), name="X")
    nova.compile(nova.exp(X), inputs=[X]).save(tmp_path / "m.nova")
    code = """
import sys
sys.modules["torch_mlir"] = None
import nova
print(nova.load(sys.argv[1]).mlir_source)
"""
    completed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.nova")], capture_output=True, text=True
    )
    assert "nova.exp %arg0 : (tensor<3xf32>) -> tensor<3xf32>" in completed.stdout, completed.stderr


def run_opt(*args: str, stdin: str, monkeypatch: pytest.MonkeyPatch) -> int:
    stream = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    return nova_opt.main(list(args))


def test_nova_opt_prints_both_forms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_opt(stdin=SEED, monkeypatch=monkeypatch) == 0
    pretty = capsys.readouterr().out
    assert "%0 = nova.matmul %arg0, %arg1 : (tensor<8x16xf32>" in pretty
    assert run_opt("--mlir-print-op-generic", stdin=pretty, monkeypatch=monkeypatch) == 0
    assert '%0 = "nova.matmul"(%arg0, %arg1)' in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "nova.tanh %x : tensor<4xf32>",
        "nova.tanh",
        "%0 = nova.zebra %x : f32",
        "nova.constant",
        "%0 = nova.full {} : tensor<f32>",
        "(",
        '"',
        "nova.x = 3",
        "func.func @f() { nova.return }",
    ],
)
def test_nova_opt_never_fails_silently(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_opt(stdin=text, monkeypatch=monkeypatch) == 1
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("x.o", "nova-translate --emit obj"),
        ("x.so", "nova-translate"),
        ("x.nova", "nova-translate"),
        ("x.ll", "nova-translate --emit ll"),
        ("x.s", "nova-translate --emit asm"),
        ("x.ptx", "--emit ptx"),
    ],
)
def test_nova_opt_writes_text_and_no_other_suffix(
    name: str, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    path = tmp_path / name
    assert run_opt("-o", str(path), stdin=SEED, monkeypatch=monkeypatch) == 1
    output = capsys.readouterr().err
    assert "nova-opt writes MLIR text" in output and tool in output
    assert not path.exists()
    assert run_opt("-o", str(tmp_path / "x.mlir"), stdin=SEED, monkeypatch=monkeypatch) == 0
    assert "nova.matmul %arg0" in (tmp_path / "x.mlir").read_text()


def test_mutated_texts_are_read_or_refused() -> None:
    """No mutation of a text makes the reader raise anything but an error with its place."""
    draw, context = random.Random(11), make_context()
    pieces = re.findall(r"\s+|\w+|.", UNTOUCHED + SEED + ATTEND, re.DOTALL)
    for _ in range(400):
        start = draw.randrange(len(pieces) - 60)
        words = pieces[start : start + 60]
        for _ in range(draw.randrange(1, 6)):
            words[draw.randrange(len(words))] = draw.choice([*pieces[:200], "", '"', "<", "}"])
        text = "".join(words)
        try:
            parse_module(text, "t.mlir", context)
        except MLIRSyntaxError as error:
            assert error.where
        to_pretty(text.replace("nova.tanh ", '"nova.tanh"('))
