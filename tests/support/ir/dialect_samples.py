"""A well-formed use of every op of the nova dialect, and the text tests that are made from them.

`SAMPLES[family][case]` is an op with operand types and attributes. Run as a program, this file
writes the positive tests `tests/filecheck/dialect/FAMILY.mlir`: each sample as a function, with the
salient lines of what it becomes. Read the difference before you commit it: the text is only as
right as the lowering was when it was made.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nova.core.dtypes import TensorType, bf16, dtype, f16, f32, i32, u8
from nova.graph.build import apply
from nova.graph.tensor import Tensor
from nova.ir.bindings import ir
from nova.ir.context import make_context
from nova.ir.emit import emit_module
from nova.ops import OPS
from nova.passes.base import run_pipeline
from nova.passes.tensor.convert_nova_to_linalg import ConvertNovaToLinalg
from nova.passes.tensor.decompose_composites import DecomposeComposites
from nova.plan import build_plan

# A random number generator has hundreds of lines: its first ones tell it from anything else.
_MOST_LINES = 12
_CONVERSION = re.compile(r"arith\.(ext|trunc|(si|ui)tofp|fpto(si|ui))\w*")
_FRAME = re.compile(r"builtin.module|func.\w+|linalg.yield|tensor.empty|arith.constant")
_SEGMENTS = "i32[2,3] i32[2,3] i32[2,3] i32[2,3]"
FOLDER = Path(__file__).parents[2] / "filecheck" / "dialect"


@dataclass(frozen=True)
class Sample:
    """`op` on operands of `types`, such as "f32[2,3] i64[4]"."""

    op: str
    types: str
    attrs: dict[str, Any] = field(default_factory=dict)


def _all(names: str, types: str) -> dict[str, Sample]:
    return {name: Sample(name, types) for name in names.split()}


def _axis_one(names: str, types: str) -> dict[str, Sample]:
    return {name: Sample(name, types, {"axis": 1}) for name in names.split()}


# Kernels of users: in parallel, in order, and in MLIR.
LOOPS = """def scale(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])"""
ORDERED = """def total(x, out):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
        out[i] = s"""
TEXT = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = arith.constant 0 : index
  %0 = tensor.extract %x[%c] : tensor<4xf32>
  %1 = tensor.insert %0 into %x[%c] : tensor<4xf32>
  return %1 : tensor<4xf32>
}"""
_VECTOR = {"ranks": (1,), "sizes": (4,), "dtypes": "f32"}

SAMPLES: dict[str, dict[str, Sample]] = {
    "bits": _all("bitwise_and bitwise_or bitwise_xor", "i32[2,3] i32[3]")
    | _all("bitwise_left_shift bitwise_right_shift", "i32[2,3] i32[3]")
    | {
        "bitwise_not": Sample("bitwise_not", "u8[4]"),
        "bitwise_not_bool": Sample("bitwise_not", "bool[4]"),
    },
    "fourier": {
        "dft": Sample("dft", "f32[2,8,2]", {"sign": -1, "scale": 0.5}),
        "dft_columns": Sample("dft", "f64[8,3,2]", {"sign": 1, "columns": True}),
        "rdft": Sample("rdft", "f32[2,16]"),
        "irdft": Sample("irdft", "f32[2,9,2]", {"n": 16}),
    },
    "loops": _axis_one("cumsum logcumsumexp argcummax argcummin", "f32[2,5]")
    | {
        "cumsum_integers": Sample("cumsum", "i32[3,4]", {"axis": 0}),
        "linear_recurrence": Sample("linear_recurrence", "f32[2,5] f32[2,5]", {"axis": 1}),
        "windows": Sample("windows", "f32[2,9]", {"kernel": (3,), "stride": (2,)}),
        "overlap_add": Sample("overlap_add", "f32[2,3,4]", {"size": (9,), "stride": (2,)}),
        "conv_channels_last": Sample(
            "conv_channels_last", "f32[2,9,4] f32[5,3,4]", {"stride": (2,)}
        ),
        "conv_channels_last_weight_gradient": Sample(
            "conv_channels_last_weight_gradient", "f32[2,9,4] f32[2,7,5]", {"kernel": (3,)}
        ),
        "argsort": Sample("argsort", "f32[2,5]"),
        "argtopk": Sample("argtopk", "f32[2,9]", {"k": 2}),
        "argtopk_smallest": Sample("argtopk", "i32[3,2]", {"k": 2, "axis": 0, "largest": False}),
        "argsort_descending": Sample("argsort", "u8[5,2]", {"axis": 0, "descending": True}),
        "scatter": Sample("scatter", "f32[4] i64[2] f32[2]", {"axis": 0}),
        "scatter_max": Sample("scatter_max", "f32[4] i64[2] f32[2]", {"axis": 0}),
        "scatter_min": Sample("scatter_min", "i32[4] i64[2] i32[2]", {"axis": 0}),
        "searchsorted": Sample("searchsorted", "f32[3] f32[2,2]", {"right": True}),
        "dequantize": Sample("dequantize", "u8[2,34]", {"format": "q8_0"}),
        "quantized_matmul": Sample("quantized_matmul", "f32[3,256] u8[2,144]", {"format": "q4_k"}),
    },
    "arithmetic": _all("neg abs sign square reciprocal", "f32[2,3]")
    | _all("add sub mul div floor_div mod pow minimum maximum", "f32[2,3] f32[3]")
    | _all("floor ceil round trunc", "f64[4]")
    | {
        "add_integers": Sample("add", "i32[2] i32[]"),
        "add_bools": Sample("add", "bool[2] bool[2]"),
        "div_half": Sample("div", "f16[2] f16[2]"),
        "floor_div_unsigned": Sample("floor_div", "u8[2] u8[2]"),
        "mod_integers": Sample("mod", "i64[2] i64[2]"),
        "maximum_unsigned": Sample("maximum", "u8[2] u8[2]"),
        "pow_integers": Sample("pow", "i64[2] i64[2]"),
        "clamp": Sample("clamp", "f32[5]", {"min": -1.0, "max": 1.0}),
        "clamp_below": Sample("clamp", "i32[5]", {"min": 0}),
    },
    "elementwise": _all("eq ne lt le gt ge", "f32[2,3] f32[2,1]")
    | _all("isnan isinf isfinite", "f32[4]")
    | _all("logical_and logical_or logical_xor", "bool[4] bool[4]")
    | _all("logical_not", "bool[4]")
    | _all("detach", "f32[4]")
    | {
        "lt_unsigned": Sample("lt", "u8[4] u8[4]"),
        "logical_and_floats": Sample("logical_and", "f32[4] f32[4]"),
        "where": Sample("where", "bool[3] f32[2,3] f32[2,3]"),
        "bitcast": Sample("bitcast", "f32[4]", {"dtype": i32}),
        "cast_widen": Sample("cast", "bf16[4]", {"dtype": f32}),
        "cast_to_half": Sample("cast", "f32[4]", {"dtype": f16}),
        "cast_to_int": Sample("cast", "f32[4]", {"dtype": i32}),
        "cast_unsigned": Sample("cast", "u8[4]", {"dtype": bf16}),
        "cast_to_unsigned": Sample("cast", "i32[4]", {"dtype": u8}),
    },
    "transcendental": _all(
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt erf erfc sin cos tan asin acos atan "
        "sinh cosh tanh asinh acosh atanh",
        "f32[4]",
    )
    | _all("atan2", "f64[4] f64[4]")
    | {"exp_half": Sample("exp", "f16[4]")},
    "activations": _all("relu leaky_relu elu gelu sigmoid silu softplus mish swiglu", "f32[2,4]")
    | {
        "gelu_tanh": Sample("gelu", "f32[4]", {"approximate": "tanh"}),
        "leaky_relu_slope": Sample("leaky_relu", "f64[4]", {"negative_slope": 0.25}),
        "swiglu_pair": Sample("swiglu", "f32[2,4] f32[2,4]"),
    },
    "reductions": _all("sum prod max min", "f32[2,3]")
    | _all("any all", "bool[2,3]")
    | _all("argmax argmin", "f32[2,3]")
    | {
        "sum_rows": Sample("sum", "f32[2,3]", {"axis": 1}),
        "sum_columns_kept": Sample("sum", "f32[2,3]", {"axis": 0, "keepdims": True}),
        "sum_half": Sample("sum", "f16[2,3]", {"axis": 1}),
        "sum_integers": Sample("sum", "i8[2,3]", {"axis": 1}),
        "argmax_rows": Sample("argmax", "f32[2,3]", {"axis": 1}),
    },
    "moments": _all("mean var std logsumexp", "f32[2,3]")
    | {"var_rows": Sample("var", "f64[2,3]", {"axis": 1, "correction": 0})},
    "contraction": {
        "matmul": Sample("matmul", "f32[2,3] f32[3,4]"),
        "matmul_batched": Sample("matmul", "f32[5,2,3] f32[1,3,4]"),
        "matmul_half": Sample("matmul", "bf16[2,3] bf16[3,4]"),
        "wide_matmul": Sample("wide_matmul", "f8e4m3[2,3] f8e5m2[3,4]", {"dtype": "f32"}),
        "linear": Sample("linear", "f32[2,3] f32[4,3]"),
        "linear_bias": Sample("linear", "f32[2,3] f32[4,3] f32[4]"),
        "dot": Sample("dot", "f32[3] f32[3]"),
        "outer": Sample("outer", "f32[2] f32[3]"),
    },
    "movement": {
        "reshape": Sample("reshape", "f32[2,3]", {"shape": (6,)}),
        "permute": Sample("permute", "f32[2,3]", {"axes": (1, 0)}),
        "expand": Sample("expand", "f32[1,3]", {"shape": (4, 3)}),
        "flip": Sample("flip", "f32[4]", {"axes": (0,)}),
        "slice": Sample("slice", "f32[6]", {"starts": (1,), "stops": (6,), "steps": (2,)}),
        "unslice": Sample("unslice", "f32[3]", {"shape": (6,), "starts": (1,), "steps": (2,)}),
        "pad": Sample("pad", "f32[3]", {"low": (1,), "high": (2,), "value": 7.0}),
        "join": Sample("join", "f32[2] f32[3]"),
        "join_four": Sample("join", "i64[2,1] i64[2,1] i64[2,2] i64[2,1]", {"axis": 1}),
        "tril": Sample("tril", "f32[3,3]"),
        "triu": Sample("triu", "f32[3,3]", {"k": 1}),
    },
    "indexing": {
        "gather": Sample("gather", "f32[4,3] i64[2,3]", {"axis": 0}),
        "take": Sample("take", "f32[4,3] i64[5]", {"axis": 0}),
        "dynamic_slice": Sample("dynamic_slice", "f32[4,3] i64[2]", {"slice_sizes": (2, 1)}),
        "dynamic_update_slice": Sample("dynamic_update_slice", "f32[4,3] f32[2,1] i64[2]"),
        "embedding": Sample("embedding", "f32[10,4] i64[2,3]"),
        "scatter_add": Sample("scatter_add", "f32[4] i64[6] f32[6]", {"axis": 0}),
        "index_add": Sample("index_add", "f32[4,3] i64[6] f32[6,3]", {"axis": 0}),
        "clamp_index": Sample("clamp_index", "i64[4]", {"axis_size": 3}),
        "one_hot": Sample("one_hot", "i64[4]", {"num_classes": 3, "dtype": f32}),
        "arange": Sample("arange", "", {"start": 0, "stop": 5}),
        "arange_floats": Sample("arange", "", {"start": 0.5, "stop": 2.0, "step": 0.5}),
        "full": Sample("full", "", {"shape": (2, 3), "value": 1.5}),
        "extent": Sample("extent", "", {"value": 5, "dtype": f32}),
    },
    "randomness": {
        "uniform": Sample("uniform", "i64[]", {"shape": (4,)}),
        "normal": Sample("normal", "i64[]", {"shape": (4,)}),
    },
    "nn": _all("softmax log_softmax layer_norm rms_norm", "f32[2,4]")
    | {
        "softmax_columns": Sample("softmax", "f32[2,4]", {"axis": 0}),
        "layer_norm_affine": Sample("layer_norm", "f32[2,4] f32[4] f32[4]"),
        "rms_norm_weight": Sample("rms_norm", "f32[2,4] f32[4]", {"eps": 1e-6}),
    },
    "attention": {
        "scaled_dot_product_attention": Sample(
            "scaled_dot_product_attention", "f32[2,3,4] f32[2,3,4] f32[2,3,4]"
        ),
        "attention_causal": Sample(
            "scaled_dot_product_attention", "f32[3,4] f32[3,4] f32[3,4]", {"causal": True}
        ),
        "attention_masked": Sample(
            "scaled_dot_product_attention", "f32[3,4] f32[3,4] f32[3,4] bool[3,3]"
        ),
        "attention_logsumexp": Sample("attention_logsumexp", "f32[2,3,4] f32[2,5,4]"),
        "attention_gradient": Sample(
            "attention_gradient",
            "f32[2,3,4] f32[2,3,4] f32[2,3,4] f32[2,3,4] f32[2,3] f32[2,3]",
            {"of": "k"},
        ),
        "kept_weights": Sample("kept_weights", "i64[]", {"shape": (3, 4), "dropout": 0.1}),
        "dropout_attention": Sample(
            "dropout_attention",
            "f32[2,3,4] f32[2,3,4] f32[2,3,4] i64[]",
            {"causal": True, "dropout": 0.1},
        ),
        "dropout_attention_gradient": Sample(
            "dropout_attention_gradient",
            "f32[2,3,4] f32[2,3,4] f32[2,3,4] f32[2,3,4] f32[2,3] f32[2,3] i64[]",
            {"dropout": 0.1, "of": "v"},
        ),
        "segment_attention": Sample(
            "segment_attention",
            f"f32[2,3,4] f32[2,3,4] f32[2,3,4] {_SEGMENTS} i64[]",
            {"causal": True},
        ),
        "segment_attention_logsumexp": Sample(
            "segment_attention_logsumexp", f"f32[2,3,4] f32[2,3,4] {_SEGMENTS}"
        ),
        "segment_attention_gradient": Sample(
            "segment_attention_gradient",
            "f32[2,3,4] f32[2,3,4] f32[2,3,4] f32[2,3,4] f32[2,3] f32[2,3] "
            f"{_SEGMENTS} i32[2,3] i32[2,3] i64[]",
            {"of": "k"},
        ),
    },
    "losses": _all(
        "mse_loss mae_loss smooth_l1_loss bce_loss bce_with_logits_loss kl_div hinge_loss",
        "f32[2,3] f32[2,3]",
    )
    | {
        "mse_loss_sum": Sample("mse_loss", "f32[4] f32[4]", {"reduction": "sum"}),
        "cross_entropy": Sample("cross_entropy", "f32[2,3] i64[2]"),
        "cross_entropy_dense": Sample("cross_entropy", "f32[2,3] f32[2,3]"),
        "nll_loss": Sample("nll_loss", "f32[2,3] i64[2]", {"reduction": "sum"}),
    },
    "structural": {"barrier": Sample("barrier", "f32[4] f32[]", {"region": 1})},
    "kernels": {
        "loop_kernel": Sample("loop_kernel", "f32[4]", {"source": LOOPS, **_VECTOR}),
        "loop_kernel_in_order": Sample("loop_kernel", "f32[4]", {"source": ORDERED, **_VECTOR}),
        "mlir_kernel": Sample("mlir_kernel", "f32[4]", {"source": TEXT, **_VECTOR}),
    },
}

# Written by hand in the samples' place: no row, so no function that makes it.
CONSTANTS = """\
// CHECK-LABEL: func.func @constant(
// CHECK: arith.constant dense<[1.000000e+00, 2.500000e+00]> : tensor<2xf32>
// CHECK-NOT: nova.
func.func @constant() -> tensor<2xf32> {
  %0 = "nova.constant"() {value = dense<[1.0, 2.5]> : tensor<2xf32>} : () -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// Unsigned elements become signless, with the same bytes.
// CHECK-LABEL: func.func @constant_unsigned(
// CHECK: arith.constant dense<[1, -1]> : tensor<2xi8>
// CHECK-NOT: ui8
func.func @constant_unsigned() -> tensor<2xui8> {
  %0 = "nova.constant"() {value = dense<[1, 255]> : tensor<2xui8>} : () -> tensor<2xui8>
  return %0 : tensor<2xui8>
}
"""


def parse_type(text: str) -> TensorType:
    """ "f32[2,3]" as a type."""
    name, sizes = text[:-1].split("[")
    return TensorType(tuple(int(n) for n in sizes.split(",") if n), dtype(name))


def sample_module(sample: Sample, context: ir.Context) -> ir.Module:
    """A main that is the op of `sample` and nothing else."""
    operands = [Tensor(parse_type(t)) for t in sample.types.split()]
    node = apply(OPS[sample.op], operands, dict(sample.attrs))
    return emit_module(build_plan([node], operands), context)


def function_text(module: ir.Module, name: str) -> str:
    """The main of a module as a function called `name`, without what only a plan needs."""
    text = str(module).removeprefix("module {\n").rstrip().removesuffix("}").rstrip()
    text = re.sub(r" attributes \{nova.inputs = \d+ : i64\}", "", text)
    text = re.sub(r" \{nova.name = \"[^\"]*\"\}", "", text).replace("@main(", f"@{name}(")
    return re.sub(r"^  ", "", text, flags=re.MULTILINE)


def _salient(module: ir.Module) -> list[str]:
    """Each structured op with its loops, and the ops that compute, in order."""
    lines: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "linalg.generic":
            modes = re.findall(r"parallel|reduction", str(op.attributes["iterator_types"]))
            inner = ", ".join(f'"{mode}"' for mode in modes)
            lines.append(f"linalg.generic {{{{.*}}}}iterator_types = [{inner}]")
        elif op.name == "linalg.contract":
            lines.append("linalg.contract ")
            return ir.WalkResult.SKIP  # its body is not printed
        elif op.name.startswith("nova."):
            lines.append(f"{op.name} {'%' if len(op.operands) else '{'}")
        elif _CONVERSION.fullmatch(op.name):
            source, result = op.operands[0].type, op.results[0].type
            lines.append(f"{op.name} %{{{{.*}}}} : {source} to {result}")
        elif not _FRAME.fullmatch(op.name):
            lines.append(f"{op.name} ")
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return lines


def family_text(family: str) -> Iterator[str]:
    """The test file of one family."""
    composite = any(OPS[s.op].kind == "composite" for s in SAMPLES[family].values())
    yield "// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s"
    if composite:
        yield (
            "// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES"
        )
    yield f"// The ops of the family `{family}`: what they are made of, and their loops."
    for name, sample in SAMPLES[family].items():
        module = sample_module(sample, make_context())
        text = function_text(module, name)
        yield ""
        if composite:
            yield f"// PRIMITIVES-LABEL: func.func @{name}("
        if OPS[sample.op].kind == "composite":
            run_pipeline(module, [DecomposeComposites()])
            listing = [s for s in _salient(module) if "constant" not in s]
            yield from (f"// PRIMITIVES: {s}" for s in listing)
            yield f"// PRIMITIVES-NOT: nova.{sample.op}"
        run_pipeline(module, [DecomposeComposites(), ConvertNovaToLinalg()])
        yield f"// CHECK-LABEL: func.func @{name}("
        listing = _salient(module)
        if OPS[sample.op].kind == "composite":
            loops = [s for s in listing if s.startswith(("linalg.generic", "linalg.contract"))]
            folds = [s for s in loops if "reduction" in s or "contract" in s]
            listing = folds or loops[-1:]
        yield from (f"// CHECK: {s}".rstrip() for s in listing[:_MOST_LINES])
        if sample.op != "barrier":
            yield "// CHECK-NOT: nova."
        yield text
    if family == "structural":
        yield ""
        yield CONSTANTS.rstrip()


def main() -> int:
    """Write every positive test."""
    FOLDER.mkdir(exist_ok=True)
    for family in SAMPLES:
        (FOLDER / f"{family}.mlir").write_text("\n".join(family_text(family)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
