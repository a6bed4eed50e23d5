"""What cannot be imported: each mistake has its error, at the line of the op."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova import errors
from nova.frontends.bytecode import MAGIC

GOOD = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def main(body: str, arguments: str = "%x: tensor<4xf32>", result: str = "tensor<4xf32>") -> str:
    return f"func.func @main({arguments}) -> {result} {{\n{body}\n}}\n"


def op(line: str, **signature: str) -> str:
    """A function of one op, which stands in line 2."""
    result = signature.get("result", "tensor<4xf32>")
    return main(f"  %r = {line}\n  return %r : {result}", **signature)


UNKNOWN = errors.ImportedProgramError
OP = errors.UnsupportedOpError
# (class, the program, what the message has, where it points)
MISTAKES = [
    # What it is written in.
    (errors.MLIRSyntaxError, "func.func @main(\n", "expected", "<text>:1:1"),
    (errors.MLIRSyntaxError, op("stablehlo.ad %x : tensor<4xf32>"), "stablehlo.ad", ":2:8"),
    (errors.MLIRSyntaxError, "module {" * 1000 + "\n", "nested", "<text>:1:"),
    (OP, op('"foo.bar"(%x) : (tensor<4xf32>) -> tensor<4xf32>'), "foo.bar is of a dialect", ":2:8"),
    (
        OP,
        op(
            "vector.broadcast %x : f32 to vector<4xf32>",
            arguments="%x: f32",
            result="vector<4xf32>",
        ),
        "vector.broadcast",
        ":2:8",
    ),
    (
        UNKNOWN,
        main(
            '  %0 = "nova.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
            "  %1 = stablehlo.add %0, %0 : tensor<4xf32>\n"
            "  return %1 : tensor<4xf32>"
        ),
        "mixes nova.exp, of nova, with stablehlo.add, of stablehlo",
        ":3:8",
    ),
    (
        UNKNOWN,
        main(
            "  %0 = tosa.abs %x : (tensor<4xf32>) -> tensor<4xf32>\n"
            "  %1 = stablehlo.add %0, %0 : tensor<4xf32>\n"
            "  return %1 : tensor<4xf32>"
        ),
        "mixes tosa.abs, of tosa, with stablehlo.add",
        ":3:8",
    ),
    # The entry.
    (errors.EntryError, GOOD.replace("@main", "@f"), "no function @main: it has @f", "<text>"),
    (errors.EntryError, "module {\n}", "no function @main", "<text>"),
    (errors.EntryError, "func.func private @main() -> tensor<f32>\n", "no body", "<text>:1:1"),
    (OP, "memref.global @g : memref<2xf32>\n" + GOOD, "memref.global", "<text>:1:1"),
    (
        OP,
        GOOD.replace("stablehlo.add %x, %x :", "call @g(%x) : (tensor<4xf32>) ->")
        + "func.func private @g(tensor<4xf32>) -> tensor<4xf32>\n",
        "@g is called",
        ":2:8",
    ),
    (
        OP,
        GOOD.replace("stablehlo.add %x, %x :", "call @main(%x) : (tensor<4xf32>) ->"),
        "@main is called",
        ":2:8",
    ),
    # The signature.
    (
        errors.SymbolicImportError,
        op(
            "stablehlo.cholesky %x : tensor<?x?xf32>",
            arguments="%x: tensor<?x?xf32>",
            result="tensor<?x?xf32>",
        ),
        "stablehlo.cholesky has no rule for symbolic sizes",
        ":2:8",
    ),
    (
        UNKNOWN,
        op(
            "tosa.abs %x : (tensor<*xf32>) -> tensor<*xf32>",
            arguments="%x: tensor<*xf32>",
            result="tensor<*xf32>",
        ),
        "no rank",
        ":1:17",
    ),
    (
        UNKNOWN,
        main("  return %x : memref<4xf32>", "%x: memref<4xf32>", "memref<4xf32>"),
        "argument 'arg0' of the program: memory",
        ":1:17",
    ),
    (
        UNKNOWN,
        GOOD.replace("%x: tensor<4xf32>", "%x: tensor<4xf32> {tf.aliasing_output = 3 : i32}"),
        "donated to result 3",
        "<text>:1:1",
    ),
    # Types inside.
    (
        UNKNOWN,
        main(
            "  %0 = stablehlo.complex %x, %x : tensor<4xcomplex<f32>>\n"
            "  %1 = stablehlo.cbrt %0 : tensor<4xcomplex<f32>>\n"
            "  %2 = stablehlo.real %1 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>\n"
            "  return %2 : tensor<4xf32>"
        ),
        "stablehlo.cbrt: complex numbers",
        ":3:8",
    ),
    (
        UNKNOWN,
        main(
            "  %0 = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> "
            "tensor<4x!quant.uniform<i4:f32, 0.5>>\n"
            "  %1 = stablehlo.uniform_dequantize %0 : (tensor<4x!quant.uniform<i4:f32, 0.5>>) -> "
            "tensor<4xf32>\n  return %1 : tensor<4xf32>"
        ),
        "the type i4",
        ":2:8",
    ),
    (
        OP,
        main(
            "  %0 = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> "
            "tensor<4x!quant.uniform<u8:f32, 0.5:128>>\n"
            "  %1 = stablehlo.uniform_dequantize %0 : (tensor<4x!quant.uniform<u8:f32, 0.5:128>>) "
            "-> tensor<4xf32>\n  return %1 : tensor<4xf32>"
        ),
        "a quantized type of unsigned integers",
        ":2:8",
    ),
    (
        UNKNOWN,
        main(
            "  %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xf8E4M3FNUZ>\n"
            "  %1 = stablehlo.convert %0 : (tensor<4xf8E4M3FNUZ>) -> tensor<4xf32>\n"
            "  return %1 : tensor<4xf32>"
        ),
        "f8E4M3FNUZ",
        ":2:8",
    ),
    (
        UNKNOWN,
        main(
            "  %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi4>\n"
            "  %1 = stablehlo.convert %0 : (tensor<4xi4>) -> tensor<4xf32>\n"
            "  return %1 : tensor<4xf32>"
        ),
        "the type i4",
        ":2:8",
    ),
    (
        UNKNOWN,
        op(
            "stablehlo.iota dim = 0 : tensor<1125899906842624x4xf32>",
            result="tensor<1125899906842624x4xf32>",
        ),
        "more elements than memory",
        ":1:1",
    ),
    # Ops.
    (
        OP,
        op("stablehlo.custom_call @lapack(%x) : (tensor<4xf32>) -> tensor<4xf32>"),
        "stablehlo.custom_call @lapack: code that is not part",
        ":2:8",
    ),
    (
        OP,
        op(
            '"stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = '
            "dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2xf32>) -> tensor<4xf32>",
            arguments="%x: tensor<2xf32>",
        ),
        "stablehlo.all_gather between devices",
        ":2:8",
    ),
    (
        OP,
        op(
            '"stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1]]> : '
            "tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>"
        ),
        "stablehlo.collective_permute between devices",
        ":2:8",
    ),
    (
        OP,
        op(
            '"stablehlo.rng"(%a, %b, %n) '
            "<{rng_distribution = #stablehlo<rng_distribution UNIFORM>}> : "
            "(tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>",
            arguments="%a: tensor<f32>, %b: tensor<f32>, %n: tensor<1xi64>",
        ),
        "stablehlo.rng: random numbers without a seed",
        ":2:8",
    ),
    (
        OP,
        op(
            '"stablehlo.custom_call"(%x) {call_target_name = "mystery"} '
            ": (tensor<2x2xf32>) -> tensor<2x2xf32>",
            arguments="%x: tensor<2x2xf32>",
            result="tensor<2x2xf32>",
        ),
        "stablehlo.custom_call @mystery",
        ":2:8",
    ),
    (
        OP,
        op(
            "linalg.softmax dimension(0) ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> "
            "tensor<4xf32>"
        ),
        "linalg.softmax has no code",
        ":2:8",
    ),
    (
        OP,
        main(
            "  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i floordiv 2)>, "
            'affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%y : tensor<2xf32>) '
            "outs(%x : tensor<4xf32>) {\n  ^bb0(%a: f32, %b: f32):\n"
            "    %c = arith.addf %a, %b : f32\n    linalg.yield %c : f32\n"
            "  } -> tensor<4xf32>\n  return %0 : tensor<4xf32>",
            "%x: tensor<4xf32>, %y: tensor<2xf32>",
        ),
        "not affine in the loops",
        ":2:8",
    ),
    (OP, main("  cf.br ^next\n^next:\n  return %x : tensor<4xf32>"), "cf.br", ":2:3"),
    (
        OP,
        op(
            "math.ipowi %x, %x : tensor<4xi32>",
            arguments="%x: tensor<4xi32>",
            result="tensor<4xi32>",
        ),
        "math.ipowi has no code",
        ":2:8",
    ),
]


@pytest.mark.parametrize(
    ("error", "program", "message", "where"),
    MISTAKES,
    ids=[f"{case[0].__name__}-{i}" for i, case in enumerate(MISTAKES)],
)
def test_a_mistake_has_its_error(error, program, message, where):
    with pytest.raises(errors.NovaError, match=f"(?s){message}") as caught:
        nova.translate(program, emit="linalg")
    assert type(caught.value) is error
    assert where in caught.value.where
    assert caught.value.where.startswith("<text>")


def test_dynamic_programs_say_what_to_do():
    match = "tosa.abs has no rule for symbolic sizes(?s:.*)args="
    with pytest.raises(errors.SymbolicImportError, match=match):
        nova.translate(
            op(
                "tosa.abs %x : (tensor<?xf32>) -> tensor<?xf32>",
                arguments="%x: tensor<?xf32>",
                result="tensor<?xf32>",
            )
        )


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UNKNOWN, match="No such file") as caught:
        nova.translate(tmp_path / "missing.mlir")
    assert caught.value.where == str(tmp_path / "missing.mlir")


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(op("stablehlo.custom_call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>"))
    with pytest.raises(OP) as caught:
        nova.translate(path)
    assert caught.value.where == f"{path}:2:8"


def test_only_what_the_entry_needs_is_checked():
    second = op("stablehlo.custom_call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>")
    both = GOOD + second.replace("@main", "@other")
    assert "linalg.generic" in nova.translate(both, emit="linalg").data.decode()
    with pytest.raises(OP, match="custom_call"):
        nova.translate(both, entry="other")


def test_any_function_can_be_the_entry():
    """The function that is called main stays callable under another name."""
    text = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @start(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.add %0, %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""
    program = nova.translate(text, entry="start").load()
    assert program(np.arange(4, dtype="f4")).tolist() == [0, -2, -4, -6]


def test_damaged_bytecode_is_an_error_and_no_crash():
    import jax
    import jax.numpy as jnp
    from jax import export

    data = export.export(jax.jit(jnp.tanh))(jnp.ones(3)).mlir_module_serialized
    assert data.startswith(MAGIC)
    for piece in (data[:60], data[: len(data) // 2], MAGIC, MAGIC + bytes(40)):
        with pytest.raises(UNKNOWN, match="bytecode cannot be read"):
            nova.translate(piece)
    for position in (45, 150, 250):  # a changed byte may still be a program, or one to refuse
        changed = bytearray(data)
        changed[position] ^= 0x55
        try:
            translation = nova.translate(bytes(changed), emit="linalg")
            assert "func.func @main" in translation.data.decode()
        except errors.NovaError as error:
            assert error.where, error
